"""The questions of a report, and the verdict on each: shown, refuted or not shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.rows import Failures
from sealpoint.admin.evidence.report.sources import ORDER, Changes, Part, Why, key_of, sentence_of
from sealpoint.admin.maintenance.audit import audit_reasons
from sealpoint.admin.maintenance.result import AnyReason, Reason, answer
from sealpoint.keys.entry import DATABASE_CHECK, MATERIAL_REMOVED, RELATION_CHECK, RingEntry
from sealpoint.keys.key import active_id
from sealpoint.keys.state import LEGACY, KeyState


class Question(NamedTuple):
    """What an assessor asks."""

    id: str
    label: str
    # Shown means yes.
    text: str
    basis: str


OPENS: Final = Question(
    "opens",
    "Values open",
    "Does every value open under the key that its row names, in a row that a saver accepts?",
    "opening every value",
)
SEALED: Final = Question(
    "sealed",
    "Values are sealed",
    "Does every value have the tag of a sealed value, and is there no table of LangGraph that nothing seals?",
    "tags and names of tables, believed",
)
ACTIVE: Final = Question(
    "active-key",
    "Under the active key",
    "Is every value under the active key?",
    "tags, and opening every value",
)
BOUND: Final = Question(
    "bound",
    "Bound to their rows",
    "Is every value bound to its row, so that it does not open in another?",
    "opening every value",
)
BESIDE: Final = Question(
    "beside",
    "Nothing else is readable",
    "Is nothing readable beside sealed values, but ids and what LangGraph writes in every checkpoint?",
    "metadata, names and inline values, read without a key",
)
REMEMBERED: Final = Question(
    "remembered",
    "As remembered",
    "Is every checkpoint there, as the thread store remembers it, and none that was deleted?",
    "comparing every checkpoint with the thread store",
)
PINNED: Final = Question(
    "pinned",
    "Thread store continues",
    "Does the thread store continue the log that was pinned?",
    "the root over the log of the thread store",
)
KEYS: Final = Question(
    "keys",
    "Keys are in date",
    "Is the active key within its period, and is no value under a key that is compromised or destroyed?",
    "the ring file, and tags",
)
DESTROYED: Final = Question(
    "destroyed-keys",
    "Keys were destroyed",
    "Was each destroyed key destroyed after databases were examined, and was its key file removed?",
    "the ring file",
)
CHANGES: Final = Question(
    "changes",
    "Changes are recorded",
    "Is there a ledger of what commands did that verifies, and does it end with this ring?",
    "the ledger",
)


WORDS: Final = {True: "shown", False: "refuted", None: "not shown"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question."""

    question: Question
    # With the names of the databases that they are about.
    reasons: Mapping[AnyReason, Sequence[str]]

    @property
    def word(self) -> str:
        """``shown``, ``refuted`` or ``not shown``."""
        return WORDS[answer(self.reasons)]

    def object(self) -> dict[str, Any]:
        """Return it as JSON."""
        reasons = [
            {"reason": reason.value, "sentence": sentence_of(reason), "databases": [*self.reasons[reason]]}
            for reason in ORDER
            if reason in self.reasons
        ]
        return {**self.question._asdict(), "verdict": self.word, "reasons": reasons}


def verdicts(
    parts: Sequence[Part],
    entries: Sequence[RingEntry] | None,
    changes: Changes | None,
    pin: AnyReason | None,
    no_heads: AnyReason | None,
) -> list[Verdict]:
    """Return the answers to all questions that apply.

    ``pin`` is why the thread store is not shown to continue its pin, ``no_heads`` why none was compared.
    """
    active = active_id(entries or ())
    destroyed = [entry for entry in entries or () if entry.state is KeyState.DESTROYED]
    answers = [
        _of_parts(OPENS, parts, _opens),
        _of_parts(SEALED, parts, partial(_audited, strict=False)),
        _of_parts(ACTIVE, parts, lambda part: _active(part, active)),
        _of_parts(BOUND, parts, _bound),
        _of_parts(BESIDE, parts, partial(_audited, strict=True)),
        _of_parts(REMEMBERED, parts, lambda part: _remembered(part, no_heads)),
        Verdict(PINNED, {pin: ()} if pin else {}),
        Verdict(KEYS, dict.fromkeys(_keys(entries, parts), ())),
    ]
    if destroyed:
        answers.append(Verdict(DESTROYED, dict.fromkeys(_destroyed(destroyed), ())))
    return [*answers, Verdict(CHANGES, dict.fromkeys(changes.reasons if changes else [Why.NO_LEDGER], ()))]


