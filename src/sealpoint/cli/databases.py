"""Which databases a command line names: by path, by URL without a password, or by an environment variable."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import typer

from sealpoint.cli.options import require_text
from sealpoint.errors import DatabaseMissingError, PasswordError, excerpt

_SCHEMES: Final = ("postgresql://", "postgres://")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")


def is_url(database: str) -> bool:
    """Whether a database is named by a URL of Postgres."""
    return database.startswith(_SCHEMES)


def one_database(argument: str | None, variable: str | None) -> str:
    """Return the one database that a command line names.

    Raises:
        BadParameter: If it names none, or two.
        PasswordError: If the argument contains a password.
        DatabaseMissingError: If the variable does not hold a URL of Postgres, or the argument cannot be one.
    """
    named = all_databases(None if argument is None else [argument], None if variable is None else [variable])
    if len(named) != 1:
        raise typer.BadParameter("name one database: DB, or --db-env NAME", param_hint="DB")
    return named[0]


def all_databases(arguments: Sequence[str] | None, variables: Sequence[str] | None) -> list[str]:
    """Return all databases that a command line names.

    Raises:
        PasswordError: If an argument contains a password.
        DatabaseMissingError: If a variable does not hold a URL of Postgres, or an argument cannot be one.
    """
    for argument in arguments or ():
        _require_no_password(argument)
        if is_url(argument):
            require_text(argument, "DB")
        elif "://" in argument:
            raise DatabaseMissingError(f"{excerpt(argument)} is neither a path nor a URL of Postgres")
    return [*(arguments or ()), *map(_from_environment, variables or ())]


def _from_environment(variable: str) -> str:
    url = os.environ.get(variable)
    if url is None:
        hint = f"export {variable}=postgresql://..., in the environment of this command alone"
        raise DatabaseMissingError(f"the environment variable {excerpt(variable)} is not set", hint=hint)
    if not is_url(url):  # what it holds is not shown: it may have a password
        hint = "it must begin with postgresql://; a SQLite file is named as DB"
        raise DatabaseMissingError(f"{excerpt(variable)} does not hold a URL of Postgres", hint=hint)
    return url


def _require_no_password(database: str) -> None:
    """Refuse a password in the three places where libpq takes one; the message shows nothing of it."""
    # Every account can read the arguments of a process (ps), and a shell keeps them in its history.
    front, found, rest = database.partition("://")
    user, at, _ = (rest if found else front).partition("/")[0].partition("@")
    # libpq decodes names of parameters: pass%77ord is a password.
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    if (found and at and ":" in user) or named & _SECRETS:
        raise PasswordError("a password stands in the name of the database")
