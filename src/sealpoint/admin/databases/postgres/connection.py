"""A maintenance session on a Postgres server: its settings, time limits, errors and locks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from sealpoint.admin.results.shards import Shard, find_mark
from sealpoint.errors import (
    AccessError,
    DatabaseCorruptError,
    DatabaseMissingError,
    HeldError,
    LockedError,
    MaintenanceError,
    RowError,
    SealpointError,
    StoppedError,
    UnreachableError,
    excerpt,
)
from sealpoint.guards.pgtables import refuse_schema
from sealpoint.postgres import (
    LOST,
    OWN_PARTS,
    READ_ONLY,
    address_of,
    parts_of,
    refusal_of,
    require_psycopg,
    settle,
    state_of,
    watched_connection,
)
from sealpoint.urls import URL_HINT, plain_url

if TYPE_CHECKING:
    from psycopg import Connection


def refused(name: str, words: str) -> DatabaseMissingError:
    """Return the error for a failed connection, without quoting libpq's message ``words``."""
    refusal = refusal_of(words)
    if refusal is None:
        return UnreachableError(f"no connection to {name}")
    error = UnreachableError if refusal.is_passing else DatabaseMissingError
    return error(f"no connection to {name}: {refusal.reason}", hint=refusal.hint)


# Seconds without an answer, after which a second connection tests whether the server still answers.
SILENT_SECONDS: Final = 15.0

# Time limit of this test.
ANSWER_SECONDS: Final = 10

