"""`sealpoint rotate`, `rebind` and `scrub`: what changes the values of a database, or clears old ones out.

`rotate` and `rebind` share the plan of a job, the job, its outcome, and how these are shown.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.options import (
    ApplyOption,
    DatabaseArgument,
    JobOptions,
    VariableOption,
    each_option,
    find_threads,
    id_option,
    one_database,
    open_ring,
    open_store,
    opened_database,
    require_storable,
    require_whole,
    warn_of_leftovers,
)
from sealpoint.admin.cli.output import (
    Document,
    ShownFailures,
    Watch,
    complain,
    complain_of_damage,
    put,
    say,
    show_table,
    values_line,
    warn,
    watching,
)
from sealpoint.admin.cli.status import warn_of_json
from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Event, RowStore
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.job import Action, End, Job, Outcome, Phase, Report, Step
from sealpoint.admin.maintenance.rebind import Binder, RebindJob, RebindOptions, Visible, remembered
from sealpoint.admin.maintenance.result import Check, Compress, Options, Reason
from sealpoint.admin.maintenance.scrub import Scrubbed, forecast
from sealpoint.admin.maintenance.scrub import scrub as scrub_file
from sealpoint.crypto import RingCipher
from sealpoint.crypto.suites import SUITES
from sealpoint.crypto.tag import Kind
from sealpoint.errors import SealpointError, excerpt

MAX_PLACES: Final = 5

ACTIONS: Final = {
    Action.NONE: "done",
    Action.ROTATE: "to reseal",
    Action.SEAL: "to seal",
    Action.NEEDS_PLAINTEXT: "skipped: not sealed, add --allow-plaintext",
    Action.NEEDS_LEGACY: "skipped: under LANGGRAPH_AES_KEY, add --allow-legacy",
    Action.NEEDS_REBIND: "skipped: not sealed, `sealpoint rebind` seals it",
    Action.NOT_ASKED: "left as it is",
    Action.NEEDS_KEY: "skipped: the ring has no usable key for it",
    Action.PICKLE: "skipped: a pickle is never sealed unopened",
    Action.OTHER_TYPE: "skipped: its type is not sealed unopened",
    Action.UNRECOGNISED: "skipped: unrecognised tag",
}


def require_database(run: Run, argument: str | None, variable: str | None, job: JobOptions) -> str:
    """Return the database of a job.

    Refuses a suite that is not known, several workers for a SQLite file, and a scrub of Postgres.
    """
    database = one_database(run, argument, variable)
    is_file = kind_of(database).is_file
    if job.suite not in SUITES:
        raise typer.BadParameter(f"known are {', '.join(sorted(SUITES))}", param_hint="--suite")
    if job.workers > 1 and is_file:
        raise typer.BadParameter("SQLite lets one process write at a time", param_hint="--workers")
    if is_file:
        warn_of_leftovers(Path(database))
    if job.scrub and not is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="--scrub")
    if job.scrub:
        _warn_of_scrub(Path(database))
    return database


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job over one database, or its plan, and what the command says about it."""

    run: Run
    database: str
    cipher: RingCipher
    options: Options
    job: Callable[..., Job] = Job
    thread: str | None = None  # the only one whose rows are changed
    actions: Mapping[Action, str]
    column: str  # of the actions, in the table of a plan
    changed: str  # the member that counts the changed values
    done: str  # what is so when all values are changed
    advice: Mapping[Action, str]  # for what is left
    late: str  # for what is left because it was written meanwhile
    left: Reason
    first: Sequence[str] = ()  # what is to be done before, for values of savers and for items

    @contextmanager
    def _opened(self, *, writable: bool) -> Iterator[tuple[RowStore, Job]]:
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self.database, self.run, writable=writable)))
            job = self.job(store, self.cipher, self.options, self.database, writable=writable)
            yield store, stack.enter_context(closing(job))

    def _plan(self, job: Job, damage: list[SealpointError]) -> list[Step]:
        plan = job.plan(damage)
        if self.thread is not None and not plan and not damage:
            raise typer.BadParameter(
                f"no rows of thread {excerpt(self.thread)}; `sealpoint inspect DB` lists the ids",
                param_hint="--thread",
            )
        warn_of_json(share for share, action in plan if action is Action.SEAL)
        return plan

    def show(self) -> None:
        """Show the plan."""
        damage = list[SealpointError]()
        with watching(self.run.command), self._opened(writable=False) as (store, job):
            job.require_fitting()
            self.run.looks_at(store)
            plan = self._plan(job, damage)
        self.run.finds(
            {
                Reason.NOT_APPLIED: True,
                Reason.DAMAGED: damage,
                Reason.NO_ROWS: not plan,
                Reason.KEYS_MISSING: any(step.action is Action.NEEDS_KEY for step in plan),
            }
        )
        columns = ("table", "kind", "key", "rows", "bytes", self.column)
        self.run.end(
            self._plan_members(plan, applied=False),
            lambda document: show_table(columns, (step.values() for step in document["plan"])),
        )
        if not self.run.as_json:
            changed = (step.share for step in plan if step.action in (Action.ROTATE, Action.SEAL))
            for is_item in sorted({share.table == ITEMS.label for share in changed}) if self.first else ():
                say(self.first[is_item])
            self._say_what_stays(plan)
            say("--apply carries it out")
        complain_of_damage(store.name, damage)

    def _plan_members(self, plan: list[Step], *, applied: bool) -> dict[str, Any]:
        return {
            "key": self.cipher.ring.require_active().id,
            "applied": applied,
            "plan": [
                {
                    "table": share.table,
                    # A row without a value, as Postgres has, is not of a kind: its metadata is readable.
                    "kind": Kind.PLAINTEXT if (share.kind, action) == _NO_VALUE else share.kind,
                    "key": share.key_id,
                    "rows": share.rows,
                    "bytes": share.size_bytes,
                    "action": self.actions[action],
                }
                for share, action in plan
            ],
        }

    def apply(self) -> None:
        """Carry the plan out."""
        failures = ShownFailures(shown=not self.run.as_json)
        with self._opened(writable=True) as (store, job):
            self.run.looks_at(store)
            with watching(self.run.command):
                plan = self._plan(job, [])
            with stopping(self.run) as stop, _reporting(self.run.command, failures) as report:
                outcome = job.run(stop, report)
        if outcome.end is End.UNSCRUBBED and outcome.problem is not None:
            complain(str(outcome.problem), outcome.problem.hint)
        is_changed, scrubbed = outcome.end in (End.COMPLETE, End.UNSCRUBBED), outcome.scrubbed
        self.run.finds(
            {
                Reason.NO_ROWS: not any(step.share.rows for step in plan),
                Reason.ENDED_EARLY: outcome.end is not End.COMPLETE,
                self.left: outcome.left,
                Reason.PLAINTEXT_ALLOWED: outcome.plaintext,
                Reason.LEGACY_ALLOWED: outcome.legacy,
                Reason.KEY_CHECK_WAIVED: not self.options.check_keys,
                Reason.NOT_VERIFIED: is_changed and self.options.check is Check.NONE,
                Reason.SAMPLED: is_changed and self.options.check is Check.SAMPLE,
                **(scrub_reasons(scrubbed) if scrubbed else {}),
            }
        )
        members = {
            **self._plan_members(plan, applied=True),
            self.changed: outcome.changed,
            "raced": outcome.raced,
            "plaintext": outcome.plaintext,
            "legacy": outcome.legacy,
            "left": outcome.left,
            **failures.end(self.run.result),
            "stopped": outcome.end is not End.COMPLETE,
            "verified": outcome.verified,
            "scrubbed": scrubbed and scrubbed._asdict(),
            "seconds": round(outcome.seconds, 3),
            "longest_lock_ms": round(outcome.longest_lock_seconds * 1000, 1),
        }
        self.run.end(members, lambda document: self._show_outcome(outcome, failures, document))
        if not self.run.as_json:
            self._say_what_stays(plan)

    def _say_what_stays(self, plan: list[Step]) -> None:
        """Say that values under the active key are not compressed, or decompressed."""
        wanted = self.options.compress
        done = [step.share for step in plan if step.action is Action.NONE]
        stay = sum(share.rows for share in done if ("zst" in share.flags) is not wanted)
        if wanted is not None and stay:
            key_id = self.cipher.ring.require_active().id
            say(_sentence(f"{{values}} {{stay}} as before: {key_id} has sealed {{it}} already", stay))

    def _show_outcome(self, outcome: Outcome, failures: ShownFailures, document: Document) -> None:
        changed = self.changed
        columns = (changed, "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
        names = (*columns[:-1], "longest_lock_ms")
        show_table(columns, [[document[name] for name in names]])
        if outcome.end is End.LOCKED and outcome.problem is not None:
            say(f"stopped early: {outcome.problem}; {outcome.problem.hint}")
        elif outcome.end is not End.COMPLETE:
            say(_ENDS[outcome.end].format(done=self.done))
        else:
            late = 0 if failures.count else max(0, outcome.left - outcome.count(*self.advice))
            left = [(line, outcome.count(action)) for action, line in self.advice.items()]
            for line, number in (*left, (self.late, late)):
                if number:
                    say(_sentence(line, number))
        if outcome.scrubbed:
            put(_search_result(outcome.scrubbed))
            if outcome.scrubbed.found and outcome.pending:
                say("rows are still written unsealed or under an old key: end that writer and run again")


_NO_VALUE: Final = (Kind.UNKNOWN, Action.ROTATE)
_ENDS: Final = {
    End.STOPPED: "stopped early: run the same command again; it continues where it stopped",
    End.UNVERIFIED: "stopped early: the {done}; check them with `sealpoint verify DB`",
    End.UNSCRUBBED: (
        "the {done}; their old bytes may still be in the file. Run the same command again"
        " when nothing reads it: it can then search for old tags, and not for the old values"
    ),
}


def _sentence(line: str, number: int) -> str:
    ones = {"are": "is", "have": "has", "stay": "stays", "it": "it", "threads": "that thread"}
    many = {"are": "are", "have": "have", "stay": "stay", "it": "them", "threads": "those threads"}
    pickles = f"{number:,} pickle" + ("" if number == 1 else "s")
    words = ones if number == 1 else many
    return line.format(values=values_line(number), pickles=pickles, **words)


def scrub_reasons(scrubbed: Scrubbed) -> dict[Reason, object]:
    """Return when a scrub does not show that nothing old is left in the file."""
    return {
        Reason.OLD_CONTENT_FOUND: scrubbed.found,
        Reason.OLD_TEXT_READABLE: scrubbed.readable,
        Reason.OLD_VALUES_NOT_SEARCHED: not scrubbed.fragments,
    }


def _listed(names: Iterable[str]) -> str:
    shown = [*names]
    more = len(shown) - MAX_PLACES
    return ", ".join(shown[:MAX_PLACES]) + (f" and {more} more places" if more > 0 else "")


def _search_result(scrubbed: Scrubbed) -> str:
    places = [*map(excerpt, scrubbed.columns), *(f"{file} at byte {place}" for file, place in scrubbed.found)]
    found = f"found: {_listed(places)}" if places else "found nothing"
    looked_for = f"for a sample of {scrubbed.fragments} fragments of old values and for old tags"
    if not scrubbed.fragments:  # a job that changes nothing has none
        why = "the old values stand readable" if scrubbed.unsearched else "this run has changed no values"
        looked_for = f"only for old tags, because {why}"
    if scrubbed.readable:
        found += f"; text of old values also stands readable in {_listed(map(excerpt, scrubbed.readable))}"
    if scrubbed.unsearched:
        found += f"; {scrubbed.unsearched} of the sample stand there as a whole and were not searched for"
    return f"searched {scrubbed.searched_bytes} bytes {looked_for}: {found}"


@contextmanager
def _reporting(command: str, failures: ShownFailures) -> Iterator[Report]:
    """Show a bar for each phase of a job, and collect failures."""
    watch = Watch(lambda *_: None, failures.add)
    with ExitStack() as bar:

        def report(event: Phase | Event) -> None:
            nonlocal watch
            if not isinstance(event, Phase):
                watch.take(event)
                return
            bar.close()
            title = command if event is Phase.ROTATE else event.value
            watch = bar.enter_context(watching(title, failures.add))

        yield report


_NOTICED_SECONDS: Final = 1.0
_NO_SCRUB: Final = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
_RESEAL: Final = "put {it} again sealed, or delete {threads}"
_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "{values} {are} not sealed: --allow-plaintext seals {it}",
    Action.NEEDS_REBIND: "{values} of LangGraph's Store {are} not sealed:"
    " `sealpoint rebind DB --allow-plaintext --apply` seals {it} for SealedStore",
    Action.NEEDS_LEGACY: "{values} {are} under LANGGRAPH_AES_KEY: --allow-legacy reseals {it}",
    Action.PICKLE: f"{{pickles}} {{stay}}: read {{it}} with LangGraph and {_RESEAL}",
    Action.OTHER_TYPE: f"{{values}} of other types {{stay}}: read {{it}} as the writer did and {_RESEAL}",
    Action.UNRECOGNISED: "{values} {have} an unrecognised tag: `sealpoint status DB` shows {it}",
}


