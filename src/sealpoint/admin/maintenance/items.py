"""Items of LangGraph's Store in a database: read, compared and written as JSON. Nothing is built."""

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

# A `SealedStore` reads what a ring has sealed as deep as it was written.
_WRITTEN: Final = Limits(depth=MAX_PACKED_LEVELS)
_PUT: Final = "read it with SealedStore, and put it again with values that JSON has"


def name_of(cell: Cell) -> ItemName:
    """Return the name of an item in the database."""
    prefix, key = cell.where.key
    return ItemName(tuple(prefix.split(".")), key)


def format_item(value: Mapping[str, Any], *, allow_nul: bool = False) -> str:
    """Return the JSON of a value of `read_item`, or of a sealed one, if it reads back as the same.

    NUL characters, which Postgres does not store, are refused unless they are allowed.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # Without the escapes of backslashes, each begins another escape.
        if parse_item(text) == value and (allow_nul or "\\u0000" not in text.replace("\\\\", "")):
            return text
    except (TypeError, ValueError, RecursionError, SerdeError):
        pass
    raise RowError("the value of the item has no form in JSON that every database stores", hint=_PUT)


def in_json(field: Any) -> Any:
    """Return what is readable as it is stored in JSON: of an enumeration of texts or numbers the value."""
    if isinstance(field, Inert):
        is_enum = field.kind == "single" and isinstance(field.payload, str | int)
        return field.payload if is_enum and (field.module, field.name) not in SAFE_TYPES else field
    if isinstance(field, dict):
        return {name: in_json(each) for name, each in field.items()}
    return [*map(in_json, field)] if isinstance(field, list) else field


def read_item(cell: Cell, parts: Parts, tokens: Tokens) -> dict[str, Any]:
    """Return the value of an item, see `decode_inert`, compared with what is readable beside it.

    The cell is of a `Column.widened`, or of a store of whole rows. An item that is not sealed names no types:
    LangGraph's stores build nothing of its JSON.
    """
    if cell.is_plain_item:
        return parse_item(parts.opened.data)
    value, beside = decode_inert(*parts.opened.typed, _WRITTEN), cell.where.beside
    if type(value) is not dict:
        raise DecodeError(f"a sealed item is {type(value).__name__}, not a dict")
    found = parse_item(beside.get("fields", beside.get("value")))
    require_same_fields(found, in_json(value), tokens)
    if parts.name and tokens.are_available and pseudonym_of(parts.name, tokens) != name_of(cell):
        raise RowError("the item was stored under another name")
    return value
