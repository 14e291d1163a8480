"""`sealpoint erase` and `erasures`: delete threads and namespaces, and record that in the ledger.

`erasures` shows which keys must still be destroyed before no copy of the erased data can be opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.ledger import PinsOption, VkeyOption, check_ledger, complain_of, find_folder
from sealpoint.admin.cli.options import (
    REASON,
    AllowUnprovenOption,
    ApplyOption,
    OneDatabase,
    ThreadsOption,
    each_option,
    find_threads,
    one_database,
    open_store,
    opened_threads,
    parse_id,
    read_entries,
    require_storable,
)
from sealpoint.admin.cli.output import Document, count, put, quoted, say, show_table
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.evidence.erasure import (
    NOT_COVERED,
    Erased,
    Erasure,
    HeldKey,
    History,
    Recorded,
    State,
    hmac_of,
)
from sealpoint.admin.evidence.verify import make_proof, read_verified
from sealpoint.admin.keys.change import describe_ring
from sealpoint.admin.maintenance.erase import Erasing, Known, Search
from sealpoint.admin.results.jobs import Stop
from sealpoint.admin.results.reasons import Reason, answer
from sealpoint.errors import ConfigError, LedgerTamperedError, StoppedError, excerpt
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile, read_ring_entries
from sealpoint.threads.store import ThreadStore

_HINT: Final = (
    "check the spelling: `sealpoint inspect DB` lists ids;"
    " --allow-missing accepts ids without rows, as after a run that ended early"
)


def _parse_each(ids: list[str] | None) -> list[str]:
    return [found for each in ids or () if (found := parse_id(each)) is not None]


def _parse_namespaces(names: list[str] | None) -> list[str]:
    found = _parse_each(names)
    for name in found:
        if not all(name.split(".")):
            raise typer.BadParameter(f"{excerpt(name)} is not a namespace: join its labels by dots")
    return found


def _read_ids(file: typer.FileText | None) -> list[str]:
    """Read a file of ids, one per line, in the form in which commands print ids."""
    lines = [] if file is None else file.read().removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line or not line.isprintable():
            raise typer.BadParameter(f"line {number} is not an id as printed", param_hint="--threads-file")
    return _parse_each(lines)


@contextmanager
def opened(
    run: Run, database: str, threads: str | None, *, apply: bool
) -> Iterator[tuple[RowStore, ThreadStore | None]]:
    """Open a database and its thread store; with ``apply``, writable and locked for deleting rows."""
    remembered = find_threads(threads, run.keys)
    with ExitStack() as stack:
        heads = None if remembered is None else stack.enter_context(opened_threads(remembered))
        store = stack.enter_context(closing(open_store(database, writable=apply, deletes=True)))
        if apply:
            stack.enter_context(store.hold())
        yield store, heads


def erase(
    run: Run,
    at: OneDatabase,
    ids: Annotated[
        list[str] | None, each_option("--thread", "ID", "Id of a thread, as commands print it.", _parse_each)
    ] = None,
    threads_file: Annotated[
        typer.FileText | None,
        typer.Option(
            "--threads-file",
            metavar="FILE",
            encoding="utf-8",
            errors="surrogateescape",
            help="A file of ids of threads, one per line.",
        ),
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        each_option(
            "--store-namespace",
            "NAME",
            "A namespace of LangGraph's Store and all below it; labels joined by dots.",
            _parse_namespaces,
        ),
    ] = None,
    reason: Annotated[str | None, REASON] = None,
    due: Annotated[
        int | None,
        typer.Option(
            "--due",
            metavar="DAYS",
            min=0,
            max=36_500,
            help="Days until all present keys must be destroyed; see `sealpoint erasures`.",
        ),
    ] = None,
    sealed_since: Annotated[
        datetime | None,
        typer.Option(
            "--sealed-since",
            metavar="DATE",
            formats=["%Y-%m-%d"],
            help="Declare that the database is sealed since this date, and that no older copy exists.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept ids and namespaces without rows.")
    ] = False,
    apply: ApplyOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Delete threads, and namespaces of LangGraph's Store.

    Copies of the database stay readable until the keys that the ring has now are destroyed: the ledger
    records what was erased and under which keys, and `sealpoint erasures` shows which keys remain. The ids
    stay in the thread store until `sealpoint heads trim`.

    Exits with 2 if an id or namespace has no rows, as it may be misspelt; with 7 if rows are still written.
    """
    run.asks(allow_missing=allow_missing)
    names, spaces = {*(ids or ()), *_read_ids(threads_file)}, {*(namespaces or ())}
    if not (names or spaces):
        raise typer.BadParameter("name a thread or a namespace", param_hint="--thread, --store-namespace")
    named = at.find(run)
    require_storable(named, *names, *spaces)
    read_entries(run, run.ring_file)
    file = RingFile(run.ring_file)
    with opened(run, named, threads, apply=apply) as (store, heads), stopping(run) as stop:
        run.looks_at(store)
        erasing = Erasing(store, KeyRing.of_file(file), sorted(names), sorted(spaces), heads)
        missing = erasing.plan()
        if missing and not allow_missing:
            some = ", ".join(map(quoted, missing[:9]))
            raise ConfigError(f"the database has no rows of {some}", hint=_HINT)
        erasure = _erasure(erasing, file, reason, due, sealed_since)
        is_done = apply and _carry_out(run, erasing, file, bytes(erasure), stop)
    run.finds({Reason.NOT_APPLIED: not apply, Reason.ENDED_EARLY: apply and not is_done})
    run.end(
        {
            "applied": apply,
            "threads": len(names),
            "namespaces": len(spaces),
            "missing": missing,
            "rows": erasing.planned,
            "erased": erasing.deleted,
            "looks": erasing.looks,
            "due": erasure.due,
            "recorded": run.recorder and run.recorder.documents[0],
        },
        _show,
    )
    if apply and heads is not None and names:
        say("the ids stay in the thread store until `sealpoint heads trim`")
    if apply and not (is_done or run.is_stopping):
        say(
            f"new rows were still found in search {erasing.looks}: stop the agents on these threads,"
            " then run the same command again, with --allow-missing"
        )