def rotate(
    run: Run,
    database: DatabaseArgument = None,
    apply: ApplyOption = False,
    *,
    job: JobOptions,
    compress: Annotated[
        Compress | None,
        typer.Option(
            "--compress",
            help="Compress what is resealed, or not; default: as it was. What the active key sealed stays.",
        ),
    ] = None,
    variable: VariableOption = None,
) -> None:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = require_database(run, database, variable, job)
    compressed = None if compress is None else compress is Compress.ZSTD
    options = job.for_job(run, Options, compress=compressed)
    run.asks(**job.weaker())
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    cipher = RingCipher(open_ring(run), job.suite, follow=False)
    key_id = cipher.ring.require_active().id
    change = Change(
        run=run,
        database=named,
        cipher=cipher,
        options=options,
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
        " said): leave out --scrub, and scrub when the agents are stopped",
    )


def scrub(
    run: Run,
    database: DatabaseArgument = None,
    apply: Annotated[bool, typer.Option("--apply", help="Scrub; else only show what that takes.")] = False,
) -> None:
    """Clear old contents out of a SQLite file and its log.

    Then searches both for tags of retired keys. Without --apply it shows for how long the file will be
    locked and how much disk that takes. Only --scrub of `rotate` and of `rebind` also searches for old
    values, because they have read them.
    """
    named = one_database(run, database, None)
    if not kind_of(named).is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="DB")
    path, ring = Path(named), open_ring(run)
    with opened_database(run, named, None) as store:
        rows = sum(count.rows for count in store.count())
    expected, found = forecast(path), None
    estimate = {  # SQLite writes the file twice, once next to it or in its log
        "size_bytes": 2 * expected.size_bytes,
        "free_bytes": shutil.disk_usage(path.resolve().parent).free,
        "lock_seconds": max(1, round(expected.lock_seconds)),
        "processes": list(expected.processes),
    }
    if apply:
        with holding(path), watching("scrub"):
            found = scrub_file(path, ring)
        run.finds({Reason.NO_ROWS: not rows, **scrub_reasons(found)})
    else:
        run.result.add(Reason.NOT_APPLIED)
    members = {"applied": apply, "estimate": estimate, "scrubbed": found and found._asdict()}
    run.end(members, lambda _: _show_scrub(estimate, found))
    if not (apply or run.as_json):
        say("--apply carries it out")


