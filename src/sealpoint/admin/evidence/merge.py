"""Merge: one verdict of the results of a run that was divided into ranges of threads.

A result is what a command has printed, to the byte. It is not signed: a verified ledger must have its digest.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sealpoint.admin.evidence.folder import digest_of
from sealpoint.admin.results.reasons import Reason, answer, applying
from sealpoint.admin.results.result import SCHEMA
from sealpoint.admin.results.shards import Shard

CLOCK_SECONDS: Final = 60  # by which the clock of the host that made the run may be ahead of another's


class Part(NamedTuple):
    """The result of one range."""

    digest: str  # of its bytes, as a ledger has it
    shard: Shard
    question: str  # with the options, and further members that must be equal, as JSON
    database: str
    ring: str
    is_early: bool
    has_bound: bool  # rows, as `verify` counts them
    has_unbound: bool
    reasons: Sequence[Reason]


def parse_part(data: bytes) -> Part | None:
    """Return what the bytes of a result say; ``None`` if they are no result of a range."""
    try:
        found = json.loads(data)
        shard = Shard(**{name: found["shard"][name] for name in Shard._fields})
        database = found.get("database") or found["databases"][0]["database"]
        reasons = [reason for reason in Reason if reason in found["reasons"]]
        began = datetime.fromisoformat(found["began"]).timestamp()
        said = found["schema"], found["command"], found["ok"], found["reasons"]
        if said != (SCHEMA, shard.command, answer(reasons), reasons):
            return None
        return Part(
            digest_of(data),
            shard,
            json.dumps([shard[:2], *map(found.get, ("options", "only", "applied"))], sort_keys=True),
            # Servers without a number, as they show it to some roles, may have equal oids.
            json.dumps(
                [database["kind"], database["identity"], database["identity"]["system"] or digest_of(data)],
                sort_keys=True,
            ),
            json.dumps(found["ring"] and [*map(found["ring"].get, ("digest", "active", "check"))]),
            began + CLOCK_SECONDS < shard.time(),
            bool(found.get("bound")),
            bool(found.get("unbound")),
            reasons,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def merge_reasons(parts: Sequence[Part | None], recorded: Collection[Any]) -> set[Reason]:
    """Return why not all of a database is shown to be as the results, or ``None``, say of ranges.

    Args:
        parts: The results; ``None`` for what is none.
        recorded: The digests of results that a verified ledger has.
    """
    found = [part for part in parts if part is not None]
    joined = {reason for part in found for reason in part.reasons}
    if any(Reason.NO_ROWS not in part.reasons for part in found):  # a range may be empty
        joined.discard(Reason.NO_ROWS)
    starts, ends = [part.shard.threads_from for part in found], [part.shard.threads_below for part in found]
    reached: set[str | None] = {None}  # from the first thread on, without a gap
    while more := {end for start, end in zip(starts, ends, strict=True) if start in reached} - reached:
        reached |= more
    lasts = [start for start, end in zip(starts, ends, strict=True) if end is None]
    is_double = min(len({*starts}), len({*ends})) < len(found)
    reasons = {
        Reason.NOT_A_RESULT: None in parts,
        Reason.RUNS_DIFFER: len({part.question for part in found}) > 1,
        Reason.DATABASES_DIFFER: len({part.database for part in found}) > 1,
        Reason.RINGS_DIFFER: len({part.ring for part in found}) > 1,
        Reason.UNBOUND: any(part.has_bound for part in found) and any(part.has_unbound for part in found),
        Reason.BEGAN_BEFORE: any(part.is_early for part in found),
        Reason.RANGES_MISSING: reached.isdisjoint(lasts),
        Reason.RANGES_OVERLAP: is_double or (reached.issuperset(lasts) and not reached.issuperset(starts)),
        Reason.NOT_RECORDED: any(part.digest not in recorded for part in found),
    }
    return joined.union(applying(reasons))
