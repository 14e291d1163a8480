"""What the ledger says about a period, and whether it verifies."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import EntryError, LedgerTamperedError
from sealpoint.evidence.entry import read_members
from sealpoint.evidence.folder import Folder, open_regular, read_lines
from sealpoint.evidence.report.period import Period
from sealpoint.evidence.report.why import REFUTING, AnyReason, Why
from sealpoint.evidence.verify import verify_ledger
from sealpoint.maintenance.result import Reason
from sealpoint.merkle import Tree

if TYPE_CHECKING:
    from sealpoint.evidence.note import VerifierKey

MAX_ENTRIES: Final = 1_000
"""How many entries of a period are listed: the last ones."""

_SHOWN: Final = ("seq", "at", "run", "event", "outcome", "exit", "actor", "waived", "documents")
_ACTOR: Final = ("account", "uid", "host")
_SUBJECT: Final = ("database", "key", "out")


@dataclass(frozen=True, slots=True)
class Changes:
    """The entries of a ledger.

    Attributes:
        entries: The last `MAX_ENTRIES` of the period, oldest first.
        others: How many more the period has.
        head: Origin, size and root of the signed head; ``None`` if it is not valid.
        reasons: Why the ledger is not shown to be whole and up to date, and to cover the period.
    """

    entries: Sequence[dict[str, Any]]
    others: int = 0
    head: str | None = None
    reasons: frozenset[AnyReason] = frozenset()

    @property
    def verified(self) -> bool | None:
        """Whether the ledger is whole and up to date; ``None`` if that was not shown."""
        found = self.reasons - {Why.PERIOD_BEFORE_LEDGER}
        return False if found & REFUTING else None if found else True

    def object(self) -> dict[str, Any]:
        """Return them as JSON."""
        found = {"entries": [*self.entries], "others": self.others, "head": self.head}
        return {**found, "verified": self.verified}


def find_changes(
    folder: Path,
    period: Period | None,
    ring_digest: str,
    key: VerifierKey | None = None,
    pins: Sequence[bytes] = (),
) -> Changes:
    """Return what the ledger says about a period, or about all time.

    Args:
        folder: The folder of the ledger.
        period: The period.
        ring_digest: Of the ring as it is now: the last entry must have the same.
        key: The verifier key, from a source that the reader trusts.
        pins: Earlier heads that were kept elsewhere.

    Raises:
        LedgerMissingError: If there is no ledger.
        NoteError: If a pin is none, or is of another ledger.
    """
    verdict = verify_ledger(folder, key, pins)
    reasons = set[AnyReason](verdict.reasons)
    found, total, last = deque[dict[str, Any]](maxlen=MAX_ENTRIES), 0, ring_digest
    head, listed, tree = verdict.checkpoint, None if period is None else _Listed(period), Tree()
    try:
        with open_regular(Folder(folder).entries) as stream:
            for seq, line in enumerate(read_lines(stream, head.size if head else 0)):
                entry = read_members(line, seq)
                tree.add(line)
                last = (entry["ring"] or {}).get("digest", last)
                if seq == 0 and period is not None and _is_after(entry["at"], period.start):
                    reasons.add(Why.PERIOD_BEFORE_LEDGER)
                if listed is None or listed.has(entry["at"]):
                    total += 1
                    found.append(_shown(entry))
    except (EntryError, LedgerTamperedError, FileNotFoundError):
        reasons.add(Why.NOT_EXAMINED)  # the check has said why
    if head is not None and tree.root() != head.root:  # else replaced since the check
        reasons.add(Reason.LEDGER_BROKEN)
    if last != ring_digest:
        reasons.add(Why.RING_DIFFERS)
    line_of = None if head is None else head.line
    return Changes([*found], total - len(found), line_of, frozenset(reasons))


class _Listed:
    """Which entries a period has. Their order is signed, and their times are those of the hosts' clocks.

    An entry with an earlier time than one before it is also listed for the time between the two, and one with
    a time in the future is always listed: a wrong clock leaves out no entry of the period.
    """

    def __init__(self, period: Period) -> None:
        self._period, self._now = period, datetime.now(UTC)
        self._latest = datetime.min.replace(tzinfo=UTC)

    def has(self, at: str) -> bool:
        """Whether the next entry, which was made at ``at``, is listed."""
        moment = _moment(at)
        if moment is None or moment > self._now:
            return True  # listed, rather than left out
        self._latest = max(self._latest, moment)
        return moment < self._period.end and self._latest >= self._period.start


def _is_after(at: str, start: datetime) -> bool:
    """Whether a time is not known to be at or before the start of a period."""
    moment = _moment(at)
    return moment is None or moment > start


def _moment(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an entry that a report lists."""
    actor = {name: entry["actor"].get(name) for name in _ACTOR}
    subject = {name: entry["subject"][name] for name in _SUBJECT if entry["subject"].get(name) is not None}
    return {**{name: entry[name] for name in _SHOWN}, "actor": actor, "subject": subject}
