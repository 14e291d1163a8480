"""`sealpoint rotate`, `rebind` and `scrub`: what changes the values of a database, or clears old ones out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.change import (
    ACTIONS,
    Change,
    require_database,
    scrub_reasons,
    scrubbed_object,
    search_result,
)
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowLegacyOption,
    AllowPlaintextOption,
    ApplyOption,
    BatchOption,
    CheckOption,
    DatabaseArgument,
    MaxLockOption,
    MaxSecondsOption,
    NoKeyCheckOption,
    RateOption,
    SuiteOption,
    VariableOption,
    WorkersOption,
    find_threads,
    open_ring,
    opened_database,
    require_text,
)
from sealpoint.admin.cli.output import put, say, show_table, warn
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import BATCH, Batch
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.job import Action
from sealpoint.admin.maintenance.rebind import (
    Binder,
    RebindJob,
    RebindOptions,
    Visible,
    remembered,
)
from sealpoint.admin.maintenance.result import Check, Options, Reason
from sealpoint.admin.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.admin.maintenance.scrub import Scrubbed, forecast
from sealpoint.admin.maintenance.scrub import scrub as scrub_file
from sealpoint.crypto import RingCipher

_NOTICED_SECONDS: Final = 1.0
_NO_SCRUB: Final = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
_RESEAL: Final = "put {it} again sealed, or delete {threads}"
_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "{values} {are} not sealed: --allow-plaintext seals {it}",
    Action.NEEDS_LEGACY: "{values} {are} under LANGGRAPH_AES_KEY: --allow-legacy reseals {it}",
    Action.PICKLE: f"{{pickles}} {{stay}}: read {{it}} with LangGraph and {_RESEAL}",
    Action.OTHER_TYPE: f"{{values}} of other types {{stay}}: read {{it}} as the writer did and {_RESEAL}",
    Action.UNRECOGNISED: "{values} {have} an unrecognised tag: `sealpoint status DB` shows {it}",
}


def rotate(
    run: Run,
    database: DatabaseArgument = None,
    apply: ApplyOption = False,
    allow_plaintext: AllowPlaintextOption = False,
    allow_legacy: AllowLegacyOption = False,
    verify: CheckOption = Check.ALL,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Clear old contents out of a SQLite file, and search it for them.")
    ] = False,
    batch: BatchOption = BATCH.rows,
    rate: RateOption = None,
    max_lock_ms: MaxLockOption = MAX_LOCK_SECONDS * 1000,
    max_seconds: MaxSecondsOption = None,
    workers: WorkersOption = 1,
    no_key_check: NoKeyCheckOption = False,
    suite: SuiteOption = "cobblestone256",
    variable: VariableOption = None,
) -> None:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named, is_file = require_database(run, database, variable, workers=workers, suite=suite)
    if scrub and not is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="--scrub")
    if scrub:
        _warn_of_scrub(Path(named))
    options = Options(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        batch=Batch(rows=batch),
        max_lock_seconds=max_lock_ms / 1000,
        rows_per_second=rate,
        max_seconds=max_seconds,
        workers=workers,
        check=verify,
        scrub=scrub,
        check_keys=not no_key_check,
    )
    run.asks(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        verify=verify.value,
        no_key_check=no_key_check,
    )
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    cipher = RingCipher(open_ring(run), suite, follow=False)
    key_id = cipher.ring.require_active().id
    change = Change(
        run=run,
        database=named,
        cipher=cipher,
        options=options,
        scrubs=True,
        actions=ACTIONS,
        column=f"under {key_id}",
        changed="resealed",
        done="values are resealed",
        advice=_ADVICE,
        late=f"{{values}} written meanwhile {{are}} not under {key_id!r}: run again",
        left=Reason.VALUES_LEFT,
    )
    (change.apply if apply else change.show)()


def _warn_of_scrub(path: Path) -> None:
    """Warn for how long a scrub will lock a database that is large, or that other processes have open."""
    expected = forecast(path)
    if not expected.processes and expected.lock_seconds < _NOTICED_SECONDS:
        return
    users = f", which {' and '.join(expected.processes)} have open" if expected.processes else ""
    warn(
        f"--scrub will write {expected.size_bytes:,} bytes and lock {path} for about"
        f" {max(1, round(expected.lock_seconds))} s or longer{users}",
        "writers wait that long, and fail if their timeout is shorter (in Python 5 s, if nothing else is"
        " said): rotate without --scrub, and scrub when the agents are stopped",
    )


def scrub(
    run: Run,
    database: Annotated[str, typer.Argument(metavar="DB", help="A SQLite file.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Scrub; without it, only show what that takes.")
    ] = False,
) -> None:
    """Clear old contents out of a SQLite file and its log.

    Then searches both for tags of retired keys. Without --apply it shows for how long the file will be
    locked and how much disk that takes. Only `rotate --scrub` also searches for old values, because it has
    read them.
    """
    if not kind_of(database).is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="DB")
    path, ring = Path(database), open_ring(run)
    with opened_database(run, database, None) as store:
        rows = sum(count.rows for count in store.count())
    expected, found = forecast(path), None
    estimate = {  # SQLite writes the file twice, once beside it or in its log
        "size_bytes": 2 * expected.size_bytes,
        "free_bytes": shutil.disk_usage(path.resolve().parent).free,
        "lock_seconds": max(1, round(expected.lock_seconds)),
        "processes": list(expected.processes),
    }
    if apply:
        with holding(path):
            found = scrub_file(path, ring)
        run.finds({Reason.NO_ROWS: not rows, **scrub_reasons(found)})
    else:
        run.result.add(Reason.NOT_APPLIED)
    body = {"applied": apply, "estimate": estimate, "scrubbed": found and scrubbed_object(found)}
    run.end(body, lambda _: _show_scrub(estimate, found))
    if not (apply or run.as_json):
        say("--apply carries it out")


def _show_scrub(estimate: dict[str, Any], found: Scrubbed | None) -> None:
    columns = ("bytes to write", "free bytes on disk", "lock, about s", "used by")
    show_table(columns, [[", ".join(cell) if isinstance(cell, list) else cell for cell in estimate.values()]])
    if found is not None:
        put(search_result(found))


_BINDING: Final = {
    **ACTIONS,
    Action.NONE: "bound",
    Action.ROTATE: "to bind",
    Action.SEAL: "to seal and bind",
    Action.INDEX: "bound; to add readable metadata where it lacks some",
}
_UNBINDING: Final = {**ACTIONS, Action.NONE: "not bound", Action.ROTATE: "to unbind"}
_REBIND_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "{values} not sealed: --allow-plaintext seals them",
    Action.NEEDS_LEGACY: "{values} under LANGGRAPH_AES_KEY: --allow-legacy reseals them",
    Action.NEEDS_KEY: "{values} under a key that is not in the ring, or that opens nothing",
    Action.PICKLE: "{values} pickles that are not sealed: read them with LangGraph and put them again",
    Action.OTHER_TYPE: "{values} of other types: read them as the writer did and put them again",
    Action.UNRECOGNISED: "{values} with an unrecognised tag: `sealpoint status DB` shows them",
}
_LATE: Final = {
    False: "run again, or end the writers that do not bind",
    True: "end the writers that bind, and run again",
}


def rebind(
    run: Run,
    database: DatabaseArgument = None,
    apply: ApplyOption = False,
    unbind: Annotated[
        bool, typer.Option("--unbind", help="The reverse: for a saver without SealedSaver.")
    ] = False,
    allow_thread_store: Annotated[
        bool,
        typer.Option(
            "--allow-thread-store",
            help="With --unbind: also rows that a thread store remembers. Savers beside it refuse them then.",
        ),
    ] = False,
    plain_metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--plain-metadata",
            metavar="KEY",
            help="A key of metadata that stays readable. Give it once for each.",
        ),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            metavar="KEY",
            help="A key of metadata that is searched by token. Give it once for each.",
        ),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread",
            metavar="ID",
            help="Only this thread, by its id in the database, which may be a pseudonym.",
        ),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_legacy: AllowLegacyOption = False,
    verify: CheckOption = Check.ALL,
    batch: BatchOption = BATCH.rows,
    rate: RateOption = None,
    max_lock_ms: MaxLockOption = MAX_LOCK_SECONDS * 1000,
    max_seconds: MaxSecondsOption = None,
    workers: WorkersOption = 1,
    no_key_check: NoKeyCheckOption = False,
    suite: SuiteOption = "cobblestone256",
    variable: VariableOption = None,
) -> None:
    """Bind every row to its place, while agents run. Shows the plan; --apply does it.

    First start every agent with SealedSaver(..., unbound="allow"): others refuse rows that are bound, or rows
    that are not.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named, _ = require_database(run, database, variable, workers=workers, suite=suite)
    if unbind and (plain_metadata or index):
        raise typer.BadParameter("with --unbind all metadata becomes readable", param_hint="--unbind")
    if thread is not None:
        require_text(thread, "--thread")
    options = RebindOptions(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        batch=Batch(rows=batch),
        max_lock_seconds=max_lock_ms / 1000,
        rows_per_second=rate,
        max_seconds=max_seconds,
        workers=workers,
        check=verify,
        check_keys=not no_key_check,
        unbind=unbind,
        allow_thread_store=allow_thread_store,
        visible=Visible(frozenset(plain_metadata or ()), frozenset(index or ())),
        thread_id=thread,
    )
    run.asks(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        verify=verify.value,
        no_key_check=no_key_check,
        unbind=unbind,
        allow_thread_store=allow_thread_store,
        thread=thread,
        plain_metadata=sorted(options.visible.plain),
        index=sorted(options.visible.indexed),
    )
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    cipher = RingCipher(open_ring(run), suite, follow=False)
    if unbind and not allow_thread_store and find_threads(None, cipher.ring.path) is not None:
        raise remembered()
    Binder(cipher, options.visible)  # which refuses keys of metadata, and a ring without an index key
    change = Change(
        run=run,
        database=named,
        cipher=cipher,
        options=options,
        job=RebindJob,
        thread=thread,
        actions=_UNBINDING if unbind else _BINDING,
        column="action",
        changed="changed",
        done="rows are changed",
        advice=_REBIND_ADVICE,
        late=f"rows are left, or written meanwhile: {_LATE[unbind]}",
        left=Reason.STILL_BOUND if unbind else Reason.NOT_BOUND,
        first='first start every agent with SealedSaver(..., unbound="allow"):'
        " others refuse rows that are bound, or rows that are not",
    )
    (change.apply if apply else change.show)()
