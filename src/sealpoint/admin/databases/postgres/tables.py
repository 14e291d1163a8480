"""The tables of a saver and a Store, and transactions over them, protected from changes by their owner.

The owner of a table decides what runs when it is read or changed: triggers, rules, a view in its place,
expressions of indexes and of statistics. So each transaction locks its table by name, checks the table of
that name, and uses ``ONLY``, which ignores tables that inherit from it. With each of these modes agents can
read and write:

    ACCESS SHARE             available with SELECT. Excludes another name, another schema,
                             DROP, a view, rules, policies, column types.
    ROW EXCLUSIVE            to change rows. Excludes triggers, foreign keys and CREATE INDEX too.
    SHARE UPDATE EXCLUSIVE   excludes CREATE INDEX CONCURRENTLY, CREATE STATISTICS and INHERIT too:
                             all the rest.

The last mode conflicts with itself, and with VACUUM. It is taken for a superuser, with whose rights
an expression would run: by a second session, the guard, until the first one's last SELECT is planned,
and for an UPDATE. Any other role is advised to have no rights beyond the tables, so an expression gains
nothing.

A partition is worked on like a table, by its own name. Which ones a table has is compared with what they were
when the database was opened, and they cannot be locked with the table: in between one could be exchanged.
"""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

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
# In SQL, whether a table may be LangGraph's: others too have a table ``store``, such as our thread store.
IS_THEIRS: Final = """(c.relname <> 'store' OR (SELECT count(*) FROM pg_attribute
    WHERE attrelid = c.oid AND attname IN ('prefix', 'key', 'value') AND NOT attisdropped) = 3)"""


def grants(
    schema: str, tables: Collection[str] = (), parts: Collection[Table] = (), *, rebinds: bool = False
) -> str:
    """Return the statements for a role of maintenance, as docs/postgres.md has them.

    It has the ``tables`` that there are, or those of a saver if there are none yet, and their partitions.
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

_SAY_WHICH: Final = "say in the URL which is meant: ?options=-csearch_path%3DNAME"
_AGAIN: Final = "if that was you, run the same command again when it has ended"
_VERSION: Final = "SELECT xmin::text FROM pg_namespace WHERE oid = %s"


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of one saver, of a Store, or of both in one schema, by their names."""

    schema: str
    schema_oid: int
    tables: dict[str, Row]  # and their partitions
    layouts: dict[str, Layout]
    columns: dict[str, tuple[str, ...]]

    def tree(self, table: str) -> list[str]:
        """Return a table and all its partitions."""
        return [name for name, row in self.tables.items() if row.root == table]

    def parts(self, table: str) -> list[str]:
        """Return what holds the rows of a table: its partitions, or itself if it has none."""
        return [name for name in self.tree(table) if not self.tables[name].is_partitioned] or [table]

    def place(self, column: Column, after: Any) -> tuple[Column, Any]:
        """Return the column in the part of its table in which a position is, and the primary key there."""
        part, key = after or (self.parts(column.table)[0], None)
        return replace(column, part=part), key

    def position(self, column: Column, key: Any) -> Any:
        """Return the position of a primary key in a part, or of the next part; ``None`` after the last."""
        if key is not None:
            return column.part, key
        parts = self.parts(column.table)
        later = parts[parts.index(column.part) + 1 :]
        return (later[0], None) if later else None


def find_tables(connection: Connection[Any], path: SearchPath, names: Sequence[str] = NAMES) -> Found:
    """Find the tables of some names in the first schema of the path that has them, and check them.

    If another schema has tables of these names, the path must be of the role itself: otherwise an account
    that may create a schema could hide the real tables.
    """
    first: dict[str, Row] = {}
    with translate_errors():
        found = [Row(*row) for row in connection.execute(_ALL, (path.schemas, list(names)))]
        roots = [row for row in found if row.oid == row.root_oid]
        for row in sorted(roots, key=lambda row: (names.index(row.name), path.schemas.index(row.schema))):
            first.setdefault(row.name, row)
        parts = [row for row in found if row.root_oid == first[row.root].oid]
        for row in sorted(parts):  # before a partition in another schema hides one of the same name
            require_plain(row)
        tables = first | {row.name: row for row in sorted(parts)}
        if not first.keys() - {"checkpoints"}:
            refuse = refuse_schema if first else TablesMissingError
            raise refuse(
                "the database has neither of the tables 'checkpoint_blobs' and 'checkpoint_writes',"
                " and no table 'store' of LangGraph"
            )
        places = {(row.schema, row.schema_oid) for row in first.values()}
        if len(places) > 1:
            raise SchemaError("the search path leads to tables in several schemas", hint=_SAY_WHICH)
        (place,) = places
        own = [name for group in (SAVER, (ITEMS.table,)) if first.keys() & set(group) for name in group]
        wanted = (own, place[0])
        if not path.is_own and (other := connection.execute(_ELSEWHERE, wanted).fetchone()) is not None:
            raise SchemaError(
                f"the schemas {excerpt(place[0])} and {excerpt(other[0])} both have tables of these names",
                hint=_SAY_WHICH,
            )
    return Found(
        *place,
        tables,
        {row.root: layout_of(row) for row in tables.values()},
        {name: tuple(column for column, *_ in row.columns) for name, row in first.items()},
    )


def check_tables(connection: Connection[Any], found: Found, *names: str) -> str:
    """Check tables again after this session has locked them by name; return the version of the schema."""
    before = [found.tables[name] for name in names]
    named = (found.schema, [*names], [row.root for row in before])
    rows = [Row(*row) for row in connection.execute(_SOME, named)]
    for row in rows:
        require_plain(row)
    wanted = {row.name: (row.oid, row.root_oid, row.schema_oid, found.layouts[row.root]) for row in before}
    if {row.name: (row.oid, row.root_oid, row.schema_oid, layout_of(row)) for row in rows} != wanted:
        raise refuse_schema("the tables are not what they were when the database was opened")
    for row in rows:
        if row.tree != found.tables[row.name].tree:
            raise SchemaError(f"partitions of table {row.root!r} were attached or detached", hint=_AGAIN)
    return rows[0].schema_version


