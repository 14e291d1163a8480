"""Which databases a command works on: those that its command line names, or those that the ring file lists.

A command line names them by path, by URL without a password, or by an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from sealpoint.cli.options import require_text
from sealpoint.errors import DatabaseMissingError, PasswordError, RingFileMissingError, excerpt
from sealpoint.keys.databasetable import has_password, is_url
from sealpoint.keys.ringfile import RingFile, find_ring_file


class Databases(NamedTuple):
    """Databases that a command works on.

    Attributes:
        names: Of each its path or URL.
        ring_file: The ring file that lists them; ``None`` if the command line names them.
    """

    names: Sequence[str]
    ring_file: Path | None = None


def one_database(argument: str | None, variable: str | None, keys: Path | None) -> str:
    """Return the one database that a command line names; if it names none, the one that the ring file lists.

    Raises:
        BadParameter: If there is none, or more than one.
        SealpointError: What `find_databases` raises.
    """
    arguments, variables = ([] if one is None else [one] for one in (argument, variable))
    found = _find(arguments, variables, keys)
    if len(found.names) != 1:
        count = len(found.names) if found.ring_file else 0
        more = f"; the ring file lists {count}" if count else ""
        raise typer.BadParameter(f"name one database: DB, or --db-env NAME{more}", param_hint="DB")
    return found.names[0]


def find_databases(
    arguments: Sequence[str] | None, variables: Sequence[str] | None, keys: Path | None
) -> Databases:
    """Return all databases that a command line names; if it names none, those that the ring file lists.

    Raises:
        BadParameter: If there is none.
        KeyRingError: If the command line names none, and the ring file cannot be read.
        SealpointError: What `all_databases` raises.
    """
    found = _find(arguments, variables, keys)
    if not found.names:
        raise typer.BadParameter("name at least one database: DB, or --db-env NAME", param_hint="DB...")
    return found


def _find(arguments: Sequence[str] | None, variables: Sequence[str] | None, keys: Path | None) -> Databases:
    if named := all_databases(arguments, variables):
        return Databases(named)
    try:
        file = find_ring_file(keys)
    except RingFileMissingError:
        if keys is not None:
            raise
        return Databases(())
    return Databases(RingFile(file).databases, file)


def all_databases(arguments: Sequence[str] | None, variables: Sequence[str] | None) -> list[str]:
    """Return all databases that a command line names.

    Raises:
        PasswordError: If an argument contains a password.
        DatabaseMissingError: If a variable does not hold a URL of Postgres, or an argument cannot be one.
    """
    for argument in arguments or ():
        # Every account can read the arguments of a process (ps), and a shell keeps them in its history.
        if has_password(argument):
            raise PasswordError("a password stands in the name of the database")
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
