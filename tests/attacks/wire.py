"""msgpack as nobody honest writes it."""

from __future__ import annotations

from typing import Any

import ormsgpack

EXT32 = 0xC9


def pack(value: Any) -> bytes:
    """Return the msgpack of plain data and of what `ext` and `record` made."""
    return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)


def ext(code: int, payload: Any) -> ormsgpack.Ext:
    """Make an extension of a value, for use within other values."""
    return ormsgpack.Ext(code, payload if isinstance(payload, bytes) else pack(payload))


def record(code: int, module: Any, name: Any, argument: Any, *method: Any) -> ormsgpack.Ext:
    """Make an extension that names a type."""
    return ext(code, [module, name, argument, *method])


def raw_ext(code: int, payload: bytes) -> bytes:
    """Return the bytes of an extension with any code, -128 to 127."""
    return bytes((EXT32,)) + len(payload).to_bytes(4, "big") + code.to_bytes(1, "big", signed=True) + payload


def pairs(*items: tuple[Any, Any]) -> bytes:
    """Return the bytes of a map of at most 15 pairs, whatever the keys. Bytes go in as they are."""
    return bytes((0x80 + len(items),)) + b"".join(_raw(part) for item in items for part in item)


def _raw(part: Any) -> bytes:
    return part if isinstance(part, bytes) else pack(part)


def nested_ext(code: int, depth: int) -> bytes:
    """Return ``depth`` extensions within each other, around nil."""
    inner = b"\xc0"
    for _ in range(depth):
        inner = raw_ext(code, inner)
    return inner
