"""The columns with values of LangGraph's Postgres savers and Store, and the SQL to replace values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.cells import ITEMS, Cell, Column, Selection, Where
from sealpoint.admin.databases.rows import UNSEALED_ROW, Rewritten
from sealpoint.guards.limits import MAX_VALUE_BYTES
from sealpoint.guards.pgtables import CHECKPOINT, THREAD, Layout
from sealpoint.seal import places as place
from sealpoint.seal.places import Coordinates
from sealpoint.seal.tag import BOUND_MARK, JSON, LEGACY_END, SEALED_MARK

# ruff: noqa: S608 -- statements are built from constants and placeholders only


METADATA: Final = Column("checkpoints", "metadata", CHECKPOINT, place.METADATA, in_json=True)
# Shallow savers store neither checkpoint ids nor versions, so values cannot be bound to these.
SHALLOW_METADATA: Final = Column(
    "checkpoints", "metadata", THREAD, Coordinates(place.METADATA.kind, THREAD), in_json=True
)
BLOBS: Final = Column("checkpoint_blobs", "blob", (*THREAD, "channel", "version"), place.VALUE)
SHALLOW_BLOBS: Final = Column(
    "checkpoint_blobs",
    "blob",
    (*THREAD, "channel"),
    Coordinates(place.VALUE.kind, (*THREAD, "channel")),
)
WRITES: Final = Column("checkpoint_writes", "blob", (*CHECKPOINT, "task_id", "idx", "channel"), place.WRITE)
_COLUMNS: Final = (METADATA, SHALLOW_METADATA, BLOBS, SHALLOW_BLOBS, WRITES, ITEMS)


def column_of(layout: Layout) -> Column:
    """Return the column of a table that contains values."""
    of_table = (each for each in _COLUMNS if each.table == layout.name)
    return next(each for each in of_table if each is WRITES or each.key == layout.primary)


_JSON_CHARS: Final = 16 * 1024 * 1024 + 1  # one more than the limit
_NAME_CHARS: Final = 10_000  # longer than any key in an index
# SQL for the other columns of a value: JSON as text, metadata and items without the sealed part.
_BESIDE: Final = {
    "parent_checkpoint_id": "parent_checkpoint_id",
    "metadata": f"left((metadata - '{place.KEY}')::text, {_JSON_CHARS})",
    "channel_versions": f"left((checkpoint -> 'channel_versions')::text, {_JSON_CHARS})",
    "fields": f"left((CASE jsonb_typeof(value) WHEN 'object' THEN value - '{place.KEY}' END)::text,"
    f" {_JSON_CHARS})",
}


# For whole rows: the value of a cell is the sealed part, and the other columns are `Where.beside`.
CHECKPOINTS: Final = Column("checkpoints", "metadata", CHECKPOINT, place.METADATA)

_BESIDE_CHECKPOINTS: Final = {
    "document": "checkpoint::text",
    "metadata": "metadata::text",
    "parent": "parent_checkpoint_id",
}
_UPDATE_CHECKPOINTS: Final = """
    UPDATE ONLY {} AS old SET checkpoint = new.document::jsonb, metadata = new.metadata::jsonb,
        parent_checkpoint_id = new.parent
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bytea[],
        %b::bytea[], %b::text[]) AS new(document, metadata, parent, thread_id, checkpoint_ns,
        checkpoint_id, old_document, old_metadata, old_parent)
    WHERE old.thread_id = new.thread_id AND old.checkpoint_ns = new.checkpoint_ns
    AND old.checkpoint_id = new.checkpoint_id
    AND sha256(convert_to(old.checkpoint::text, 'UTF8')) = new.old_document
    AND sha256(convert_to(old.metadata::text, 'UTF8')) = new.old_metadata
    AND old.parent_checkpoint_id IS NOT DISTINCT FROM new.old_parent"""
_UPDATE_ITEMS: Final = """
    UPDATE ONLY {} AS old SET value = new.document::jsonb
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::bytea[]) AS new(document, prefix, key, digest)
    WHERE old.prefix = new.prefix AND old.key = new.key
    AND sha256(convert_to(old.value::text, 'UTF8')) = new.digest"""


def _digest(stored: str | bytes | None) -> bytes | None:
    """Return a digest that replaces an old value in SQL: the value would appear in the server's log."""
    data = stored.encode() if isinstance(stored, str) else stored
    return None if data is None else sha256(data).digest()


