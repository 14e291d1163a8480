"""Items of LangGraph's Store: how a value is sealed, opened, and compared with its row. No I/O.

The value that the wrapped store gets is a frame (`sealpoint.seal.places`):

    {<plain fields>, "sp<32 hex>": 1 for each indexed field, "__sealpoint__": {"type": ..., "value": ...}}

These bytes are sealed, bound to the content of the columns ``prefix`` and ``key`` of the row:

    u32be length | header, JSON | the value, by the serializer

The header is empty; only in a database with pseudonyms it names the item: ``{"name": [[labels], key]}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, NamedTuple

from sealpoint.errors import (
    ConfigError,
    DecodeError,
    PlaintextError,
    RowError,
    SealpointError,
    UnboundValueError,
    UnsupportedTypeError,
    excerpt,
    located,
)
from sealpoint.seal.context import RowTemplate
from sealpoint.seal.jsontext import MAX_DEPTH
from sealpoint.seal.places import ITEM, KEY, make_frame, read_frame, require_unicode
from sealpoint.seal.rows import Serializer, encode, is_bound, require_same_metadata, split_json, with_length
from sealpoint.seal.tag import JSON
from sealpoint.seal.tokens import TOKEN, Tokens

_row: Final = RowTemplate(dict(ITEM.kind), ITEM.columns).row

_SEAL: Final = (
    "seal the items of the database with `sealpoint rebind DB --allow-plaintext --apply`, or pass"
    " unbound='allow' here, and plaintext='allow' to the serializer, while you migrate"
)
_FIELDS: Final = (
    "the item was changed, or sealed before the field was readable: `sealpoint rebind DB --apply` with"
    " --plain-field or --index-field adds it; unbound='allow' reads it meanwhile"
)
_FIELD: Final = (
    "plain fields hold text, finite numbers, true, false, null, lists and dicts of these: store such a form,"
    " or remove the field from plain_fields"
)


class ItemName(NamedTuple):
    """The name of an item of LangGraph's Store."""

    namespace: tuple[str, ...]
    key: str


_UNNAMED: Final = with_length(b"{}")


def pack_item(name: ItemName | None) -> bytes:
    """Return the bytes sealed before an item's value; ``name`` is set only if the database has pseudonyms."""
    if name is None:
        return _UNNAMED
    return with_length("".join(encode({"name": [[*name.namespace], name.key]}, False)).encode())


def split_item(data: bytes) -> tuple[ItemName | None, bytes]:
    """Split the authenticated bytes of an item: return its name, or ``None``, and the bytes of its value."""
    if data.startswith(_UNNAMED):
        return None, data[len(_UNNAMED) :]
    header, value = split_json(data)
    match header.get("name"):
        case None:
            return None, value
        case [[*labels], str(key)] if all(isinstance(label, str) for label in labels):
            return ItemName(tuple(labels), key), value
    raise DecodeError("the header of a sealed item names the item in an unknown form")


