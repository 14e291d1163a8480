"""Rebinding: rows become bound to their places, as SealedSaver writes them, or the reverse, while agents run.

Each row is changed by itself, by compare-and-swap over all columns that were read, and `SealedSaver` with
``unbound="allow"`` reads any mix of bound and other rows. So a run may end at any point and be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from sealpoint.base.coordinates import VALUE
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.crypto.kinds import NULL
from sealpoint.crypto.tag import Kind
from sealpoint.databases.cells import Cell, Selection, open_cell
from sealpoint.databases.rows import Change, Events, Progress, RowStore
from sealpoint.databases.whole import UNSEALED_ROW, Replacement, WholeRowStore
from sealpoint.errors import ConfigError, SealpointError, excerpt
from sealpoint.maintenance.binding import NOTHING_MORE, Binder, Visible
from sealpoint.maintenance.bound import BESIDE
from sealpoint.maintenance.job import Action, Job, Report, Step, action_of
from sealpoint.maintenance.options import Options
from sealpoint.maintenance.pace import Signal
from sealpoint.maintenance.rotate import BeforeChange, Run
from sealpoint.maintenance.status import Share, status
from sealpoint.maintenance.verify import pages
from sealpoint.maintenance.workers import Assignment
from sealpoint.sealed.body import SENTINEL, SENTINEL_VERSION, split_header

_CHECKPOINTS: Final = "checkpoints"
_REMEMBERED: Final = (
    "savers beside it refuse them afterwards: start every agent without threads=, then pass"
    " --allow-thread-store; or keep the store, and run `sealpoint heads adopt` at the end"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebindOptions(Options):
    """What a rebinding does.

    Attributes:
        unbind: Make bound rows readable for a saver with the serializer alone, instead of the reverse.
        visible: Which metadata stays readable in bound rows.
        thread_id: Only this thread, by its id in the database.
        allow_thread_store: Unbind although a thread store remembers the rows: no saver beside it reads them
            then, before `heads adopt`.
    """

    unbind: bool = False
    allow_thread_store: bool = False
    visible: Visible = NOTHING_MORE
    thread_id: str | None = None


def rebind(
    store: WholeRowStore,
    cipher: RingCipher,
    options: RebindOptions,
    before_change: BeforeChange | None = None,
) -> Events:
    """Bind every row to its place, or the reverse. No value is decoded.

    Rows that do not open, or are not as a saver writes them, are reported and left as they are. The caller
    holds the store (`RowStore.hold`), or is a worker of a process that does.

    Args:
        store: A database, writable.
        cipher: Opens what is there, and seals under its active key.
        options: What to do; of the general ones those of `rotate`.
        before_change: Called with each row before it is changed.

    Yields:
        Progress after each batch; a failure once for each row that is refused.

    Raises:
        NoActiveKeyError: If the ring has no active key. Nothing has been changed.
        ConfigError, KeyRingError: If keys of metadata are not valid, or cannot be indexed; or rows are to be
            unbound that a thread store remembers. Nothing has been changed.
        LockedError: On Postgres, if other sessions have locked rows until the end. All other rows are done.
        StoppedError: If the disk is full or the database is not available. The run can be repeated.
    """
    cipher = RingCipher(cipher.ring, cipher.suite, follow=False)  # one run has one active key
    cipher.ring.require_active()
    binder = Binder(cipher, options.visible, allow_plaintext=options.allow_plaintext)
    if options.unbind:
        require_not_remembered(store, cipher, options)
        yield from _run(store, binder.unbind, Selection(bound=True), options, before_change)
        return
    selection = Selection(bound=False, plaintext=options.allow_plaintext, legacy=options.allow_legacy)
    done: Progress | None = None
    for event in _run(store, binder.bind, selection, options, before_change):
        yield event
        done = event if isinstance(event, Progress) else done
    if options.visible != NOTHING_MORE:
        with (
            store.narrowed(),
            closing(_run(store, binder.revise, Selection(bound=True), options, None)) as events,
        ):
            for event in events:
                yield _sum(done, event) if isinstance(event, Progress) else event


def require_not_remembered(store: RowStore, cipher: RingCipher, options: RebindOptions) -> None:
    """Check that no checkpoint that is to be unbound was stored beside a thread store.

    Raises:
        ConfigError: If one was: savers beside the store refuse it afterwards.
    """
    if not options.unbind or options.allow_thread_store:
        return
    selection = Selection(bound=True, thread_id=options.thread_id)
    for column in store.columns:
        if column.coordinates not in BESIDE:
            continue
        for page in pages(store, column, selection):
            if any(_names_store(cipher, cell) for cell in page.cells):
                raise remembered()


def remembered() -> ConfigError:
    """Return the error of a run that would unbind what a thread store remembers."""
    return ConfigError("a thread store remembers rows that are to be unbound", hint=_REMEMBERED)


def _names_store(cipher: RingCipher, cell: Cell) -> bool:
    try:
        return "store" in split_header(open_cell(cipher, cell).data)[0]
    except SealpointError:  # it is named when it is to be changed
        return False


def _run(
    store: WholeRowStore,
    change: Callable[[Cell], Replacement | None],
    selection: Selection,
    options: RebindOptions,
    before_change: BeforeChange | None,
) -> Events:
    def changing(cell: Cell) -> Replacement | None:
        changed = change(cell)
        if changed is not None and before_change is not None:
            before_change(cell)
        return changed

    wanted: Change = changing
    return Run(store, wanted, selection, options.paced_batch, options.max_lock_seconds).events()


def _sum(done: Progress | None, more: Progress) -> Progress:
    """Return the progress of a second run with what the first one changed."""
    if done is None:
        return more
    return more._replace(
        changed=done.changed + more.changed,
        raced=done.raced + more.raced,
        size_bytes=done.size_bytes + more.size_bytes,
        plaintext=done.plaintext,
        legacy=done.legacy,
    )


def sealing_sentinels(cipher: RingCipher) -> Callable[[str, str], tuple[str, bytes]]:
    """Return a function that makes the sentinel of a thread and namespace."""

    def seal(thread_id: str, checkpoint_ns: str) -> tuple[str, bytes]:
        place = {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "channel": SENTINEL,
            "version": SENTINEL_VERSION,
        }
        return cipher.seal(NULL, b"", row=VALUE.row(place))

    return seal


def rebinding(assignment: Assignment, cipher: RingCipher) -> Events:
    """Rebind: the work of each worker."""
    from sealpoint.databases.postgres.whole import PostgresWholeRows

    options = assignment.options
    if not isinstance(options, RebindOptions):
        raise TypeError(f"options are {type(options).__name__}")
    sentinel = None if options.unbind else sealing_sentinels(cipher)
    opened = PostgresWholeRows(assignment.url, writable=True, thread_id=options.thread_id, sentinel=sentinel)
    with closing(opened) as store:
        yield from rebind(store, cipher, replace(options, allow_thread_store=True))  # the job has asked


# --- the job --------------------------------------------------------------------------------------


def make_plan(
    rows: WholeRowStore,
    ring: KeyRing,
    options: RebindOptions,
    damage: list[SealpointError] | None = None,
) -> list[Step]:
    """Return what a job would do with the rows of the database.

    Raises:
        NoActiveKeyError: If the ring has no active key.
    """
    return [Step(share, _action(share, ring, options)) for share in status(rows, damage=damage)]


def _action(share: Share, ring: KeyRing, options: RebindOptions) -> Action:
    if is_bound(share) is not options.unbind:
        examined = is_bound(share) and share.table == _CHECKPOINTS and options.visible != NOTHING_MORE
        return Action.INDEX if examined else Action.NONE
    if share.kind is Kind.UNKNOWN and share.types == (excerpt(UNSEALED_ROW),):
        return Action.ROTATE
    return action_of(share, ring, options, is_done=lambda _: False)


def is_bound(share: Share) -> bool:
    """Whether values of a share are bound to their rows."""
    return "row" in share.flags


class RebindJob(Job):
    """One rebinding of one database."""

    _work = staticmethod(rebinding)

    def __init__(
        self,
        store: RowStore,
        rows: WholeRowStore,
        cipher: RingCipher,
        options: RebindOptions,
        *,
        stop: Signal,
        report: Report,
        url: str = "",
    ) -> None:
        """Prepare a job, see `Job`.

        Args:
            store: The database, which the job holds and verifies.
            rows: The same as a store of whole rows, writable.
            cipher: Opens existing values, and seals under its active key.
            options: What to do.
            stop: Stops the job between two batches.
            report: Receives phases, progress and failures.
            url: URL of the database, for jobs with several workers.
        """
        super().__init__(store, cipher, options, stop=stop, report=report, url=url)
        self._rows = rows
        self._wanted = options

    @property
    def _changed_store(self) -> RowStore:
        return self._rows

    @property
    def _to_verify(self) -> Selection:
        return Selection(plaintext=False, thread_id=self._wanted.thread_id)

    def _run(self, before_change: BeforeChange | None) -> Events:
        return rebind(self._rows, self._cipher, replace(self._wanted, allow_thread_store=True), before_change)

    def _rotate(self) -> None:
        require_not_remembered(self._store, self._cipher, self._wanted)
        super()._rotate()
        if self._wanted.unbind:
            self._rows.remove_sentinels()

    def _count_left(self, store: RowStore) -> None:
        del store
        plan = make_plan(self._rows, self._cipher.ring, self._wanted)
        wrong = [step for step in plan if is_bound(step.share) is self._wanted.unbind]
        self._outcome.left = sum(step.share.rows for step in wrong)
        self._outcome.remaining = wrong
