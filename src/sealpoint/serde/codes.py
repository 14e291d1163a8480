"""Extensions of msgpack: the codes under which LangGraph writes types that msgpack lacks.

The payload of an extension is msgpack again. A payload of codes 0 to 5 is a *record*: it names its type.
`EXTENSIONS` lists the contents of each.

Also the headers of msgpack: for each first byte, the length of the token, or where the length is stored.

https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import ormsgpack

from sealpoint.errors import DecodeError

SINGLE_ARGUMENT: Final = 0
POSITIONAL_ARGUMENTS: Final = 1
KEYWORD_ARGUMENTS: Final = 2
METHOD: Final = 3
PYDANTIC_V1: Final = 4
PYDANTIC_V2: Final = 5
MODELS: Final = (PYDANTIC_V1, PYDANTIC_V2)
NUMPY_ARRAY: Final = 6
DELTA_SNAPSHOT: Final = 7


class Extension(NamedTuple):
    """What the payload of a msgpack extension with one code contains.

    Attributes:
        label: Name of the kind of extension in `Inert` values and in inventories.
        method: The last element of a record, if LangGraph writes one.
        type_name: Module and name of the type, if the payload does not name it.
    """

    label: str
    method: str | None = None
    type_name: tuple[str, str] | None = None


EXTENSIONS: Final[Mapping[int, Extension]] = {
    # [module, name, argument]: sets, deques, UUID, Decimal, IP addresses, ZoneInfo, enums
    SINGLE_ARGUMENT: Extension("single"),
    # [module, name, [arguments]]: paths, patterns, timedelta, date, timezone, Send
    POSITIONAL_ARGUMENTS: Extension("positional"),
    # [module, name, {arguments}]: named tuples, dataclasses, time
    KEYWORD_ARGUMENTS: Extension("keyword"),
    # [module, name, argument, method]: datetime
    METHOD: Extension("method", "fromisoformat"),
    # [module, name, {fields}]: objects with dict(): pydantic v1, items of a store
    PYDANTIC_V1: Extension("pydantic-v1"),
    # [module, name, {fields}, method]: objects with model_dump(): pydantic v2
    PYDANTIC_V2: Extension("pydantic-v2", "model_validate_json"),
    # dtype, shape, order and bytes
    NUMPY_ARRAY: Extension("numpy", type_name=("numpy", "ndarray")),
    # the value
    DELTA_SNAPSHOT: Extension(
        "delta-snapshot", type_name=("langgraph.checkpoint.serde.types", "_DeltaSnapshot")
    ),
}


def require_record(code: int, record: Any) -> tuple[str, str]:
    """Return the module and the name of the type of a record."""
    is_named = code in EXTENSIONS and EXTENSIONS[code].type_name is None
    if is_named and isinstance(record, list) and len(record) >= 3:
        module, name, _, *method = record
        if isinstance(module, str) and isinstance(name, str) and method in ([], [EXTENSIONS[code].method]):
            return module, name
    raise malformed(code)


def malformed(code: int) -> DecodeError:
    """Return the error for a malformed payload of an extension."""
    return DecodeError(f"extension {code} does not have the contents that LangGraph writes")


UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS
# Without PASSTHROUGH ormsgpack writes such objects by itself, in forms that do not name their type.
PACK: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
PACK_REPLACING: Final = PACK | ormsgpack.OPT_REPLACE_SURROGATES  # "?" in place of a lone surrogate


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
    """Return the offset of a token's content (after an extension's code), and its length or element count."""
    head = data[position]
    width = _WIDTHS.get(head)
    if width is None:
        if head <= 0xBF:
            return position + 1, head & (0x1F if head >= 0xA0 else 0x0F)
        if head not in FIXED_EXTENSIONS:
            raise DecodeError(f"header {head:#x} is not used in msgpack")
        return position + 2, FIXED_EXTENSIONS[head]
    start = position + 1 + width
    length = data[position + 1] if width == 1 else int.from_bytes(data[position + 1 : start], "big")
    return start + (head in EXTENSION_HEADS), length
