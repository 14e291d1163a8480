"""The tables of a saver, and transactions over them, protected from changes by the owner of the tables.

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
an expression would run: by a second session until the first one's last SELECT is planned (`Guard`), and
for an UPDATE. Any other role is advised to have no rights beyond the tables, so an expression gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from sealpoint.admin.databases.postgres.connection import (
    WAIT_FOR_OTHER,
    SearchPath,
    connect,
    is_superuser,
    translate_errors,
)
from sealpoint.admin.databases.rows import Table
from sealpoint.errors import SchemaError, excerpt
from sealpoint.postgres import TABLES, Layout, Row, layout_of, refuse_schema, require_plain

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed

NAMES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

_ALL: Final = f"{TABLES} n.nspname = ANY(%s) AND c.relname = ANY(%s)"
_ONE: Final = f"{TABLES} n.nspname = %s AND c.relname = %s"
_ELSEWHERE: Final = """
    SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
    AND n.nspname <> %s ORDER BY 1 LIMIT 1"""

_EVERY: Final = """
    SELECT n.nspname, c.relname, c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname <> 'information_schema'
    AND n.nspname !~ '^pg_' ORDER BY n.nspname = %s DESC, 1, 2"""
_IDENTITY: Final = """
    SELECT current_database(), (SELECT oid FROM pg_database WHERE datname = current_database())"""
_SYSTEM: Final = "SELECT system_identifier FROM pg_control_system()"


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of one saver."""

    schema: str
    schema_oid: int
    oids: dict[str, int]
    layouts: dict[str, Layout]
    columns: dict[str, tuple[str, ...]]


def find_tables(connection: Connection[Any], path: SearchPath) -> Found:
    """Find the tables in the first schema of the path that has them, and check them.

    If another schema has tables of these names, the path must be of the role itself: otherwise an account
    that may create a schema could hide the real tables.
    """
    with translate_errors():
        first = _first(connection, path.schemas)
        if not first.keys() - {"checkpoints"}:
            raise refuse_schema(
                "the database has neither of the tables 'checkpoint_blobs' and 'checkpoint_writes'"
            )
        places = {(row.schema, row.schema_oid) for row in first.values()}
        if len(places) > 1:
            raise refuse_schema("the search path leads to tables in several schemas")
        if not path.is_own:
            _require_alone(connection, next(iter(places))[0])
    return Found(
        *places.pop(),
        {name: row.oid for name, row in first.items()},
        {name: layout_of(row) for name, row in first.items()},
        {name: tuple(column for column, *_ in row.columns) for name, row in first.items()},
    )


def check_table(connection: Connection[Any], found: Found, name: str) -> str:
    """Check a table again after this session has locked it by name."""
    for row in map(Row._make, connection.execute(_ONE, (found.schema, name))):
        require_plain(row)
        same = (row.schema_oid, row.oid, layout_of(row)) == (
            found.schema_oid,
            found.oids[name],
            found.layouts[name],
        )
        if same:
            return row.schema_version
    raise refuse_schema("the tables are not what they were when the database was opened")


def every_table(connection: Connection[Any], found: Found) -> list[Table]:
    """Return all tables of the database, those of the saver's schema first."""
    with translate_errors():
        rows = connection.execute(_EVERY, (found.schema,)).fetchall()
    read = set(found.oids.values())
    own = found.schema
    return [Table(name if schema == own else f"{schema}.{name}", oid in read) for schema, name, oid in rows]


def identity_of(connection: Connection[Any], found: Found) -> dict[str, Any]:
    """Return what tells a saver's tables from those of every other database and server.

    The number of the server is left out if the account has no right to read it.
    """
    from psycopg.errors import InsufficientPrivilege

    with translate_errors():
        database, oid = connection.execute(_IDENTITY).fetchone() or ("", 0)
        try:
            with connection.transaction():  # a refusal does not end an open transaction
                system = connection.execute(_SYSTEM).fetchone()
        except InsufficientPrivilege:
            system = None
    return {
        "system": str(system[0]) if system else None,
        "database": database,
        "oid": oid,
        "schema": found.schema,
        "schema_oid": found.schema_oid,
    }


def _require_alone(connection: Connection[Any], schema: str) -> None:
    other = connection.execute(_ELSEWHERE, (list(NAMES), schema)).fetchone()
    if other is not None:
        raise SchemaError(
            f"the schemas {excerpt(schema)} and {excerpt(other[0])} both have tables of these names",
            hint="say in the URL which is meant: ?options=-csearch_path%3DNAME",
        )


