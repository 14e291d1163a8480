"""`sealpoint erasures`: what was erased, and what is still to be done before no copy of it opens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealpoint.admin.cli.erase import opened
from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.ledger import (
    PinsOption,
    VkeyOption,
    check_ledger,
    complain_of,
    find_folder,
    read_key,
)
from sealpoint.admin.cli.options import (
    AllowUnprovenOption,
    ThreadsOption,
    one_database,
    read_entries,
)
from sealpoint.admin.cli.output import Document, count, put, show_table
from sealpoint.admin.maintenance.erase import Known, Search
from sealpoint.admin.maintenance.result import Reason, answer
from sealpoint.errors import LedgerTamperedError
from sealpoint.keys.ringfile import RingFile

if TYPE_CHECKING:
    from sealpoint.admin.evidence.erasure import Recorded

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
    from sealpoint.admin.evidence.erasure import NOT_COVERED, History
    from sealpoint.admin.evidence.verify import make_proof, read_verified

    entries, folder = read_entries(run, run.ring_file), find_folder(run, None)
    verdict = check_ledger(folder, None if vkey is None else read_key(vkey), pins)
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
    from sealpoint.admin.evidence.erasure import State
    from sealpoint.admin.evidence.recorder import hmac_of

    erased = defaultdict[tuple[str, str], list[Known]](list)
    for one in found:
        for column, owners in (("thread_id", one.erasure.threads), ("prefix", one.erasure.namespaces)):
            for name, last in ((name, each.last) for each in owners for name in each.names):
                erased[column, name].append(Known(one.document, one.begun["at"], last))
    hmac, named = hmac_of(RingFile(run.ring_file)), one_database(run, database, None)
    own = hmac("")
    run.result.add(Reason.NOT_COMPARED, when=any(one.erasure.index != own or own is None for one in found))
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
