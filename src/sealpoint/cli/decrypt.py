"""`sealpoint decrypt`: a copy of a SQLite file with nothing sealed in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import is_url
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import AllowPlaintextOption, JsonOption, KeysOption
from sealpoint.cli.output import print_json, printable, progress_bar, put
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import naming_other_files, open_ring, open_store, warn_of_leftovers
from sealpoint.cli.verdict import show_verdict
from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import Progress
from sealpoint.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.maintenance.pace import Pace
from sealpoint.maintenance.result import Reason, Result


def decrypt(
    database: Annotated[str, typer.Argument(metavar="DB", show_default=False, help="A SQLite file.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", show_default=False, help="The new file; made private.")
    ],
    allow_plaintext: AllowPlaintextOption = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Write a copy of a SQLite file with nothing sealed in it.

    LangGraph's plain saver reads it.
    If a value does not open, no copy is made, and the exit code is 4, or 5 if only keys are missing.
    """
    if is_url(database):
        raise typer.BadParameter("the copy is a SQLite file, made from a SQLite file", param_hint="DB")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"no folder at {out.parent}", param_hint="--out")
    result = Result("decrypt", {"allow_plaintext": allow_plaintext})
    failures, rows, seen = render.ShownFailures(shown=not as_json), 0, 0
    cipher = RingCipher(open_ring(keys, result), follow=False)
    with naming_other_files(database), stopping() as stop, progress_bar("decrypt") as move:
        pace = Pace(stop)
        run = decrypt_file(database, out, cipher, allow_plaintext=allow_plaintext)
        with closing(pace.limit(run)) as events:  # also if the terminal is gone, to which the bar is drawn
            for event in events:
                if isinstance(event, Progress):
                    rows, seen = event.changed, event.rows
                    move(event.rows, event.total)
                else:
                    failures.add(event)
    with closing(open_store(database)) as store:  # not before: a refused run leaves no log beside the file
        part = result.looks_at(store)
    warn_of_leftovers(Path(database), out)
    written = not (failures.count or pace.stopped)
    result.add(*render.failure_reasons(failures), *_reasons(rows, seen, written=written))
    counts = {"rows": rows, "failed": failures.count, "failures": failures.objects()}
    document = result.document({**part, "out": str(out) if written else None, **counts})
    if as_json:
        print_json(document)
    else:
        failures.show_causes()
        put(printable(_summary(document)))
        show_verdict(document)
    return result_code(result)


def _reasons(opened: int, seen: int, *, written: bool) -> Iterator[Reason]:
    if not written:
        yield Reason.ENDED_EARLY
    elif not seen:
        yield Reason.NO_ROWS
    elif seen > opened:
        yield Reason.PLAINTEXT_ALLOWED


def _summary(document: render.Document) -> str:
    if document["out"] is None:
        return f"no copy was made; {document['database']['name']} is as it was"
    out, rows = document["out"], document["rows"]
    return f"{rows} values were decrypted; every account that can read {out} can read them"
