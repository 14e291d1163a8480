"""A connection to a Postgres server: its settings, time limits and errors.

It does not depend on settings of the account, the database or the environment: names are looked up only in
``pg_catalog`` (tables are named with their schema), and policies may not hide rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from sealpoint.databases.postgres.refusals import refused
from sealpoint.errors import (
    AccessError,
    DatabaseCorruptError,
    DatabaseMissingError,
    RowError,
    SealpointError,
    ServerError,
    StoppedError,
    SuperuserError,
)
from sealpoint.postgres.layout import refuse_schema
from sealpoint.postgres.server import require_psycopg, watched_steps

if TYPE_CHECKING:
    from psycopg import Connection

SILENT_SECONDS: Final = 15.0
"""After which a server is asked, on another connection, whether it still answers."""

ANSWER_SECONDS: Final = 10
"""How long that may take."""

# A lost server is noticed within a minute.
_DEFAULTS: Final = {
    "connect_timeout": str(ANSWER_SECONDS),
    "tcp_user_timeout": "30000",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_SETTINGS: Final = {
    "row_security": "off",  # an error if a policy would hide rows
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "lock_timeout": "10s",
    "statement_timeout": "1h",  # counting a large table takes long
    "idle_in_transaction_session_timeout": "1min",  # a suspended process does not keep rows locked
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    "restrict_nonsystem_relation_kind": "view,foreign-table",  # never read through one, whatever its name
    "cursor_tuple_fraction": "1",  # all rows of a cursor are fetched
    "synchronize_seqscans": "off",  # two cursors of one snapshot return the rows in the same order
    "standard_conforming_strings": "on",
}

WAIT_FOR_OTHER: Final = "SET LOCAL idle_in_transaction_session_timeout = '1h'"
"""For one of two sessions that work in turn: a large table takes the other one long."""

# Runs before the search path is set: an unqualified operator could be one from another role's schema.
_SEARCH_PATH: Final = """
    SELECT pg_catalog.current_schemas(false),
        source OPERATOR(pg_catalog.=) ANY ('{client,user,"database user"}'::pg_catalog.text[])
    FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'"""

# Temporary conditions, by class of SQLSTATE.
_PASSING: Final = {
    "08": "the connection to the server is lost",
    "25": "the server does not let this transaction write or continue",
    "40": "the server rolled back the transaction",
    "53": "the server lacks disk space, memory or connections",
    "55": "a lock was not available in time",
    "57": "the server ended the session or the statement",
    "58": "the server cannot write or read its files",
}
_READ_ONLY: Final = "25006"
_SILENT_HINT: Final = "check the server and the network to it, then run the same command again"
_READ_ONLY_HINT: Final = "name the primary server, and a role whose transactions may write"
# SQLSTATE, in this order: text cannot be converted; damaged data or index; no such table, column or schema.
_NO_TEXT: Final = {"22021", "22P05"}
_DAMAGED: Final = {"XX001", "XX002"}
_GONE: Final = {"42P01", "42703", "3F000"}


def name_of(url: str) -> str:
    """Return the URL with its host, port, database and service: no user, no password, no options.

    Raises:
        DatabaseMissingError: If it cannot be read, or a password may have slipped into another part.
    """
    parts = _parts(url)
    given = {part: str(value or "") for part, value in parts.items()}
    host, port, database = given.get("host", ""), given.get("port", ""), given.get("dbname", "")
    more = {part: given[part] for part in ("hostaddr", "service") if given.get(part)}
    if "@" in "".join((host, database, *more.values())) or not re.fullmatch(r"[\d,]*", port):
        raise DatabaseMissingError(
            "the URL of the database cannot be read", hint="write special characters in it as %XX"
        )
    if host.startswith("/"):
        host, more = "", {"host": host, **more}
    place = f"[{host}]" if ":" in host else host
    end = f":{port}" if port else ""
    query = f"?{urlencode(more, safe='/', quote_via=quote)}" if more else ""
    return f"postgresql://{place}{end}/{quote(database)}{query}"


class SearchPath(NamedTuple):
    """The schemas in which a saver would search its tables.

    Attributes:
        schemas: In this order.
        is_own: Whether the connecting role set it, or it was set for that role. Any other path may include
            schemas that another role can create.
    """

    schemas: list[str]
    is_own: bool


