"""The tables of a saver and a Store, and transactions on them that are safe against the tables' owner.

The owner of a table can make code run when the table is read or changed: by triggers, rules, a view of the
same name, expressions of indexes and of statistics. So each transaction locks its table by name, checks the
table, and uses ``ONLY``, which ignores inheriting tables. In each of these lock modes agents can read and
write:

    ACCESS SHARE             needs only the right SELECT. Excludes a change of name or schema,
                             DROP, a view, rules, policies, column types.
    ROW EXCLUSIVE            to change rows. Also excludes triggers, foreign keys and CREATE INDEX.
    SHARE UPDATE EXCLUSIVE   also excludes CREATE INDEX CONCURRENTLY, CREATE STATISTICS, INHERIT:
                             all remaining changes.

The last mode conflicts with itself and with VACUUM. It is used only for a superuser, with whose rights an
expression would run: a second session, the guard, holds it until the last SELECT of the first session is
planned, and for an UPDATE. Other roles should have no rights beyond the tables, so that an expression
gains no rights.

A partition is read and changed like a table, by its own name. The list of partitions is compared with the
list at opening: partitions cannot be locked together with their table, and might be exchanged before.
"""

# ruff: noqa: S608 -- statements are built from constants and placeholders only

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from sealpoint.admin.databases.cells import ITEMS, Column
from sealpoint.admin.databases.postgres.connection import (
    WAIT_FOR_OTHER,
    SearchPath,
    connect,
    is_superuser,
    same_server,
    translate_errors,
)
from sealpoint.admin.databases.rows import VECTORS, Table
from sealpoint.errors import SchemaError, TablesMissingError, excerpt
from sealpoint.guards.pgtables import TABLES, Layout, Row, layout_of, refuse_schema, require_plain
from sealpoint.postgres import require_psycopg

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed

SAVER: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
NAMES: Final = (*SAVER, ITEMS.table)
# SQL condition: a table may be LangGraph's. Others also have a table ``store``, such as our thread store.
IS_THEIRS: Final = """(c.relname <> 'store' OR (SELECT count(*) FROM pg_attribute
    WHERE attrelid = c.oid AND attname IN ('prefix', 'key', 'value') AND NOT attisdropped) = 3)"""


def grants(
    schema: str, tables: Collection[str] = (), parts: Collection[Table] = (), *, rebinds: bool = False
) -> str:
    """Return the SQL statements that create a maintenance role, as in docs/postgres.md.

    The role gets rights to ``tables`` and their partitions; if there are no tables yet, to a saver's tables.
    """
    quoted = schema if schema == "public" else _quoted(schema)
    start = "" if schema == "public" else f"{quoted}."
    checkpoints, blobs, writes, store, vectors = (
        start + f", {start}".join([name, *(_quoted(part.name) for part in parts if part.root == name)])
        for name in (*NAMES, VECTORS)
    )
    made = f"""\
CREATE ROLE sealpoint LOGIN;
GRANT USAGE ON SCHEMA {quoted} TO sealpoint;
"""
    if not tables or not set(SAVER).isdisjoint(tables):
        made += f"""\
GRANT SELECT ON {checkpoints}, {blobs}, {writes} TO sealpoint;
GRANT UPDATE ON {blobs}, {writes} TO sealpoint;
GRANT UPDATE ON {checkpoints} TO sealpoint;  -- leave this out if no agent uses SealedSaver
-- for `sealpoint erase`: GRANT UPDATE, DELETE ON {checkpoints}, {blobs}, {writes} TO sealpoint;
""" + (f"GRANT INSERT, DELETE ON {blobs} TO sealpoint;\n" if rebinds else "")
    if ITEMS.table in tables:
        made += f"GRANT SELECT, UPDATE ON {store} TO sealpoint;\n"
        made += f"-- for `sealpoint erase`: GRANT DELETE ON {store} TO sealpoint;\n"
    if VECTORS in tables:
        made += f"GRANT SELECT ON {vectors} TO sealpoint;\n"
        made += f"-- for `sealpoint erase`: GRANT UPDATE, DELETE ON {vectors} TO sealpoint;\n"
    return made


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


_ALL: Final = f"""{TABLES} r.oid IN (
    SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND c.relname = ANY(%s) AND {IS_THEIRS})"""
_SOME: Final = f"""{TABLES} n.nspname = %s AND c.relname = ANY(%s)
    AND r.relnamespace = n.oid AND r.relname = ANY(%s)"""