@dataclass(frozen=True, slots=True)
class Access:
    """SQL to find, read and replace the cells of a column."""

    column: Column
    holds: str  # whether a row has a cell in this column
    tag: str
    value: str
    size: str  # bytes sent to the client
    beside: Mapping[str, str]  # other columns to read with the value, by name
    new: str = ""  # assignments of an UPDATE, from ``new.new_type`` and ``new.new_value``
    same: str = ""  # condition: the row is unchanged, from ``new.type`` and ``new.digest``
    is_text: bool = False  # the value is stored as base64; the text is the cell's locator

    @property
    def read(self) -> str:
        """SQL expressions to select the columns of a cell: key, tag, value, and others."""
        return ", ".join((*self.column.key, self.tag, self.value, *self.beside.values()))

    @property
    def name(self) -> str:
        """Like `read`, but with NULL for the value and the other columns, and with long texts truncated."""
        texts = (name if name == "idx" else f"left({name}, {_NAME_CHARS})" for name in self.column.key)
        return ", ".join((*texts, f"left({self.tag}, {_NAME_CHARS})", "NULL", *("NULL" for _ in self.beside)))

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield each row of the result of a SELECT as a cell."""
        end = len(self.column.key)
        for row in rows:
            tag, stored, *others = row[end:]
            value = place.decode_value(stored) if self.is_text else stored
            if tag == JSON and stored is not None and self.column.coordinates == place.ITEM:
                value = stored.encode()
            beside = dict(zip(self.beside, others, strict=True))
            where = Where(self.column, row[:end], stored if self.is_text else None, beside)
            if self.column == CHECKPOINTS and tag == UNSEALED_ROW:
                tag = None
            yield Cell(value, tag, where)

    def replacement(
        self, cell: Cell, tag: str, value: bytes, parent: Any = None, metadata: Any = None, document: str = ""
    ) -> tuple[Any, ...]:
        """Return the parameters of `update` for one cell: new values, key, and the old values to compare."""
        key, old, beside = cell.where.key, cell.where.locator, cell.where.beside
        if self.column == CHECKPOINTS:  # tag and value are in the metadata
            same = _digest(beside["document"]), _digest(beside["metadata"]), beside["parent"]
            return document, metadata, parent, *key, *same
        if "value" in beside:  # a whole item
            return document, *key, _digest(beside["value"])
        if self.is_text:
            return tag, place.encode_value(value), *key, cell.tag, _digest(old)
        return tag, value, *key, cell.tag, _digest(cell.value)

    def update(self, layout: Layout) -> str:
        """Return the UPDATE that replaces the cells whose key, tag and value have not changed."""
        if self.column == CHECKPOINTS:
            return _UPDATE_CHECKPOINTS
        if "value" in self.beside:
            return _UPDATE_ITEMS
        key = self.column.key
        kinds = [layout.types.get(name, "text") for name in key]
        types = ["text", "text" if self.is_text else "bytea", *kinds, "text", "bytea"]
        same_key = " AND ".join(f"old.{name} = new.{name}" for name in layout.primary)
        return f"""
            UPDATE ONLY {{}} AS old SET {self.new}
            FROM unnest({", ".join(f"%b::{kind}[]" for kind in types)})
                AS new(new_type, new_value, {", ".join(key)}, type, digest)
            WHERE {same_key} AND {self.same}"""


@cache
def access_to(column: Column, of_thread: str = "true") -> Access:
    """Return the SQL for the cells of a column, limited to threads that meet a condition."""
    beside = {name: _BESIDE[name] for name in column.beside}
    if column.name == "blob":
        return Access(
            column,
            # A channel of type `empty` has no value.
            holds=f"(type IS DISTINCT FROM 'empty' OR blob IS NOT NULL) AND {of_thread}",
            tag="type",
            value="blob",
            size="octet_length(blob)",
            beside=beside,
            new="type = new.new_type, blob = new.new_value",
            same="old.type IS NOT DISTINCT FROM new.type"
            " AND sha256(old.blob) IS NOT DISTINCT FROM new.digest",
        )
    name, found = column.name, f"{column.name} -> '{place.KEY}'"
    old, holds = f"old.{found}", f"jsonb_exists({name}, '{place.KEY}') AND {of_thread}"
    tag, value = _sealed_tag(f"({found} ->> 'type')"), f"({found} ->> 'value')"
    if column.coordinates == place.ITEM:
        is_frame = "frame = jsonb_build_object('type', frame -> 'type', 'value', frame -> 'value')"
        sealed = _sealed_tag("(frame ->> 'type')")
        tag = _of_item(f"CASE WHEN {is_frame} THEN {sealed} END", f"'{JSON}'")
        value, holds = _of_item("frame ->> 'value'", "value::text"), "true"
    return Access(
        column,
        holds=holds,
        tag=tag,
        value=value,
        size=f"octet_length({value})",
        beside=beside,
        new=f"{name} = jsonb_set(old.{name}, '{{{{{place.KEY}}}}}', {old}"
        " || jsonb_build_object('type', new.new_type, 'value', new.new_value))",
        same=f"{old} ->> 'type' = new.type AND sha256(convert_to({old} ->> 'value', 'UTF8')) = new.digest",
        is_text=True,
    )


def _sealed_tag(tag: str) -> str:
    """Return SQL that is the tag if it is of a sealed value; NULL for plaintext and legacy values."""
    return (
        f"(CASE WHEN strpos({tag}, '{SEALED_MARK}') > 0"
        f" AND right({tag}, {len(LEGACY_END)}) <> '{LEGACY_END}' THEN {tag} END)"
    )


def _of_item(framed: str, plain: str) -> str:
    """Return SQL that is ``framed`` for an item with a frame, and ``plain`` for any other JSON object.

    Each function call on a large value decompresses all of it, so the frame is extracted once.
    """
    return (
        f"(SELECT CASE WHEN frame IS NOT NULL THEN {framed}"
        f" WHEN jsonb_typeof(value) = 'object' THEN {plain} END"
        f" FROM (SELECT value -> '{place.KEY}' AS frame OFFSET 0) AS item)"
    )


def access_to_rows(column: Column, of_thread: str, *, has_task_path: bool) -> Access:
    """Return the SQL to find, read and replace whole rows of a column's table."""
    found = access_to(column, of_thread)
    if column == CHECKPOINTS:
        return replace(
            found,
            holds=of_thread,
            tag=f"coalesce({found.tag}, '{UNSEALED_ROW}')",
            size="octet_length(checkpoint::text) + octet_length(metadata::text)",
            beside=_BESIDE_CHECKPOINTS,
        )
    if column == ITEMS:
        return replace(found, beside={"value": "value::text"})
    beside = {"task_path": "task_path" if has_task_path else "''"} if column == WRITES else {}
    return replace(found, beside=beside)


