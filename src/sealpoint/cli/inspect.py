"""`sealpoint inspect`: the values of one thread as plain data."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import DatabaseArgument, JsonOption, KeysOption, require_text
from sealpoint.cli.output import say, show_json, show_table
from sealpoint.cli.stores import find_cipher, opened
from sealpoint.databases.failures import Failure, Failures
from sealpoint.errors import excerpt
from sealpoint.maintenance.inspect import inspect as read_thread
from sealpoint.maintenance.inspect import threads


def inspect(
    database: DatabaseArgument,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread", metavar="ID", show_default=False, help="The thread; without it, ids are listed."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100_000, help="Show so many values, or ids, at most.")
    ] = 100,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Show the values of one thread as plain data. Nothing is imported, and what is long is cut.

    This is the one command that shows what was sealed. Without --thread it lists the ids of threads.
    """
    if thread is None:
        return _list_threads(database, limit, as_json=as_json)
    require_text(thread, "--thread")
    values, shown, failures = [], 0, Failures()
    with opened([database]) as (store,):
        name, found = store.name, read_thread(store, find_cipher(store, keys), thread)
        for part in islice(found, limit):
            shown += 1
            if isinstance(part, Failure):
                failures.add(part)
            if as_json:
                values.append(render.value_object(part))
            else:
                render.show_value(part)
        more = next(found, None) is not None
    if as_json:
        show_json("inspect", {"database": name, "thread": thread, "values": values, "more": more})
    if not shown:
        say(f"no thread {excerpt(thread)}: without --thread the ids of all are listed")
        return Exit.USAGE
    if more:
        say(f"shown are the first {limit} values; there are more")
    return render.exit_code(failures)


def _list_threads(database: str, limit: int, *, as_json: bool) -> Exit:
    with opened([database]) as (store,):
        name, ids = store.name, list(islice(threads(store), limit + 1))
    more = len(ids) > limit
    if as_json:
        show_json("inspect", {"database": name, "threads": ids[:limit], "more": more})
    else:
        show_table(("thread",), [[thread_id] for thread_id in ids[:limit]])
    if more:
        say(f"shown are the first {limit} threads; there are more")
    return Exit.DONE