def connect(url: str, *, writable: bool) -> tuple[Connection[Any], SearchPath]:
    """Connect, and return the connection with its search path.

    Raises:
        DatabaseMissingError: If the server refuses the connection.
        UnreachableError: If the server does not answer, or accepts no connection now.
        MissingExtraError: If psycopg is not installed.
    """
    parts = _DEFAULTS | _parts(url) | {"client_encoding": "utf8", "application_name": "sealpoint"}
    psycopg = require_psycopg()
    try:
        connection = _connection_class().connect(**parts, autocommit=True)
        connection.parts = parts
    except (psycopg.Error, UnicodeError) as error:
        raise refused(name_of(url), str(error)) from None
    try:
        with translate_errors(), _refusing_silence(url):
            path = SearchPath(*(connection.execute(_SEARCH_PATH).fetchone() or ([], False)))
            _settle(connection, _SETTINGS | {"default_transaction_read_only": "off" if writable else "on"})
    except BaseException:
        connection.close()
        raise
    return connection, path


@contextmanager
def _refusing_silence(url: str) -> Iterator[None]:
    """Report a server that has not answered yet like one that refuses the connection."""
    try:
        yield
    except require_psycopg().errors.ConnectionTimeout as error:
        raise refused(name_of(url), str(error)) from None


@cache
def _connection_class() -> Any:
    """Return psycopg's connection, which does not wait for a server that does not answer at all.

    A statement may take an hour, and sends nothing meanwhile. So the server is asked on another connection.
    """
    psycopg = require_psycopg()

    class AnsweredConnection(psycopg.Connection):  # type: ignore[misc,name-defined]
        parts: dict[str, Any]
        is_probe = False

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            self._heard = time.monotonic()
            try:
                return super().wait(watched_steps(gen, self._check), *arguments, **options)
            except psycopg.errors.ConnectionTimeout:
                self.close()  # no end of a transaction waits again
                raise

        def _check(self, ready: bool) -> None:
            now = time.monotonic()
            if ready:
                self._heard = now
            elif now - self._heard > (ANSWER_SECONDS if self.is_probe else SILENT_SECONDS):
                if self.is_probe:
                    raise psycopg.errors.ConnectionTimeout("timed out")
                self._probe()
                self._heard = time.monotonic()

        def _probe(self) -> None:
            try:
                with closing(type(self).connect(**self.parts, autocommit=True)) as other:
                    other.is_probe = True
                    other.execute("SELECT")
            except psycopg.errors.ConnectionTimeout:
                raise
            except psycopg.Error:  # it refuses another session, which is an answer
                pass

    return AnsweredConnection


def is_superuser(connection: Connection[Any]) -> bool:
    """Whether a session has the rights of a superuser, or can regain them.

    Raises:
        SuperuserError: If it is a superuser on a standby, where no lock prevents changes of the tables.
    """
    with translate_errors():
        found = connection.execute(
            "SELECT bool_or(rolsuper), pg_is_in_recovery() FROM pg_roles"
            " WHERE rolname IN (session_user, current_user)"
        ).fetchone()
    powerful, standby = found or (False, False)
    if powerful and standby:
        raise SuperuserError
    return bool(powerful)


def _settle(connection: Connection[Any], settings: dict[str, str]) -> None:
    """Apply the settings that this server supports, first the search path."""
    # Postgres searches pg_temp first unless the path names it: a temporary table could hide a catalog.
    connection.execute("SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)")
    connection.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted(name, value)"
        " WHERE name IN (SELECT name FROM pg_settings)",
        ([*settings], [*settings.values()]),
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our own errors for those of a server, without its text, which may contain values.

    Raises:
        StoppedError: If the cause is temporary: a silent server, a lost connection, a lock, a full disk, a
            session or a transaction that the server ended.
        RowError: If text is not in the server's encoding.
        DatabaseCorruptError: If the server reports a damaged table or index.
        SchemaError: If a table, a column or a schema does not exist.
        ServerError: If the server refuses a statement for another reason.
        MissingExtraError: If psycopg is not installed.
    """
    psycopg = require_psycopg()
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, psycopg.errors.ConnectionTimeout):
            raise StoppedError("the server does not answer", hint=_SILENT_HINT) from None
        lost = error.sqlstate is None and isinstance(error, psycopg.OperationalError)
        raise _translated("08" if lost else error.sqlstate or "", type(error).__name__) from None


def _translated(code: str, kind: str) -> SealpointError:
    if code == _READ_ONLY:
        return AccessError(f"the server lets this session only read ({kind})", hint=_READ_ONLY_HINT)
    if code[:2] in _PASSING:
        return StoppedError(f"{_PASSING[code[:2]]} ({kind})")
    if code in _NO_TEXT:
        return RowError("a key column or a type holds text that is not in the server's encoding")
    if code in _DAMAGED:
        return DatabaseCorruptError(
            "the server cannot read a table or an index of the saver: it is damaged",
            hint="the server's log says where; restore it from backup",
        )
    if code in _GONE:
        return refuse_schema("the tables are not what they were when the database was opened")
    return ServerError(kind, code)


def _parts(url: str) -> dict[str, Any]:
    psycopg = require_psycopg()
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(url))
    except psycopg.Error:
        raise DatabaseMissingError("the URL of the database cannot be read") from None
