"""`sealpoint types`: the types that values name, counted without importing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
    read_allowed,
)
from sealpoint.cli.output import print_json, progress_bar, say_how_far
from sealpoint.cli.stores import find_cipher, opened
from sealpoint.cli.verdict import show_verdict
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Event, Progress
from sealpoint.maintenance.inventory import Inventory
from sealpoint.maintenance.inventory import inventory as take_inventory
from sealpoint.maintenance.result import Reason, Result
from sealpoint.serde.allowlist import Allowlist


def types(
    database: DatabaseArgument = None,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist of the types that need one, as Python.")
    ] = False,
    allow: AllowOption = None,
    variable: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Count the types that the values name. Nothing is imported, and no value is shown.

    Without a ring, sealed values are not opened; they are counted, and the exit code is 5.
    """
    if emit and as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = None if allow is None else Allowlist.of(read_allowed(allow))
    result, failures = Result("types"), render.ShownFailures(shown=not as_json)
    with opened([one_database(database, variable, keys)]) as (store,):
        part, cipher = result.looks_at(store), find_cipher(store, keys, result)
        with _watching("types", failures.add) as report:
            found = take_inventory(store, cipher, report=report)
    failures.show_causes()
    result.add(*render.failure_reasons(failures))
    result.add(*_reasons(found, allowlist))
    document = result.document({**part, **render.types_object(found, failures.objects(), allowlist)})
    if as_json:
        print_json(document)
    elif emit:
        render.emit_types(found)
    else:
        render.show_types(document)
        show_verdict(document)
    return result_code(result)


def _reasons(found: Inventory, allowlist: Allowlist | None) -> Iterator[Reason]:
    if not found.values:
        yield Reason.NO_ROWS
    if found.not_opened:  # what they name is not known
        yield Reason.NOT_OPENED
    if allowlist is None:
        yield Reason.NOT_ASKED
    elif found.other_records or any(pair not in allowlist.types for pair in found.constructors):
        yield Reason.TYPES_NOT_ALLOWED


@contextmanager
def _watching(title: str, failed: Callable[[Failure], object]) -> Iterator[Callable[[Event], None]]:
    """Show progress, and hand on failures; of a run that ends early, say how far it came."""
    rows, total = 0, None
    with progress_bar(title) as move:

        def report(event: Event) -> None:
            nonlocal rows, total
            if isinstance(event, Progress):
                rows, total = event.rows, event.total
                move(rows, total)
            else:
                failed(event)

        try:
            yield report
        except BaseException:
            say_how_far(rows, total)
            raise
