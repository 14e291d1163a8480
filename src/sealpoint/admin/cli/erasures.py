"""`sealpoint erasures`: what was erased, and what is still to be done before no copy of it opens."""

from __future__ import annotations

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.ledger import (
    PinsOption,
    VkeyOption,
    check_ledger,
    complain_of,
    find_folder,
    read_key,
)
from sealpoint.admin.cli.options import AllowUnprovenOption, read_entries
from sealpoint.admin.cli.output import Document, put, show_table
from sealpoint.admin.maintenance.result import Reason, answer


def erasures(
    run: Run,
    pins: PinsOption = None,
    vkey: VkeyOption = None,
    allow_unproven: AllowUnprovenOption = False,
) -> None:
    """Show erasures, and which keys are still to be destroyed.

    An erasure is complete when all keys that the ring had at that time are destroyed, so that no copy of the
    database can be read with them. Exits with 3 if one is not complete by its date, or if the ledger is not
    shown to be whole: see `sealpoint ledger verify`. No database is read.
    """
    from sealpoint.admin.evidence.erasure import NOT_COVERED, History
    from sealpoint.admin.evidence.verify import make_proof, read_verified

    entries, folder = read_entries(run, run.ring_file), find_folder(run, None)
    verdict = check_ledger(folder, None if vkey is None else read_key(vkey), pins)
    history = History(folder)
    for entry in read_verified(folder, verdict):
        history.take(entry)
    found = history.erasures(answer(verdict.reasons), entries)
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
            "not_covered": [*NOT_COVERED],
            "problems": [*verdict.problems],
        },
        show_erasures,
        allow_unproven=allow_unproven,
    )
    complain_of(verdict)


def show_erasures(document: Document) -> None:
    """Print a line for each erasure, and below why those are not complete of which no key is left."""
    found = document["erasures"]
    if not found:
        put("no erasure is recorded")
        return
    columns = ("entry", "at", "ids", "reason", "keys to destroy", "due", "state")
    show_table(columns, [_row(one) for one in found])
    for one in found:
        for sentence in one["why"]:
            put(f"entry {one['seq']}: {sentence}")


def _row(one: Document) -> list[object]:
    keys, late = ", ".join(one["keys"]) or None, ", overdue" if one["is_overdue"] else ""
    ids = one["threads"] + one["namespaces"]
    return [one["seq"], one["at"], ids, one["reason"], keys, one["due"], one["state"] + late]
