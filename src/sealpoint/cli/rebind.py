"""`sealpoint rebind`: every row bound to its place, as SealedSaver writes it, or the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowLegacyOption,
    AllowPlaintextOption,
    ApplyOption,
    BatchOption,
    CheckOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    MaxLockOption,
    MaxSecondsOption,
    NoKeyCheckOption,
    RateOption,
    SuiteOption,
    VariableOption,
    WorkersOption,
    require_text,
)
from sealpoint.cli.outcome import ACTIONS, outcome_object, outcome_reasons, plan_rows
from sealpoint.cli.output import complain_of_damage, print_json, say, show_table
from sealpoint.cli.rotate import Reporter, require_fitting
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import open_ring, open_store, warn_of_leftovers
from sealpoint.cli.threads import find_threads
from sealpoint.cli.verdict import show_verdict
from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import BATCH, Batch
from sealpoint.databases.whole import WholeRowStore
from sealpoint.errors import SealpointError, excerpt
from sealpoint.keys.databasetable import is_url
from sealpoint.maintenance.binding import Binder, Visible
from sealpoint.maintenance.job import Action, End, Outcome, Step, require_keys
from sealpoint.maintenance.options import Check
from sealpoint.maintenance.rebind import (
    RebindJob,
    RebindOptions,
    make_plan,
    remembered,
    require_not_remembered,
    sealing_sentinels,
)
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.rotate import MAX_LOCK_SECONDS

_BINDING: Final = {
    **ACTIONS,
    Action.NONE: "bound",
    Action.ROTATE: "to bind",
    Action.SEAL: "to seal and bind",
    Action.INDEX: "bound; to add readable metadata where it lacks some",
}
_UNBINDING: Final = {**ACTIONS, Action.NONE: "not bound", Action.ROTATE: "to unbind"}
_ENDS: Final = {
    End.STOPPED: "stopped early: run the same command again; it continues where it stopped",
    End.UNVERIFIED: "stopped early: the rows are changed; check them with `sealpoint verify DB`",
}
_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "not sealed: --allow-plaintext seals them",
    Action.NEEDS_LEGACY: "under LANGGRAPH_AES_KEY: --allow-legacy reseals them",
    Action.NEEDS_KEY: "under a key that is not in the ring, or that opens nothing",
    Action.PICKLE: "pickles that are not sealed: read them with LangGraph and put them again",
    Action.OTHER_TYPE: "of other types: read them as the writer did and put them again",
    Action.UNRECOGNISED: "with an unrecognised tag: `sealpoint status DB` shows them",
}
_AGENTS: Final = (
    'first start every agent with SealedSaver(..., unbound="allow"):'
    " others refuse rows that are bound, or rows that are not"
)
_LATE: Final = "rows are left, or written meanwhile: run again, or end the writers that do not bind"
_LATE_UNBINDING: Final = "rows are left, or written meanwhile: end the writers that bind, and run again"


def rebind(
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
            show_default=False,
            help="A key of metadata that stays readable. Give it once for each.",
        ),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            metavar="KEY",
            show_default=False,
            help="A key of metadata that is searched by token. Give it once for each.",
        ),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option(
            "--thread",
            metavar="ID",
            show_default=False,
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
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Bind every row to its place, while agents run. Shows the plan; --apply does it.

    First start every agent with SealedSaver(..., unbound="allow"): others refuse rows that are bound, or rows
    that are not.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = one_database(database, variable, keys)
    require_fitting(named, workers=workers, suite=suite)
    if unbind and (plain_metadata or index):
        raise typer.BadParameter("with --unbind all metadata becomes readable", param_hint="--unbind")
    if thread is not None:
        require_text(thread, "--thread")
    if not is_url(named):
        warn_of_leftovers(Path(named))
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
    result = Result(
        "rebind",
        {
            "allow_plaintext": allow_plaintext,
            "allow_legacy": allow_legacy,
            "verify": verify.value,
            "no_key_check": no_key_check,
            "unbind": unbind,
            "allow_thread_store": allow_thread_store,
            "thread": thread,
            "plain_metadata": sorted(options.visible.plain),
            "index": sorted(options.visible.indexed),
        },
    )
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    cipher = RingCipher(open_ring(keys, result), suite, follow=False)
    if unbind and not allow_thread_store and find_threads(None, cipher.ring.path) is not None:
        raise remembered()
    Binder(cipher, options.visible)  # which refuses keys of metadata, and a ring without an index key
    return (_apply if apply else _show)(named, cipher, options, result, as_json=as_json)


def open_whole(
    database: str, cipher: RingCipher, options: RebindOptions, *, writable: bool = False
) -> WholeRowStore:
    """Open a database as a store of whole rows.

    Raises:
        SchemaError: If its rows have no places.
    """
    if is_url(database):
        from sealpoint.databases.postgres.whole import PostgresWholeRows

        sentinel = None if options.unbind else sealing_sentinels(cipher)
        return PostgresWholeRows(database, writable=writable, thread_id=options.thread_id, sentinel=sentinel)
    from sealpoint.databases.sqlite.whole import SqliteWholeRows

    return SqliteWholeRows(database, writable=writable, thread_id=options.thread_id)


def _plan(
    rows: WholeRowStore, cipher: RingCipher, options: RebindOptions, damage: list[SealpointError]
) -> list[Step]:
    """Return the plan.

    Raises:
        BadParameter: If the only thread of the run has no rows.
    """
    plan = make_plan(rows, cipher.ring, options, damage)
    if options.thread_id is not None and not plan and not damage:
        cause = f"no rows of thread {excerpt(options.thread_id)}; `sealpoint inspect DB` lists the ids"
        raise typer.BadParameter(cause, param_hint="--thread")
    return plan


def _rows_of(plan: list[Step], options: RebindOptions) -> list[dict[str, Any]]:
    return plan_rows(plan, _UNBINDING if options.unbind else _BINDING)


def _show(
    database: str, cipher: RingCipher, options: RebindOptions, result: Result, *, as_json: bool
) -> Exit:
    key_id = cipher.ring.require_active().id
    damage: list[SealpointError] = []
    with closing(open_store(database)) as store, closing(open_whole(database, cipher, options)) as rows:
        require_keys(store, cipher.ring, options)
        require_not_remembered(store, cipher, options)
        part, plan = result.looks_at(store), _plan(rows, cipher, options, damage)
    result.add(Reason.NOT_APPLIED)
    result.add(Reason.DAMAGED, when=bool(damage))
    result.add(Reason.NO_ROWS, when=not plan)
    result.add(Reason.KEYS_MISSING, when=any(step.action is Action.NEEDS_KEY for step in plan))
    document = result.document({**part, "key": key_id, "applied": False, "plan": _rows_of(plan, options)})
    if as_json:
        print_json(document)
    else:
        rows_shown = [list(row.values()) for row in document["plan"]]
        show_table(("table", "kind", "key", "rows", "bytes", "action"), rows_shown)
        show_verdict(document)
        if any(step.action in (Action.ROTATE, Action.SEAL) for step in plan):
            say(_AGENTS)
        say("--apply carries it out")
    complain_of_damage(part["database"]["name"], damage)
    return result_code(result)


def _apply(
    database: str, cipher: RingCipher, options: RebindOptions, result: Result, *, as_json: bool
) -> Exit:
    key_id = cipher.ring.require_active().id
    failures = render.ShownFailures(shown=not as_json)
    with (
        closing(open_store(database, writable=True)) as store,
        closing(open_whole(database, cipher, options, writable=True)) as rows,
    ):
        part, plan = result.looks_at(store), _plan(rows, cipher, options, damage=[])
        with stopping() as stop, Reporter(failures) as report:
            job = RebindJob(store, rows, cipher, options, stop=stop, report=report, url=database)
            outcome = job.run()
    result.add(*render.failure_reasons(failures))
    result.add(*_reasons(outcome, options, sum(step.share.rows for step in plan)))
    head = {**part, "key": key_id, "applied": True, "plan": _rows_of(plan, options)}
    document = result.document({**head, **_object(outcome, failures)})
    if as_json:
        print_json(document)
    else:
        failures.show_causes()
        _show_outcome(outcome, document, _LATE_UNBINDING if options.unbind else _LATE, bool(failures.count))
        show_verdict(document)
    return result_code(result)


def _reasons(outcome: Outcome, options: RebindOptions, rows: int) -> Iterator[Reason]:
    left = Reason.STILL_BOUND if options.unbind else Reason.NOT_BOUND
    for reason in outcome_reasons(outcome, options, rows):
        yield left if reason is Reason.VALUES_LEFT else reason


def _object(outcome: Outcome, failures: render.ShownFailures) -> dict[str, Any]:
    """Return an outcome as JSON: that of a rotation, with one member by another name."""
    members = outcome_object(outcome, failures)
    changed = {"changed": members.pop("resealed")}
    del members["scrubbed"]
    return changed | members


def _show_outcome(outcome: Outcome, document: dict[str, Any], late: str, failed: bool) -> None:
    columns = ("changed", "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
    names = ("changed", "raced", "failed", "left", "verified", "seconds", "longest_lock_ms")
    show_table(columns, [[document[name] for name in names]])
    if outcome.end is End.LOCKED and outcome.problem is not None:
        say(f"stopped early: {outcome.problem}; {outcome.problem.hint}")
    elif outcome.end is not End.COMPLETE:
        say(_ENDS[outcome.end])
    elif outcome.left:
        for action, line in _ADVICE.items():
            if number := outcome.count(action):
                say(f"{render.values_line(number)} {line}")
        if outcome.pending and not failed:
            say(late)