def _first(connection: Connection[Any], schemas: Sequence[str]) -> dict[str, Row]:
    """Return the catalog entries of the table that each name leads to."""
    found = [Row(*row) for row in connection.execute(_ALL, (list(schemas), list(NAMES)))]
    found.sort(key=lambda row: (NAMES.index(row.name), schemas.index(row.schema)))
    first: dict[str, Row] = {}
    for row in found:
        if row.name not in first:
            require_plain(row)
        first.setdefault(row.name, row)
    return first


READ: Final = "ACCESS SHARE"
CHANGE: Final = "ROW EXCLUSIVE"
_EXCLUDE: Final = "SHARE UPDATE EXCLUSIVE"
_RETRY_SECONDS: Final = 10.0
# A schema cannot be renamed while its row is locked. Only a superuser may lock it.
_KEEP_NAME: Final = "SELECT FROM pg_namespace WHERE oid = {schema} FOR KEY SHARE"


class Guard:
    """A second session of a superuser, which prevents changes of a table while a statement is planned."""

    def __init__(self, url: str) -> None:
        """Connect."""
        self._connection, _ = connect(url, writable=True)  # a lock on a row is a write
        with translate_errors():
            self._connection.execute("SET ROLE NONE")

    def hold(self, found: Found, *tables: str) -> None:
        """Exclude changes of the schema's name, and of the given tables after current changes."""
        from psycopg.sql import SQL, Literal

        lock = f"LOCK TABLE {{tables}} IN {_EXCLUDE} MODE;" if tables else ""
        statements = SQL(f"BEGIN; {lock} {_KEEP_NAME}").format(
            tables=_only(found, tables), schema=Literal(found.schema_oid)
        )
        self._connection.execute(
            statements, prepare=False
        )  # several statements in one string cannot be prepared

    def wait(self) -> None:
        """Keep the locks while the other session works."""
        self._connection.execute(WAIT_FOR_OTHER)

    def release(self) -> None:
        """Allow changes again; without effect if no lock is held."""
        _roll_back(self._connection)

    def close(self) -> None:
        """Close the session."""
        self._connection.close()


