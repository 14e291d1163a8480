"""Kinds: what a serializer calls its bytes, in LangGraph's words.

null       no bytes               None
bytes      the bytes
bytearray  the bytes
msgpack    see `sealpoint.serde.codes`
json       UTF-8                  rows from before msgpack, see `sealpoint.serde.legacy_json`
pickle                            runs what its writer put there
"""

from __future__ import annotations

from typing import Final

from sealpoint.errors import DecodeError, UnknownTypeError, excerpt

NULL: Final = "null"
BYTES: Final = "bytes"
BYTEARRAY: Final = "bytearray"
MSGPACK: Final = "msgpack"
JSON: Final = "json"
PICKLE: Final = "pickle"

READABLE: Final = frozenset((NULL, BYTES, BYTEARRAY, MSGPACK, JSON))
"""The kinds that may be read without running anything."""

KINDS: Final = READABLE | {PICKLE}


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
