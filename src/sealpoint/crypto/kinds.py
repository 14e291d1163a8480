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

NULL: Final = "null"
BYTES: Final = "bytes"
BYTEARRAY: Final = "bytearray"
MSGPACK: Final = "msgpack"
JSON: Final = "json"
PICKLE: Final = "pickle"

READABLE: Final = frozenset((NULL, BYTES, BYTEARRAY, MSGPACK, JSON))
"""The kinds that may be read without running anything."""

KINDS: Final = READABLE | {PICKLE}
