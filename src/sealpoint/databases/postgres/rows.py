"""PostgresRows: the values of LangGraph's Postgres savers, in the order of their primary keys.

A batch is locked while it is changed, and what others have locked is left out of it: any number
of workers share the rows, and nobody ever waits for a writer.
"""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from time import perf_counter
from typing import Any, Final

from sealpoint.databases.postgres.connection import connect, name_of
from sealpoint.databases.postgres.scan import IS_VALUE, Bound, Pass, condition, places, size_of
from sealpoint.databases.postgres.sessions import holding, locked
from sealpoint.databases.postgres.tables import CHANGE, READ, CheckedTables
from sealpoint.databases.rows import (
    BATCH,
    EVERYTHING,
    MAX_TAGS,
    Batch,
    Cell,
    Change,
    InlineValue,
    Page,
    Rewritten,
    Selection,
    Table,
    TagCount,
    Unreadable,
    require_few_tags,
)
from sealpoint.errors import DatabaseCorruptError

_MOST: Final = 1 << 20  # rows of a page: what the batch says, where nothing is lost
_METADATA_ROWS: Final = 10
_NAME_ROWS: Final = 10_000
# Of a text that is too long for a tag, what tells whether it counts as sealed, and under which key.
_TAG: Final = """CASE WHEN length(type) <= 100 THEN type
    ELSE left(type, 49) || CASE strpos(type, '+') WHEN 0 THEN ' ' ELSE '+' END || right(type, 50) END"""
_NAME_CHARS: Final = 2_001  # one more than is looked at
_METADATA_CHARS: Final = 16 * 1024 * 1024 + 1  # one more than is read

_NAMED: Final = ("thread_id", "checkpoint_ns", "channel", "task_path")
_INLINE: Final = """
    SELECT left(inlined.key, 2001), jsonb_typeof(inlined.value), count(*) FROM ONLY {}
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(checkpoint -> 'channel_values')
        WHEN 'object' THEN checkpoint -> 'channel_values' ELSE '{{}}' END) AS inlined
    GROUP BY 1, 2 ORDER BY 1, 2"""