def _erasure(
    erasing: Erasing, file: RingFile, reason: str | None, due: int | None, sealed_since: datetime | None
) -> Erasure:
    """Return the JSON file for the ledger: what to erase, the keys of the ring, and declared dates."""
    if due is not None and file.ledger is None:
        raise typer.BadParameter("the ring file names no ledger to record the erasure", param_hint="--due")
    hmac, (kind, identity) = hmac_of(file), (erasing.store.kind, erasing.store.identity)
    threads, namespaces = (
        tuple(Erased([*filter(None, map(hmac, one.stored))], one.last) for one in owners)
        for owners in (erasing.threads, erasing.namespaces)
    )
    return Erasure(
        # An identity that a restore in place keeps, and that differs for other databases of the same name.
        database=str(identity["path"] if kind == "sqlite" else f"{erasing.store.name} {identity['schema']}"),
        index=hmac(""),
        threads=threads,
        namespaces=namespaces,
        keys=HeldKey.of(file.entries),
        counts=erasing.planned,
        reason=reason,
        due=None if due is None else (datetime.now(UTC).date() + timedelta(days=due)).isoformat(),
        sealed_since=None if sealed_since is None else sealed_since.date().isoformat(),
    )


def _carry_out(run: Run, erasing: Erasing, file: RingFile, document: bytes, stop: Stop) -> bool:
    """Write the begin entry, then delete the rows; return whether no rows are left."""
    run.begin([document])
    if describe_ring(read_ring_entries(run.ring_file)) != describe_ring(file.entries):
        raise StoppedError("the ring was changed during this run", hint="run the same command again")
    return erasing.run(stop)


def _show(document: Document) -> None:
    rows = [(table, key, number) for table, keys in document["rows"].items() for key, number in keys.items()]
    if rows:
        show_table(("table", "key", "rows"), rows)
    for name in document["missing"]:
        put(f"no rows of {quoted(name)}")
    if not document["applied"]:
        put("these rows would be deleted; --apply deletes them")
        return
    put(f"deleted {document['erased']} rows; searched {document['looks']} times")
    if document["recorded"] is None:
        put("not recorded: the ring file names no ledger")
    else:
        put(f"recorded in the ledger as {document['recorded']}")


_MAX_NAMED: Final = 800  # erasures that one ledger entry names


