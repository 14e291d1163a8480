"""`sealpoint erase` and `erasures`: threads, and namespaces of LangGraph's Store, deleted and recorded.

`erasures` shows what was erased, and what is still to be done before no copy of it opens.
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
    "check the spelling: `sealpoint inspect DB` lists what is there;"
    " --allow-missing accepts what is not there, as after a run that ended early"
)


def _parse_each(ids: list[str] | None) -> list[str]:
    return [found for each in ids or () if (found := parse_id(each)) is not None]


def _parse_namespaces(names: list[str] | None) -> list[str]:
    found = _parse_each(names)
    for name in found:
        if not all(name.split(".")):
            raise typer.BadParameter(f"{excerpt(name)} is not one: name its labels, joined by dots")
    return found


def _read_ids(file: typer.FileText | None) -> list[str]:
    """Read a file of ids, one a line, each as commands print it."""
    lines = [] if file is None else file.read().removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if not line or not line.isprintable():
            raise typer.BadParameter(f"line {number} is no printed id", param_hint="--threads-file")
    return _parse_each(lines)


@contextmanager
def opened(
    run: Run, database: str, threads: str | None, *, apply: bool
) -> Iterator[tuple[RowStore, ThreadStore | None]]:
    """Open a database and its thread store, to delete rows with ``apply``."""
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
        list[str] | None, each_option("--thread", "ID", "The id of a thread, as it is printed.", _parse_each)
    ] = None,
    threads_file: Annotated[
        typer.FileText | None,
        typer.Option(
            "--threads-file",
            metavar="FILE",
            encoding="utf-8",
            errors="surrogateescape",
            help="A file of such ids, one a line.",
        ),
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        each_option(
            "--store-namespace",
            "NAME",
            "A namespace of LangGraph's Store, its labels joined by dots, with all below it.",
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
            help="In how many days no copy of the database may open any more, for `sealpoint erasures`.",
        ),
    ] = None,
    sealed_since: Annotated[
        datetime | None,
        typer.Option(
            "--sealed-since",
            metavar="DATE",
            formats=["%Y-%m-%d"],
            help="Declare since when the database has been sealed; older copies are not there any more.",
        ),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept names of which the database has nothing.")
    ] = False,
    apply: ApplyOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Delete threads, and namespaces of LangGraph's Store.

    Copies of the database keep it, and open until the keys of today are destroyed: the ledger records what
    was erased and under which keys, and `sealpoint erasures` shows what is still to be done. The ids stay in
    the thread store until `sealpoint heads trim`.

    Exits with 2 if there is nothing under a name, which may be misspelt; with 7 if rows are still written.
    """
    run.asks(allow_missing=allow_missing)
    names, spaces = {*(ids or ()), *_read_ids(threads_file)}, {*(namespaces or ())}
    if not (names or spaces):
        raise typer.BadParameter("name what is to be erased", param_hint="--thread, --store-namespace")
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
            raise ConfigError(f"the database has nothing of {some}", hint=_HINT)
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
            f"rows were still found after {erasing.looks} looks: end the runs of agents on these threads,"
            " then run the same command again, with --allow-missing"
        )


def _erasure(
    erasing: Erasing, file: RingFile, reason: str | None, due: int | None, sealed_since: datetime | None
) -> Erasure:
    """Return the document: what is to be erased, with the keys of the ring and what was declared."""
    if due is not None and file.ledger is None:
        raise typer.BadParameter("the ring file names no ledger, which would have it", param_hint="--due")
    hmac, (kind, identity) = hmac_of(file), (erasing.store.kind, erasing.store.identity)
    threads, namespaces = (
        tuple(Erased([*filter(None, map(hmac, one.stored))], one.last) for one in owners)
        for owners in (erasing.threads, erasing.namespaces)
    )
    return Erasure(
        # What stays when it is restored in place, and tells others of the same name.
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
    """Record what is to be erased, and erase it; return whether all is gone."""
    run.begin([document])
    if describe_ring(read_ring_entries(run.ring_file)) != describe_ring(file.entries):
        raise StoppedError("the ring was changed meanwhile", hint="run the same command again")
    return erasing.run(stop)


def _show(document: Document) -> None:
    rows = [(table, key, number) for table, keys in document["rows"].items() for key, number in keys.items()]
    if rows:
        show_table(("table", "key", "rows"), rows)
    for name in document["missing"]:
        put(f"nothing is there of {quoted(name)}")
    if not document["applied"]:
        put("this would be deleted; --apply deletes it")
        return
    put(f"deleted {document['erased']} rows; looked {document['looks']} times")
    if document["recorded"] is None:
        put("nothing records this: the ring file names no ledger")
    else:
        put(f"recorded in the ledger as {document['recorded']}")


_MAX_NAMED: Final = 800  # documents of erasures in one entry


def erasures(
    run: Run,
    pins: PinsOption = None,
    vkey: VkeyOption = None,
    allow_unproven: AllowUnprovenOption = False,
    database: Annotated[
        str | None,
        typer.Option("--again", metavar="DB", help="Also look for what was erased in a restored database."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --again: erase what its ids show to be from before.")
    ] = False,
    threads: ThreadsOption = None,
) -> None:
    """Show erasures, and which keys are still to be destroyed.

    An erasure is complete when all keys that the ring had at that time are destroyed, so that no copy of the
    database can be read with them. Exits with 3 if one is not complete by its date, or if the ledger is not
    shown to be whole: see `sealpoint ledger verify`. No database is read but that of --again: it exits with 3
    if rows of what was erased are there again. Rows that are newer stay.
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
            raise LedgerTamperedError(f"nothing is erased by this ledger: {next(iter(verdict.problems))}")
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
    """Look for what was erased in a restored database, and erase what came back; record that."""
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
    """Print a line for each erasure, and below why those are not complete of which no key is left."""
    found = document["erasures"]
    if not found:
        put("no erasure is recorded")
        return
    if search := document.get("search"):
        put(f"rows that are back, or may be: {search['found']}, of which were erased: {search['erased']}")
        count(search["newer"], "rows of ids that are in use again, which stay: {}")
        if search["applied"] and search["found"] > search["erased"]:
            put("the others stay, because they may be new: `sealpoint erase` deletes all that a name has")
    rows = list[tuple[object, ...]]()
    for one in found:
        late, ids = ", overdue" if one["is_overdue"] else "", one["threads"] + one["namespaces"]
        keys, state = ", ".join(one["keys"]) or None, one["state"] + late
        rows.append((one["seq"], one["at"], ids, one["reason"], keys, one["due"], state))
    show_table(("entry", "at", "ids", "reason", "keys to destroy", "due", "state"), rows)
    for one in found:
        for sentence in one["why"]:
            put(f"entry {one['seq']}: {sentence}")
