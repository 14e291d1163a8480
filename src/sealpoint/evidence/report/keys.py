"""The keys of a ring, as a report lists them: what the ring says, and what the databases add."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sealpoint.base.id import UUID
from sealpoint.evidence.report.coverage import key_of
from sealpoint.evidence.report.database import MAX_NAME_CHARS, Opening, Part
from sealpoint.evidence.report.period import Period
from sealpoint.keys.entry import DATES, RingEntry
from sealpoint.keys.ids import KEY_BYTES, LEGACY
from sealpoint.utc import format_utc

if TYPE_CHECKING:
    from sealpoint.maintenance.status import Share

UNKNOWN: Final = "unknown"
_ALGORITHMS: Final = {
    "cobblestone256": "AES-256-GCM (C2SP chunked encryption, Cobblestone-256)",
    "xaes256gcm": "AES-256-GCM (C2SP XAES-256-GCM)",
}
_ALL: Final = "AES-256-GCM"
_LEGACY: Final = "AES-EAX or AES-GCM of LangGraph, read only"
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)


def key_objects(
    entries: Iterable[RingEntry], parts: Sequence[Part], period: Period | None
) -> list[dict[str, Any]]:
    """Return the keys as JSON, in the order of the ring."""
    return [_object(entry, parts, period) for entry in entries]


def _object(entry: RingEntry, parts: Sequence[Part], period: Period | None) -> dict[str, Any]:
    name = LEGACY if entry.suite == LEGACY else entry.id
    shares = [share for part in parts for share in part.shares if key_of(share) == name]
    openings = [part.opening for part in parts if part.opening is not None]
    times = {field: getattr(entry, field) for field in DATES}
    return {
        "id": entry.id,
        "state": entry.state.value,
        "algorithms": _algorithms(entry, shares),
        # The material of LANGGRAPH_AES_KEY is checked by LangGraph, and may be shorter.
        "bits": None if entry.suite == LEGACY else KEY_BYTES * 8,
        "owner": entry.owner and entry.owner[:MAX_NAME_CHARS],
        "source": entry.source,
        "material": entry.material,
        "waived": list(entry.waived),
        "times": {field: time and format_utc(time) for field, time in times.items()},
        "in_period": [field for field in DATES if period and times[field] and period.has(times[field])],
        "rows": sum(share.rows for share in shares),
        "opened": _opened(name, openings),
        "last_use": _last_use([opening.run.newest.get(name, "") for opening in openings]),
    }


def _opened(name: str, openings: Sequence[Opening]) -> int | None:
    """Return how many values opened under a key; those of LANGGRAPH_AES_KEY are not counted."""
    if not openings or name == LEGACY:
        return None
    return sum(opening.run.opened[name] for opening in openings)


def _algorithms(entry: RingEntry, shares: Iterable[Share]) -> list[str]:
    """Return the algorithms of the suites that were found; without values, what all suites have."""
    if entry.suite == LEGACY:
        return [_LEGACY]
    suites = sorted({share.suite for share in shares if share.suite is not None})
    return [_ALGORITHMS.get(suite, suite) for suite in suites] or [_ALL]


def _last_use(ids: Sequence[str]) -> str | None:
    """Return the time that the greatest of some ids of checkpoints names."""
    newest = max(ids, default="")
    if not newest:
        return None
    steps = UUID(newest).time  # 100 ns since the Gregorian reform
    try:
        return format_utc(_GREGORIAN + timedelta(microseconds=steps // 10))
    except OverflowError:
        return None