class CheckedTables:
    """One session's transactions over the tables of a saver."""

    def __init__(self, connection: Connection[Any], path: SearchPath, url: str) -> None:
        """Find the tables, and check them."""
        self._connection = connection
        self._url = url
        self.is_superuser = is_superuser(connection)
        self.found = find_tables(connection, path)
        self._guard = Guard(url) if self.is_superuser else None
        self._is_open = False
        self._has_state = False

    def close(self) -> None:
        """Close the sessions."""
        self._connection.close()
        if self._guard is not None:
            self._guard.close()

    @contextmanager
    def transaction(self, table: str, mode: str, *more: str) -> Iterator[None]:
        """Begin a transaction with a table locked in ``mode`` and checked; the first statement follows.

        Tables in ``more`` are locked and checked too, and until the end.
        """
        with translate_errors():
            if self._has_state:
                with self._savepoint():
                    yield
                return
            try:
                self._begin([table], mode, more)
                self._is_open = True
                yield
                self._require_same_name()
                self._connection.execute("COMMIT")
            finally:
                self._is_open = False
                self._end()

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Begin a part of the transaction of `one_state`, which an error does not end."""
        try:
            with self._connection.transaction():
                self._is_open = True
                yield
        finally:
            self._is_open = False

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """Let all reading transactions within the context see one state of all tables.

        Agents can read and write meanwhile. For a superuser the guard is held until the end: VACUUM and
        CREATE INDEX of these tables wait.
        """
        with translate_errors():
            try:
                self._begin([*self.found.oids], READ, kind="ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._connection.execute(WAIT_FOR_OTHER)
                if self._guard is not None:
                    self._guard.wait()
                self._has_state = True
                yield
                self._require_name_since_snapshot()
            finally:
                self._has_state = False
                self._end()

    @contextmanager
    def snapshot(self, cursors: Mapping[str, tuple[str, str]]) -> Iterator[Connection[Any]]:
        """Begin a transaction over one state of all tables; agents can read and write meanwhile.

        All statements are planned at its beginning: later changes of the tables do not matter to them.
        """
        with translate_errors():
            try:
                self._begin([*self.found.oids], READ, kind="ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._connection.execute(WAIT_FOR_OTHER)
                for name, (table, statement) in cursors.items():
                    declared = f"DECLARE {name} BINARY NO SCROLL CURSOR FOR {statement}"
                    self._connection.execute(_named(declared, self.found, table))
                self._require_name_since_snapshot()
                if self._guard is not None:
                    self._guard.release()
                yield self._connection
            finally:
                self._end()

    def select(
        self, table: str, statement: str, parameters: Sequence[Any], *, is_last: bool = True
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, with ``{}`` for the table, in the open transaction or in its own.

        When the last SELECT of a transaction is planned, changes of the table are allowed again.
        """
        if self._is_open:
            return self._select(table, statement, parameters, is_last)
        with self.transaction(table, READ):
            return self._select(table, statement, parameters, is_last)

    def update(self, table: str, statement: str, parameters: Sequence[Any]) -> int:
        """Return how many rows an UPDATE changed, in the open transaction; ``{}`` is the table."""
        return self._execute(table, statement, parameters).rowcount

    def returning(self, table: str, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows that a statement with RETURNING gives; see `update`."""
        return self._execute(table, statement, parameters).fetchall()

    def _execute(self, table: str, statement: str, parameters: Sequence[Any]) -> Cursor[Any]:
        if self._guard is not None:
            # A session that waits for this session's first lock does not delay its second lock.
            self._connection.execute(_named(f"LOCK TABLE ONLY {{}} IN {_EXCLUDE} MODE", self.found, table))
            self._guard.hold(self.found)
            check_table(self._connection, self.found, table)
        return self._connection.execute(_named(statement, self.found, table), parameters)

    def _select(
        self, table: str, statement: str, parameters: Sequence[Any], is_last: bool
    ) -> list[tuple[Any, ...]]:
        with self._connection.cursor(binary=True) as cursor:
            if self._guard is None or not is_last or self._has_state:
                return cursor.execute(_named(statement, self.found, table), parameters).fetchall()
            # A plan does not change, so changes need not wait until all rows are fetched.
            declared = f"DECLARE sealpoint BINARY NO SCROLL CURSOR FOR {statement}"
            cursor.execute(_named(declared, self.found, table), parameters)
            self._guard.release()
            return cursor.execute("FETCH ALL FROM sealpoint").fetchall()

    def _begin(self, tables: Sequence[str], mode: str, more: Sequence[str] = (), kind: str = "") -> None:
        """Lock and check. With a guard this session never waits: others would go first."""
        from psycopg.errors import LockNotAvailable
        from psycopg.sql import SQL

        end = monotonic() + _RETRY_SECONDS
        while True:
            try:
                if self._guard is not None:
                    self._guard.hold(self.found, *tables)
                nowait = "" if self._guard is None else "NOWAIT"
                locking = SQL(f"BEGIN {kind}; LOCK TABLE {{}} IN {mode} MODE {nowait}")
                self._connection.execute(locking.format(_only(self.found, tables)), prepare=False)
                if more:  # a guard would exclude this session too, which is to change them
                    own = mode if self._guard is None else _EXCLUDE
                    lock = SQL(f"LOCK TABLE {{}} IN {own} MODE {nowait}")
                    self._connection.execute(lock.format(_only(self.found, more)))
                break
            except LockNotAvailable:
                if self._guard is None or monotonic() > end:
                    raise
                self._end()
        for table in (*more, *tables):
            self._schema_version = check_table(self._connection, self.found, table)

    def _end(self) -> None:
        _roll_back(self._connection)
        if self._guard is not None:
            self._guard.release()

    def _require_same_name(self) -> None:
        """Check that the schema was not renamed: statements name it, and locks on tables do not prevent that.

        A guard has locked the name during the lookup.
        """
        if self._guard is None:
            self._require_version(self._connection)

    def _require_name_since_snapshot(self) -> None:
        """The same for a snapshot, in which this session cannot see a later change; another one can."""
        if self._guard is None:
            witness, _ = connect(self._url, writable=False)
            with closing(witness):
                self._require_version(witness)

    def _require_version(self, connection: Connection[Any]) -> None:
        version = connection.execute(
            "SELECT xmin::text FROM pg_namespace WHERE oid = %s", (self.found.schema_oid,)
        ).fetchone()
        if version != (self._schema_version,):
            raise refuse_schema("the schema was changed while its tables were read")


def _only(found: Found, tables: Sequence[str]) -> Composed:
    """Return tables for a LOCK, without those that inherit from them."""
    from psycopg.sql import SQL, Identifier

    return SQL(", ").join(SQL("ONLY {}").format(Identifier(found.schema, table)) for table in tables)


def _named(statement: str, found: Found, table: str) -> Composed:
    from psycopg.sql import SQL, Identifier

    named = {"blobs": "checkpoint_blobs", "checkpoints": "checkpoints"}
    others = {name: Identifier(found.schema, other) for name, other in named.items()}
    return SQL(statement).format(Identifier(found.schema, table), **others)


def _roll_back(connection: Connection[Any]) -> None:
    """Roll back the open transaction, if any; a closed session has none."""
    from psycopg import Error
    from psycopg.pq import TransactionStatus

    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with suppress(Error):
            connection.execute("ROLLBACK")
