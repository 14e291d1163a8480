"""`sealpoint report`: databases, keys and a thread store in one document for an assessor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    AllowStoreOption,
    AllowUnprovenOption,
    DatabasesArgument,
    ThreadsOption,
    VariablesOption,
)


def report(
    run: Run,
    databases: DatabasesArgument = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="A..B",
            help="List what changed from A to B, both included: dates as 2026-01-31, or times; UTC.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the page, HTML: sealpoint[evidence].")
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json-out", metavar="FILE", help="Write the object, JSON.")
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_store: AllowStoreOption = None,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    pin: Annotated[
        Path | None,
        typer.Option("--pin", metavar="FILE", help="Fail unless the thread store extends this earlier pin."),
    ] = None,
    vkey: Annotated[
        str | None,
        typer.Option(
            "--vkey",
            metavar="KEY",
            help="The verifier key of the ledger as it was noted at init, or a file with it.",
        ),
    ] = None,
    ledger_pin: Annotated[
        Path | None,
        typer.Option(
            "--ledger-pin", metavar="FILE", help="An earlier head of the ledger that was kept elsewhere."
        ),
    ] = None,
    variables: VariablesOption = None,
) -> None:
    """Answer what an assessor asks, on one page.

    Each question has a verdict: shown, refuted or not shown. Every value is opened, all from one state of
    each database. Exits with 3 if an answer is not shown, unless --allow-unproven is given. No text of a
    database is quoted.
    """
    from sealpoint.admin.cli.reporting import write_report  # which reads the ledger, as no other command does

    write_report(
        run,
        databases or (),
        variables or (),
        out,
        json_out,
        period=period,
        threads=threads,
        pin=pin,
        vkey=vkey,
        ledger_pin=ledger_pin,
        allow_plaintext=allow_plaintext,
        allow_store=allow_store,
        allow_unproven=allow_unproven,
    )
