"""Items of LangGraph's Store: reads, checks and formats their values as JSON. No object is built."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.parts import Parts
from sealpoint.errors import DecodeError, RowError, SerdeError
from sealpoint.seal.items import ItemName, pseudonym_of, require_same_fields
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.catalogue import SAFE_TYPES
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.jsontext import parse_item
from sealpoint.serde.limits import MAX_PACKED_LEVELS, Limits

# `SealedStore` writes and reads sealed items up to this depth.
_WRITTEN: Final = Limits(depth=MAX_PACKED_LEVELS)
_PUT: Final = "read the item with SealedStore, and put it again with values that JSON can express"


def name_of(cell: Cell) -> ItemName:
    """Return the namespace and key that an item has in the database; both may be pseudonyms."""
    prefix, key = cell.where.key
    return ItemName(tuple(prefix.split(".")), key)


def format_item(value: Mapping[str, Any], *, allow_nul: bool = False) -> str:
    """Return the value of an item as JSON text; raises if the text would be parsed as a different value.

    NUL characters are refused unless ``allow_nul``, as Postgres cannot store them.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # After escaped backslashes are removed, each remaining backslash begins another escape.
        if parse_item(text) == value and (allow_nul or "\\u0000" not in text.replace("\\\\", "")):
            return text
    except (TypeError, ValueError, RecursionError, SerdeError):
        pass
    raise RowError("the value of the item cannot be stored as JSON", hint=_PUT)


def in_json(field: Any) -> Any:
    """Return a field of an item as JSON has it: a member of an enum of texts or numbers becomes its value."""
    if isinstance(field, Inert):
        is_enum = field.kind == "single" and isinstance(field.payload, str | int)
        return field.payload if is_enum and (field.module, field.name) not in SAFE_TYPES else field
    if isinstance(field, dict):
        return {name: in_json(each) for name, each in field.items()}
    return [*map(in_json, field)] if isinstance(field, list) else field


def read_item(cell: Cell, parts: Parts, tokens: Tokens) -> dict[str, Any]:
    """Return the value of an item (see `decode_inert`), after comparing it with the readable columns.

    ``cell`` is from a `Column.widened` or a store of whole rows. An unsealed item is plain JSON, from which
    LangGraph's stores build no objects.
    """
    if cell.is_plain_item:
        return parse_item(parts.opened.data)
    value, beside = decode_inert(*parts.opened.typed, _WRITTEN), cell.where.beside
    if type(value) is not dict:
        raise DecodeError(f"a sealed item is {type(value).__name__}, not a dict")
    found = parse_item(beside.get("fields", beside.get("value")))
    require_same_fields(found, in_json(value), tokens)
    if parts.name and tokens.are_available and pseudonym_of(parts.name, tokens) != name_of(cell):
        raise RowError("the item was sealed under another name")
    return value
