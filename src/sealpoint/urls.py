"""Names of databases: whether a name is a Postgres URL, and whether it contains a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# SQLAlchemy and others also write a driver into the scheme, which libpq does not accept.
_SCHEME: Final = re.compile(r"(postgres(?:ql)?)(?:\+[a-z0-9_]+)?(?=://)")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")
URL_HINT: Final = "use only parameters of libpq in the URL, and write special characters as %XX"


def is_url(database: str) -> bool:
    """Whether the name of a database is a Postgres URL, also one such as ``postgresql+psycopg://``."""
    return _SCHEME.match(database) is not None


def plain_url(database: str) -> str:
    """Return a Postgres URL without a driver in the scheme, as libpq needs it; other names unchanged."""
    return _SCHEME.sub(r"\1", database, count=1) if is_url(database) else database


def has_password(database: str) -> bool:
    """Whether a URL contains a password in one of the three places where libpq looks for it.

    An empty password does not count. Any text before an unescaped ``@`` counts: it may be part of a password.
    """
    _, _, rest = database.partition("://")
    fronts = (rest.partition("/")[0], rest.partition("?")[0], rest)
    *users, whole = (front.rpartition("@")[0] for front in fronts)
    users += [] if "=" in whole else [whole]  # no parameter is before the @
    # libpq decodes names of parameters: pass%77ord is a password.
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    return any(user.partition(":")[2] for user in users) or bool(named & _SECRETS)