def _of_parts(
    question: Question, parts: Sequence[Part], ask: Callable[[Part], Iterable[AnyReason]]
) -> Verdict:
    reasons: dict[AnyReason, list[str]] = {} if parts else {Reason.NO_DATABASE: []}
    for part in parts:
        for reason in dict.fromkeys(ask(part)):
            reasons.setdefault(reason, []).append(part.name)
    return Verdict(question, {reason: [*dict.fromkeys(names)] for reason, names in reasons.items()})


def _failure_reasons(failures: Failures) -> Iterator[AnyReason]:
    """Yield why values that were refused leave or make an answer no."""
    if failures.count:
        yield Reason.KEYS_MISSING if failures.lacks_keys_only else Reason.VALUES_FAILED


def _whole(part: Part) -> Iterator[AnyReason]:
    """Yield why a database was not examined to its end, or has nothing to examine."""
    if part.damage:
        yield Reason.DAMAGED
    if part.missing:
        yield Reason.TABLES_MISSING
    if not part.rows:
        yield Reason.NO_ROWS


def _read(part: Part) -> Iterator[AnyReason]:
    """Yield why not all values were opened."""
    yield from _whole(part)
    if part.opening is None:
        yield Reason.NOT_OPENED
        return
    yield from _failure_reasons(part.opening.failures)
    if not part.opening.complete:
        yield Reason.ENDED_EARLY


def _opens(part: Part) -> Iterator[AnyReason]:
    yield from _read(part)
    if part.opening is not None:
        yield from part.opening.run.reasons()


def _audited(part: Part, *, strict: bool) -> Iterator[AnyReason]:
    yield from _whole(part)
    yield from audit_reasons(part.audit, strict=strict) if part.audit else (Why.NOT_EXAMINED,)


def _active(part: Part, active: str | None) -> Iterator[AnyReason]:
    if active is None:
        yield Why.NO_RING
        return
    if any(key_of(share) != active for share in part.shares):
        yield Reason.OTHER_KEYS
    yield from _read(part)
    if part.opening is not None:
        yield from part.opening.run.accepted_reasons()


def _bound(part: Part) -> Iterator[AnyReason]:
    yield from _read(part)
    if part.opening is None:
        return
    run = part.opening.run
    if part.opening.opened + run.accepted > run.bound or run.unbound.rows:
        yield Reason.NOT_BOUND
    yield from run.accepted_reasons()


def _remembered(part: Part, why_not: AnyReason | None) -> Iterator[AnyReason]:
    if why_not is not None:
        yield why_not
    elif part.heads is None:
        yield Reason.NOT_OPENED
    else:
        yield from part.heads.check.reasons()
        yield from _failure_reasons(part.heads.failures)


def _keys(entries: Sequence[RingEntry] | None, parts: Sequence[Part]) -> Iterator[AnyReason]:
    if entries is None:
        yield Why.NO_RING
        return
    used = {key_of(share) for part in parts for share in part.shares}
    for entry in entries:
        if entry.state is KeyState.ACTIVE and entry.expires is None:
            yield Why.NO_DUE_DATE
        if entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            yield Why.KEY_EXPIRED
        name = LEGACY if entry.suite == LEGACY else entry.id
        if entry.is_compromised and name in used:
            yield Why.COMPROMISED_IN_USE
        if entry.state is KeyState.DESTROYED and name in used:
            yield Why.DESTROYED_IN_USE
    if any(part.damage for part in parts):
        yield Why.NOT_EXAMINED


def _destroyed(entries: Iterable[RingEntry]) -> Iterator[AnyReason]:
    for entry in entries:
        if DATABASE_CHECK in entry.waived:
            yield Reason.DATABASE_CHECK_WAIVED
        if RELATION_CHECK in entry.waived:
            yield Reason.UNRELATED_ALLOWED
        if entry.material != MATERIAL_REMOVED:
            yield Reason.MATERIAL_NOT_REMOVED
