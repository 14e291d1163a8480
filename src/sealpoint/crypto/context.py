"""Context: what a sealed value is bound to. Authenticated with it, and never stored.

    "sealpoint" 00 01 | length tag | length name | length value | ...
      11 bytes          u32 BE ..    pairs of the row, sorted by name

Every field is preceded by its length as four bytes, big-endian, so that no two
contexts share an encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Row = Mapping[str, str]

PREFIX: Final = b"sealpoint\x00\x01"


def _field(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


def context(tag: str, row: Row | None = None) -> bytes:
    """Encode the context of a value.

    Args:
        tag: The whole type tag, as it stands in the column.
        row: Coordinates of the row as they stand in its columns. ``None`` and ``{}``
            encode alike; what tells them apart is the ``.row`` flag in the tag.

    Raises:
        TypeError: If a coordinate is not a string.
    """
    parts = [PREFIX, _field(tag)]
    for name, value in sorted((row or {}).items()):
        if not (isinstance(name, str) and isinstance(value, str)):
            raise TypeError(f"row coordinates are strings, not {type(name).__name__}: {type(value).__name__}")
        parts += _field(name), _field(value)
    return b"".join(parts)
