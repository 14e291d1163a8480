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
        "the server lets this role in neither from here nor in this way",
        "a line for it belongs into the server's pg_hba.conf; sslmode may be what is missing",
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
        "wait until others have ended, then run the same command again",
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
        "see that the host is spelled right, and that names are resolved here",
    ),
    _Refusal(
        "timeout expired|[Tt]imed? ?out",
        "the server does not answer in time",
        "see that the host is right, and that no firewall is in the way",
        UnreachableError,
    ),
    _Refusal(
        "Connection refused|No such file or directory|Is the server running",
        "no server listens there",
        "start the server, or name another host or port",
        UnreachableError,
    ),
    _Refusal("FATAL:", "the server refuses it", "its log says why; see that psql connects with the same URL"),
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
