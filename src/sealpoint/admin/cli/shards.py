"""`sealpoint shards` and `merge`: divide a run over many hosts, and combine the results into one verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from sealpoint.admin.cli import ledger, options
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.output import Document, escape_id, put, say, watching
from sealpoint.admin.evidence.merge import merge_reasons, parse_part
from sealpoint.admin.evidence.verify import read_verified
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.shards import Shard, new_run
from sealpoint.keys.ringfile import RingFile


def shards(
    run: Run,
    at: options.OneDatabase,
    number: Annotated[
        int, typer.Option("--count", min=1, max=1000, metavar="N", help="Maximum number of ranges.")
    ],
) -> None:
    """Divide the threads of a Postgres database into ranges.

    Each line has the options for one range. The ranges have about the same number of values, and each thread
    is in one range, also if it is written later. Pass a line to `status`, `verify`, `rotate` or `rebind`, on
    one host or many; `sealpoint merge` combines their results into one verdict.
    """
    from sealpoint.admin.databases.postgres.bounds import find_bounds
    from sealpoint.admin.databases.postgres.rows import PostgresRows

    with at.opened(run) as store, watching("shards"):
        if not isinstance(store, PostgresRows):
            raise typer.BadParameter("SQLite allows one writer at a time", param_hint="DB")
        bounds = find_bounds(store, number)
    run.result.add(Reason.NOT_ASKED)
    run.result.run, ranges = new_run(), list[dict[str, Any]]()
    for ends in zip([None, *bounds], [*bounds, None], strict=True):
        named = dict(zip(Shard._fields[2:], ends, strict=True))
        given = [f"--{name.replace('_', '-')}={escape_id(end)}" for name, end in named.items() if end]
        ranges.append({**named, "arguments": [f"--run={run.result.run}", *given]})
    run.end({"ranges": ranges}, _show_ranges, verdict=False)
    if len(ranges) < number:
        say(f"{len(ranges)} ranges: more ranges would be empty")


def _show_ranges(document: Document) -> None:
    for each in document["ranges"]:
        put(shlex.join(each["arguments"]))


def merge(
    run: Run,
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help="JSON that the commands printed.")
    ],
    vkey: ledger.VkeyOption = None,
    allow_unproven: options.AllowUnprovenOption = False,
    folder: ledger.LedgerOption = None,
) -> None:
    """Combine the results of all ranges of a run into one verdict.

    All results must have the same options, keys and database. Results are not signed: the verdict is proven
    only with a ledger that has the digest of each result, and its --vkey. Exits with 3 unless it is proven.
    """
    ring, recorded = options.find_ring(run) if folder is None else None, set[Any]()
    table = RingFile(ring).ledger if ring else None
    if path := table.folder if table else folder:
        verdict = ledger.check_ledger(path, vkey, None)
        recorded = {entry["subject"].get("result") for entry in read_verified(path, verdict)}
        run.result.add(*(verdict.reasons - {Reason.PIN_NOT_GIVEN}))  # a pin is not needed to merge
        ledger.complain_of(verdict)
    parts = [parse_part(file.read_bytes()) for file in results]
    run.result.add(*merge_reasons(parts, recorded))
    found = [
        {
            "file": str(file),
            "command": part and part.shard.command,
            "recorded": part is not None and part.digest in recorded,
            "reasons": [Reason.NOT_A_RESULT] if part is None else part.reasons,
        }
        for file, part in zip(results, parts, strict=True)
    ]
    run.end({"results": found}, _show_results, allow_unproven=allow_unproven)


def _show_results(document: Document) -> None:
    for row in document["results"]:
        reasons = row["reasons"] if row["recorded"] else [*row["reasons"], Reason.NOT_RECORDED]
        put(f"{row['file']}: {', '.join(reasons) or row['command'] + ': ok'}")
