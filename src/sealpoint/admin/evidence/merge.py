"""Merge: combines the results of a run that was divided into ranges of threads into one verdict.

A result is the exact JSON output of a command. Results are not signed, so their digests must be in a verified
ledger.
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

CLOCK_SECONDS: Final = 60  # tolerance: the host that made the run may have a clock ahead of other hosts


class Part(NamedTuple):
    """The result of a command for one range of threads."""

    digest: str  # SHA-256 of the output, as in a ledger
    shard: Shard
    question: str  # JSON of the options and other members that must be equal
    database: str
    ring: str
    is_early: bool
    has_bound: bool  # whether `verify` found bound rows
    has_unbound: bool
    reasons: Sequence[Reason]


def parse_part(data: bytes) -> Part | None:
    """Parse the JSON result for a range of threads; return ``None`` if the bytes are something else."""
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
            # If the role cannot read the system identifier, no results are equal: servers may share oids.
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
    """Return the reasons why the results of ranges do not prove the answer for the whole database.

    Args:
        parts: Results for the ranges; ``None`` for each file that is not such a result.
        recorded: Digests of the results that a verified ledger records.
    """
    found = [part for part in parts if part is not None]
    joined = {reason for part in found for reason in part.reasons}
    if any(Reason.NO_ROWS not in part.reasons for part in found):  # single ranges may be empty
        joined.discard(Reason.NO_ROWS)
    starts, ends = [part.shard.threads_from for part in found], [part.shard.threads_below for part in found]
    reached: set[str | None] = {None}  # ends of ranges that join without a gap
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