# Keepalives detect a lost server within a minute.
_DEFAULTS: Final = {
    "connect_timeout": str(ANSWER_SECONDS),
    "tcp_user_timeout": "30000",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_SETTINGS: Final = {
    "default_transaction_deferrable": "off",
    "lock_timeout": "10s",
    "statement_timeout": "1h",  # counting the rows of a large table is slow
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    "restrict_nonsystem_relation_kind": "view,foreign-table",  # never read through a view or foreign table
    "cursor_tuple_fraction": "1",  # plan for fetching all rows of a cursor
    "constraint_exclusion": "off",  # also read rows in the wrong partition
    "synchronize_seqscans": "off",  # two cursors of one snapshot return the rows in the same order
    "standard_conforming_strings": "on",
}

# For a session that waits while another session works on a large table.
WAIT_FOR_OTHER: Final = "SET LOCAL idle_in_transaction_session_timeout = '1h'"

# Runs before the search path is set: an unqualified operator might belong to another role's schema.
_SEARCH_PATH: Final = """
    SELECT pg_catalog.current_schemas(false),
        source OPERATOR(pg_catalog.=) ANY ('{client,user,"database user"}'::pg_catalog.text[])
    FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'"""

# Temporary conditions, by class of SQLSTATE.
_PASSING: Final = {
    LOST: "the connection to the server was lost",
    "25": "the server does not allow this transaction to write or continue",
    "40": "the server rolled back the transaction",
    "53": "the server lacks disk space, memory or connections",
    "55": "a lock was not available in time",
    "57": "the server ended the session or the statement",
    "58": "the server cannot write or read its files",
}


def name_of(url: str) -> str:
    """Return the URL with host, port, database and service only: no user, password or options."""
    given = address_of(_parts(url))
    host, port, database = given["host"], given["port"], given["dbname"]
    more = {part: given[part] for part in ("hostaddr", "service") if given[part]}
    if host.startswith("/"):
        host, more = "", {"host": host, **more}
    place = f"[{host}]" if ":" in host else host
    end = f":{port}" if port else ""
    query = f"?{urlencode(more, safe='/', quote_via=quote)}" if more else ""
    return f"postgresql://{place}{end}/{quote(database)}{query}"


class SearchPath(NamedTuple):
    """The schemas in which a saver searches for its tables."""

    schemas: list[str]
    is_own: bool  # set by or for the connecting role; any other path may name schemas of other roles


def connect(url: str, *, writable: bool) -> tuple[Connection[Any], SearchPath]:
    """Connect; return the connection and its search path."""
    parts = _DEFAULTS | _parts(url) | OWN_PARTS
    psycopg = require_psycopg()
    try:
        connection = _connection_class().connect(**parts, autocommit=True)
        connection.parts = parts
    except (psycopg.Error, UnicodeError) as error:
        raise refused(name_of(url), str(error)) from None
    try:
        with translate_errors():
            try:
                path = SearchPath(*(connection.execute(_SEARCH_PATH).fetchone() or ([], False)))
                settle(connection, _SETTINGS | {"default_transaction_read_only": "off" if writable else "on"})
            except psycopg.errors.ConnectionTimeout as error:
                # A server that does not answer is treated like a server that refuses the connection.
                raise refused(name_of(url), str(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection, path


def same_server(url: str, connection: Connection[Any]) -> str:
    """Return ``url`` with only the server of the connection, if ``url`` names several servers."""
    info, make = connection.info, require_psycopg().conninfo.make_conninfo
    return str(make(plain_url(url), host=info.host, hostaddr=info.hostaddr or None, port=info.port))


@cache
def _connection_class() -> Any:
    """Return a psycopg connection class that stops waiting if the server no longer answers.

    A statement may run for an hour without sending data, so a second connection tests the server.
    """
    psycopg = require_psycopg()

    class AnsweredConnection(watched_connection()):  # type: ignore[misc]
        parts: dict[str, Any]
        is_probe = False

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            self._heard = time.monotonic()
            try:
                return super().wait(gen, *arguments, **options)
            except psycopg.errors.ConnectionTimeout:
                self.close()  # so that ending the transaction does not wait again
                raise

        def check(self, ready: bool) -> None:
            now = time.monotonic()
            if ready:
                self._heard = now
            elif now - self._heard > (ANSWER_SECONDS if self.is_probe else SILENT_SECONDS):
                if self.is_probe:
                    raise psycopg.errors.ConnectionTimeout("timed out")
                try:
                    with closing(type(self).connect(**self.parts, autocommit=True)) as other:
                        other.is_probe = True
                        other.execute("SELECT")
                except psycopg.errors.ConnectionTimeout:
                    raise
                except psycopg.Error:  # refusing a second session is an answer, too
                    pass
                self._heard = time.monotonic()

    return AnsweredConnection


def is_superuser(connection: Connection[Any]) -> bool:
    """Whether a session has the rights of a superuser, or can regain them.

    A superuser on a standby is refused, because no lock there prevents changes of the tables.
    """
    with translate_errors():
        found = connection.execute(
            "SELECT bool_or(rolsuper), pg_is_in_recovery() FROM pg_roles"
            " WHERE rolname IN (session_user, current_user)"
        ).fetchone()
    powerful, standby = found or (False, False)
    if powerful and standby:
        raise MaintenanceError(
            "commands of a superuser are refused on a standby: no lock there prevents changes of tables",
            hint=("connect to the primary, or as a role with only SELECT on the tables: docs/postgres.md"),
        )
    return bool(powerful)


@contextmanager
def translate_errors(rights: str = "") -> Iterator[None]:
    """Replace psycopg's errors, whose messages may contain values of rows, by errors of sealpoint.

    ``rights`` is the GRANT that the statements need; an error's hint contains it.
    """
    psycopg = require_psycopg()
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, psycopg.errors.ConnectionTimeout):
            raise StoppedError(
                "the server does not answer",
                hint="check the server and the network to it, then run the same command again",
            ) from None
        raise _translated(state_of(error), type(error).__name__, rights) from None


def _translated(code: str, kind: str, rights: str) -> SealpointError:
    if code == READ_ONLY:
        return AccessError(
            f"the session is read-only ({kind})",
            hint="name the primary server, and a role whose transactions may write",
        )
    if code[:2] in _PASSING:
        return StoppedError(f"{_PASSING[code[:2]]} ({kind})")
    if code in {"22021", "22P05"}:  # text cannot be converted
        return RowError("a key column or a type has text that the server's encoding cannot represent")
    if code in {"XX001", "XX002"}:  # damaged data, or a damaged index
        return DatabaseCorruptError(
            "the server reports that a table or index of the saver is damaged",
            hint="find the place in the server's log, and restore the table from a backup",
        )
    if code in {"42P01", "42703", "3F000"}:  # no such table, column or schema
        return refuse_schema("the tables were changed after the database was opened")
    return MaintenanceError(
        f"the server refused a statement: {kind} (SQLSTATE {code or 'none'})",
        hint=f"{rights or 'grant the account SELECT on the tables'}; to change values also UPDATE on them,"
        " for `rebind` INSERT, DELETE on checkpoint_blobs, for row policies BYPASSRLS; see the server's log",
    )


def _parts(url: str) -> dict[str, Any]:
    parts = parts_of(url)
    if parts is None:
        raise DatabaseMissingError("the URL of the database cannot be parsed", hint=URL_HINT)
    return parts


# A replica that has not answered yet counts as empty; a role without rights sees no state.
_REPLICAS: Final = """
    SELECT count(*), count(state), max(pg_current_wal_lsn() - coalesce(replay_lsn, flush_lsn, '0/0'))::bigint
    FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup'"""
_MONITOR: Final = "let a superuser GRANT pg_read_all_stats to the role"


class Replicas:
    """The streaming replicas of a server, read in a separate session."""

    def __init__(self, url: str) -> None:
        self._connection, _ = connect(url, writable=False)
        self._number, self.close = 0, self._connection.close

    def lag_bytes(self) -> int:
        """Return the number of bytes of WAL that the slowest replica has not replayed."""
        with translate_errors():
            number, shown, lag = self._connection.execute(_REPLICAS).fetchone() or (0, 0, 0)
        if shown < number:
            raise AccessError("the role has no right to see how far replicas are behind", hint=_MONITOR)
        if not number and not self._number:
            raise MaintenanceError("no replica is connected", hint="leave out --max-replica-lag")
        if number < self._number:
            raise StoppedError("a replica has lost its connection", hint="run the same command again later")
        self._number = number
        return int(lag)


_HOLD: Final = 0x5EA1  # upper half of the number of our advisory locks; the lower half is the schema's oid
_REGISTER: Final = 0x5EA2  # the same for a second lock, held while taking the first
_SESSIONS: Final = """
    SELECT DISTINCT pid, application_name, left(query, 2000) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND granted AND pid <> pg_backend_pid() AND {} ORDER BY pid"""
# pg_locks shows a bigint key as two halves, with objsubid 1; a key of two integers has objsubid 2.
_HOLDS: Final = "locktype = 'advisory' AND classid = %s::oid AND objid = %s::oid AND objsubid = 1"
_OVERLAP: Final = "SELECT coalesce(%s::text < %s::text, true) AND coalesce(%s::text < %s::text, true)"
_WRITES: Final = "relation = ANY(%s::oid[]) AND mode IN ('RowShareLock', 'RowExclusiveLock')"


@contextmanager
def holding(
    connection: Connection[Any], schema_oid: int, name: str, shard: Shard | None = None
) -> Iterator[None]:
    """Exclude other runs on a schema by an advisory lock of this session.

    With a shard (a range of threads), shards of the same run and command are excluded only if they overlap.
    The session must then execute nothing else: other sessions read the shard from its last statement.
    A session whose last statement the server does not show is excluded, too.
    """
    lock, register = _HOLD << 32 | schema_oid, _REGISTER << 32 | schema_oid
    taking, mark = ("_shared", shard.mark()) if shard else ("", "")
    try:
        with translate_errors():
            connection.execute("SELECT pg_advisory_lock(%s::bigint)", (register,))
            taken = connection.execute(f"SELECT pg_try_advisory_lock{taking}({lock})".encode()).fetchone()
            found = _sessions(connection, _HOLDS, (_HOLD, schema_oid))
            others = [one for one in found if taken != (True,) or _excludes(connection, one[2], shard)]
            if others or taken != (True,):  # no session is shown if the other run has just ended
                who = f": {_shown(others)}" if others else ""
                where = f"; pg_stat_activity shows where pid {others[0][0]} runs" if others else ""
                raise HeldError(f"another run holds {name}{who}", hint=f"wait until it has ended{where}")
            connection.execute(f"SELECT pg_advisory_unlock({register}) {mark}".encode())
        yield
        if shard:  # shows whether the session, and so the lock, has ended
            with translate_errors():
                connection.execute(f"SELECT pg_advisory_unlock_all() {mark}".encode())
    finally:
        with suppress(StoppedError), translate_errors():  # if the session is lost, its locks are, too
            connection.execute("SELECT pg_advisory_unlock_all()")


def _excludes(connection: Connection[Any], statement: str | None, shard: Shard | None) -> bool:
    """Whether another session, with this last statement, excludes a run over a shard of threads."""
    other = find_mark(statement)
    if shard is None or other is None or shard[:2] != other[:2]:
        return True
    bounds = (shard.threads_from, other.threads_below, other.threads_from, shard.threads_below)
    return connection.execute(_OVERLAP, bounds).fetchone() != (False,)


def locked(connection: Connection[Any], oids: Sequence[int], rows: int) -> LockedError:
    """Return the error for rows locked by other sessions; it names the sessions that use these tables."""
    found = _sessions(connection, _WRITES, (list(oids),))
    who = f" (sessions on the tables: {_shown(found)})" if found else ""
    return LockedError(f"{rows} rows are locked by other sessions{who}")


def _sessions(
    connection: Connection[Any], which: str, parameters: tuple[Any, ...]
) -> list[tuple[int, str | None, str | None]]:
    with translate_errors():
        return connection.execute(_SESSIONS.format(which).encode(), parameters).fetchall()


def _shown(found: Sequence[tuple[int, str | None, str | None]]) -> str:
    return ", ".join(
        f"session {pid}" + (f" of {excerpt(name)}" if name else "") + (f" ({shard.words()})" if shard else "")
        for pid, name, shard in ((pid, name, find_mark(statement)) for pid, name, statement in found[:10])
    )
