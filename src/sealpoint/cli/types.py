"""`sealpoint types`: the types that values name, counted without importing any."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import DatabaseArgument, JsonOption, KeysOption
from sealpoint.cli.output import progress_bar, say, say_how_far, show_json
from sealpoint.cli.stores import find_cipher, opened
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Event, Progress
from sealpoint.errors import excerpt
from sealpoint.maintenance.inventory import Inventory
from sealpoint.maintenance.inventory import inventory as take_inventory
from sealpoint.serde.allowlist import Allowlist

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


def types(
    database: DatabaseArgument,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist of the types that need one, as Python.")
    ] = False,
    allow: AllowOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Count the types that the values name. Nothing is imported, and no value is shown.

    Without a ring, sealed values are not opened, and that is said.
    """
    if emit and as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = (
        None if allow is None else Allowlist.of([pair for text in allow for pair in _read_allowed(text)])
    )
    failures = render.ShownFailures(shown=not as_json)
    with opened([database]) as (store,):
        name, cipher = store.name, find_cipher(store, keys)
        with _watching("types", failures.add) as report:
            found = take_inventory(store, cipher, report=report)
    failures.show_causes()
    if as_json:
        show_json("types", render.types_object(name, found, failures.objects(), allowlist))
    elif emit:
        render.emit_types(found)
    else:
        render.show_types(found, allowlist)
    return _exit_code(found, allowlist)


def _read_allowed(text: str) -> list[tuple[str, str]]:
    """Return the pairs of one ``--allow``."""
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


def _exit_code(found: Inventory, allowlist: Allowlist | None) -> Exit:
    if found.not_opened:
        say(f"{found.not_opened} of {found.values} values are sealed and were not opened")
    if found.failures:
        say(f"{found.failures} of {found.values} values could not be read")
        return Exit.UNOPENED
    if allowlist is None:
        return Exit.DONE
    if found.not_opened:  # what they name is not known
        return Exit.KEYS
    foreign = [pair for pair in found.constructors if pair not in allowlist.types]
    if foreign or found.other_records:
        say(f"types that are not on the allowlist: {len(foreign) or found.other_records}")
        return Exit.FOUND
    return Exit.DONE


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
