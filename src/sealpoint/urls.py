"""Names of databases: which are URLs of Postgres, and whether one has a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# As SQLAlchemy and others write it, the scheme also names a driver, which libpq does not know.
_SCHEME: Final = re.compile(r"(postgres(?:ql)?)(?:\+[a-z0-9_]+)?(?=://)")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")
URL_HINT: Final = "its parameters are those of libpq, and special characters are written as %XX"


def is_url(database: str) -> bool:
    """Whether a database is named by a URL of Postgres, possibly with a driver in its scheme."""
    return _SCHEME.match(database) is not None


def plain_url(database: str) -> str:
    """Return a URL of Postgres as libpq reads it, without a driver; any other name as it is."""
    return _SCHEME.sub(r"\1", database, count=1) if is_url(database) else database


def has_password(database: str) -> bool:
    """Whether a password stands in one of the three places where libpq takes one from a URL.

    An empty one is none. What stands before an ``@`` that is not escaped may be a part of one.
    """
    _, _, rest = database.partition("://")
    fronts = (rest.partition("/")[0], rest.partition("?")[0], rest)
    *users, whole = (front.rpartition("@")[0] for front in fronts)
    users += [] if "=" in whole else [whole]  # no parameter is before the @
    # libpq decodes names of parameters: pass%77ord is a password.
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    return any(user.partition(":")[2] for user in users) or bool(named & _SECRETS)