# Shortens a text too long for a tag; keeps the marks of a sealed value and the key id.
SHORT_TAG: Final = f"""CASE WHEN length(tag) <= 100 THEN tag
    ELSE left(tag, 49) || CASE strpos(tag, '{SEALED_MARK}') WHEN 0 THEN ' ' ELSE '{SEALED_MARK}' END
        || right(tag, 50) END"""


class Bound(NamedTuple):
    """The end of a batch."""

    key: tuple[Any, ...]  # the primary key of the last row
    rows: int
    is_last: bool
    is_oversized: bool = False  # a single row that is too large to be read

    @property
    def next(self) -> tuple[Any, ...] | None:
        """The primary key after which the next batch begins; ``None`` after the last batch."""
        return None if self.is_last else self.key


def bound_of(found: Sequence[tuple[Any, ...]], rows: int, size_bytes: int) -> Bound | None:
    """Return the end of a batch of about ``size_bytes``, from the sizes and keys of the next rows."""
    before: tuple[Any, ...] = ()
    for number, (size, *key) in enumerate(found, 1):
        if size > MAX_VALUE_BYTES:  # a batch of its own
            return Bound(before or tuple(key), max(number - 1, 1), is_last=False, is_oversized=not before)
        before = tuple(key)
        size_bytes -= size
        if size_bytes <= 0 or number == rows:
            return Bound(before, number, is_last=False)
    return Bound(before, len(found), is_last=True) if found else None


@dataclass(slots=True)
class Pass:
    """The state of a pass of `rewrite` over all tables."""

    seen: int = 0
    changed: int = 0  # changed by this run or by other writers
    locked: int = 0  # locked by other sessions

    @property
    def is_stuck(self) -> bool:
        """Whether another pass would change nothing until other sessions release their locks."""
        return self.locked > 0 and not self.changed

    def add(self, rows: int, done: Rewritten) -> None:
        """Count a batch; ``rows`` is the number of rows in the batch, including skipped locked rows."""
        self.seen += done.seen
        self.changed += done.changed + done.raced
        self.locked += max(0, rows - done.seen)


def condition(access: Access, primary: str, after: Any, selection: Selection) -> tuple[str, tuple[Any, ...]]:
    """Return the condition after WHERE and its parameters, for the selected rows (see `Selection.takes`)."""
    if selection.thread_id is not None and access.column.coordinates == place.ITEM:
        selection, access = replace(selection, thread_id=None), replace(access, holds="false")
    tag, parts = f"coalesce({access.tag}, '')", [access.holds]

    def ends_with(end: str) -> str:
        return f"right({tag}, {len(end)}) = convert_from(decode('{end.encode().hex()}', 'hex'), 'UTF8')"

    if after is not None:
        parts.append(f"({primary}) > ({places(after)})")
    is_bound = f"strpos(substr({tag}, strpos({tag}, '{SEALED_MARK}') + 1), '{BOUND_MARK}') > 0"
    is_sealed = f"strpos({tag}, '{SEALED_MARK}') > 0"
    parts += selection.conditions(f"({is_sealed})", f"({is_sealed} AND {is_bound})", ends_with, "%s")
    return " AND ".join(parts), (*(after or ()), *selection.parameters)


def size_of(access: Access) -> str:
    """Return SQL for the number of bytes sent for a row, including large tags and key columns."""
    beside = () if access.column == CHECKPOINTS else access.beside.values()  # included in ``access.size``
    texts = [access.tag, *(column for column in access.column.key if column != "idx"), *beside]
    excess = [f"greatest(octet_length({text}) - 1000, 0)" for text in texts]
    return " + ".join([f"coalesce({access.size}, 0)::bigint", *excess])


def places(values: Sequence[Any]) -> str:
    """Return a placeholder for each value, joined by commas."""
    return ", ".join(["%s"] * len(values))