@dataclass(frozen=True, slots=True)
class Items:
    """Seals and opens items, each bound to its row.

    Attributes:
        serde: Serializer that seals the values.
        plain: Top-level fields that stay readable.
        indexed: Top-level fields whose values filters find by token.
        tokens: Computes tokens and pseudonyms.
        has_pseudonyms: Whether the database has pseudonyms in place of keys, and of labels of namespaces.
        allow_unbound: Whether to read items that are not sealed, or lack plain fields or tokens.
    """

    serde: Serializer
    plain: frozenset[str]
    indexed: frozenset[str]
    tokens: Tokens
    has_pseudonyms: bool = False
    allow_unbound: bool = False

    def __post_init__(self) -> None:
        both = self.plain | self.indexed
        if KEY in both or self.plain & self.indexed or any(TOKEN.match(field) for field in both):
            raise ConfigError("a field is both in plain_fields and in indexed_fields, or is reserved")

    # --- names --------------------------------------------------------------------------------

    def stored_label(self, label: str) -> str:
        """Return the text that the database has for a label of a namespace: the label, or its pseudonym."""
        return label_pseudonym(label, self.tokens) if self.has_pseudonyms else label

    def stored_name(self, name: ItemName) -> ItemName:
        """Return the name that the database has for an item: its own name, or its pseudonyms."""
        return pseudonym_of(name, self.tokens) if self.has_pseudonyms else name

    # --- values -------------------------------------------------------------------------------

    def seal(self, name: ItemName, value: Mapping[str, Any]) -> dict[str, Any]:
        """Seal the value of an item; return the JSON object to store.

        Raises:
            ConfigError: If the value has the field ``__sealpoint__``.
            SealpointError: What the serializer raises.
        """
        require_unframed(value)
        value, stored = dict(value), self.stored_name(name)
        readable = self.readable(value)
        head = pack_item(name if self.has_pseudonyms else None)
        tag, blob = self.serde.seal(value, row=row_of(*stored), head=head)
        return {**readable, KEY: make_frame(tag, blob)}

    def readable(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plain fields and the tokens of a value, which are stored readable. Fields are copied.

        Raises:
            UnsupportedTypeError: If JSON cannot represent a field, or parsing it again gives another value.
            ConfigError: If the text of a field has a lone surrogate, which serializers replace.
        """
        found = {field: _copied(field, value[field]) for field in self.plain if field in value}
        for field in self.indexed:
            if field in value and (token := self.tokens.token(field, _in_unicode(field, value[field]))):
                found[token] = 1
        return found

    def open(
        self, stored: ItemName, found: Mapping[str, Any], own: ItemName | None = None
    ) -> tuple[ItemName, dict[str, Any]]:
        """Return the name and the value of an item, from its name and its value in the database.

        ``own`` is the requested name, if any; errors state this name or, without it, the opened name.

        Raises:
            PlaintextError: If the value is not sealed, and ``allow_unbound`` is off.
            UnboundValueError: If the value is sealed, but not bound to its row.
            RowError: If the name or a readable field differs from what was sealed.
            SealpointError: What the serializer raises.
        """
        try:
            if not isinstance(found, dict):
                raise RowError(f"the value of an item is {type(found).__name__}, not a JSON object")
            if KEY not in found:
                if not self.allow_unbound:
                    raise PlaintextError("the item is not sealed", hint=_SEAL)
                self.serde.open(JSON, b"")  # raises and counts an error if plaintext is refused
                return stored, dict(found)
            tag, blob = require_form(found)
            if not is_bound(tag):
                what = f"{excerpt(tag)} is not bound to a row"
                raise UnboundValueError(what, hint="restore the row from backup")
            opened = self.serde.open(tag, blob, row=row_of(*stored))
            name, data = split_item(opened.data)
            if (name is None) is self.has_pseudonyms or (name and self.stored_name(name) != stored):
                raise RowError(
                    f"the item was stored under {'another' if name else 'its own'} name",
                    hint="use the same pseudonyms= in every process, from the first item of a store on",
                )
            own = name or own
            value = self.serde.decode(opened.inner, data)
            if not isinstance(value, dict):
                raise DecodeError(f"a sealed item is {type(value).__name__}, not a dict")
            self._require_readable(found, value)
        except SealpointError as error:
            located(error, "store", own=own and own._asdict(), **stored._asdict())
            raise
        return name or stored, value

    def _require_readable(self, found: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Compare plain fields and tokens with the sealed value: searches need them to find the item."""
        names = [field for field in self.plain if field in value]
        tokens = [self.tokens.token(field, value[field]) for field in self.indexed if field in value]
        if not self.allow_unbound:
            for name in (*names, *tokens):
                if name is not None and name not in found:
                    raise RowError("a readable field of the item is missing", hint=_FIELDS)
        # Usually all stored tokens are among these; to check others, the token of each field is computed.
        others = {
            name: mark for name, mark in found.items() if name not in tokens or (type(mark), mark) != (int, 1)
        }
        require_same_fields(others, value, self.tokens)


def _in_unicode(field: str, value: Any) -> Any:
    return require_unicode(f"field {excerpt(field)}", value) if isinstance(value, str) else value


def _copied(field: str, value: Any, levels: int = MAX_DEPTH - 1) -> Any:
    """Return a copy of the value of a plain field; refuse values that JSON would change."""
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return _in_unicode(field, value)
    if not levels:
        raise UnsupportedTypeError(
            f"plain field {excerpt(field)} is nested over {MAX_DEPTH - 1} levels deep", hint=_FIELD
        )
    if isinstance(value, list):
        return [_copied(field, each, levels - 1) for each in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: _copied(field, each, levels - 1) for name, each in value.items()}
    raise UnsupportedTypeError(
        f"plain field {excerpt(field)} holds {type(value).__name__}, which JSON cannot represent",
        hint=_FIELD,
    )


def label_pseudonym(label: str, tokens: Tokens) -> str:
    """Return the pseudonym of a label of a namespace."""
    return tokens.pseudonym(f"label\0{label}")


def pseudonym_of(name: ItemName, tokens: Tokens) -> ItemName:
    """Return the pseudonyms of a namespace and a key."""
    key = "\0".join(("key", *name.namespace, name.key))
    labels = (label_pseudonym(label, tokens) for label in name.namespace)
    return ItemName(tuple(labels), tokens.pseudonym(key))


def row_of(namespace: Sequence[str], key: str) -> Any:
    """Return the packed coordinates of an item's row, from the item's name in the database."""
    try:
        return _row(".".join(namespace), key)
    except TypeError:
        raise RowError("the name of an item is not text") from None


def require_unframed(value: Mapping[str, Any]) -> None:
    """Check that the value of an item is a dict without the field ``__sealpoint__``, which marks a frame."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"the value of an item is {type(value).__name__}, not a dict")
    if KEY in value:
        raise ConfigError(f"the value of an item has the field {KEY!r}, which is reserved")


def require_form(found: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the tag and the sealed bytes in an item's frame; the tag may lack ``.row``."""
    frame = found[KEY]
    tag, blob = read_frame(frame)
    if tag is None or blob is None or frame.keys() != {"type", "value"}:
        raise RowError("the item has no sealed value of a valid form")
    return tag, blob


def require_same_fields(found: Mapping[str, Any], value: Mapping[str, Any], tokens: Tokens) -> None:
    """Compare the readable fields and tokens of an item with its sealed value."""
    require_same_metadata(found, value, tokens, "the field", ())
