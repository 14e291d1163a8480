"""Checkpoint ids: UUIDs of version 6, which sort by the time of their creation.

Source: RFC 9562, section 5.6. The 60 bits of a timestamp in steps of 100 ns since
1582-10-15 come first, most significant bits first; then 14 bits of sequence number, 48 of node.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Final

_GREGORIAN_TO_UNIX: Final = 0x01B21DD213814000  # steps of 100 ns from 1582-10-15 to 1970-01-01
_VARIANT: Final = 0x8000 << 48

_lock = threading.Lock()
_last_timestamp = 0


class UUID(uuid.UUID):
    """A UUID that also supports versions 6, 7 and 8, and their times."""

    def __init__(
        self,
        hex: str | None = None,  # noqa: A002 -- names and order of uuid.UUID
        bytes: bytes | None = None,  # noqa: A002
        bytes_le: bytes | None = None,
        fields: tuple[int, int, int, int, int, int] | None = None,
        int: int | None = None,  # noqa: A002
        version: int | None = None,
        *,
        is_safe: uuid.SafeUUID = uuid.SafeUUID.unknown,
    ) -> None:
        """Create a UUID from exactly one of its forms, as `uuid.UUID` does.

        Raises:
            ValueError: If a form is malformed, or ``version`` is not in 1 to 8.
            TypeError: If not exactly one form is given.
        """
        if int is None or version is None or version < 6:
            super().__init__(hex, bytes, bytes_le, fields, int, version, is_safe=is_safe)
            return
        if not 0 <= int < 1 << 128:
            raise ValueError("int is out of range (need a 128-bit value)")
        if version > 8:
            raise ValueError("illegal version number")
        bits = int & ~(0xC000 << 48) & ~(0xF000 << 64) | _VARIANT | version << 76
        super().__init__(int=bits, is_safe=is_safe)

    @property
    def subsec(self) -> int:
        """The 20 bits below the millisecond of a version 7 or 8 UUID."""
        return (self.int >> 64 & 0x0FFF) << 8 | (self.int >> 54 & 0xFF)

    @property
    def time(self) -> int:
        """The time in the unit of the version: 100 ns for 6, ms for 7, us for 8."""
        if self.version == 6:
            return (self.time_low << 28) | (self.time_mid << 12) | (self.time_hi_version & 0x0FFF)
        if self.version == 7:
            return self.int >> 80
        if self.version == 8:
            return (self.int >> 80) * 10**6 + _subsec_decode(self.subsec)
        return super().time


def _subsec_decode(value: int) -> int:
    """Return 20 bits of a fraction of a second as microseconds, rounded up."""
    return -(-value * 10**6 // 2**20)


def uuid6(node: int | None = None, clock_seq: int | None = None) -> UUID:
    """Return a UUID of version 6, greater than all that this process created before.

    Args:
        node: 48 bits; random if not given.
        clock_seq: 14 bits of sequence number, taken modulo 2^14; random if not given.
    """
    timestamp = _next_timestamp()
    node = _random(48) if node is None else node & 0xFFFF_FFFF_FFFF
    clock_seq = _random(14) if clock_seq is None else clock_seq & 0x3FFF
    high, low = timestamp >> 12 & 0xFFFF_FFFF_FFFF, timestamp & 0x0FFF
    return UUID(int=high << 80 | low << 64 | clock_seq << 48 | node, version=6)


def _random(bits: int) -> int:
    return int.from_bytes(os.urandom(8)) >> (64 - bits)


def _next_timestamp() -> int:
    global _last_timestamp  # noqa: PLW0603 -- the one clock of the process
    with _lock:
        now = time.time_ns() // 100 + _GREGORIAN_TO_UNIX
        # A clock can be set back, and two calls can be within 100 ns. A later id must be greater
        # nevertheless: the latest checkpoint of a thread is the one with the greatest id.
        _last_timestamp = max(now, _last_timestamp + 1)
        return _last_timestamp
