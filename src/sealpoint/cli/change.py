"""Commands that write databases: `rotate` and `decrypt`."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.cli import findings
from sealpoint.cli.exits import Exit
from sealpoint.cli.rotation import (
    Action,
    Check,
    Outcome,
    Wishes,
    carry_out,
    make_plan,
    plan_rows,
    require_keys,
)
from sealpoint.cli.screen import JsonOption, progress_bar, say, show_json, show_table, warn
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import (
    DatabaseArgument,
    KeysOption,
    is_url,
    naming_other_files,
    open_ring,
    open_store,
    warn_of_leftovers,
)
from sealpoint.crypto import RingCipher
from sealpoint.crypto.suites import SUITES
from sealpoint.databases.rows import BATCH, Batch, Progress
from sealpoint.maintenance.decrypt import decrypt as decrypt_file
from sealpoint.maintenance.pace import Pace
from sealpoint.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.maintenance.scrub import Scrubbed, forecast

MAX_PLACES: Final = 5
_NOTICED_SECONDS: Final = 1.0


def require_number(number: float | None) -> float | None:
    """Refuse what is not a number: it is neither below a bound nor above one."""
    if number is not None and math.isnan(number):
        raise typer.BadParameter("it is not a number")
    return number


def rotate(
    database: DatabaseArgument,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; else only the plan is shown.")] = False,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Also seal values that are not sealed yet.")
    ] = False,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="Also seal values under LANGGRAPH_AES_KEY anew.")
    ] = False,
    verify: Annotated[
        Check, typer.Option("--verify", help="Which values to open once more at the end.")
    ] = Check.ALL,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Clear old contents out of a SQLite file, and search it for them.")
    ] = False,
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=100_000, metavar="ROWS", help="Rows in one transaction, at most."),
    ] = BATCH.rows,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.001,
            max=1_000_000_000,
            callback=require_number,
            metavar="ROWS",
            show_default=False,
            help="Rows a second, at most.",
        ),
    ] = None,
    max_lock_ms: Annotated[
        float,
        typer.Option(
            "--max-lock-ms",
            min=1,
            max=3_600_000,
            callback=require_number,
            metavar="MS",
            help="Smaller batches if writers wait longer.",
        ),
    ] = MAX_LOCK_SECONDS * 1000,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            "--max-seconds",
            min=0,
            max=1_000_000_000,
            callback=require_number,
            metavar="S",
            show_default=False,
            help="Stop after this time.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes, for Postgres.")] = 1,
    no_key_check: Annotated[
        bool,
        typer.Option("--no-key-check", help="Do not first try the ring's keys on some rows that name them."),
    ] = False,
    suite: Annotated[
        str, typer.Option("--suite", help="What to seal in: cobblestone256 or xaes256gcm.")
    ] = "cobblestone256",
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Bring every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it goes on where it was.
    """
    _require_fitting(database, workers=workers, scrub=scrub, suite=suite)
    if not is_url(database):
        warn_of_leftovers(Path(database))
        if scrub:
            _warn_of_scrub(Path(database))
    wishes = Wishes(
        database=database,
        ring=keys,
        allow_plaintext=plaintext,
        allow_legacy=legacy,
        batch=Batch(
            rows=batch if rate is None else min(batch, max(1, int(rate)))
        ),  # a second's worth at once
        max_lock_seconds=max_lock_ms / 1000,
        rows_per_second=rate,
        max_seconds=max_seconds,
        workers=workers,
        check=verify,
        scrub=scrub,
        key_check=not no_key_check,
    )
    cipher = RingCipher(open_ring(keys), suite, follow=False)
    return (_apply if apply else _show)(wishes, cipher, as_json=as_json)


def _warn_of_scrub(path: Path) -> None:
    """Say for how long a scrub will lock a database that is large, or that other processes have open."""
    expected = forecast(path)
    if not expected.processes and expected.lock_seconds < _NOTICED_SECONDS:
        return
    users = f", which {' and '.join(expected.processes)} have open" if expected.processes else ""
    warn(
        f"--scrub will write {expected.size_bytes:,} bytes anew and lock {path} for about"
        f" {max(1, round(expected.lock_seconds))} s or longer{users}",
        "writers wait that long, and fail if their timeout is shorter (in Python 5 s, if nothing else is"
        " said): rotate without --scrub, and scrub when the agents are stopped",
    )


