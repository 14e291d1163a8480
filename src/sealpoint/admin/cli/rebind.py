"""`sealpoint rebind`: every row bound to its place, as SealedSaver writes it, or the reverse."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from sealpoint.admin.cli.change import ACTIONS, Change, Words, require_fitting
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
    one_database,
    open_ring,
    require_text,
    warn_of_leftovers,
)
from sealpoint.admin.cli.output import say
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import BATCH, Batch, RowStore, WholeRowStore
from sealpoint.admin.maintenance.job import Action, Job, Outcome, Report, Step
from sealpoint.admin.maintenance.rebind import (
    Binder,
    RebindJob,
    RebindOptions,
    Visible,
    make_plan,
    remembered,
    require_not_remembered,
    sealing_sentinels,
)
from sealpoint.admin.maintenance.result import Check, Reason
from sealpoint.admin.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.admin.maintenance.workers import Stop
from sealpoint.crypto import RingCipher
from sealpoint.errors import SealpointError, excerpt

_BINDING: Final = {
    **ACTIONS,
    Action.NONE: "bound",
    Action.ROTATE: "to bind",
    Action.SEAL: "to seal and bind",
    Action.INDEX: "bound; to add readable metadata where it lacks some",
}
_UNBINDING: Final = {**ACTIONS, Action.NONE: "not bound", Action.ROTATE: "to unbind"}
_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "{values} not sealed: --allow-plaintext seals them",
    Action.NEEDS_LEGACY: "{values} under LANGGRAPH_AES_KEY: --allow-legacy reseals them",
    Action.NEEDS_KEY: "{values} under a key that is not in the ring, or that opens nothing",
    Action.PICKLE: "{values} pickles that are not sealed: read them with LangGraph and put them again",
    Action.OTHER_TYPE: "{values} of other types: read them as the writer did and put them again",
    Action.UNRECOGNISED: "{values} with an unrecognised tag: `sealpoint status DB` shows them",
}
_AGENTS: Final = (
    'first start every agent with SealedSaver(..., unbound="allow"):'
    " others refuse rows that are bound, or rows that are not"
)
_LATE: Final = "rows are left, or written meanwhile: run again, or end the writers that do not bind"
_LATE_UNBINDING: Final = "rows are left, or written meanwhile: end the writers that bind, and run again"


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
    named = one_database(run, database, variable)
    require_fitting(named, workers=workers, suite=suite)
    if unbind and (plain_metadata or index):
        raise typer.BadParameter("with --unbind all metadata becomes readable", param_hint="--unbind")
    if thread is not None:
        require_text(thread, "--thread")
    if kind_of(named).is_file:
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
    change = _Rebinding(run, named, cipher, options)
    (change.apply if apply else change.show)()


class _Rebinding(Change):
    """A job that changes whole rows."""

    scrubs = False

    def __init__(self, run: Run, database: str, cipher: RingCipher, options: RebindOptions) -> None:
        words = Words(
            actions=_UNBINDING if options.unbind else _BINDING,
            column="action",
            changed="changed",
            done="rows are changed",
            advice=_ADVICE,
            late=_LATE_UNBINDING if options.unbind else _LATE,
            left=Reason.STILL_BOUND if options.unbind else Reason.NOT_BOUND,
        )
        super().__init__(run, database, cipher, options, words)
        self._rebind_options = options

    def open_rows(self, store: RowStore, stack: ExitStack, *, writable: bool) -> WholeRowStore:
        del store
        options = self._rebind_options
        sentinel = None if options.unbind else sealing_sentinels(self._cipher)
        kind = kind_of(self._database)
        rows = kind.open_whole(self._database, writable, options.thread_id, sentinel)
        return stack.enter_context(closing(rows))

    def require_fitting(self, store: RowStore) -> None:
        super().require_fitting(store)
        require_not_remembered(store, self._cipher, self._rebind_options)

    def make_plan(self, rows: RowStore, damage: list[SealpointError]) -> list[Step]:
        options = self._rebind_options
        plan = make_plan(cast("WholeRowStore", rows), self._cipher.ring, options, damage)
        if options.thread_id is not None and not plan and not damage:
            cause = f"no rows of thread {excerpt(options.thread_id)}; `sealpoint inspect DB` lists the ids"
            raise typer.BadParameter(cause, param_hint="--thread")
        return plan

    def make_job(self, store: RowStore, rows: RowStore, stop: Stop, report: Report) -> Job:
        whole, options = cast("WholeRowStore", rows), self._rebind_options
        return RebindJob(store, whole, self._cipher, options, stop=stop, report=report, url=self._database)

    def count_late(self, outcome: Outcome) -> int:
        return outcome.pending

    def say_before_apply(self, plan: list[Step]) -> None:
        if any(step.action in (Action.ROTATE, Action.SEAL) for step in plan):
            say(_AGENTS)