_ELSEWHERE: Final = f"""
    SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%s) AND {IS_THEIRS}
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
    AND n.nspname <> %s ORDER BY 1 LIMIT 1"""

_SAY_WHICH: Final = "name the schema in the URL: ?options=-csearch_path%3DNAME"
_AGAIN: Final = "if you made the change, run the same command again when the change has ended"
_VERSION: Final = "SELECT xmin::text FROM pg_namespace WHERE oid = %s"


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of a saver, a Store, or both in one schema, by name."""

    schema: str
    schema_oid: int
    tables: dict[str, Row]  # including partitions
    layouts: dict[str, Layout]
    columns: dict[str, tuple[str, ...]]

    def tree(self, table: str) -> list[str]:
        """Return a table and all its partitions."""
        return [name for name, row in self.tables.items() if row.root == table]

    def parts(self, table: str) -> list[str]:
        """Return the tables that contain the rows of a table: its partitions, or the table itself."""
        return [name for name in self.tree(table) if not self.tables[name].is_partitioned] or [table]

    def place(self, column: Column, after: Any) -> tuple[Column, Any]:
        """Return the column in the partition of a position (see `position`), and the primary key."""
        part, key = after or (self.parts(column.table)[0], None)
        return replace(column, part=part), key

    def position(self, column: Column, key: Any) -> Any:
        """Return the position after ``key`` in a partition, or in the next partition; ``None`` at the end."""
        if key is not None:
            return column.part, key
        parts = self.parts(column.table)
        later = parts[parts.index(column.part) + 1 :]
        return (later[0], None) if later else None


def find_tables(connection: Connection[Any], path: SearchPath, names: Sequence[str] = NAMES) -> Found:
    """Find the named tables in the first schema of the path that has them, and check the tables.

    If another schema has tables of these names, the path must be set by or for the role itself: otherwise
    an account that can create schemas could hide the real tables.
    """
    first: dict[str, Row] = {}
    with translate_errors():
        found = [Row(*row) for row in connection.execute(_ALL, (path.schemas, list(names)))]
        roots = [row for row in found if row.oid == row.root_oid]
        for row in sorted(roots, key=lambda row: (names.index(row.name), path.schemas.index(row.schema))):
            first.setdefault(row.name, row)
        parts = [row for row in found if row.root_oid == first[row.root].oid]
        for row in sorted(parts):  # first, so that a partition elsewhere cannot hide it
            require_plain(row)
        tables = first | {row.name: row for row in sorted(parts)}
        if not first.keys() - {"checkpoints"}:
            refuse = refuse_schema if first else TablesMissingError
            raise refuse(
                "the database has none of LangGraph's tables 'checkpoint_blobs', 'checkpoint_writes'"
                " and 'store'"
            )
        places = {(row.schema, row.schema_oid) for row in first.values()}
        if len(places) > 1:
            raise SchemaError("the search path leads to tables in several schemas", hint=_SAY_WHICH)
        (place,) = places
        own = [name for group in (SAVER, (ITEMS.table,)) if first.keys() & set(group) for name in group]
        wanted = (own, place[0])
        if not path.is_own and (other := connection.execute(_ELSEWHERE, wanted).fetchone()) is not None:
            raise SchemaError(
                f"the schemas {excerpt(place[0])} and {excerpt(other[0])} both have LangGraph's tables",
                hint=_SAY_WHICH,
            )
    return Found(
        *place,
        tables,
        {row.root: layout_of(row) for row in tables.values()},
        {name: tuple(column for column, *_ in row.columns) for name, row in first.items()},
    )


def check_tables(connection: Connection[Any], found: Found, *names: str) -> str:
    """Check tables again after this session has locked them by name; return the schema's version."""
    before = [found.tables[name] for name in names]
    named = (found.schema, [*names], [row.root for row in before])
    rows = [Row(*row) for row in connection.execute(_SOME, named)]
    for row in rows:
        require_plain(row)
    wanted = {row.name: (row.oid, row.root_oid, row.schema_oid, found.layouts[row.root]) for row in before}
    if {row.name: (row.oid, row.root_oid, row.schema_oid, layout_of(row)) for row in rows} != wanted:
        raise refuse_schema("the tables were changed after the database was opened")
    for row in rows:
        if row.tree != found.tables[row.name].tree:
            raise SchemaError(f"partitions of table {row.root!r} were attached or detached", hint=_AGAIN)
    return rows[0].schema_version