def erasures(
    run: Run,
    pins: PinsOption = None,
    vkey: VkeyOption = None,
    allow_unproven: AllowUnprovenOption = False,
    database: Annotated[
        str | None,
        typer.Option("--again", metavar="DB", help="Also search a restored database for erased data."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --again: delete rows from before the erasure.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Show erasures, and the keys that must still be destroyed.

    An erasure is complete when all keys of the ring at that time are destroyed: then no copy of the database
    can be read. Exits with 3 if an erasure is not complete by its due date, or if the ledger is not proven to
    be complete (see `sealpoint ledger verify`). Only the database of --again is read: if erased rows came
    back there, the command exits with 3. Rows that are newer than the erasure stay.
    """
    entries, folder = read_entries(run, run.ring_file), find_folder(run, None)
    verdict = check_ledger(folder, vkey, pins)
    history = History(folder)
    for entry in read_verified(folder, verdict):
        history.take(entry)
    found = history.erasures(answer(verdict.reasons), entries)
    search = None
    if database is not None:
        if apply and verdict.problems:
            raise LedgerTamperedError(f"invalid ledger, nothing was erased: {next(iter(verdict.problems))}")
        search = _search(run, database, found, threads, apply=apply)
    elif apply or threads:
        raise typer.BadParameter("name the restored database", param_hint="--again")
    run.result.add(*verdict.reasons)
    run.finds({Reason.OVERDUE: any(one.is_overdue for one in found)})
    shown = [one.object() for one in found]
    for one, each in zip(found, shown, strict=True):
        proofs = [make_proof(folder, seq) for seq in one.entries if run.as_json and not verdict.problems]
        each["proofs"] = [{"entry": line.decode(), "proof": bytes(proof).decode()} for line, proof in proofs]
    head = verdict.checkpoint
    run.end(
        {
            "folder": str(folder),
            "head": head and head.line,
            "erasures": shown,
            "search": search,
            "not_covered": [*NOT_COVERED],
            "problems": [*verdict.problems],
        },
        show_erasures,
        allow_unproven=allow_unproven,
    )
    complain_of(verdict)


def _search(
    run: Run, database: str, found: Sequence[Recorded], threads: str | None, *, apply: bool
) -> dict[str, Any]:
    """Search a restored database for erased data; with ``apply``, delete this data and record the result."""
    erased = defaultdict[tuple[str, str], list[Known]](list)
    for one in found:
        for column, owners in (("thread_id", one.erasure.threads), ("prefix", one.erasure.namespaces)):
            for name, last in ((name, each.last) for each in owners for name in each.names):
                erased[column, name].append(Known(one.document, one.begun["at"], last))
    hmac, named = hmac_of(RingFile(run.ring_file)), one_database(run, database, None)
    own = hmac("")
    run.finds({Reason.NOT_COMPARED: any(one.erasure.index != own or own is None for one in found)})
    with opened(run, named, threads, apply=apply) as (store, heads), stopping(run) as stop:
        seen = run.result.looks_at(store)["database"]
        run.begin([])
        search = Search(store, heads, erased, hmac)
        search.run(stop, apply=apply)
    back = [one for one in found if one.document in search.documents]
    for one in back:
        one.state = State.CAME_BACK
    run.result.stated = {"erasure": [one.document for one in back or found][-_MAX_NAMED:]}
    counts = {"found": search.found, "erased": search.deleted, "newer": search.newer}
    run.finds({Reason.CAME_BACK: search.found > search.deleted, Reason.ENDED_EARLY: stop.is_set()})
    run.result.counts |= counts
    return {"database": seen, "applied": apply, **counts}


def show_erasures(document: Document) -> None:
    """Print a table of erasures, then why some are incomplete although all of their keys are destroyed."""
    found = document["erasures"]
    if not found:
        put("no erasure is recorded")
        return
    if search := document.get("search"):
        put(f"rows that came back, or may have: {search['found']}; erased again: {search['erased']}")
        count(search["newer"], "rows kept because they are newer than the erasure: {}")
        if search["applied"] and search["found"] > search["erased"]:
            put("other rows were kept, as they may be new: `sealpoint erase` deletes all rows of an id")
    rows = list[tuple[object, ...]]()
    for one in found:
        late, ids = ", overdue" if one["is_overdue"] else "", one["threads"] + one["namespaces"]
        keys, state = ", ".join(one["keys"]) or None, one["state"] + late
        rows.append((one["seq"], one["at"], ids, one["reason"], keys, one["due"], state))
    show_table(("entry", "at", "ids", "reason", "keys to destroy", "due", "state"), rows)
    for one in found:
        for sentence in one["why"]:
            put(f"entry {one['seq']}: {sentence}")
