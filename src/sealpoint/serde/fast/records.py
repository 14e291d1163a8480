"""Payloads that are written for plain data, and so pass every rule of the check.

What packs again to the very bytes that it was unpacked from has the shortest headers, ends where it
says, has only text as keys, and no key twice, because a dict has each once. msgpack does both faster
than a walk through it. Whatever is not so goes the general way.
"""

from __future__ import annotations

from typing import Final

import ormsgpack

MAX_LEVELS: Final = 64
"""Containers that are unpacked within each other: a small stack has room for them."""

_MAX_BYTES: Final = 64 * 1024
_CONTAINERS: Final = frozenset((*range(0x81, 0x90), *range(0x91, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
_NO_CONTAINERS: Final = bytes(set(range(256)) - _CONTAINERS)

_packb: Final = ormsgpack.packb
_unpackb: Final = ormsgpack.unpackb


def is_plain(payload: bytes, levels: int) -> bool:
    """Whether a payload is certain to hold nothing that the check refuses, and no extension.

    Its elements are not counted: there are not more of them than bytes.

    Args:
        payload: Payload of an extension.
        levels: Containers that it may have within each other, at most `MAX_LEVELS`.
    """
    if len(payload) > _MAX_BYTES or (len(payload) > levels and _count_containers(payload) > levels):
        return False
    try:
        return _packb(_unpackb(payload)) == payload
    except (ormsgpack.MsgpackDecodeError, ormsgpack.MsgpackEncodeError):
        return False


def _count_containers(payload: bytes) -> int:
    """Return how many containers there are at most: bytes that could be the header of one, text included."""
    return len(payload.translate(None, _NO_CONTAINERS))
