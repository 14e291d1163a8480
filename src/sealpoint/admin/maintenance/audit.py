"""Audit: finds data that is readable without a key, also in databases that were never sealed. Needs no key.

Reads type tags, metadata, names and the readable fields of items, but no values. Readable text is never
quoted; only its shape is shown, with each letter as ``a`` or ``A`` and each digit as ``9``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sealpoint.admin.databases.cells import ITEMS, InlineValue
from sealpoint.admin.databases.rows import CACHE, VECTORS, Residue, RowStore, Vectors
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.status import Share, status
from sealpoint.admin.results.reasons import Reason, applying
from sealpoint.admin.results.tags import Kind
from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import MetadataError, SealpointError
from sealpoint.keys.entry import RingEntry
from sealpoint.seal.places import KEY, read_frame
from sealpoint.seal.rows import PLAIN
from sealpoint.seal.tag import JSON
from sealpoint.seal.tokens import TOKEN
from sealpoint.serde.jsontext import parse_item

MAX_LABELS: Final = 200
MAX_EXAMPLES: Final = 3
MAX_ADDRESSES: Final = 10_000
# Tables of LangGraph's stores and caches. Values in tables that are not read may be readable.
READABLE_TABLES: Final = frozenset({"cache", "store", VECTORS})

FIELD: Final = f"{ITEMS.label}."  # prefix of the names of items' readable fields
LANGGRAPH_KEYS: Final = frozenset(PLAIN)
# Metadata keys that LangGraph's server and LangChain's tracing add: versions, and ids of deployments.
FRAMEWORK_KEYS: Final = frozenset(
    {
        "assistant_id",
        "graph_id",
        "langgraph_api_url",
        "langgraph_api_version",
        "langgraph_host",
        "langgraph_plan",
        "langgraph_version",
        "ls_integration",
        "run_attempt",
    }
)

_JSON_TYPES: Final = {
    type(None): "null",
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_TOKENS: Final = "sp..."
_SHAPE_CHARS: Final = 40
_LABEL_CHARS: Final = 48
_SEARCHED_CHARS: Final = 2000
# Matches names from source code, not user input such as an address or a long number.
_LABEL: Final = re.compile(r"(?!(?:.*\d){6})[A-Za-z_][\w.:/-]*", re.ASCII)
# Bounded repetitions: with `+`, a long name without '@' would take quadratic time. A local part has at
# most 64 characters, a DNS label 63.
_ADDRESS: Final = re.compile(r"[\w.+-]{1,64}(?:@|%40)[\w-]{1,63}\.[\w.-]{2}")


@dataclass(frozen=True, slots=True)
class Field:
    """A metadata key, or a readable field of items, with a summary of its values."""

    # Name of the metadata key or field; the shape of the name if it looks like user input.
    key: str
    rows: int
    # Why the metadata key is not a finding: `langgraph`, `framework`, `sealed`, `token`, or `allowed`.
    known: str | None
    types: tuple[str, ...]
    # Shapes of a few values, each with its length.
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The readable metadata of checkpoints, and the readable fields of items."""

    rows: int
    # Checkpoints with metadata that is not strict JSON.
    unreadable: int
    # Most frequent first, at most `MAX_LABELS`.
    fields: tuple[Field, ...]
    other_rows: int


