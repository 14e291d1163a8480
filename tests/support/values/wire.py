"""msgpack put together by hand, header by header, also as no encoder would."""

from __future__ import annotations

from typing import Any, Final

import ormsgpack

NIL: Final = b"\xc0"

_TOKENS: Final = {
    0xC1: b"",
    0xC4: b"\x01x",
    0xC5: b"\x00\x01x",
    0xC6: b"\x00\x00\x00\x01x",
    0xC7: b"\x01\x07\xc0",
    0xC8: b"\x00\x01\x07\xc0",
    0xC9: b"\x00\x00\x00\x01\x07\xc0",
    0xCA: b"\x3f\x00\x00\x00",
    0xCB: b"\x3f\xe0" + bytes(6),
    0xD4: b"\x07\xc0",
    0xD5: b"\x07\xa1x",
    0xD6: b"\x07\xa3xyz",
    0xD7: b"\x07\xa7seven b",
    0xD8: b"\x07\xaffifteen bytes..",
    0xD9: b"\x01x",
    0xDA: b"\x00\x01x",
    0xDB: b"\x00\x00\x00\x01x",
    0xDC: b"\x00\x01\xc0",
    0xDD: b"\x00\x00\x00\x01\xc0",
    0xDE: b"\x00\x01\x00\xc0",
    0xDF: b"\x00\x00\x00\x01\x00\xc0",
}
_NUMBER_BYTES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def token(head: int) -> bytes:
    """Return the shortest value, or nearly so, that begins with a header and is not empty."""
    if 0x80 <= head <= 0x8F:
        return bytes((head,)) + b"".join(bytes((key,)) + NIL for key in range(head - 0x80))
    if 0x90 <= head <= 0x9F:
        return bytes((head,)) + NIL * (head - 0x90)
    if 0xA0 <= head <= 0xBF:
        return bytes((head,)) + b"x" * (head - 0xA0)
    if head in _NUMBER_BYTES:
        return bytes((head,)) + b"\x05" * _NUMBER_BYTES[head]
    return bytes((head,)) + _TOKENS.get(head, b"")


def text(content: str) -> bytes:
    data = content.encode()
    return (bytes((0xA0 + len(data),)) if len(data) < 32 else b"\xdb" + len(data).to_bytes(4, "big")) + data


def array(*items: bytes) -> bytes:
    head = bytes((0x90 + len(items),)) if len(items) < 16 else b"\xdd" + len(items).to_bytes(4, "big")
    return head + b"".join(items)


def mapping(*parts: bytes) -> bytes:
    """Return a map of keys and values in turn."""
    count = len(parts) // 2
    return (bytes((0x80 + count,)) if count < 16 else b"\xdf" + count.to_bytes(4, "big")) + b"".join(parts)


def extension(code: int, payload: bytes, width: int = 4) -> bytes:
    """Return an extension with any code, -128 to 255, and a length of ``width`` bytes."""
    head = {1: 0xC7, 2: 0xC8, 4: 0xC9}[width]
    return bytes((head,)) + len(payload).to_bytes(width, "big") + bytes((code % 256,)) + payload


def record(code: int, module: str, name: str, argument: bytes, *method: bytes) -> bytes:
    return extension(code, array(text(module), text(name), argument, *method))


def nested_extensions(code: int, depth: int) -> bytes:
    """Return ``depth`` extensions within each other, around nil."""
    inner = NIL
    for _ in range(depth):
        inner = extension(code, inner)
    return inner


def decoded(data: bytes) -> Any:
    """Return what the decoder makes of bytes, with the bytes of extensions in their place."""
    option = ormsgpack.OPT_NON_STR_KEYS
    return ormsgpack.unpackb(data, ext_hook=lambda _, payload: payload, option=option)


def deep_values(depth: int) -> dict[str, bytes]:
    """Return values of exactly ``depth`` levels, each made of another kind of them.

    Where a kind takes more than one level, arrays fill up what it leaves.
    """
    return {
        "array": b"\x91" * depth + NIL,
        "array16": b"\xdc\x00\x01" * depth + NIL,
        "map": b"\x81\x00" * depth + NIL,
        "map16": b"\xde\x00\x01\x00" * depth + NIL,
        "extension": _nest(depth, 1, lambda inner: extension(7, inner)),
        "frozenset": _nest(depth, 3, lambda inner: record(0, "builtins", "frozenset", array(inner))),
        "dataclass": _nest(
            depth,
            3,
            lambda inner: record(2, "tests.support.sample_types", "Point", mapping(text("x"), inner)),
        ),
        "deque": _nest(depth, 3, lambda inner: record(0, "collections", "deque", array(inner))),
        "mixed": _nest(depth, 3, lambda inner: array(mapping(NIL, extension(7, inner)))),
        "key": b"\x81" + b"\x91" * (depth - 1) + NIL + NIL,
    }


def _nest(depth: int, levels: int, wrap: Any) -> bytes:
    data = b"\x91" * (depth % levels) + NIL
    for _ in range(depth // levels):
        data = wrap(data)
    return data
