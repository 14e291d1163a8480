"""Payloads with plain data, which pass every rule of the check.

A payload that is unpacked and packed again to the same bytes has the shortest headers, ends where it
should, has only text as keys, and no duplicate key. ormsgpack does both faster than a walk. All other
payloads take the general path.
"""

from __future__ import annotations

from typing import Final

import ormsgpack

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
