"""Reasons why a connection to a Postgres server failed.

Before a session exists libpq provides no SQLSTATE, only a message that contains the names of the user and
the host, and possibly a part of a password. So the message is compared, and never shown. For messages that
are not in English, only a server that answers and one that does not are distinguished.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sealpoint.errors import DatabaseMissingError, UnreachableError


class _Refusal(NamedTuple):
    words: str
    reason: str
    hint: str
    error: type[DatabaseMissingError] = DatabaseMissingError


_ROLE_HINT: Final = "name the role in the service file, in $PGUSER or in the URL"
_REFUSALS: Final = (  # the first match counts; quoted names are removed before
    _Refusal("FATAL: +database <> does not exist", "the server has no such database", "`psql -l` lists them"),
    _Refusal("FATAL: +role <> does not exist", "the server has no such role", _ROLE_HINT),
    _Refusal("FATAL: +role <> is not permitted to log in", "the role may not log in", _ROLE_HINT),
    _Refusal(
        "authentication failed|no password supplied|password is empty",
        "the server does not accept the role's credentials",
        "libpq takes the password from ~/.pgpass, $PGPASSFILE or $PGSERVICEFILE",
    ),
    _Refusal(
        "no pg_hba.conf entry|pg_hba.conf rejects",
        "the server's pg_hba.conf does not allow this role, host or method",
        "add a line for it to the server's pg_hba.conf, or set sslmode",
    ),
    _Refusal(
        "permission denied for database",
        "the role may not connect to the database",
        "let an administrator GRANT CONNECT ON DATABASE to it",
    ),
    _Refusal("definition of service <> not found", "there is no such service", "see ~/.pg_service.conf"),
    _Refusal(
        "too many (clients|connections)|remaining connection slots",
        "the server has no connection left",
        "wait until others have closed theirs, then run the same command again",
        UnreachableError,
    ),
    _Refusal(
        "the database system is|not (currently|yet) accepting connections",
        "the server starts, stops or recovers",
        "run the same command again when it is ready",
        UnreachableError,
    ),
    _Refusal(
        "failed to resolve|could not translate host name|[Nn]ame or service not known",
        "the name of the host is not known",
        "check the spelling of the host, and that this machine resolves names",
    ),
    _Refusal(
        "timeout expired|[Tt]imed? ?out",
        "the server does not answer in time",
        "check the host, and that no firewall blocks the connection",
        UnreachableError,
    ),
    _Refusal(
        "Connection refused|No such file or directory|Is the server running",
        "no server listens at this address",
        "start the server, or name another host or port",
        UnreachableError,
    ),
    _Refusal(
        "FATAL:",
        "the server refuses it",
        "the server's log says why; check that psql connects with the same URL",
    ),
)


def refused(name: str, words: str) -> DatabaseMissingError:
    """Return the error for a failed connection.

    Args:
        name: Of the database, without a user or a password.
        words: The message of libpq or psycopg. The error contains no part of it.
    """
    plain = re.sub(r'"[^"\n]*"', "<>", words)
    for refusal in _REFUSALS:
        if re.search(refusal.words, plain):
            return refusal.error(f"no connection to {name}: {refusal.reason}", hint=refusal.hint)
    return UnreachableError(f"no connection to {name}")
