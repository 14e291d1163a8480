"""`sealpoint rotate`, `rebind` and `scrub`: reseal values, bind values to rows, erase old values."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.jobs import (
    ACTIONS,
    NO_SCRUB,
    Change,
    JobOptions,
    require_database,
    scrub_reasons,
    search_result,
)
from sealpoint.admin.cli.options import (
    ApplyOption,
    DatabaseArgument,
    OneDatabase,
    each_option,
    find_threads,
    id_option,
    open_ring,
    require_storable,
    require_whole,
)
from sealpoint.admin.cli.output import put, say, show_table, watching
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.job import Action
from sealpoint.admin.results.jobs import Compress, Options
from sealpoint.admin.results.reasons import Reason
from sealpoint.crypto.cipher import RingCipher

if TYPE_CHECKING:
    from sealpoint.admin.maintenance.scrub import Scrubbed

_RESEAL: Final = "write {it} again sealed, or delete {threads}"
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
    at: OneDatabase,
    apply: ApplyOption = False,
    *,
    job: JobOptions,
    compress: Annotated[
        Compress | None,
        typer.Option(
            "--compress",
            help="Compress resealed values, or not. Default: as before. Ignores values under the active key.",
        ),
    ] = None,
) -> None:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply carries it out.

    Can be stopped at any point (Ctrl-C finishes the batch): a new run continues where the last one stopped.
    """
    named = require_database(run, at, job)
    compressed = None if compress is None else compress is Compress.ZSTD
    options = job.for_job(run, Options, compress=compressed)
    run.asks(**job.weaker())
    # The plan names one key: the run uses it to the end, also if another key is promoted meanwhile.
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
        late=f"{{values}} written during the run {{are}} not under {key_id!r}: run again",
        left=Reason.VALUES_LEFT,
    )
    (change.apply if apply else change.show)()


def scrub(
    run: Run,
    database: DatabaseArgument = None,
    apply: Annotated[bool, typer.Option("--apply", help="Scrub; otherwise only show an estimate.")] = False,
) -> None:
    """Erase remains of old values from a SQLite file.

    Cleans the file and its log, then searches both for tags of retired keys. Without --apply, shows how
    long the file will be locked and how much disk space is needed. `rotate --scrub` and `rebind --scrub`
    also search for the old values, which they have read.
    """
    from sealpoint.admin.maintenance.scrub import forecast
    from sealpoint.admin.maintenance.scrub import scrub as scrub_file

    at = OneDatabase(database=database)
    named = at.find(run)
    if not kind_of(named).is_file:
        raise typer.BadParameter(NO_SCRUB, param_hint="DB")
    path, ring = Path(named), open_ring(run)
    with at.opened(run) as store:
        rows = sum(count.rows for count in store.count())
    expected, found = forecast(path), None
    estimate = {  # SQLite writes the contents twice: into a new file or the log, then into the file
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
        put(search_result(found))


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
    Action.NEEDS_KEY: "{values} under a key that is not in the ring, or that may not open values",
    Action.PICKLE: "{values} unsealed pickles: read them with LangGraph and write them again",
    Action.OTHER_TYPE: "{values} of other types: read them as their writer does and write them again",
    Action.UNRECOGNISED: "{values} with an unrecognised tag: `sealpoint status DB` shows them",
}
_LATE: Final = (
    "run again, or stop agents that write unbound rows",
    "stop agents that bind rows, and run again",
)
_FIRST: Final = (
    'first start every agent with SealedSaver(..., unbound="allow"):'
    " other agents cannot read both bound and unbound rows",
    'first start every agent with SealedStore(..., unbound="allow"):'
    " an unwrapped store would return sealed bytes as the value",
)


def rebind(
    run: Run,
    at: OneDatabase,
    apply: ApplyOption = False,
    unbind: Annotated[
        bool, typer.Option("--unbind", help="Undo the binding, for agents without SealedSaver.")
    ] = False,
    allow_thread_store: Annotated[
        bool,
        typer.Option(
            "--allow-thread-store",
            help="With --unbind: also unbind rows of a thread store; savers that use it then refuse them.",
        ),
    ] = False,
    plain_metadata: Annotated[
        list[str] | None, each_option("--plain-metadata", "KEY", "Leave this metadata key readable.")
    ] = None,
    index: Annotated[
        list[str] | None, each_option("--index", "KEY", "Index this metadata key, for search.")
    ] = None,
    plain_field: Annotated[
        list[str] | None,
        each_option("--plain-field", "NAME", "Leave this field of LangGraph Store items readable."),
    ] = None,
    index_field: Annotated[
        list[str] | None, each_option("--index-field", "NAME", "Index this field of items, for search.")
    ] = None,
    items: Annotated[
        bool | None,
        typer.Option("--items/--no-items", help="Only items of LangGraph's Store, or only all other rows."),
    ] = None,
    thread: Annotated[
        str | None,
        id_option("--thread", "ID", "Only this thread, no items: its id in the database, or its pseudonym."),
    ] = None,
    *,
    job: JobOptions,
) -> None:
    """Bind every row to its place, while agents run. Shows the plan; --apply carries it out.

    First start every agent with SealedSaver(..., unbound="allow"), and with SealedStore for items: other
    agents cannot read both bound and unbound rows, and an unwrapped store returns sealed bytes as values.

    Can be stopped at any point (Ctrl-C finishes the batch): a new run continues where the last one stopped.
    """
    from sealpoint.admin.maintenance.rebind import Binder, RebindJob, RebindOptions, Visible, remembered

    named = require_database(run, at, job)
    if unbind and (plain_metadata or index or plain_field or index_field):
        raise typer.BadParameter("--unbind makes all metadata readable", param_hint="--unbind")
    require_whole(run, thread is not None, "a range is a set of threads: leave out --thread")
    if items and (thread is not None or plain_metadata or index):
        raise typer.BadParameter("items belong to no thread and have no metadata", param_hint="--items")
    if (plain_field or index_field) and (thread is not None or items is False):
        raise typer.BadParameter("only items have fields, and items are excluded", param_hint="--plain-field")
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
    Binder(cipher, options.visible, options.fields)  # refuses bad names, and a ring without an index key
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
        late=f"rows remain, or were written during the run: {_LATE[unbind]}",
        left=Reason.STILL_BOUND if unbind else Reason.NOT_BOUND,
        first=_FIRST,
    )
    (change.apply if apply else change.show)()
