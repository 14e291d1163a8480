"""`sealpoint audit`: what is readable without a key."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowUnprovenOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
)
from sealpoint.cli.output import print_json
from sealpoint.cli.stores import find_entries, opened, say_if_unknown
from sealpoint.cli.verdict import show_verdict
from sealpoint.maintenance.audit import audit as look_at
from sealpoint.maintenance.audit import audit_object, audit_reasons
from sealpoint.maintenance.result import Result
from sealpoint.maintenance.status import with_states


def audit(
    database: DatabaseArgument = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 3 for what is readable beside the values.")
    ] = False,
    allow_metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-metadata",
            metavar="KEY",
            show_default=False,
            help="With --strict, accept this key of metadata. Give it once for each.",
        ),
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
    variable: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show what is readable without a key. No value is shown, only shapes.

    Exits with 3 if there are values that are not sealed, or tables in which LangGraph keeps values unsealed.
    """
    allowed = tuple(allow_metadata or ())
    result = Result("audit", {"strict": strict, "allow_metadata": list(allowed)})
    named = one_database(database, variable, keys)
    entries = find_entries(keys, result)
    with opened([named]) as (store,):
        part, found = result.looks_at(store), look_at(store, allowed)
    found = replace(found, shares=tuple(with_states(found.shares, entries)))
    say_if_unknown(entries, found.shares)
    result.add(*audit_reasons(found, strict=strict))
    document = result.document({**part, **audit_object(found)})
    if as_json:
        print_json(document)
    else:
        render.show_audit(document)
        show_verdict(document)
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)
