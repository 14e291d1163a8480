"""The entries ``[[database]]`` of a ring file: the databases that have rows under its keys.

    [[database]]
    path = "state.db"                         # relative to the folder of the ring file

    [[database]]
    url = "postgresql://db.example/agents"    # for libpq, without a password

    [[database]]
    service = "agents"                        # of ~/.pg_service.conf or $PGSERVICEFILE

Only commands open them. A process that seals and opens values checks the entries, and connects to none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from sealpoint.errors import PasswordError, RingFileError, excerpt
from sealpoint.keys.fields import require_fields, require_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_FIELDS: Final = frozenset({"path", "url", "service"})
_SCHEMES: Final = ("postgresql://", "postgres://")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")


def is_url(database: str) -> bool:
    """Whether a database is named by a URL of Postgres."""
    return database.startswith(_SCHEMES)


def has_password(database: str) -> bool:
    """Whether a password stands in one of the three places where libpq takes one from a URL."""
    front, found, rest = database.partition("://")
    user, at, _ = (rest if found else front).partition("/")[0].partition("@")
    # libpq decodes names of parameters: pass%77ord is a password.
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    return bool((found and at and ":" in user) or named & _SECRETS)


def read_database_tables(tables: Sequence[Mapping[str, Any]], file: Path) -> tuple[str, ...]:
    """Return the databases that a ring file lists, each as a path or a URL of Postgres.

    Whether two paths lead to one file is not checked: nothing is opened.

    Raises:
        RingFileError: If an entry has another form than above, contains a password, or stands there twice.
    """
    found: list[str] = []
    for table in tables:
        database = _read(table, file)
        if database in found:
            raise RingFileError(f"{file}: [[database]] lists {excerpt(database)} twice")
        found.append(database)
    return tuple(found)


def _read(table: Mapping[str, Any], file: Path) -> str:
    where = f"{file}: [[database]]"
    require_fields(table, _FIELDS, set(), where)
    if len(table) != 1:
        raise RingFileError(f"{where} names exactly one of {', '.join(sorted(_FIELDS))}")
    (field,) = table
    value = require_text(table, field, where)
    if field == "path":
        if "://" in value:
            raise RingFileError(f"{where}: 'path' is a URL", hint='write it as url = "postgresql://..."')
        return str(file.parent / value)
    if field == "service":
        return f"postgresql:///?service={quote(value, safe='')}"
    if has_password(value):  # the message shows nothing of it
        raise RingFileError(f"{where}: a password stands in 'url'", hint=PasswordError.hint)
    if not is_url(value):
        raise RingFileError(f"{where}: 'url' does not begin with postgresql://")
    return value