def _require_fitting(database: str, *, workers: int, scrub: bool, suite: str) -> None:
    if suite not in SUITES:
        raise typer.BadParameter(f"known are {', '.join(sorted(SUITES))}", param_hint="--suite")
    if workers > 1 and not is_url(database):
        raise typer.BadParameter("SQLite lets one process write at a time", param_hint="--workers")
    if scrub and is_url(database):
        cause = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
        raise typer.BadParameter(cause, param_hint="--scrub")


def _show(wishes: Wishes, cipher: RingCipher, *, as_json: bool) -> Exit:
    key_id = cipher.ring.require_active().id
    with closing(open_store(wishes.database)) as store:
        require_keys(store, cipher.ring, wishes)
        plan, name = make_plan(store, cipher.ring, wishes), store.name
    rows = plan_rows(plan)
    code = Exit.KEYS if any(action is Action.NEEDS_KEY for _, action in plan) else Exit.DONE
    if as_json:
        show_json(
            "rotate",
            {"database": name, "key": key_id, "applied": False, "plan": rows, "ok": code is Exit.DONE},
        )
    else:
        show_table(
            ("table", "kind", "key", "rows", "bytes", f"under {key_id}"), [list(row.values()) for row in rows]
        )
        say("nothing was changed: --apply does it")
    return code


def _apply(wishes: Wishes, cipher: RingCipher, *, as_json: bool) -> Exit:
    key_id = cipher.ring.require_active().id
    outcome = Outcome(aloud=not as_json)
    with closing(open_store(wishes.database, writable=True)) as store:
        plan, name = plan_rows(make_plan(store, cipher.ring, wishes)), store.name
        carry_out(store, cipher, wishes, outcome)
    if as_json:
        document = {"database": name, "key": key_id, "applied": True, "plan": plan, **outcome.document()}
        show_json("rotate", document)
    else:
        _tell(outcome, key_id)
    return outcome.code


def _tell(outcome: Outcome, key_id: str) -> None:
    outcome.failures.show_causes()
    columns = ("moved", "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
    document = outcome.document()
    names = ("moved", "raced", "failed", "left", "verified", "seconds", "longest_lock_ms")
    show_table(columns, [[document[name] for name in names]])
    if outcome.stopped:
        say(outcome.stopped)
    else:
        for line in outcome.advice(key_id):
            say(line)
    if outcome.scrubbed:
        say(_search_result(outcome.scrubbed))
        if outcome.scrubbed.found and outcome.pending:
            say("rows are still written unsealed or under an old key: end that writer and run again")


def _search_result(scrubbed: Scrubbed) -> str:
    places = [f"{file} at byte {place}" for file, place in scrubbed.found[:MAX_PLACES]]
    more = len(scrubbed.found) - len(places)
    found = f"found: {', '.join(places)}" if places else "found nothing"
    found += f" and {more} more places" if more else ""
    looked_for = f"for a sample of {scrubbed.fragments} fragments of old values and for old tags"
    if not scrubbed.fragments:  # a run that moves nothing knows none
        looked_for = "for old tags alone, because this run has moved no values to look for"
    return f"searched {scrubbed.searched_bytes} bytes {looked_for}: {found}"


def decrypt(
    database: Annotated[str, typer.Argument(metavar="DB", show_default=False, help="A SQLite file.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", show_default=False, help="The new file; made private.")
    ],
    allow_plaintext: Annotated[
        bool, typer.Option("--allow-plaintext", help="Take over values that are not sealed.")
    ] = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Write a copy of a SQLite file with nothing sealed in it.

    LangGraph's plain saver reads it.
    If a value does not open there will be no copy, and the exit code is 4, or 5 for want of keys.
    """
    if is_url(database):
        raise typer.BadParameter("the copy is a SQLite file, made from a SQLite file", param_hint="DB")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"no folder at {out.parent}", param_hint="--out")
    failures, rows = findings.ShownFailures(shown=not as_json), 0
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
        say(f"{rows} values were opened; {out} holds them readable for whoever can read the file")
    else:
        failures.show_causes()
        say(f"no copy was made; {database} is as it was")
    return Exit.STOPPED if pace.stopped and not failures.count else findings.exit_code(failures)
