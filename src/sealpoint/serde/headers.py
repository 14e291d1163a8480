"""Headers of msgpack: the length of a token, or where it is stored.

https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats".
"""

from __future__ import annotations

from typing import Final

from sealpoint.errors import DecodeError

# Length of a token by its header; 0 if more than the header is needed.
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
FIXSTR_SIZES: Final = [size if 0xA0 <= head <= 0xBF else 0 for head, size in enumerate(SIZES)]
# Bytes of the length field after the header of a string, binary, array, map or extension.
_WIDTHS: Final = {
    **dict.fromkeys((0xC4, 0xC7, 0xD9), 1),
    **dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), 2),
    **dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), 4),
}
TEXTS: Final = frozenset((0xD9, 0xDA, 0xDB))
STRINGS: Final = TEXTS | {0xC4, 0xC5, 0xC6}
MAPS: Final = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
EXTENSION_HEADS: Final = frozenset((0xC7, 0xC8, 0xC9, *FIXED_EXTENSIONS))


def read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return where the content of a token starts (past the code of an extension), and its length or count.

    Args:
        data: The bytes.
        position: Where a token begins that `SIZES` gives no size for, or that is an empty container.

    Raises:
        DecodeError: If msgpack does not define its header.
    """
    head = data[position]
    width = _WIDTHS.get(head)
    if width is None:
        if head <= 0x9F:
            return position + 1, head & 0x0F
        if head not in FIXED_EXTENSIONS:
            raise DecodeError(f"header {head:#x} is not used in msgpack")
        return position + 2, FIXED_EXTENSIONS[head]
    start = position + 1 + width
    length = data[position + 1] if width == 1 else int.from_bytes(data[position + 1 : start], "big")
    return start + (head in EXTENSION_HEADS), length
