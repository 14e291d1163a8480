"""`sealpoint report`: databases, keys and a thread store in one document for an assessor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealpoint.cli.exits import Exit
from sealpoint.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabasesArgument,
    JsonOption,
    KeysOption,
    VariablesOption,
)
from sealpoint.cli.threads import ThreadsOption


def report(
    databases: DatabasesArgument = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="A..B",
            show_default=False,
            help="List what changed from A to B, both included: dates as 2026-01-31, or times; UTC.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default=False,
            help="Write the page, HTML: sealpoint[evidence].",
        ),
    ] = None,
    json_out: Annotated[
        Path | None,
        typer.Option("--json-out", metavar="FILE", show_default=False, help="Write the object, JSON."),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    pin: Annotated[
        Path | None,
        typer.Option(
            "--pin",
            metavar="FILE",
            show_default=False,
            help="An earlier pin, which the thread store must continue.",
        ),
    ] = None,
    vkey: Annotated[
        str | None,
        typer.Option(
            "--vkey",
            metavar="KEY",
            show_default=False,
            help="The verifier key of the ledger as it was noted at init, or a file with it.",
        ),
    ] = None,
    ledger_pin: Annotated[
        Path | None,
        typer.Option(
            "--ledger-pin",
            metavar="FILE",
            show_default=False,
            help="An earlier head of the ledger that was kept elsewhere.",
        ),
    ] = None,
    variables: VariablesOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Answer what an assessor asks, on one page.

    Each question has a verdict: shown, refuted or not shown. Every value is opened, all from one state of
    each database. Exits with 3 if an answer is not shown, unless --allow-unproven is given. No text of a
    database is quoted.
    """
    from sealpoint.cli.reporting import Asked, make_report

    asked = Asked(
        databases=databases or (),
        variables=variables or (),
        period=period,
        out=out,
        json_out=json_out,
        allow_plaintext=allow_plaintext,
        allow_unproven=allow_unproven,
        threads=threads,
        pin=pin,
        vkey=vkey,
        ledger_pin=ledger_pin,
        keys=keys,
        as_json=as_json,
    )
    return make_report(asked)