def _show_scrub(estimate: dict[str, Any], found: Scrubbed | None) -> None:
    columns = ("bytes to write", "free bytes on disk", "lock, about s", "used by")
    show_table(columns, [[", ".join(cell) if isinstance(cell, list) else cell for cell in estimate.values()]])
    if found is not None:
        put(_search_result(found))


_BINDING: Final = {
    **ACTIONS,
    Action.NONE: "bound",
    Action.ROTATE: "to bind",
    Action.SEAL: "to seal and bind",
    Action.INDEX: "bound; to add readable metadata or fields where it lacks some",
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
_LATE: Final = "run again, or end the writers that do not bind", "end the writers that bind, and run again"
_FIRST: Final = (
    'first start every agent with SealedSaver(..., unbound="allow"):'
    " others refuse rows that are bound, or rows that are not",
    'first start every agent with SealedStore(..., unbound="allow"):'
    " a store that is not wrapped takes what is sealed for a value",
)


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
        list[str] | None, each_option("--plain-metadata", "KEY", "A key of metadata that stays readable.")
    ] = None,
    index: Annotated[
        list[str] | None, each_option("--index", "KEY", "A key of metadata that is searched by token.")
    ] = None,
    plain_field: Annotated[
        list[str] | None,
        each_option("--plain-field", "NAME", "A field of items of LangGraph's Store that stays readable."),
    ] = None,
    index_field: Annotated[
        list[str] | None, each_option("--index-field", "NAME", "A field of items that is searched by token.")
    ] = None,
    items: Annotated[
        bool | None,
        typer.Option("--items/--no-items", help="Only items of LangGraph's Store, or all but these."),
    ] = None,
    thread: Annotated[
        str | None,
        id_option("--thread", "ID", "Only this thread, and no item: its id in the database, or pseudonym."),
    ] = None,
    *,
    job: JobOptions,
    variable: VariableOption = None,
) -> None:
    """Bind every row to its place, while agents run. Shows the plan; --apply does it.

    First start every agent with SealedSaver(..., unbound="allow"), and with SealedStore for items: others
    refuse rows that are bound, or that are not. A store that is not wrapped takes what is sealed for a value.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = require_database(run, database, variable, job)
    if unbind and (plain_metadata or index or plain_field or index_field):
        raise typer.BadParameter("with --unbind all metadata becomes readable", param_hint="--unbind")
    require_whole(run, thread is not None, "a range is of all its threads: leave out --thread")
    if items and (thread is not None or plain_metadata or index):
        raise typer.BadParameter("items belong to no thread and have no metadata", param_hint="--items")
    if (plain_field or index_field) and (thread is not None or items is False):
        raise typer.BadParameter("fields are those of items, which are left out", param_hint="--plain-field")
    require_storable(named, thread)
    options = job.for_job(
        run,
        RebindOptions,
        unbind=unbind,
        allow_thread_store=allow_thread_store,
        visible=Visible(frozenset(plain_metadata or ()), frozenset(index or ())),
        fields=Visible(frozenset(plain_field or ()), frozenset(index_field or ())),
        thread_id=thread,
        items=items,
    )
    run.asks(
        **job.weaker(),
        unbind=unbind,
        allow_thread_store=allow_thread_store,
        thread=thread,
        items=items,
        plain_metadata=sorted(options.visible.plain),
        index=sorted(options.visible.indexed),
        plain_field=sorted(options.fields.plain),
        index_field=sorted(options.fields.indexed),
    )
    cipher = RingCipher(open_ring(run), job.suite, follow=False)
    if unbind and not (allow_thread_store or items) and find_threads(None, cipher.ring.path) is not None:
        raise remembered()
    Binder(cipher, options.visible, options.fields)  # which refuses names, and a ring without an index key
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
        first=_FIRST,
    )
    (change.apply if apply else change.show)()
