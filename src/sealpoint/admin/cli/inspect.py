"""`sealpoint inspect` and `types`: the values of one thread as plain data, and the types that values name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.databases import find_cipher, one_database, opened
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.options import (
    AllowOption,
    DatabaseArgument,
    VariableOption,
    read_allowed,
    require_text,
)
from sealpoint.admin.cli.output import complain, progress_bar, put, say, say_how_far, show_table
from sealpoint.admin.databases.rows import Event, Failure, Failures, Progress
from sealpoint.admin.maintenance.inspect import Constructor, Inventory, Readable, plain, threads
from sealpoint.admin.maintenance.inspect import inspect as read_thread
from sealpoint.admin.maintenance.inspect import inventory as take_inventory
from sealpoint.admin.maintenance.result import Reason
from sealpoint.errors import UnknownKeyError, excerpt
from sealpoint.serde.allowlist import Allowlist


def inspect(
    run: Run,
    database: DatabaseArgument = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="ID", help="The thread; without it, ids are listed.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="How many values, or ids, to show at most.")
    ] = 100,
    variable: VariableOption = None,
) -> Exit:
    """Show the values of one thread as plain data. Nothing is imported, and what is long is cut.

    This is the one command that shows what was sealed. Without --thread it lists the ids of threads.
    """
    result, named = run.result, one_database(run, database, variable)
    result.add(Reason.NOT_ASKED)
    if thread is None:
        return _list_threads(run, named, limit)
    require_text(thread, "--thread")
    values, shown, failures = [], 0, Failures()
    with opened([named]) as (store,):
        part = result.looks_at(store)
        cipher = find_cipher(run, store)
        found = read_thread(store, cipher, thread)
        for value in islice(found, limit):
            shown += 1
            if isinstance(value, Failure):
                failures.add(value)
            if run.as_json:
                values.append(_value_object(value))
            elif cipher is not None or not _lacks_key(value):  # that there is no ring was said
                _show_value(value)
        more = next(found, None) is not None
    result.add(*render.failure_reasons(failures))
    result.add(Reason.NO_ROWS, when=not shown)
    code = run.end({**part, "thread": thread, "values": values, "more": more}, lambda _: None)
    if not shown:
        say(f"no thread {excerpt(thread)}: without --thread the ids of all are listed")
        return Exit.USAGE
    if more:
        say(f"shown are the first {limit} values; there are more")
    return code


def _show_value(found: Readable | Failure) -> None:
    """Print where a value stands, and the value below; or complain of it."""
    if isinstance(found, Failure):
        complain(render.failure_line(found))
        return
    put(f"{found.table} {render.place_line(found.place)} {found.tag}")
    for head, value in (("", found.value), ("sealed with it: ", found.sealed_with)):
        if not head or value is not None:
            for line in f"{head}{json.dumps(value, indent=2, ensure_ascii=False)}".splitlines():
                put(f"  {line}")


def _value_object(found: Readable | Failure) -> dict[str, Any]:
    """One of the values of `inspect --json`."""
    if isinstance(found, Failure):
        return render.failure_object(found)
    shown = {"table": found.table, "place": plain(found.place), "tag": found.tag, "value": found.value}
    return shown if found.sealed_with is None else {**shown, "sealed_with": found.sealed_with}


def _lacks_key(value: Readable | Failure) -> bool:
    return isinstance(value, Failure) and isinstance(value.error, UnknownKeyError)


def _list_threads(run: Run, database: str, limit: int) -> Exit:
    with opened([database]) as (store,):
        part, ids = run.result.looks_at(store), list(islice(threads(store), limit + 1))
    more = len(ids) > limit
    run.result.add(Reason.NO_ROWS, when=not ids)
    members = {**part, "threads": ids[:limit], "more": more}
    run.end(members, lambda _: show_table(("thread",), [[thread] for thread in ids[:limit]]))
    if more:
        say(f"shown are the first {limit} threads; there are more")
    return Exit.DONE


def types(
    run: Run,
    database: DatabaseArgument = None,
    emit: Annotated[
        bool, typer.Option("--emit", help="Print an allowlist of the types that need one, as Python.")
    ] = False,
    allow: AllowOption = None,
    variable: VariableOption = None,
) -> Exit:
    """Count the types that the values name. Nothing is imported, and no value is shown.

    Without a ring, sealed values are not opened; they are counted, and the exit code is 5.
    """
    if emit and run.as_json:
        raise typer.BadParameter("--emit prints Python, and --json prints JSON")
    allowlist = None if allow is None else Allowlist.of(read_allowed(allow))
    result, failures = run.result, render.ShownFailures(shown=not run.as_json)
    with opened([one_database(run, database, variable)]) as (store,):
        part, cipher = result.looks_at(store), find_cipher(run, store)
        with _watching("types", failures.add) as report:
            found = take_inventory(store, cipher, report=report)
    failures.show_causes()
    result.add(*render.failure_reasons(failures))
    result.add(*_reasons(found, allowlist))
    members = {**part, **_types_object(found, failures.objects(), allowlist)}
    show = (lambda _: _emit_types(found)) if emit else _show_types
    return run.end(members, show, verdict=not emit)


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


def _verdict(found: Constructor, allowlist: Allowlist | None) -> str | None:
    """Whether a type is allowed; ``None`` without an allowlist."""
    if found.is_safe:
        return "built in"
    if allowlist is None:
        return None
    return "yes" if found.pair in allowlist.types else "no"


def _show_types(document: Document) -> None:
    """Print the object of `types` as a table, the types named most often first."""
    types = sorted(document["types"], key=lambda part: -part["records"])
    rows = [
        (f"{part['module']}.{part['name']}", part["records"], part["thread"], part["allowed"])
        for part in types
    ]
    show_table(("type", "records", "first thread", "allowed"), rows)
    values = f"of {document['values']} values"
    render.count(document["not_opened"], f"{values} are sealed and were not opened")
    render.count(document["failed"], f"{values} could not be read")
    foreign = sum(part["allowed"] == "no" for part in types)
    render.count(foreign, "types are not on the allowlist")
    render.count(document["other_records"], "records name other types, which are not listed")


def _emit_types(found: Inventory) -> None:
    """Print the types that need an allowlist as one, in Python."""
    needed = sorted((part.pair, part) for part in found.constructors.values() if not part.is_safe)
    print("[")
    for pair, part in needed:
        if part.is_nameable:
            # The names come from untrusted values: as literals they cannot add code to the printed list.
            module, name = map(ascii, pair)
            print(f"    ({module}, {name}),  # {part.records}, first in thread {excerpt(part.thread)}")
    print("]")
    if found.not_opened:
        number = f"{found.not_opened} of {found.values}"
        say(f"{number} values are sealed and were not opened: their types are not in the list")
    if found.other_records:
        say(f"{found.other_records} records name other types, which are not in the list")
    if unnameable := sum(not part.is_nameable for _, part in needed):
        say(f"{unnameable} of the names are no type's and were left out")
    if needed:
        say("the values name these types: allow those that are yours, and no other")


def _types_object(
    found: Inventory, failures: Sequence[dict[str, Any]], allowlist: Allowlist | None
) -> dict[str, Any]:
    """What `types` found, as JSON."""
    return {
        "types": [
            {
                "module": part.module,
                "name": part.name,
                "records": part.records,
                "thread": part.thread,
                "allowed": _verdict(part, allowlist),
            }
            for part in found.constructors.values()
        ],
        "other_records": found.other_records,
        "values": found.values,
        "not_opened": found.not_opened,
        "failed": found.failures,
        "failures": failures,
    }
