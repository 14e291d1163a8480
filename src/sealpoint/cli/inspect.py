"""`sealpoint inspect`: the values of one thread as plain data."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import DatabaseArgument, JsonOption, KeysOption, VariableOption, require_text
from sealpoint.cli.output import print_json, say, show_table
from sealpoint.cli.stores import find_cipher, opened
from sealpoint.cli.verdict import show_verdict
from sealpoint.databases.failures import Failure, Failures
from sealpoint.errors import UnknownKeyError, excerpt
from sealpoint.maintenance.inspect import Readable, threads
from sealpoint.maintenance.inspect import inspect as read_thread
from sealpoint.maintenance.result import Reason, Result


def inspect(
    database: DatabaseArgument = None,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread", metavar="ID", show_default=False, help="The thread; without it, ids are listed."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="How many values, or ids, to show at most.")
    ] = 100,
    variable: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show the values of one thread as plain data. Nothing is imported, and what is long is cut.

    This is the one command that shows what was sealed. Without --thread it lists the ids of threads.
    """
    result, named = Result("inspect"), one_database(database, variable, keys)
    result.add(Reason.NOT_ASKED)
    if thread is None:
        return _list_threads(named, limit, result, as_json=as_json)
    require_text(thread, "--thread")
    values, shown, failures = [], 0, Failures()
    with opened([named]) as (store,):
        part = result.looks_at(store)
        cipher = find_cipher(store, keys, result)
        found = read_thread(store, cipher, thread)
        for value in islice(found, limit):
            shown += 1
            if isinstance(value, Failure):
                failures.add(value)
            if as_json:
                values.append(render.value_object(value))
            elif cipher is not None or not _lacks_key(value):  # that there is no ring was said
                render.show_value(value)
        more = next(found, None) is not None
    result.add(*render.failure_reasons(failures))
    result.add(Reason.NO_ROWS, when=not shown)
    document = result.document({**part, "thread": thread, "values": values, "more": more})
    if as_json:
        print_json(document)
    else:
        show_verdict(document)
    if not shown:
        say(f"no thread {excerpt(thread)}: without --thread the ids of all are listed")
        return Exit.USAGE
    if more:
        say(f"shown are the first {limit} values; there are more")
    return result_code(result)


def _lacks_key(value: Readable | Failure) -> bool:
    return isinstance(value, Failure) and isinstance(value.error, UnknownKeyError)


def _list_threads(database: str, limit: int, result: Result, *, as_json: bool) -> Exit:
    with opened([database]) as (store,):
        part, ids = result.looks_at(store), list(islice(threads(store), limit + 1))
    more = len(ids) > limit
    result.add(Reason.NO_ROWS, when=not ids)
    if as_json:
        print_json(result.document({**part, "threads": ids[:limit], "more": more}))
    else:
        show_table(("thread",), [[thread_id] for thread_id in ids[:limit]])
    if more:
        say(f"shown are the first {limit} threads; there are more")
    return Exit.DONE
