"""The report as one JSON object. Both the page and the text are made from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sealpoint.evidence.report.changes import Changes
from sealpoint.evidence.report.database import Part
from sealpoint.evidence.report.keys import key_objects
from sealpoint.evidence.report.limits import exceptions, limits
from sealpoint.evidence.report.period import Period
from sealpoint.evidence.report.questions import Facts, Verdict, verdicts
from sealpoint.evidence.report.why import ORDER, REFUTING, AnyReason, Why
from sealpoint.maintenance.result import Reason, Result

if TYPE_CHECKING:
    from sealpoint.keys.entry import RingEntry
    from sealpoint.maintenance.pins import Pin

SCHEMA: Final = "urn:sealpoint:report:1"
WORDS: Final = ("shown", "refuted", "not shown")


@dataclass(slots=True)
class Report:
    """One run: what was asked and found.

    Attributes:
        result: What is known of every run.
        allow_plaintext: Whether values that are not sealed were accepted.
        period: The period; ``None`` for all time.
        parts: The databases.
        entries: The entries of the ring; ``None`` without one.
        keys_problem: Class of the error for which the keys are not available.
        changes: What the ledger says; ``None`` without one.
        threads: The identity of the thread store that was compared.
        pin: The pin that was given.
        pin_reason: Why the thread store is not shown to continue it.
        no_heads: Why no thread store was compared; ``None`` if one was.
        command: The command line, without what depends on the shell.
    """

    result: Result
    allow_plaintext: bool = False
    period: Period | None = None
    parts: list[Part] = field(default_factory=list)
    entries: Sequence[RingEntry] | None = None
    keys_problem: str | None = None
    changes: Changes | None = None
    threads: str | None = None
    pin: Pin | None = None
    pin_reason: AnyReason | None = Why.NO_PIN
    no_heads: AnyReason | None = Why.NO_THREAD_STORE
    command: str = "sealpoint report"

    def facts(self) -> Facts:
        """Return what the verdicts are taken from."""
        now = datetime.now(UTC)
        return Facts(self.parts, self.entries, self.changes, self.pin_reason, self.no_heads, now)

    def answers(self) -> list[Verdict]:
        """Return the verdicts. Their reasons are those of the run."""
        found = verdicts(self.facts())
        met = {reason for verdict in found for reason in verdict.reasons}
        self.result.add(*(reason for reason in met if isinstance(reason, Reason)))
        return found

    def document(self) -> dict[str, Any]:
        """Return the object: see ``schemas/report-1.json``."""
        facts, answers = self.facts(), self.answers()
        reasons = [each for each in ORDER if any(each in verdict.reasons for verdict in answers)]
        options = {"allow_plaintext": self.allow_plaintext}
        head, tail = self.result.head(), self.result.end(self._counts(answers))
        document = {
            **head,
            "schema": SCHEMA,
            "options": options,
            "period": self.period and self.period.object(),
            "questions": [verdict.object() for verdict in answers],
            "limits": limits(facts),
            "databases": [part.object() for part in self.parts],
            "keys": None if self.entries is None else key_objects(self.entries, self.parts, self.period),
            "keys_problem": self.keys_problem,
            "changes": self.changes and self.changes.object(),
            "integrity": {
                "threads": self.threads,
                "pin": self.pin and self.pin._asdict(),
                "continues": None if self.pin is None else _answer(self.pin_reason),
            },
            "exceptions": list(exceptions(facts, options)),
            "again": {"command": self.command},
            "ring": tail["ring"],
            "ended": tail["ended"],
            "ok": False if REFUTING & set(reasons) else None if reasons else True,
            "reasons": [each.value for each in reasons],
        }
        self.result.replace_evidence(document)
        return document

    def _counts(self, answers: Sequence[Verdict]) -> dict[str, int]:
        """Return the numbers that the ledger records."""
        openings = [part.opening for part in self.parts if part.opening is not None]
        return {
            "rows": sum(part.rows for part in self.parts),
            "opened": sum(opening.opened for opening in openings),
            "failed": sum(opening.failures.count for opening in openings),
            **{f"{word.replace(' ', '_')}": _count(answers, word) for word in WORDS},
        }


def _count(answers: Sequence[Verdict], word: str) -> int:
    return sum(verdict.word == word for verdict in answers)


def _answer(reason: AnyReason | None) -> bool | None:
    """Return ``None`` for a reason that leaves the answer open."""
    return True if reason is None else False if reason in REFUTING else None


def text_of(document: dict[str, Any]) -> str:
    """Return an object as it is written to files: ASCII, so that its bytes are the same everywhere."""
    return json.dumps(document, indent=2) + "\n"


def digest_of(text: str) -> str:
    """Return the SHA-256 of a report, in hex."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()