READ: Final = "ACCESS SHARE"
CHANGE: Final = "ROW EXCLUSIVE"
_EXCLUDE: Final = "SHARE UPDATE EXCLUSIVE"
_RETRY_SECONDS: Final = 10.0
# A schema cannot be renamed while its catalog row is locked. Only a superuser may lock this row.
_KEEP_NAME: Final = "SELECT FROM pg_namespace WHERE oid = {:d} FOR KEY SHARE"


class CheckedTables:
    """A session with transactions on the tables of a saver."""

    def __init__(self, url: str, *, writable: bool, names: Sequence[str] = NAMES) -> None:
        self._names = names
        self._guard: Connection[Any] | None = None
        self._is_open = self._has_state = False
        self.connection, path = connect(url, writable=writable)
        self._url = same_server(url, self.connection)
        try:
            self.is_superuser = is_superuser(self.connection)
            self._found = find_tables(self.connection, path, names)
            if self.is_superuser:
                self._guard, _ = connect(self._url, writable=True)  # locking a row is a write
                with translate_errors():
                    self._guard.execute("SET ROLE NONE")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the sessions."""
        self.connection.close()
        if self._guard is not None:
            self._guard.close()

    @contextmanager
    def transaction(self, table: str, mode: str, *more: str) -> Iterator[None]:
        """Begin a transaction in which a table is locked in ``mode`` and checked before other statements.

        Tables in ``more``, with their partitions, are also checked, and locked until the transaction ends.
        """
        more = tuple(name for each in more for name in self._found.tree(each))
        with translate_errors(self._rights(mode, table, *more)):
            try:
                if self._has_state:
                    with self.connection.transaction():  # a savepoint: errors do not end `one_state`
                        self._is_open = True
                        yield
                    return
                self._begin([table], mode, more)
                self._is_open = True
                yield
                self._require_same_name()
                self.connection.execute("COMMIT")
            finally:
                self._is_open = False
                if not self._has_state:
                    self._end()

    @contextmanager
    def _state(self) -> Iterator[None]:
        with translate_errors(self._rights(READ, *self._found.tables)):
            try:
                self._begin([*self._found.tables], READ, kind="ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self.connection.execute(WAIT_FOR_OTHER)
                yield
            finally:
                self._has_state = False
                self._end()

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """Read one snapshot in all reading transactions within the context. See `RowStore.one_state`.

        Agents can read and write meanwhile. For a superuser, the guard keeps its locks until the end: VACUUM
        and CREATE INDEX on these tables wait.
        """
        with self._state():
            if self._guard is not None:
                self._guard.execute(WAIT_FOR_OTHER)
            self._has_state = True
            yield
            self._require_same_name(in_snapshot=True)

    @contextmanager
    def _declared(self, cursors: Mapping[str, tuple[str, str]]) -> Iterator[None]:
        """Declare cursors over one snapshot of all tables; agents can read and write meanwhile.

        All statements are planned at the beginning, so later changes of the tables do not affect them.
        """
        with self._state():
            for name, (table, statement) in cursors.items():
                declared = f"DECLARE {name} BINARY NO SCROLL CURSOR FOR {statement}"
                self.connection.execute(_named(declared, self._found, table))
            self._require_same_name(in_snapshot=True)
            _roll_back(self._guard)
            yield

    def select(
        self, table: str, statement: str, parameters: Sequence[Any], *, is_last: bool = True
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, with ``{}`` for the table, in the open transaction or in a new one.

        Once the last SELECT of a transaction is planned, other sessions may alter the table again.
        """
        if table not in self._found.parts(self._found.tables[table].root):
            raise ValueError(f"read the partitions of {table}, not the table")
        is_open = nullcontext() if self._is_open else self.transaction(table, READ)
        with is_open, self.connection.cursor(binary=True) as cursor:
            if self._guard is None or not is_last or self._has_state:
                return cursor.execute(_named(statement, self._found, table), parameters).fetchall()
            # A plan is fixed, so changes of the table need not wait until all rows are fetched.
            declared = f"DECLARE sealpoint BINARY NO SCROLL CURSOR FOR {statement}"
            cursor.execute(_named(declared, self._found, table), parameters)
            _roll_back(self._guard)
            return cursor.execute("FETCH ALL FROM sealpoint").fetchall()

    def execute(self, table: str, statement: str, rows: Sequence[tuple[Any, ...]] = ()) -> Cursor[Any]:
        """Execute a statement that changes a table, in the open transaction; ``{}`` stands for the table.

        The parameters are arrays, one for each column of ``rows``.
        """
        routing = [name for name in self._found.tree(table) if self._found.tables[name].is_partitioned]
        if self._guard is not None or routing:  # no partition is attached meanwhile
            # Sessions that wait for the first lock of this session do not delay its second lock.
            locking = f"LOCK TABLE ONLY {{}} IN {_EXCLUDE} MODE"
            self.connection.execute(_named(locking, self._found, *(routing or [table])))
            if self._guard is not None:
                self._hold(self._guard)
            check_tables(self.connection, self._found, table)
        arrays = [*map(list, zip(*rows, strict=True))]
        return self.connection.execute(_named(statement, self._found, table), arrays)

    def _begin(self, tables: Sequence[str], mode: str, more: Sequence[str] = (), kind: str = "") -> None:
        """Lock and check tables. With a guard, this session never waits: queued sessions get locks first."""
        from psycopg.errors import LockNotAvailable

        end = monotonic() + _RETRY_SECONDS
        while True:
            try:
                if self._guard is not None:
                    self._hold(self._guard, *tables)
                nowait = "" if self._guard is None else "NOWAIT"
                locking = f"BEGIN {kind}; LOCK TABLE ONLY {{}} IN {mode} MODE {nowait}"
                self.connection.execute(_named(locking, self._found, *tables), prepare=False)
                if more:  # a guard would also exclude this session, which changes the tables
                    own = mode if self._guard is None else _EXCLUDE
                    locking = f"LOCK TABLE ONLY {{}} IN {own} MODE {nowait}"
                    self.connection.execute(_named(locking, self._found, *more))
                break
            except LockNotAvailable:
                if self._guard is None or monotonic() > end:
                    raise
                self._end()
        self._schema_version = check_tables(self.connection, self._found, *more, *tables)

    def _hold(self, guard: Connection[Any], *tables: str) -> None:
        """Let the guard session wait for current changes, then exclude changes of tables and schema name."""
        lock = f"LOCK TABLE ONLY {{}} IN {_EXCLUDE} MODE;" if tables else ""
        statements = f"BEGIN; {lock} {_KEEP_NAME.format(self._found.schema_oid)}"
        # Several statements in one string cannot be prepared.
        guard.execute(_named(statements, self._found, *tables), prepare=False)

    def _rights(self, mode: str, *tables: str) -> str:
        rights = "SELECT" if mode == READ else "SELECT, UPDATE"
        if mode == CHANGE and VECTORS in self._names:
            rights += ", DELETE"
        granted = f"GRANT {rights} ON {{}} TO {{role}}"
        role = self.connection.info.user
        return _named(granted, self._found, *tables, role=role, only="").as_string(self.connection)

    def _end(self) -> None:
        _roll_back(self.connection)
        _roll_back(self._guard)

    def _require_same_name(self, *, in_snapshot: bool = False) -> None:
        """Check that the schema was not renamed, because locks on tables do not prevent renaming the schema.

        The guard session, if any, has locked the name during the check. In a snapshot, another session
        checks, because this session cannot see later changes.
        """
        if self._guard is not None:
            return
        with ExitStack() as stack:
            connection = self.connection
            if in_snapshot:
                connection = stack.enter_context(closing(connect(self._url, writable=False)[0]))
            version = connection.execute(_VERSION, (self._found.schema_oid,)).fetchone()
        if version != (self._schema_version,):
            raise refuse_schema("the schema was changed while its tables were being read")


def _named(statement: str, found: Found, *tables: str, only: str = "ONLY ", role: str = "") -> Composed:
    """Insert tables into a statement for ``ONLY {}``, which excludes inheriting tables.

    Named placeholders, for tables that are only read, become the table or all of its partitions.
    """
    from psycopg.sql import SQL, Identifier

    named = {"blobs": "checkpoint_blobs", "checkpoints": "checkpoints", "store": ITEMS.table}
    others = {
        name: SQL("ONLY " * (found.parts(other) == [other])) + Identifier(found.schema, other)
        for name, other in named.items()
    }
    listed = SQL(f", {only}").join(Identifier(found.schema, table) for table in tables)
    return SQL(statement).format(listed, **others, role=Identifier(role))


def _roll_back(connection: Connection[Any] | None) -> None:
    """Roll back the open transaction, if any; do nothing for a closed session."""
    psycopg = require_psycopg()
    status = psycopg.pq.TransactionStatus
    if connection is not None and connection.info.transaction_status in (status.INTRANS, status.INERROR):
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
