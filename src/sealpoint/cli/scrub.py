"""`sealpoint scrub`: clear old contents out of a SQLite file, with an estimate first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import JsonOption, KeysOption
from sealpoint.cli.outcome import scrub_reasons, scrubbed_object, search_result
from sealpoint.cli.output import print_json, put, say, show_table
from sealpoint.cli.stores import open_ring, opened
from sealpoint.cli.verdict import show_verdict
from sealpoint.keys.databasetable import is_url
from sealpoint.keys.lock import holding
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.scrub import forecast
from sealpoint.maintenance.scrub import scrub as scrub_file


def scrub(
    database: Annotated[str, typer.Argument(metavar="DB", show_default=False, help="A SQLite file.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Scrub; without it, only show what that takes.")
    ] = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Clear old contents out of a SQLite file and its log.

    Then searches both for tags of retired keys. Without --apply it shows for how long the file will be
    locked and how much disk that takes. Only `rotate --scrub` also searches for old values, because it has
    read them.
    """
    if is_url(database):
        cause = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
        raise typer.BadParameter(cause, param_hint="DB")
    result, path = Result("scrub"), Path(database)
    ring = open_ring(keys, result)
    with opened([database]) as (store,):
        part, rows = result.looks_at(store), sum(count.rows for count in store.count())
    estimate = _estimate(path)
    found = None
    if apply:
        with holding(path):
            found = scrub_file(path, ring)
        result.add(*scrub_reasons(found))
        result.add(Reason.NO_ROWS, when=not rows)
    else:
        result.add(Reason.NOT_APPLIED)
    body = {"applied": apply, "estimate": estimate, "scrubbed": found and scrubbed_object(found)}
    document = result.document({**part, **body})
    if as_json:
        print_json(document)
        return result_code(result)
    columns = ("bytes to write", "free bytes on disk", "lock, about s", "used by")
    show_table(columns, [[", ".join(cell) if isinstance(cell, list) else cell for cell in estimate.values()]])
    if found is not None:
        put(search_result(found))
    show_verdict(document)
    if not apply:
        say("--apply carries it out")
    return result_code(result)


def _estimate(path: Path) -> dict[str, Any]:
    """Return what a scrub takes: SQLite writes the file twice, once beside it or in its log."""
    expected = forecast(path)
    return {
        "size_bytes": 2 * expected.size_bytes,
        "free_bytes": shutil.disk_usage(path.resolve().parent).free,
        "lock_seconds": max(1, round(expected.lock_seconds)),
        "processes": list(expected.processes),
    }
