"""Audit: what is readable without a key, also in databases that were never sealed. Needs no keys.

Reads tags, metadata and names, but no values. Readable text is never quoted; only its shape is: letters
become ``a``, digits ``9``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.tag import Kind
from sealpoint.databases.rows import InlineValue, RowStore
from sealpoint.errors import MetadataError
from sealpoint.maintenance.status import Share, status

MAX_LABELS: Final = 200
MAX_EXAMPLES: Final = 3
MAX_ADDRESSES: Final = 10_000
LANGGRAPH_KEYS: Final = frozenset({"parents", "run_id", "source", "step"})

_JSON_TYPES: Final = {
    type(None): "null",
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_SHAPE_CHARS: Final = 40
_LABEL_CHARS: Final = 48
_SEARCHED_CHARS: Final = 2000
# A name from source code, not from user input: no address, no long number.
_LABEL: Final = re.compile(r"(?!(?:.*\d){6})[A-Za-z_][\w.:/-]*", re.ASCII)
# Bounded repetitions: with `+` a forged name without '@' would take quadratic time. A local part has at
# most 64 characters, a DNS label 63.
_ADDRESS: Final = re.compile(r"[\w.+-]{1,64}(?:@|%40)[\w-]{1,63}\.[\w.-]{2}")


@dataclass(frozen=True, slots=True)
class Field:
    """A key of metadata, and its values.

    Attributes:
        key: The key; only its shape if it looks like user input.
        rows: Number of checkpoints with the key.
        own: Whether LangGraph writes it in every checkpoint, without user data.
        types: JSON types of its values.
        examples: A few shapes of its values, each with its length.
    """

    key: str
    rows: int
    own: bool
    types: tuple[str, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The readable metadata of checkpoints.

    Attributes:
        rows: How many checkpoints there are.
        unreadable: How many of them have metadata that is not strict JSON.
        fields: The keys, the most frequent first, at most `MAX_LABELS`.
        other_rows: Number of occurrences of other keys.
    """

    rows: int
    unreadable: int
    fields: tuple[Field, ...]
    other_rows: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """Texts of one key column that seem to contain an e-mail address.

    Attributes:
        column: The column, e.g. ``thread_id``.
        texts: Number of distinct texts; counted up to `MAX_ADDRESSES`.
        examples: A few shapes.
    """

    column: str
    texts: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The results.

    Attributes:
        shares: How the values are protected, see `status`.
        metadata: The metadata.
        addresses: Columns that seem to contain e-mail addresses.
        inline: Readable values beside the sealed ones, at most `MAX_LABELS`. Of a channel only its shape, if
            it looks like user input.
        other_inline: How many there are beyond those.
    """

    shares: tuple[Share, ...]
    metadata: Metadata
    addresses: tuple[Addresses, ...]
    inline: tuple[InlineValue, ...]
    other_inline: int

    @property
    def rows(self) -> int:
        """How many values there are."""
        return sum(share.rows for share in self.shares)

    @property
    def open_rows(self) -> int:
        """How many values are not sealed by sealpoint: plaintext, legacy, or unknown."""
        return sum(share.rows for share in self.shares if share.kind is not Kind.SEALED)

    @property
    def is_sealed(self) -> bool:
        """Whether all values that a serializer can seal are sealed."""
        return self.open_rows == 0

    @property
    def is_silent(self) -> bool:
        """Whether nothing else is readable, except what LangGraph writes in every checkpoint."""
        fields = any(not field.own for field in self.metadata.fields)
        beside = fields or self.metadata.unreadable or self.metadata.other_rows
        return not (beside or self.addresses or any(part.kind != "null" for part in self.inline))


def audit(store: RowStore) -> Audit:
    """Audit a whole database. Metadata and names are streamed; memory is bounded."""
    inline, other_inline = _inline(store)
    return Audit(
        shares=tuple(status(store)),
        metadata=_metadata(store.metadata()),
        addresses=_addresses(store.names()),
        inline=inline,
        other_inline=other_inline,
    )


def shape(value: Any) -> str:
    """Return the shape of a readable value, not the value.

    For text this is its length and the kinds of its first characters: ``9: aaaa-9999``. For other types
    only the size is shown.
    """
    if isinstance(value, str):
        more = "..." if len(value) > _SHAPE_CHARS else ""
        return f"{len(value)}: {''.join(map(_kind, value[:_SHAPE_CHARS]))}{more}"
    if isinstance(value, list | dict):
        return f"{len(value)} inside"
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Digits of a larger number would take quadratic time.
        whole = "9" * 18 + "..." if abs(value) >= 10**18 else str(value)
        return "".join(map(_kind, f"{value:.3g}" if isinstance(value, float) else whole))
    return ""


def _kind(sign: str) -> str:
    if sign.isalpha():
        return "A" if sign.isupper() else "a"
    if sign.isnumeric():
        return "9"
    return sign if " " <= sign <= "~" else "?"


def label(text: str) -> str:
    """Return a key or a channel if it looks like a name in source code, otherwise its shape."""
    return text if len(text) <= _LABEL_CHARS and _LABEL.fullmatch(text) else shape(text)


class _Tally:
    """Counts for one label."""

    def __init__(self) -> None:
        self.rows = 0
        self.types: set[str] = set()
        self.examples: dict[str, None] = {}

    def add(self, value: Any) -> None:
        self.rows += 1
        self.types.add(_JSON_TYPES[type(value)])
        if len(self.examples) < MAX_EXAMPLES:
            self.examples[shape(value)] = None

    def field(self, key: str) -> Field:
        examples = tuple(example for example in self.examples if example)
        return Field(key, self.rows, key in LANGGRAPH_KEYS, tuple(sorted(self.types)), examples)


def _metadata(columns: Iterable[Any]) -> Metadata:
    rows = unreadable = other_rows = 0
    tallies: dict[str, _Tally] = {}
    for column in columns:
        rows += 1
        try:
            fields = decode_metadata(column)
        except MetadataError:
            unreadable += 1
            continue
        for key, value in fields.items():
            name = label(key)
            if name not in tallies and len(tallies) == MAX_LABELS:
                other_rows += 1
            else:
                tallies.setdefault(name, _Tally()).add(value)
    found = [tally.field(key) for key, tally in tallies.items()]
    found.sort(key=lambda field: (field.own, -field.rows))
    return Metadata(rows, unreadable, tuple(found), other_rows)


def _addresses(names: Iterable[tuple[str, str]]) -> tuple[Addresses, ...]:
    met: dict[str, tuple[set[int], dict[str, None]]] = {}
    for column, text in names:
        if _ADDRESS.search(text[:_SEARCHED_CHARS]):
            texts, examples = met.setdefault(column, (set(), {}))
            if len(texts) < MAX_ADDRESSES:
                texts.add(hash(text))
            if len(examples) < MAX_EXAMPLES:
                examples[shape(text)] = None
    return tuple(Addresses(column, len(texts), tuple(examples)) for column, (texts, examples) in met.items())


def _inline(store: RowStore) -> tuple[tuple[InlineValue, ...], int]:
    rows: dict[tuple[str, str], int] = {}
    others = 0
    for value in store.inline():
        place = (label(value.channel), value.kind)
        if place not in rows and len(rows) == MAX_LABELS:
            others += value.rows
        else:
            rows[place] = rows.get(place, 0) + value.rows
    return tuple(InlineValue(*place, count) for place, count in rows.items()), others
