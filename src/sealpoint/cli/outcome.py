"""How a plan and the outcome of a rotation job are shown: tables, JSON objects and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sealpoint.cli import render
from sealpoint.cli.output import put, say, show_table
from sealpoint.maintenance.job import Action, End, Outcome, Step
from sealpoint.maintenance.options import Check, Options
from sealpoint.maintenance.result import Reason
from sealpoint.maintenance.scrub import Scrubbed

MAX_PLACES: Final = 5

ACTIONS: Final = {
    Action.NONE: "done",
    Action.ROTATE: "to reseal",
    Action.SEAL: "to seal",
    Action.NEEDS_PLAINTEXT: "skipped: not sealed, add --allow-plaintext",
    Action.NEEDS_LEGACY: "skipped: under LANGGRAPH_AES_KEY, add --allow-legacy",
    Action.NEEDS_KEY: "skipped: the ring has no usable key for it",
    Action.PICKLE: "skipped: a pickle is never sealed unopened",
    Action.OTHER_TYPE: "skipped: its type is not sealed unopened",
    Action.UNRECOGNISED: "skipped: unrecognised tag",
}
_RESEAL: Final = "put {it} again sealed, or delete {threads}"
_ADVICE: Final = {  # for what is left after a job
    Action.NEEDS_PLAINTEXT: "{values} {are} not sealed: --allow-plaintext seals {it}",
    Action.NEEDS_LEGACY: "{values} {are} under LANGGRAPH_AES_KEY: --allow-legacy reseals {it}",
    Action.PICKLE: f"{{pickles}} {{stay}}: read {{it}} with LangGraph and {_RESEAL}",
    Action.OTHER_TYPE: f"{{values}} of other types {{stay}}: read {{it}} as the writer did and {_RESEAL}",
    Action.UNRECOGNISED: "{values} {have} an unrecognised tag: `sealpoint status DB` shows {it}",
}
_ENDS: Final = {
    End.STOPPED: "stopped early: run the same command again; it continues where it stopped",
    End.UNVERIFIED: "stopped early: the values are resealed; check them with `sealpoint verify DB`",
    End.UNSCRUBBED: (
        "the values are resealed; their old bytes may still be in the file. Run the same command again"
        " when nothing reads it: it can then search for old tags, and not for the old values"
    ),
}


def plan_rows(plan: Iterable[Step], actions: Mapping[Action, str] = ACTIONS) -> list[dict[str, Any]]:
    """Return a plan as JSON, or as rows of a table.

    Args:
        plan: The plan.
        actions: What is said of each action.
    """
    return [
        {
            "table": share.table,
            "kind": share.kind,
            "key": share.key_id,
            "rows": share.rows,
            "bytes": share.size_bytes,
            "action": actions[action],
        }
        for share, action in plan
    ]


def outcome_reasons(outcome: Outcome, options: Options, rows: int) -> Iterator[Reason]:
    """Yield why an outcome does not show that all values are under the active key.

    Args:
        outcome: Of the job.
        options: Of the job.
        rows: How many values the plan had.
    """
    is_rotated = outcome.end in (End.COMPLETE, End.UNSCRUBBED)
    applies = {
        Reason.NO_ROWS: not rows,
        Reason.ENDED_EARLY: outcome.end is not End.COMPLETE,
        Reason.VALUES_LEFT: outcome.left,
        Reason.PLAINTEXT_ALLOWED: outcome.plaintext,
        Reason.LEGACY_ALLOWED: outcome.legacy,
        Reason.KEY_CHECK_WAIVED: not options.check_keys,
        Reason.NOT_VERIFIED: is_rotated and options.check is Check.NONE,
        Reason.SAMPLED: is_rotated and options.check is Check.SAMPLE,
    }
    yield from (reason for reason, it_does in applies.items() if it_does)
    if outcome.scrubbed:
        yield from scrub_reasons(outcome.scrubbed)


def scrub_reasons(scrubbed: Scrubbed) -> Iterator[Reason]:
    """Yield why a scrub does not show that nothing old is left in the file."""
    if scrubbed.found:
        yield Reason.OLD_CONTENT_FOUND
    if not scrubbed.fragments:
        yield Reason.OLD_VALUES_NOT_SEARCHED


def outcome_object(outcome: Outcome, failures: render.ShownFailures) -> dict[str, Any]:
    """Return an outcome as JSON."""
    scrubbed = outcome.scrubbed
    return {
        "resealed": outcome.changed,
        "raced": outcome.raced,
        "plaintext": outcome.plaintext,
        "legacy": outcome.legacy,
        "left": outcome.left,
        "failed": failures.count,
        "failures": failures.objects(),
        "stopped": outcome.end is not End.COMPLETE,
        "verified": outcome.verified,
        "scrubbed": scrubbed and scrubbed_object(scrubbed),
        "seconds": round(outcome.seconds, 3),
        "longest_lock_ms": round(outcome.longest_lock_seconds * 1000, 1),
    }


def scrubbed_object(scrubbed: Scrubbed) -> dict[str, Any]:
    """Return what a scrub found as JSON."""
    return {**scrubbed._asdict(), "found": [list(place) for place in scrubbed.found]}


def show_outcome(outcome: Outcome, document: dict[str, Any], key_id: str, *, failed: bool) -> None:
    """Print an outcome as a table, and below it how the job ended and what to do about the rest."""
    columns = ("resealed", "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
    names = ("resealed", "raced", "failed", "left", "verified", "seconds", "longest_lock_ms")
    show_table(columns, [[document[name] for name in names]])
    if outcome.end is End.LOCKED and outcome.problem is not None:
        say(f"stopped early: {outcome.problem}; {outcome.problem.hint}")
    elif outcome.end is not End.COMPLETE:
        say(_ENDS[outcome.end])
    else:
        for line in _advice(outcome, key_id, failed=failed):
            say(line)
    if outcome.scrubbed:
        put(search_result(outcome.scrubbed))
        if outcome.scrubbed.found and outcome.pending:
            say("rows are still written unsealed or under an old key: end that writer and run again")


def _advice(outcome: Outcome, key_id: str, *, failed: bool) -> Iterator[str]:
    """Yield why values are left that did not fail, and what takes them to the key, or away."""
    late = outcome.left - outcome.count(*_ADVICE)
    for action, line in _ADVICE.items():
        if number := outcome.count(action):
            yield _sentence(line, number)
    if late > 0 and not failed:
        yield _sentence(f"{{values}} written meanwhile {{are}} not under {key_id!r}: run again", late)


def _sentence(line: str, number: int) -> str:
    """Fill in a number, and the words that depend on it."""
    ones = {"are": "is", "have": "has", "stay": "stays", "it": "it", "threads": "that thread"}
    many = {"are": "are", "have": "have", "stay": "stay", "it": "them", "threads": "those threads"}
    pickles = f"{number:,} pickle" + ("" if number == 1 else "s")
    words = ones if number == 1 else many
    return line.format(values=render.values_line(number), pickles=pickles, **words)


def search_result(scrubbed: Scrubbed) -> str:
    """Say what a scrub searched, and what it found."""
    places = [f"{file} at byte {place}" for file, place in scrubbed.found[:MAX_PLACES]]
    more = len(scrubbed.found) - len(places)
    found = f"found: {', '.join(places)}" if places else "found nothing"
    found += f" and {more} more places" if more else ""
    looked_for = f"for a sample of {scrubbed.fragments} fragments of old values and for old tags"
    if not scrubbed.fragments:  # a job that changes nothing has none
        looked_for = "only for old tags, because this run has resealed no values"
    return f"searched {scrubbed.searched_bytes} bytes {looked_for}: {found}"
