"""msgpack's headers: how long a token is, where its length stands, and which type an extension names.

https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats".
"""

from __future__ import annotations

from typing import Final

from sealpoint.errors import DecodeError
from sealpoint.serde.codes import DELTA_SNAPSHOT, NUMPY_ARRAY

# Bytes of a token that needs no look inside, by its header; 0 for those that do.
SIZES: Final = (
    [1] * 0x80  # positive fixint
    + [1, *[0] * 15, 1, *[0] * 15]  # fixmap, fixarray: only the empty ones
    + list(range(1, 0x21))  # fixstr
    + [1, 0, 1, 1]  # nil, never used, false, true
    + [0] * 6  # bin, ext
    + [5, 9, 2, 3, 5, 9, 2, 3, 5, 9]  # float, uint, int
    + [0] * 12  # fixext, str, array, map
    + [1] * 0x20  # negative fixint
)
TEXT_KEYS: Final = [size if 0xA0 <= head <= 0xBF else 0 for head, size in enumerate(SIZES)]
# Bytes of the length that follows the header of a string, binary, array, map or extension.
LENGTHS: Final = {
    **dict.fromkeys((0xC4, 0xC7, 0xD9), 1),
    **dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), 2),
    **dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), 4),
}
TEXTS: Final = frozenset((0xD9, 0xDA, 0xDB))
STRINGS: Final = TEXTS | {0xC4, 0xC5, 0xC6}
EXTENSIONS: Final = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
NAMELESS: Final = {
    NUMPY_ARRAY: ("numpy", "ndarray"),
    DELTA_SNAPSHOT: ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"),
}


def read_length(data: bytes, position: int, head: int) -> tuple[int, int]:
    """Return where the content of a token starts (past the code of an extension), and its length or count."""
    width = LENGTHS.get(head)
    if width is None:
        if head not in FIXED_EXTENSIONS:
            raise DecodeError(f"header {head:#x} is not used in msgpack")
        return position + 2, FIXED_EXTENSIONS[head]
    start = position + 1 + width
    return start + (head in EXTENSIONS), int.from_bytes(data[position + 1 : start], "big")


def read_names(data: bytes, payload: int) -> tuple[str, str]:
    """Return the module and the name at the head of an extension's payload, which `scan.scan` has found.

    Raises:
        DecodeError: If there are none.
    """
    code = data[payload - 1]
    if code in NAMELESS:
        return NAMELESS[code]
    head = data[payload]
    start, count = read_length(data, payload, head) if head in (0xDC, 0xDD) else (payload + 1, head - 0x90)
    if count not in (3, 4):
        raise DecodeError(f"extension {code} does not hold what LangGraph writes there")
    module, position = _read_text(data, start)
    name, _ = _read_text(data, position)
    return module, name


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    head = data[position]
    if 0xA0 <= head <= 0xBF:
        start, length = position + 1, head - 0xA0
    elif head in TEXTS:
        start, length = read_length(data, position, head)
    else:
        raise DecodeError("an extension names its type by something else than text")
    try:
        return data[start : start + length].decode(), start + length
    except UnicodeDecodeError:
        raise DecodeError("an extension names its type in something else than UTF-8") from None
