"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.errors import excerpt

DatabaseArgument = Annotated[
    str, typer.Argument(metavar="DB", show_default=False, help="A SQLite file or a postgresql:// URL.")
]
DatabasesArgument = Annotated[
    list[str], typer.Argument(metavar="DB...", show_default=False, help="SQLite files or postgresql:// URLs.")
]
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
