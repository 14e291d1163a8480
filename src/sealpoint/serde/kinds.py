"""Values of the kinds that hold no structure; `sealpoint.crypto.kinds` lists all kinds."""

from __future__ import annotations

from sealpoint.crypto.kinds import BYTEARRAY, BYTES, NULL
from sealpoint.errors import DecodeError, UnknownTypeError, excerpt


def read_plain(kind: str, content: bytes | bytearray, hint: str = "") -> bytes | bytearray | None:
    """Return the value of one of the three kinds that hold no structure.

    Args:
        kind: Kind of the bytes.
        content: The bytes.
        hint: Advice for the caller if ``kind`` is another.

    Raises:
        DecodeError: If ``null`` has bytes.
        UnknownTypeError: If ``kind`` is not ``null``, ``bytes`` or ``bytearray``.
    """
    if kind == BYTES:
        return bytes(content)
    if kind == BYTEARRAY:
        return bytearray(content)
    if kind != NULL:
        raise UnknownTypeError(f"Unknown serialization type: {excerpt(kind)}", hint=hint)
    if content:
        raise DecodeError("a value of type 'null' has bytes")
    return None
