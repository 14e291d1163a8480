"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.errors import excerpt
from sealpoint.maintenance.options import Check

DatabaseArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DB",
        show_default=False,
        help="A SQLite file or a postgresql:// URL; else the one that the ring file lists.",
    ),
]
DatabasesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DB...",
        show_default=False,
        help="SQLite files or postgresql:// URLs; else those that the ring file lists.",
    ),
]
VariableOption = Annotated[
    str | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        show_default=False,
        help="Instead of DB, an environment variable with a postgresql:// URL, which may have a password.",
    ),
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        show_default=False,
        help="As DB, an environment variable that holds a postgresql:// URL. Give it once for each.",
    ),
]
AllowUnprovenOption = Annotated[
    bool,
    typer.Option("--allow-unproven", help="Exit with 0, and not with 3, if the result is not proven."),
]
KeyArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="Id of the key.")]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        show_default=False,
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
    int,
    typer.Option("--batch", min=1, max=100_000, metavar="ROWS", help="Rows in one transaction, at most."),
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes, for Postgres.")]
NoKeyCheckOption = Annotated[
    bool,
    typer.Option("--no-key-check", help="Do not first try the ring's keys on some rows that name them."),
]
SuiteOption = Annotated[
    str, typer.Option("--suite", help="The suite to seal with: cobblestone256 or xaes256gcm.")
]


AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="FILE|MODULE:NAME",
        show_default=False,
        help="Exit with 3 if a type is named that is not allowed: a file as --emit prints it, or one type;"
        " can be given several times. What a strict serializer builds by itself is always allowed.",
    ),
]


def read_allowed(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of module and name that the values of ``--allow`` give.

    Raises:
        BadParameter: If one is neither a file as ``--emit`` prints it nor ``MODULE:NAME``.
    """
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
    """Refuse what is not a number: it is neither below a bound nor above one.

    Raises:
        BadParameter: If it is NaN.
    """
    if number is not None and math.isnan(number):
        raise typer.BadParameter("it is not a number")
    return number


def require_text(text: str, name: str) -> None:
    """Refuse an argument whose bytes were not UTF-8: no database can be asked for it.

    Raises:
        BadParameter: If it has a lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{excerpt(text)} is not UTF-8", param_hint=name) from None


RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.001,
        max=1_000_000_000,
        callback=require_number,
        metavar="ROWS",
        show_default=False,
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
        show_default=False,
        help="Stop after this time.",
    ),
]
