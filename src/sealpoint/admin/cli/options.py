"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.admin.databases.kinds import find_kind, kind_of
from sealpoint.admin.maintenance.result import Check
from sealpoint.errors import DatabaseMissingError, PasswordError, excerpt
from sealpoint.keys.entry import has_password

DatabaseArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DB", help="A SQLite file or a postgresql:// URL; else the one that the ring file lists."
    ),
]
DatabasesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DB...", help="SQLite files or postgresql:// URLs; else those that the ring file lists."
    ),
]
VariableOption = Annotated[
    str | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="Instead of DB, an environment variable with a postgresql:// URL, which may have a password.",
    ),
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="As DB, an environment variable that holds a postgresql:// URL. Give it once for each.",
    ),
]
AllowUnprovenOption = Annotated[
    bool, typer.Option("--allow-unproven", help="Exit with 0, and not with 3, if the result is not proven.")
]
KeyArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="The ring file; else $SEALPOINT_KEYS, $CREDENTIALS_DIRECTORY/sealpoint.keys"
        " or /etc/sealpoint/keys.toml.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
AllowPlaintextOption = Annotated[
    bool, typer.Option("--allow-plaintext", help="Accept values that are not sealed.")
]
AllowLegacyOption = Annotated[
    bool, typer.Option("--allow-legacy", help="Also reseal values under LANGGRAPH_AES_KEY.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Apply the plan; without it, only show the plan.")]
CheckOption = Annotated[Check, typer.Option("--verify", help="Which values to open once more at the end.")]
BatchOption = Annotated[
    int, typer.Option("--batch", min=1, max=100_000, metavar="ROWS", help="Rows in one transaction, at most.")
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes, for Postgres.")]
NoKeyCheckOption = Annotated[
    bool, typer.Option("--no-key-check", help="Do not first try the ring's keys on some rows that name them.")
]
SuiteOption = Annotated[
    str, typer.Option("--suite", help="The suite to seal with: cobblestone256 or xaes256gcm.")
]


AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="FILE|MODULE:NAME",
        help="Exit with 3 if a type is named that is not allowed: a file as --emit prints it, or one type;"
        " can be given several times. What a strict serializer builds by itself is always allowed.",
    ),
]


def read_allowed(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of module and name that the values of ``--allow`` give."""
    return [pair for text in texts for pair in _read_allowed(text)]


def _read_allowed(text: str) -> list[tuple[str, str]]:
    file = Path(text)
    if not file.is_file():
        module, colon, name = text.rpartition(":")
        if not (colon and module and name):
            raise typer.BadParameter(
                f"{excerpt(text)} is neither a file nor MODULE:NAME", param_hint="--allow"
            )
        return [(module, name)]
    try:
        pairs = ast.literal_eval(file.read_text(encoding="utf-8"))
        return [(str(module), str(name)) for module, name in pairs]
    except (SyntaxError, TypeError, ValueError):
        raise typer.BadParameter(f"{excerpt(text)} is not what --emit prints", param_hint="--allow") from None


def require_number(number: float | None) -> float | None:
    """Refuse what is not a number: it is neither below a bound nor above one."""
    if number is not None and math.isnan(number):
        raise typer.BadParameter("it is not a number")
    return number


def require_text(text: str, name: str) -> None:
    """Refuse an argument whose bytes were not UTF-8: no database can be asked for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{excerpt(text)} is not UTF-8", param_hint=name) from None


def all_databases(arguments: Sequence[str] | None, variables: Sequence[str] | None) -> list[str]:
    """Return all databases that a command line names."""
    for argument in arguments or ():
        # Every account can read the arguments of a process (ps), and a shell keeps them in its history.
        if has_password(argument):
            raise PasswordError("a password stands in the name of the database")
        kind = find_kind(argument)
        if kind is None:
            raise DatabaseMissingError(f"{excerpt(argument)} is neither a path nor a URL of Postgres")
        if not kind.is_file:
            require_text(argument, "DB")
    return [*(arguments or ()), *map(_from_environment, variables or ())]


def _from_environment(variable: str) -> str:
    url = os.environ.get(variable)
    if url is None:
        hint = f"export {variable}=postgresql://..., in the environment of this command alone"
        raise DatabaseMissingError(f"the environment variable {excerpt(variable)} is not set", hint=hint)
    if kind_of(url).is_file:  # what it holds is not shown: it may have a password
        hint = "it must begin with postgresql://; a SQLite file is named as DB"
        raise DatabaseMissingError(f"{excerpt(variable)} does not hold a URL of Postgres", hint=hint)
    return url


RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.001,
        max=1_000_000_000,
        callback=require_number,
        metavar="ROWS",
        help="Rows a second, at most.",
    ),
]
MaxLockOption = Annotated[
    float,
    typer.Option(
        "--max-lock-ms",
        min=1,
        max=3_600_000,
        callback=require_number,
        metavar="MS",
        help="Smaller batches if writers wait longer.",
    ),
]
MaxSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        min=0,
        max=1_000_000_000,
        callback=require_number,
        metavar="S",
        help="Stop after this time.",
    ),
]
