"""Two shortcuts of the check of untrusted bytes: plain payloads, and values that name no costly type.

A payload that is unpacked and packed again to the same bytes has the shortest headers, ends where it
should, has only text as keys, and no duplicate key. ormsgpack does both faster than a walk. All other
payloads take the general path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ormsgpack

from sealpoint.serde.codes import TEXTS
from sealpoint.serde.fast import is_on

MAX_LEVELS: Final = 64
"""Maximum nesting of unpacked containers, for small stacks."""

_MAX_BYTES: Final = 64 * 1024
_CONTAINERS: Final = frozenset((*range(0x81, 0x90), *range(0x91, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
_NO_CONTAINERS: Final = bytes(set(range(256)) - _CONTAINERS)

_packb: Final = ormsgpack.packb
_unpackb: Final = ormsgpack.unpackb


def is_plain(payload: bytes, levels: int) -> bool:
    """Whether a payload certainly contains nothing that the check refuses, and no extension.

    Its elements are not counted; there are at most as many as bytes.

    Args:
        payload: Payload of an extension.
        levels: Maximum nesting of containers, at most `MAX_LEVELS`.
    """
    if len(payload) > _MAX_BYTES or (len(payload) > levels and _count_containers(payload) > levels):
        return False
    try:
        return _packb(_unpackb(payload)) == payload
    except (ormsgpack.MsgpackDecodeError, ormsgpack.MsgpackEncodeError):
        return False


def _count_containers(payload: bytes) -> int:
    """Return the maximum number of containers: bytes, also of text, that could be the header of one."""
    return len(payload.translate(None, _NO_CONTAINERS))


_SMALL_RECORD_BYTES: Final = 100
# The second byte of a record that does not begin with the shortest headers.
_LONG_HEADS: Final = TEXTS | {0}


def names_few(data: bytes, payloads: list[int], bounds: Mapping[tuple[str, str], int]) -> bool:
    """Whether it is certain that no type is named more often than is allowed."""
    if not is_on("costly"):
        return False
    # Few values name one. For large records the lengths of the module names are enough: map() over them
    # takes a tenth of the time of a search through all bytes.
    if len(data) >= _SMALL_RECORD_BYTES * len(payloads):
        modules = (module for (module, _), most in bounds.items() if len(payloads) > most)
        lengths = _LONG_HEADS.union(0xA0 + len(module) for module in modules)
        places = [payload + 1 for payload in payloads if payload + 1 < len(data)]
        if lengths.isdisjoint(map(data.__getitem__, places)):
            return True
    return all(data.count(name.encode()) <= most for (_, name), most in bounds.items())
