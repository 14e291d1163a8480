"""`sealpoint verify`: every value opened, and each one named that does not open."""

from __future__ import annotations

from sealpoint.cli import render
from sealpoint.cli.exits import Exit
from sealpoint.cli.options import AllowPlaintextOption, DatabaseArgument, JsonOption, KeysOption
from sealpoint.cli.output import progress_bar, say, say_how_far
from sealpoint.cli.stores import open_ring, opened
from sealpoint.crypto import RingCipher
from sealpoint.databases.failures import Failures
from sealpoint.databases.rows import Progress
from sealpoint.maintenance.verify import verify as open_all


def verify(
    database: DatabaseArgument,
    allow_plaintext: AllowPlaintextOption = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it.
    """
    rows, total, failures, complete = 0, None, Failures(), False
    with opened([database]) as (store,), progress_bar("verify") as move:
        cipher = RingCipher(open_ring(keys))
        report = render.JsonReport(store.name) if as_json else render.LineReport()
        try:
            for event in open_all(store, cipher, allow_plaintext=allow_plaintext):
                if isinstance(event, Progress):
                    rows, total = event.rows, event.total
                    move(rows, total)
                else:
                    failures.add(event)
                    report.add(event)
            complete = True
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            report.end(rows, failures, complete=complete)
            if not complete:
                say_how_far(rows, total)
                say(f"{failures.count} of the values that were opened do not open")
    return render.exit_code(failures)
