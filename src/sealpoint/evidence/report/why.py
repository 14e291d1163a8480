"""Why the answer to a question of a report is not yes: the reasons of all commands, and a report's own."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sealpoint.maintenance.result import REFUTING as REFUTING_RESULT
from sealpoint.maintenance.result import Reason
from sealpoint.maintenance.sentences import SENTENCES


class Why(StrEnum):
    """Reasons of a report alone. Those of `REFUTING` make an answer no, the others leave it open."""

    KEY_EXPIRED = "key-expired"
    COMPROMISED_IN_USE = "compromised-in-use"
    DESTROYED_IN_USE = "destroyed-in-use"
    RING_DIFFERS = "ring-differs"
    NO_RING = "no-ring"
    NO_DUE_DATE = "no-due-date"
    NO_THREAD_STORE = "no-thread-store"
    SEVERAL_DATABASES = "several-databases"
    NO_PIN = "no-pin"
    NO_LEDGER = "no-ledger"
    PERIOD_BEFORE_LEDGER = "period-before-ledger"
    NOT_EXAMINED = "not-examined"


AnyReason = Reason | Why

REFUTING: Final[frozenset[AnyReason]] = REFUTING_RESULT | {
    Why.KEY_EXPIRED,
    Why.COMPROMISED_IN_USE,
    Why.DESTROYED_IN_USE,
    Why.RING_DIFFERS,
}

ORDER: Final[tuple[AnyReason, ...]] = (
    *(reason for reason in (*Why, *Reason) if reason in REFUTING),
    *(reason for reason in (*Why, *Reason) if reason not in REFUTING),
)
"""All reasons: those that refute come first."""

_SENTENCES: Final[dict[AnyReason, str]] = {
    Reason.DATABASE_CHECK_WAIVED: "no database was examined before a key was destroyed",
    Reason.MATERIAL_NOT_REMOVED: "the material of a destroyed key was not removed by a run of sealpoint",
    Why.KEY_EXPIRED: "the active key has expired",
    Why.COMPROMISED_IN_USE: "values are under a key that is compromised",
    Why.DESTROYED_IN_USE: "values name a key that was destroyed",
    Why.RING_DIFFERS: "the ring is not that of the last entry of the ledger: it was changed by hand",
    Why.NO_RING: "no ring file was found",
    Why.NO_DUE_DATE: "the ring records no due date of the active key",
    Why.NO_THREAD_STORE: "no thread store was named",
    Why.SEVERAL_DATABASES: "a thread store is compared only in a report of one database",
    Why.NO_PIN: "no pin of the thread store was given",
    Why.NO_LEDGER: "no ledger is configured",
    Why.PERIOD_BEFORE_LEDGER: "the period begins before the ledger does",
    Why.NOT_EXAMINED: "this part of the database could not be read",
}


def sentence_of(reason: AnyReason) -> str:
    """Return a reason for people."""
    if reason in _SENTENCES or isinstance(reason, Why):
        return _SENTENCES[reason]
    return SENTENCES[reason]