@dataclass(frozen=True, slots=True)
class Addresses:
    """Texts in one key column that look like e-mail addresses: their number, and the shapes of a few."""

    column: str
    # Number of distinct texts, up to `MAX_ADDRESSES`.
    texts: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        shares: Numbers of values by column, key and protection, as `status` counts them.
        metadata: The readable metadata of checkpoints, and the readable fields of items.
        addresses: Key columns with texts that look like e-mail addresses.
        inline: Channels with readable values in the rows of checkpoints, at most `MAX_LABELS`. A channel's
            name that looks like user input is replaced by its shape.
        other_inline: Number of readable values of all other channels.
        readable_tables: Names of LangGraph's tables that the audit does not read, such as that of embeddings.
        vectors: Numbers of embeddings of items and of deleted items; ``None`` without a table of embeddings.
        residue: Numbers of bytes of a SQLite file that no SQL statement reads; ``None`` for Postgres.
    """

    shares: tuple[Share, ...]
    metadata: Metadata
    addresses: tuple[Addresses, ...]
    inline: tuple[InlineValue, ...]
    other_inline: int
    readable_tables: tuple[str, ...]
    vectors: Vectors | None
    residue: Residue | None

    @property
    def rows(self) -> int:
        """Number of values in the database, sealed or not."""
        return sum(share.rows for share in self.shares)

    @property
    def open_rows(self) -> int:
        """Number of values not sealed by sealpoint: plaintext, legacy, or unknown."""
        return sum(share.rows for share in self.shares if share.kind is not Kind.SEALED)

    @property
    def is_sealed(self) -> bool:
        """Whether all values that a serializer can seal are sealed."""
        return self.open_rows == 0

    @property
    def is_silent(self) -> bool:
        """Whether nothing but known metadata keys is readable outside of the values."""
        found = self.metadata
        has_others = found.unreadable or found.other_rows or any(each.known is None for each in found.fields)
        return not (has_others or self.addresses or any(part.kind != "null" for part in self.inline))


def audit(
    store: RowStore, allowed: Collection[str] = (), entries: Sequence[RingEntry] | None = None
) -> Audit:
    """Audit a whole database. Metadata and names are streamed; the memory used for them is bounded.

    Args:
        store: A database.
        allowed: Metadata keys that may be readable, in addition to `LANGGRAPH_KEYS` and `FRAMEWORK_KEYS`; for
            a field of items, `FIELD` and the field's name.
        entries: The keys listed in a ring file; the result then contains their states.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint.admin.maintenance import SqliteRows
        >>> from sealpoint.admin.maintenance.audit import audit
        >>> with closing(SqliteRows("agent.db")) as store:
        ...     print(audit(store).is_sealed)
        True
    """
    inline, other_inline = _inline(store)
    names = (table.name for table in store.tables() if table.may_be_theirs and not table.is_read)
    return Audit(
        shares=tuple(status(store, entries, more=store.cached())),
        metadata=_metadata(store, allowed),
        addresses=_addresses(store.key_texts()),
        inline=inline,
        other_inline=other_inline,
        readable_tables=tuple(name for name in names if name.rpartition(".")[2].lower() in READABLE_TABLES),
        vectors=store.vectors(),
        residue=store.residue(),
    )


def audit_reasons(found: Audit, *, strict: bool, allow_store: bool = False) -> list[Reason]:
    """Return the reasons why ``ok`` is not true: unsealed values, and with ``strict`` other readable text.

    With ``allow_store``, readable values of LangGraph's stores and caches make the result not proven instead
    of refuted.
    """
    stored = (share for share in found.shares if allow_store and share.table in (CACHE, ITEMS.label))
    accepted = sum(share.rows for share in stored if share.kind is not Kind.SEALED)
    return applying(
        {
            Reason.NOT_SEALED: found.open_rows > accepted,
            Reason.READABLE_TABLES: found.readable_tables and not allow_store,
            Reason.STORE_ALLOWED: accepted or (found.readable_tables and allow_store),
            Reason.NO_ROWS: not found.rows,
            Reason.READABLE_BESIDE: strict and not found.is_silent,
            Reason.OLD_CONTENT_NOT_READ: strict and any(size != 0 for size in found.residue or ()),
        }
    )


def audit_object(found: Audit) -> dict[str, Any]:
    """Return the result of an audit as a dict, the members of a JSON object."""
    return {
        "rows": found.rows,
        "open_rows": found.open_rows,
        "is_silent": found.is_silent,
        **asdict(found),
        "inline": [value._asdict() for value in found.inline],
        "vectors": found.vectors and found.vectors._asdict(),
        "residue": found.residue and found.residue._asdict(),
    }


def shape(value: Any) -> str:
    """Return the shape of a readable value instead of the value.

    The shape of a text is its length and the kinds of its first characters: ``9: aaaa-9999``. The shape of a
    list or dict is its number of elements; the shape of a number is its digits, each as ``9``.
    """
    if isinstance(value, str):
        more = "..." if len(value) > _SHAPE_CHARS else ""
        return f"{len(value)}: {''.join(map(_kind, value[:_SHAPE_CHARS]))}{more}"
    if isinstance(value, list | dict):
        return f"{len(value)} inside"
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Formatting a larger number would take quadratic time.
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
    """Return the name of a key or channel if it looks like a name in source code, otherwise its shape."""
    return text if len(text) <= _LABEL_CHARS and _LABEL.fullmatch(text) else shape(text)


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    types: set[str] = field(default_factory=set)
    examples: dict[str, None] = field(default_factory=dict)

    def add(self, value: Any) -> None:
        self.rows += 1
        self.types.add(_JSON_TYPES[type(value)])
        if len(self.examples) < MAX_EXAMPLES:
            self.examples[shape(value)] = None


@dataclass(slots=True)
class _Names:
    """Counts readable metadata keys and fields of items, and keeps the shapes of a few of their values."""

    tallies: dict[tuple[str, str | None], _Tally] = field(default_factory=dict)
    other_rows: int = 0

    def add(self, key: str, value: Any, known: str | None, prefix: str = "") -> None:
        name = prefix + (_TOKENS if known == "token" else label(key)), known
        if name not in self.tallies and len(self.tallies) == MAX_LABELS:
            self.other_rows += 1
        else:
            self.tallies.setdefault(name, _Tally()).add(value)

    def fields(self) -> tuple[Field, ...]:
        found = [
            Field(key, tally.rows, known, tuple(sorted(tally.types)), tuple(filter(None, tally.examples)))
            for (key, known), tally in self.tallies.items()
        ]
        return tuple(sorted(found, key=lambda each: (each.known is not None, -each.rows)))


def _is_token(key: str, value: Any) -> bool:
    return type(value) is int and value == 1 and TOKEN.match(key) is not None


def _known(key: str, value: Any, allowed: Collection[str]) -> str | None:
    if key == KEY:
        has_more = not isinstance(value, dict) or value.keys() != {"type", "value"}
        return None if has_more or None in read_frame(value) else "sealed"
    if _is_token(key, value):
        return "token"
    if key in LANGGRAPH_KEYS:
        return "langgraph"
    if key in FRAMEWORK_KEYS:
        return "framework"
    return "allowed" if key in allowed else None


def _metadata(store: RowStore, allowed: Collection[str]) -> Metadata:
    names = _Names()
    rows = unreadable = 0
    seals_metadata = any(column.in_json and column != ITEMS for column in store.columns)
    for record in store.records():
        rows += 1
        try:
            fields = decode_metadata(record.metadata)
        except MetadataError:
            unreadable += 1
            continue
        for key, value in fields.items():
            names.add(key, value, _known(key, value, allowed) if seals_metadata or key != KEY else None)
    # Readable fields of sealed items; unsealed items are counted elsewhere.
    for cell in cells_of(store, [column.widened for column in store.columns if column == ITEMS]):
        if cell.tag in (None, JSON):
            continue
        try:
            beside = parse_item(cell.where.beside["fields"])
        except SealpointError:  # Postgres may contain numbers that cannot be parsed
            names.other_rows += 1
            continue
        for key, value in beside.items():
            known = "token" if _is_token(key, value) else "allowed" if FIELD + key in allowed else None
            names.add(key, value, known, FIELD)
    return Metadata(rows, unreadable, names.fields(), names.other_rows)


def _addresses(names: Iterable[tuple[str, str]]) -> tuple[Addresses, ...]:
    found: dict[str, tuple[set[int], dict[str, None]]] = {}
    for column, text in names:
        if _ADDRESS.search(text[:_SEARCHED_CHARS]):
            texts, examples = found.setdefault(column, (set(), {}))
            if len(texts) < MAX_ADDRESSES:
                texts.add(hash(text))
            if len(examples) < MAX_EXAMPLES:
                examples[shape(text)] = None
    return tuple(
        Addresses(column, len(texts), tuple(examples)) for column, (texts, examples) in found.items()
    )


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