class PostgresRows:
    """A `RowStore` over one schema of a Postgres database. For one thread.

    It needs a session of its own: a pooler that gives a session's transactions to several
    clients loses the settings and the lock that it depends on.
    """

    def __init__(self, url: str, *, writable: bool = False) -> None:
        """Connect, and check the tables. Nothing is made or altered.

        Args:
            url: What libpq takes, with the schema in ``options=-csearch_path=...`` if it is not
                the account's own.
            writable: Whether `rewrite` will be called.

        Raises:
            DatabaseMissingError: If no connection is to be had.
            SchemaError: If the tables are missing, or are not LangGraph's.
            MissingExtraError: If psycopg is not installed.
        """
        self._name = name_of(url)
        self.connection, path = connect(url, writable=writable)
        try:
            self._checked = CheckedTables(self.connection, path, url)
        except BaseException:
            self.connection.close()
            raise
        self._found = self._checked.found
        layouts = self._found.layouts.values()
        self._pass = Pass()
        self._most = _MOST
        self.tables = tuple(layout.table for layout in layouts if layout.table is not None)

    @property
    def name(self) -> str:
        """The URL without user, password and options."""
        return self._name

    @property
    def is_superuser(self) -> bool:
        """Whether the connection has more rights than any run needs."""
        return self._checked.is_superuser

    def close(self) -> None:
        """Close the connections."""
        self._checked.close()

    def hold(self) -> AbstractContextManager[None]:
        """Keep other runs off this schema: a lock of this session, gone with it.

        Workers of one run open stores of their own, and only the one that starts them holds.
        """
        return holding(self.connection, self._found.schema_oid, self.name)

    def count(self) -> list[TagCount]:
        """Return how many values carry which tag, by table and tag. Reads no value."""
        statement = f"""
            SELECT {_TAG}, count(*), coalesce(sum(octet_length(blob)), 0)::bigint FROM ONLY {{}}
            WHERE {IS_VALUE} GROUP BY 1 ORDER BY 1 LIMIT {MAX_TAGS + 1}"""
        counts = []
        for table in self.tables:
            found = self._fetch(statement, (), table.name)
            require_few_tags(table, found)
            counts += [TagCount(table.name, *row) for row in found]
        return counts

    def read(self, table: Table, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH) -> Page:
        """Return the selected values after a primary key. See `RowStore.read`."""
        bound: Bound | None = None
        values: list[Cell] = []
        try:
            with self._checked.transaction(table.name, READ):
                bound = self._bound(table, after, selection, batch)
                if bound is not None:
                    values = self._values(table, after, bound, selection)
        except DatabaseCorruptError:
            if bound is None:
                raise
            if self._narrow(bound):
                return self.read(table, after, selection, batch)
            return Page(self._alone(table, bound.key), bound.next)
        if bound is None:
            return Page((), None)
        self._widen()
        return Page(values, bound.next)

    def _narrow(self, bound: Bound) -> bool:
        """Ask for half of a page that holds a lost value; return whether it can be narrowed at all."""
        self._most = max(1, bound.rows // 2)
        return bound.rows > 1

    def _widen(self) -> None:
        """Ask for twice as much after a page without a lost value: such values often stand together."""
        self._most = min(2 * self._most, _MOST)

    def _alone(self, table: Table, key: tuple[Any, ...]) -> list[Cell]:
        """Return the value with this key, with `Unreadable` in place of bytes that are lost."""
        try:
            return self._at(table, key, "blob")
        except DatabaseCorruptError:
            return [value._replace(blob=Unreadable()) for value in self._at(table, key, "NULL")]

    def _at(self, table: Table, key: tuple[Any, ...], blob: str) -> list[Cell]:
        statement = f"""
            SELECT {", ".join(table.key)}, type, {blob} FROM ONLY {{}}
            WHERE ({self._primary(table)}) = ({places(key)})"""
        return [Cell(table, row[:-2], *row[-2:]) for row in self._fetch(statement, key, table.name)]

    def rewrite(
        self,
        table: Table,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Change a batch of values, without those that others have locked. See `RowStore.rewrite`.

        Raises:
            LockedError: At the end of a pass over all tables in which nothing was changed, and in which
                others had locked what is still to be changed.
        """
        if after is None and table == self.tables[0]:
            self._pass = Pass()
        bound: Bound | None = None
        done = Rewritten(0, 0, 0, 0, 0.0, None)
        try:
            with self._checked.transaction(table.name, CHANGE):
                bound = self._bound(table, after, selection, batch)
                start = perf_counter()  # until here no row is locked
                if bound is not None:
                    done = self._change(table, after, bound, change, selection)
            done = _locked_since(start, done)
        except DatabaseCorruptError:
            if bound is None:
                raise
            if self._narrow(bound):
                return self.rewrite(table, after, change, selection, batch)
            done = self._rewrite_alone(table, after, bound, change, selection)
        else:
            self._widen()
        if bound is None:
            if self._pass.is_stuck and table == self.tables[-1]:
                self._require_unlocked(selection)
            return done
        self._pass.add(bound.rows, done)
        return done._replace(last=bound.key) if self._pass.is_stuck else done

    def _rewrite_alone(
        self, table: Table, after: Any, bound: Bound, change: Change, selection: Selection
    ) -> Rewritten:
        """Change the one value of a batch that could not be read, if it can be read now."""
        lost = [value for value in self._alone(table, bound.key) if isinstance(value.blob, Unreadable)]
        if lost:
            change(lost[0])  # which cannot open it, and says so
            return Rewritten(1, 0, 0, 0, 0.0, bound.next)
        # A writer has replaced it meanwhile, or it is something else that cannot be read.
        with self._checked.transaction(table.name, CHANGE):
            start = perf_counter()
            done = self._change(table, after, bound, change, selection)
        return _locked_since(start, done)

    def _change(
        self, table: Table, after: Any, bound: Bound, change: Change, selection: Selection
    ) -> Rewritten:
        """Change the values of a batch, in the transaction that is open."""
        values = self._values(table, after, bound, selection, "FOR UPDATE SKIP LOCKED")
        updates = [
            (*changed, *value.key, value.tag, _digest(value.blob))
            for value in values
            if (changed := change(value)) is not None
        ]
        swapped = self._swap(table, updates) if updates else 0
        size = sum(len(value.blob) for value in values if value.blob is not None)
        return Rewritten(len(values), swapped, len(updates) - swapped, size, 0.0, bound.next)

    def _require_unlocked(self, selection: Selection) -> None:
        """Raise `LockedError` if what the pass has left out is still to be changed."""
        left = sum(count.rows for count in self.count() if selection.takes(count.tag)) - self._pass.seen
        if left > 0:
            raise locked(self.connection, [*self._found.oids.values()], min(left, self._pass.locked))

    def _bound(self, table: Table, after: Any, selection: Selection, batch: Batch) -> Bound | None:
        """Find where the batch ends, by the sizes alone: no value leaves the server for it.

        It is read in the transaction that is open, and `_values` follows.
        """
        rows = max(1, min(batch.rows, self._most))
        primary = self._primary(table)
        where, parameters = condition(primary, after, selection)
        statement = f"""
            SELECT {size_of(table)}, {primary} FROM ONLY {{}}
            WHERE {where} ORDER BY {primary} LIMIT {rows:d}"""
        found = self._checked.select(table.name, statement, parameters, is_last=False)
        room = batch.size_bytes
        for place, (size, *key) in enumerate(found, 1):
            room -= size or 0
            if room <= 0 or place == rows:
                return Bound(tuple(key), place, is_last=False)
        return Bound(tuple(key), len(found), is_last=True) if found else None

    def _values(
        self, table: Table, after: Any, bound: Bound, selection: Selection, lock: str = ""
    ) -> list[Cell]:
        primary = self._primary(table)
        where, parameters = condition(primary, after, selection)
        statement = f"""
            SELECT {", ".join(table.key)}, type, blob FROM ONLY {{}}
            WHERE {where} AND ({primary}) <= ({places(bound.key)}) ORDER BY {primary} {lock}"""
        found = self._fetch(statement, (*parameters, *bound.key), table.name)
        return [Cell(table, row[:-2], *row[-2:]) for row in found]

    def _swap(self, table: Table, updates: Sequence[tuple[Any, ...]]) -> int:
        """Store new tags and values where key, old tag and old value are still the same."""
        types = self._found.layouts[table.name].types
        kinds = ["text", "bytea", *(types.get(column, "text") for column in table.key), "text", "bytea"]
        arrays = ", ".join(f"%b::{kind}[]" for kind in kinds)
        columns = ", ".join(table.key)
        same = " AND ".join(
            f"old.{column} = new.{column}" for column in self._found.layouts[table.name].primary
        )
        statement = f"""
            UPDATE ONLY {{}} AS old SET type = new.new_type, blob = new.new_blob
            FROM unnest({arrays}) AS new(new_type, new_blob, {columns}, type, digest)
            WHERE {same} AND old.type IS NOT DISTINCT FROM new.type
            AND sha256(old.blob) IS NOT DISTINCT FROM new.digest"""
        return self._checked.update(table.name, statement, [*map(list, zip(*updates, strict=True))])

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield what is readable in key columns. See `RowStore.names`."""
        for table, columns in self._found.columns.items():
            for column in _NAMED:
                if column in columns and only in (None, column):
                    text_of = f"left({column}, {_NAME_CHARS})"
                    for (text,) in self._scan(table, f"DISTINCT {text_of}", text_of, _NAME_ROWS):
                        if text is not None:
                            yield column, text

    def metadata(self) -> Iterator[str]:
        """Yield the metadata of each checkpoint, as the text of its JSON."""
        layout = self._found.layouts.get("checkpoints")
        if layout is not None:
            key = ", ".join(layout.primary)
            columns = f"{key}, left(metadata::text, {_METADATA_CHARS})"
            for *_, metadata in self._scan("checkpoints", columns, key, _METADATA_ROWS):
                yield metadata

    def inline(self) -> Iterator[InlineValue]:
        """Yield the strings, numbers and the like that stand readable in the checkpoints."""
        if "checkpoints" in self._found.layouts:
            yield from (InlineValue(*row) for row in self._fetch(_INLINE, (), "checkpoints"))

    def _scan(self, table: str, columns: str, key: str, rows: int) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` in the order of ``key``, with which they begin, some rows at a time."""
        after: tuple[Any, ...] = ()
        while True:
            where = f"WHERE ({key}) > ({places(after)})" if after else ""
            statement = f"SELECT {columns} FROM ONLY {{}} {where} ORDER BY {key} LIMIT {rows:d}"
            found = self._fetch(statement, after, table)
            yield from found
            if len(found) < rows:
                return
            after = found[-1][: key.count(",") + 1]

    def _primary(self, table: Table) -> str:
        return ", ".join(self._found.layouts[table.name].primary)

    def _fetch(self, statement: str, parameters: Sequence[Any], table: str) -> list[tuple[Any, ...]]:
        return self._checked.select(table, statement, parameters)


def _locked_since(start: float, done: Rewritten) -> Rewritten:
    """Add how long rows were locked, up to the end of their transaction."""
    return done._replace(lock_seconds=perf_counter() - start) if done.seen else done


def _digest(blob: bytes | None) -> bytes | None:
    """Return what tells an old value from another: the value itself would stand in the server's log."""
    return None if blob is None else sha256(blob).digest()
