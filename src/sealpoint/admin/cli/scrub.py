"""`sealpoint scrub`: clear old contents out of a SQLite file, with an estimate first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from sealpoint.admin.cli.change import scrub_reasons, scrubbed_object, search_result
from sealpoint.admin.cli.databases import open_ring, opened
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.output import put, say, show_table
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.scrub import Scrubbed, forecast
from sealpoint.admin.maintenance.scrub import scrub as scrub_file


def scrub(
    run: Run,
    database: Annotated[str, typer.Argument(metavar="DB", help="A SQLite file.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Scrub; without it, only show what that takes.")
    ] = False,
) -> Exit:
    """Clear old contents out of a SQLite file and its log.

    Then searches both for tags of retired keys. Without --apply it shows for how long the file will be
    locked and how much disk that takes. Only `rotate --scrub` also searches for old values, because it has
    read them.
    """
    if not kind_of(database).is_file:
        cause = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
        raise typer.BadParameter(cause, param_hint="DB")
    result, path = run.result, Path(database)
    ring = open_ring(run)
    with opened([database]) as (store,):
        part, rows = result.looks_at(store), sum(count.rows for count in store.count())
    estimate, found = _estimate(path), None
    if apply:
        with holding(path):
            found = scrub_file(path, ring)
        result.add(*scrub_reasons(found))
        result.add(Reason.NO_ROWS, when=not rows)
    else:
        result.add(Reason.NOT_APPLIED)
    body = {"applied": apply, "estimate": estimate, "scrubbed": found and scrubbed_object(found)}
    code = run.end({**part, **body}, lambda _: _show(estimate, found))
    if not (apply or run.as_json):
        say("--apply carries it out")
    return code


def _show(estimate: dict[str, Any], found: Scrubbed | None) -> None:
    columns = ("bytes to write", "free bytes on disk", "lock, about s", "used by")
    show_table(columns, [[", ".join(cell) if isinstance(cell, list) else cell for cell in estimate.values()]])
    if found is not None:
        put(search_result(found))


def _estimate(path: Path) -> dict[str, Any]:
    """Return what a scrub takes: SQLite writes the file twice, once beside it or in its log."""
    expected = forecast(path)
    return {
        "size_bytes": 2 * expected.size_bytes,
        "free_bytes": shutil.disk_usage(path.resolve().parent).free,
        "lock_seconds": max(1, round(expected.lock_seconds)),
        "processes": list(expected.processes),
    }
