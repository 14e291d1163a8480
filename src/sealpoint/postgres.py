"""How a Postgres server is reached."""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import cache
from typing import Any, Final, NamedTuple

from sealpoint.errors import MissingExtraError
from sealpoint.urls import plain_url


def require_psycopg() -> Any:
    """Return the module psycopg, which is an extra."""
    try:
        import psycopg
        import psycopg.generators
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    return psycopg


# --- where a server is -------------------------------------------------------------------------


def parts_of(conninfo: str) -> dict[str, Any] | None:
    """Return the parameters of a URL or of ``service=NAME``; ``None`` if it cannot be read.

    Nor if a password may have slipped into the address, by a special character that is not escaped.
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
    """Return host, port, database and service: no user, no password, no options."""
    return {part: str(parts.get(part) or "") for part in ("host", "hostaddr", "port", "dbname", "service")}


class Refusal(NamedTuple):
    """Why a server refuses a connection, by words of libpq's message, which is never shown."""

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
        "add a line for it to the server's pg_hba.conf, or set sslmode",
    ),
    Refusal(
        "permission denied for database",
        "the role may not connect to the database",
        "let an administrator GRANT CONNECT ON DATABASE to it",
    ),
    Refusal("definition of service <> not found", "there is no such service", "see ~/.pg_service.conf"),
    Refusal(
        "too many (clients|connections)|remaining connection slots",
        "the server has no connection left",
        "wait until others have closed theirs, then run the same command again",
        is_passing=True,
    ),
    Refusal(
        "the database system is|not (currently|yet) accepting connections",
        "the server starts, stops or recovers",
        "run the same command again when it is ready",
        is_passing=True,
    ),
    Refusal(
        "failed to resolve|could not translate host name|[Nn]ame or service not known",
        "the name of the host is not known",
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
        "the server refuses it",
        "the server's log says why; check that psql connects with the same URL",
    ),
)


def refusal_of(words: str) -> Refusal | None:
    """Return why there is no connection, by the message of libpq or psycopg.

    Before a session exists there is no SQLSTATE, only this message, which has the names of the user and the
    host, and possibly a part of a password. It is compared, and never shown. In other languages than English
    only a server that answers and one that does not are distinguished.
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
    "quote_all_identifiers": "off",  # what the server shows of indexes and defaults is compared
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "1min",  # a suspended process does not keep rows locked
}

# Qualified: the search path is only set by it, and an operator could be one from another role's schema.
_SETTLE: Final = """
    SELECT pg_catalog.set_config(wanted.name, wanted.value, false)
    FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[]) AS wanted(name, value)
    JOIN pg_catalog.pg_settings AS known ON known.name OPERATOR(pg_catalog.=) wanted.name"""

READ_ONLY: Final = "25006"
# Class of the SQLSTATE of a lost connection; psycopg itself gives none.
LOST: Final = "08"


def settle(connection: Any, settings: dict[str, str]) -> None:
    """Apply those of our settings, and of further ones, that the server supports."""
    wanted = _SETTINGS | settings
    connection.execute(_SETTLE, ([*wanted], [*wanted.values()]))


def state_of(error: Any) -> str:
    """Return the SQLSTATE of an error of psycopg, `LOST` for a lost connection, or nothing."""
    is_lost = error.sqlstate is None and isinstance(error, require_psycopg().OperationalError)
    return LOST if is_lost else error.sqlstate or ""


@cache
def watched_connection() -> Any:
    """Return psycopg's connection, with a method that is called while it waits: a server may fall silent."""
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
            """Raise to end the wait; ``ready`` if the server has sent something."""

    return WatchedConnection


__all__: list[str] = []