READ: Final = "ACCESS SHARE"
CHANGE: Final = "ROW EXCLUSIVE"
_EXCLUDE: Final = "SHARE UPDATE EXCLUSIVE"
_RETRY_SECONDS: Final = 10.0
# A schema cannot be renamed while its row is locked. Only a superuser may lock it.
_KEEP_NAME: Final = "SELECT FROM pg_namespace WHERE oid = {:d} FOR KEY SHARE"


class CheckedTables:
    """One session's transactions over the tables of a saver."""

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
                self._guard, _ = connect(self._url, writable=True)  # a lock on a row is a write
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
        """Begin a transaction with a table locked in ``mode`` and checked; the first statement follows.

        Tables in ``more``, with their partitions, are locked and checked too, and until the end.
        """
        more = tuple(name for each in more for name in self._found.tree(each))
        with translate_errors(self._rights(mode, table, *more)):
            try:
                if self._has_state:
                    with self.connection.transaction():  # an error does not end that of `one_state`
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
        """Let all reading transactions within the context see one state. See `RowStore.one_state`.

        Agents can read and write meanwhile. For a superuser the guard is held until the end: VACUUM and
        CREATE INDEX of these tables wait.
        """
        with self._state():
            if self._guard is not None:
                self._guard.execute(WAIT_FOR_OTHER)
            self._has_state = True
            yield
            self._require_same_name(in_snapshot=True)

    @contextmanager
    def _declared(self, cursors: Mapping[str, tuple[str, str]]) -> Iterator[None]:
        """Declare cursors over one state of all tables; agents can read and write meanwhile.

        All statements are planned at its beginning: later changes of the tables do not matter to them.
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
        """Return the rows of a SELECT, with ``{}`` for the table, in the open transaction or in its own.

        When the last SELECT of a transaction is planned, changes of the table are allowed again.
        """
        if table not in self._found.parts(self._found.tables[table].root):
            raise ValueError(f"the rows of {table} are in its partitions")
        is_open = nullcontext() if self._is_open else self.transaction(table, READ)
        with is_open, self.connection.cursor(binary=True) as cursor:
            if self._guard is None or not is_last or self._has_state:
                return cursor.execute(_named(statement, self._found, table), parameters).fetchall()
            # A plan does not change, so changes need not wait until all rows are fetched.
            declared = f"DECLARE sealpoint BINARY NO SCROLL CURSOR FOR {statement}"
            cursor.execute(_named(declared, self._found, table), parameters)
            _roll_back(self._guard)
            return cursor.execute("FETCH ALL FROM sealpoint").fetchall()

    def execute(self, table: str, statement: str, rows: Sequence[tuple[Any, ...]] = ()) -> Cursor[Any]:
        """Execute a statement that changes a table in the open transaction; ``{}`` is the table.

        Its parameters are arrays: the columns of ``rows``.
        """
        routing = [name for name in self._found.tree(table) if self._found.tables[name].is_partitioned]
        if self._guard is not None or routing:  # to no partition that is attached meanwhile
            # A session that waits for this session's first lock does not delay its second lock.
            locking = f"LOCK TABLE ONLY {{}} IN {_EXCLUDE} MODE"
            self.connection.execute(_named(locking, self._found, *(routing or [table])))
            if self._guard is not None:
                self._hold(self._guard)
            check_tables(self.connection, self._found, table)
        arrays = [*map(list, zip(*rows, strict=True))]
        return self.connection.execute(_named(statement, self._found, table), arrays)

    def _begin(self, tables: Sequence[str], mode: str, more: Sequence[str] = (), kind: str = "") -> None:
        """Lock and check. With a guard this session never waits: others would go first."""
        from psycopg.errors import LockNotAvailable

        end = monotonic() + _RETRY_SECONDS
        while True:
            try:
                if self._guard is not None:
                    self._hold(self._guard, *tables)
                nowait = "" if self._guard is None else "NOWAIT"
                locking = f"BEGIN {kind}; LOCK TABLE ONLY {{}} IN {mode} MODE {nowait}"
                self.connection.execute(_named(locking, self._found, *tables), prepare=False)
                if more:  # a guard would exclude this session too, which is to change them
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
        """Let the guard exclude changes of the schema's name, and of the tables after current changes."""
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
        """Check that the schema was not renamed: statements name it, and locks on tables do not prevent that.

        A guard has locked the name during the lookup. In a snapshot another session looks: this one cannot
        see a later change.
        """
        if self._guard is not None:
            return
        with ExitStack() as stack:
            connection = self.connection
            if in_snapshot:
                connection = stack.enter_context(closing(connect(self._url, writable=False)[0]))
            version = connection.execute(_VERSION, (self._found.schema_oid,)).fetchone()
        if version != (self._schema_version,):
            raise refuse_schema("the schema was changed while its tables were read")


def _named(statement: str, found: Found, *tables: str, only: str = "ONLY ", role: str = "") -> Composed:
    """Return a statement with tables for ``ONLY {}``: without those that inherit from them.

    Other tables, which are only read, stand for themselves or for all of their partitions.
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
    """Roll back the open transaction, if any; a closed session has none."""
    psycopg = require_psycopg()
    status = psycopg.pq.TransactionStatus
    if connection is not None and connection.info.transaction_status in (status.INTRANS, status.INERROR):
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
