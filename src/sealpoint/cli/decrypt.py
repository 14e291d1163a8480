"""`sealpoint decrypt`: a copy of a SQLite file with nothing sealed in it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import AllowPlaintextOption, JsonOption, KeysOption
from sealpoint.cli.output import progress_bar, say, show_json
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import is_url, naming_other_files, open_ring, warn_of_leftovers
from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import Progress
from sealpoint.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.maintenance.pace import Pace


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
    failures, rows = render.ShownFailures(shown=not as_json), 0
    cipher = RingCipher(open_ring(keys), follow=False)
    with naming_other_files(database), stopping() as stop, progress_bar("decrypt") as move:
        pace = Pace(stop)
        run = decrypt_file(database, out, cipher, allow_plaintext=allow_plaintext)
        with closing(pace.limit(run)) as events:  # also if the terminal is gone, to which the bar is drawn
            for event in events:
                if isinstance(event, Progress):
                    rows = event.changed
                    move(event.rows, event.total)
                else:
                    failures.add(event)
    warn_of_leftovers(Path(database), out)
    written = not (failures.count or pace.stopped)
    if as_json:
        counts = {"rows": rows, "failed": failures.count, "failures": failures.objects()}
        show_json("decrypt", {"database": database, "out": str(out) if written else None, **counts})
    elif written:
        say(f"{rows} values were opened; {out} holds them readable for anyone who can read the file")
    else:
        failures.show_causes()
        say(f"no copy was made; {database} is as it was")
    return Exit.STOPPED if pace.stopped and not failures.count else render.exit_code(failures)
