"""Connections to a Postgres server: parses addresses, explains refused connections, sets up sessions."""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import cache
from typing import Any, Final, NamedTuple

from sealpoint.errors import MissingExtraError
from sealpoint.urls import plain_url


def require_psycopg() -> Any:
    """Import and return the module psycopg, which the extra ``postgres`` installs."""
    try:
        import psycopg
        import psycopg.generators
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    return psycopg


# --- addresses of servers ----------------------------------------------------------------------


def parts_of(conninfo: str) -> dict[str, Any] | None:
    """Parse a URL or ``service=NAME`` to parameters of libpq; return ``None`` if libpq cannot parse it.

    Also returns ``None`` if an unescaped special character may have put part of a password into the address.
    """
    psycopg = require_psycopg()
    try:
        parts = dict(psycopg.conninfo.conninfo_to_dict(plain_url(conninfo)))
    except (psycopg.Error, UnicodeError):
        return None
    address = address_of(parts)
    is_plain = "@" not in "".join(address.values()) and re.fullmatch(r"[\d,]*", address["port"])
    return parts if is_plain else None


def address_of(parts: dict[str, Any]) -> dict[str, str]:
    """Return host, port, database and service of a connection, without user, password and options."""
    return {part: str(parts.get(part) or "") for part in ("host", "hostaddr", "port", "dbname", "service")}


class Refusal(NamedTuple):
    """A reason for a refused connection, found by words in libpq's message; the message is never shown."""

    words: str
    reason: str
    hint: str
    is_passing: bool = False  # the same attempt may succeed later


_ROLE_HINT: Final = "name the role in the service file, in $PGUSER or in the URL"
_REFUSALS: Final = (  # the first match counts; quoted names are removed before
    Refusal("FATAL: +database <> does not exist", "the server has no such database", "`psql -l` lists them"),
    Refusal("FATAL: +role <> does not exist", "the server has no such role", _ROLE_HINT),
    Refusal("FATAL: +role <> is not permitted to log in", "the role may not log in", _ROLE_HINT),
    Refusal(
        "authentication failed|no password supplied|password is empty",
        "the server does not accept the role's credentials",
        "libpq takes the password from ~/.pgpass, $PGPASSFILE or $PGSERVICEFILE",
    ),
    Refusal(
        "no pg_hba.conf entry|pg_hba.conf rejects",
        "the server's pg_hba.conf does not allow this role, host or method",
        "add a line for the role to the server's pg_hba.conf, or set sslmode",
    ),
    Refusal(
        "permission denied for database",
        "the role may not connect to the database",
        "let an administrator GRANT CONNECT ON DATABASE to the role",
    ),
    Refusal("definition of service <> not found", "there is no such service", "see ~/.pg_service.conf"),
    Refusal(
        "too many (clients|connections)|remaining connection slots",
        "the server has no connection left",
        "wait until other sessions have ended, then run the same command again",
        is_passing=True,
    ),
    Refusal(
        "the database system is|not (currently|yet) accepting connections",
        "the server is starting, stopping or recovering",
        "run the same command again when the server is ready",
        is_passing=True,
    ),
    Refusal(
        "failed to resolve|could not translate host name|[Nn]ame or service not known",
        "the name of the host cannot be resolved",
        "check the spelling of the host, and that this machine resolves names",
    ),
    Refusal(
        "timeout expired|[Tt]imed? ?out",
        "the server does not answer in time",
        "check the host, and that no firewall blocks the connection",
        is_passing=True,
    ),
    Refusal(
        "Connection refused|No such file or directory|Is the server running",
        "no server listens at this address",
        "start the server, or name another host or port",
        is_passing=True,
    ),
    Refusal(
        "FATAL:",
        "the server refuses the connection",
        "the server's log says why; check that psql connects with the same URL",
    ),
)


def refusal_of(words: str) -> Refusal | None:
    """Return the reason for a refused connection, from the message of libpq or psycopg.

    Before a session exists there is no SQLSTATE, only this message, which has the names of the user and the
    host, and possibly a part of a password. The message is searched, and never shown. If it is not in
    English, the result says only whether the server answers.
    """
    plain = re.sub(r'"[^"\n]*"', "<>", words)
    return next((refusal for refusal in _REFUSALS if re.search(refusal.words, plain)), None)


# --- sessions ----------------------------------------------------------------------------------

OWN_PARTS: Final = {"client_encoding": "utf8", "application_name": "sealpoint"}

# A session does not depend on settings of the account, the database or the environment: names are looked up
# only in ``pg_catalog``, and policies may not hide rows.
_SETTINGS: Final = {
    "search_path": "pg_catalog, pg_temp",  # pg_temp is searched first unless it is named
    "row_security": "off",  # an error if a policy would hide rows
    "quote_all_identifiers": "off",  # definitions of indexes and defaults are compared as text
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "1min",  # a suspended process does not keep rows locked
}

# Qualified names: before this statement sets the search path, an operator could be another role's own.
_SETTLE: Final = """
    SELECT pg_catalog.set_config(wanted.name, wanted.value, false)
    FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[]) AS wanted(name, value)
    JOIN pg_catalog.pg_settings AS known ON known.name OPERATOR(pg_catalog.=) wanted.name"""

READ_ONLY: Final = "25006"
# Class of the SQLSTATE of a lost connection; psycopg itself gives none.
LOST: Final = "08"


def settle(connection: Any, settings: dict[str, str]) -> None:
    """Apply sealpoint's settings and ``settings`` to a session; omit settings the server does not know."""
    wanted = _SETTINGS | settings
    connection.execute(_SETTLE, ([*wanted], [*wanted.values()]))


def state_of(error: Any) -> str:
    """Return the SQLSTATE of a psycopg error; `LOST` for a lost connection; ``""`` if it has none."""
    is_lost = error.sqlstate is None and isinstance(error, require_psycopg().OperationalError)
    return LOST if is_lost else error.sqlstate or ""


@cache
def watched_connection() -> Any:
    """Return a subclass of psycopg's connection that calls `check` while it waits for the server."""
    psycopg = require_psycopg()

    class WatchedConnection(psycopg.Connection):  # type: ignore[misc,name-defined]
        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(self._watched(gen), *arguments, **options)

        def _watched(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
            ready = None
            while True:
                try:
                    wanted = steps.send(ready)
                except StopIteration as ended:
                    return ended.value
                ready = yield wanted  # for the socket, for 0.1 s
                self.check(bool(ready))

        def check(self, ready: bool) -> None:
            """Called during a wait; raises to end the wait. ``ready`` is whether the server has sent data."""

    return WatchedConnection


__all__: list[str] = []
