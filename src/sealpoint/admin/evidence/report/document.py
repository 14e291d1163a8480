"""The report: one JSON object, and an HTML page made only from this object.

The page is a single file without scripts, and loads no other file.

Jinja2 escapes text from databases and rings. Unprintable characters, such as marks that reverse the direction
of text, are shown as codes, and long texts are shortened. The page contains the object byte for byte at its
end, so the digest of the object can be computed from the page.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealpoint.admin.evidence.report.sources import (
    MAX_NAME_CHARS,
    ORDER,
    Changes,
    Part,
    Period,
    Why,
    key_of,
    sentence_of,
)
from sealpoint.admin.maintenance.audit import audit_reasons
from sealpoint.admin.maintenance.names import time_of
from sealpoint.admin.results.events import failure_reasons
from sealpoint.admin.results.reasons import AnyReason, Reason, answer, applying
from sealpoint.admin.results.result import BEGUN, Result
from sealpoint.errors import MissingExtraError
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    DATES,
    LINES,
    MATERIAL_GONE,
    MATERIAL_REMOVED,
    RELATION_CHECK,
    RingEntry,
)
from sealpoint.seal.keys import KEY_BYTES, LEGACY, KeyState, active_id
from sealpoint.seal.suites import SUITES
from sealpoint.utc import format_utc

if TYPE_CHECKING:
    from jinja2 import Template

    from sealpoint.admin.maintenance.heads import Pin
    from sealpoint.admin.maintenance.status import Share


class Question(NamedTuple):
    """A question of an assessor that the report answers."""

    id: str
    label: str
    # The question as text; the verdict "shown" means yes.
    text: str
    basis: str


QUESTIONS: Final = (
    Question(
        "opens",
        "Values open",
        "Does every value open under the key named in its row, and would a saver accept every row?",
        "opening every value",
    ),
    Question(
        "sealed",
        "Values are sealed",
        "Does every value have the tag of a sealed value, and are there no tables of LangGraph that sealpoint"
        " cannot seal?",
        "type tags and names of tables, which are not verified",
    ),
    Question(
        "active-key",
        "Under the active key",
        "Is every value under the active key?",
        "tags, and opening every value",
    ),
    Question(
        "bound",
        "Bound to their rows",
        "Is every value bound to its row, so that it does not open in another row?",
        "opening every value",
    ),
    Question(
        "beside",
        "Nothing else is readable",
        "Are only ids readable, and the metadata that LangGraph writes to every checkpoint?",
        "metadata, names and inline values, read without a key",
    ),
    Question(
        "remembered",
        "As in the thread store",
        "Does the database have every checkpoint of the thread store, unchanged, and no deleted checkpoint?",
        "comparing every checkpoint with the thread store",
    ),
    Question(
        "pinned",
        "Thread store continues",
        "Does the thread store continue the log of the pin?",
        "the root over the log of the thread store",
    ),
    Question(
        "keys",
        "Keys are in date",
        "Has the active key not expired, and is no value under a compromised or destroyed key?",
        "the ring file, and tags",
    ),
    Question(
        "destroyed-keys",
        "Keys were destroyed",
        "Were databases examined before each key was destroyed, and was its key file removed?",
        "the ring file",
    ),
    Question(
        "changes",
        "Changes are recorded",
        "Is there a valid ledger of what commands did, and does its last entry have this ring?",
        "the ledger",
    ),
)
Reasons = Mapping[AnyReason, Sequence[str]]

WORDS: Final = {True: "shown", False: "refuted", None: "not shown"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a question."""

    question: Question
    # Reasons, each with the names of the databases concerned.
    reasons: Reasons

    @property
    def word(self) -> str:
        """``shown``, ``refuted`` or ``not shown``."""
        return WORDS[answer(self.reasons)]

    def object(self) -> dict[str, Any]:
        """Return the question, the verdict and its reasons as JSON members."""
        reasons = [
            {"reason": reason.value, "sentence": sentence_of(reason), "databases": [*self.reasons[reason]]}
            for reason in ORDER
            if reason in self.reasons
        ]
        return {**self.question._asdict(), "verdict": self.word, "reasons": reasons}


def verdicts(report: Report) -> list[Verdict]:
    """Return the verdict on each question; questions that do not apply to the run are omitted."""
    parts, entries, pin, changes = report.parts, report.entries, report.pin_reason, report.changes
    audited = partial(_audited, allow_store=report.result.options["allow_store"] is not None)
    active = active_id(entries or ())
    destroyed = [entry for entry in entries or () if entry.state is KeyState.DESTROYED]
    found = {
        "opens": _of_parts(parts, _opens),
        "sealed": _of_parts(parts, partial(audited, strict=False)),
        "active-key": _of_parts(parts, partial(_active, active=active)),
        "bound": _of_parts(parts, _bound),
        "beside": _of_parts(parts, partial(audited, strict=True)),
        "remembered": _of_parts(parts, partial(_remembered, why_not=report.no_heads)),
        "pinned": {pin: ()} if pin else {},
        "keys": dict.fromkeys(_keys(entries, parts), ()),
        "changes": dict.fromkeys(changes.reasons if changes else [Why.NO_LEDGER], ()),
    }
    if destroyed:
        found["destroyed-keys"] = dict.fromkeys(_destroyed(destroyed), ())
    return [Verdict(question, found[question.id]) for question in QUESTIONS if question.id in found]


def _of_parts(parts: Sequence[Part], ask: Callable[[Part], Iterable[AnyReason]]) -> Reasons:
    """Call ``ask`` for each database; map each reason that it returns to the names of the databases."""
    reasons: dict[AnyReason, dict[str, None]] = {} if parts else {Reason.NO_DATABASE: {}}
    for part in parts:
        for reason in ask(part):
            reasons.setdefault(reason, {})[part.name] = None
    return {reason: [*names] for reason, names in reasons.items()}


def _whole(part: Part) -> list[AnyReason]:
    """Return the reasons why a database was not fully examined, or had no values to examine."""
    return applying(
        {
            Reason.DAMAGED: part.damage,
            Reason.TABLES_MISSING: part.missing,
            Reason.NO_ROWS: not part.rows,
        }
    )


def _read(part: Part) -> list[AnyReason]:
    """Return the reasons why not all values were opened."""
    if part.opening is None:
        return [*_whole(part), Reason.NOT_OPENED]
    early = applying({Reason.ENDED_EARLY: not part.opening.complete})
    return [*_whole(part), *failure_reasons(part.opening.failures), *early]


def _opens(part: Part) -> list[AnyReason]:
    return [*_read(part), *(part.opening.run.reasons() if part.opening else ())]


def _audited(part: Part, *, strict: bool, allow_store: bool) -> list[AnyReason]:
    if part.audit is None:
        return [*_whole(part), Why.NOT_EXAMINED]
    return [*_whole(part), *audit_reasons(part.audit, strict=strict, allow_store=allow_store)]


def _active(part: Part, active: str | None) -> list[AnyReason]:
    if active is None:
        return [Why.NO_RING]
    others = applying({Reason.OTHER_KEYS: any(key_of(share) != active for share in part.shares)})
    return [*others, *_read(part), *(part.opening.run.accepted_reasons() if part.opening else ())]


def _bound(part: Part) -> list[AnyReason]:
    if part.opening is None:
        return _read(part)
    run = part.opening.run
    unbound = part.opening.opened + run.accepted > run.bound or run.unbound.rows
    return [*_read(part), *applying({Reason.NOT_BOUND: unbound}), *run.accepted_reasons()]


def _remembered(part: Part, why_not: AnyReason | None) -> list[AnyReason]:
    if why_not is not None:
        return [why_not]
    if part.heads is None:
        return [Reason.NOT_OPENED]
    return [*part.heads.check.reasons(), *failure_reasons(part.heads.failures)]


def _keys(entries: Sequence[RingEntry] | None, parts: Sequence[Part]) -> list[AnyReason]:
    if entries is None:
        return [Why.NO_RING]
    active = [entry for entry in entries if entry.state is KeyState.ACTIVE]
    names = {key_of(share) for part in parts for share in part.shares}
    used = [entry for entry in entries if (LEGACY if entry.suite == LEGACY else entry.id) in names]
    return applying(
        {
            Why.NO_DUE_DATE: any(entry.expires is None for entry in active),
            Why.KEY_EXPIRED: any(entry.is_expired(datetime.now(UTC)) for entry in active),
            Why.COMPROMISED_IN_USE: any(entry.is_compromised for entry in used),
            Why.DESTROYED_IN_USE: any(entry.state is KeyState.DESTROYED for entry in used),
            Why.NOT_EXAMINED: any(part.damage for part in parts),
        }
    )


def _destroyed(entries: Sequence[RingEntry]) -> list[AnyReason]:
    return applying(
        {
            Reason.DATABASE_CHECK_WAIVED: any(DATABASE_CHECK in entry.waived for entry in entries),
            Reason.UNRELATED_ALLOWED: any(RELATION_CHECK in entry.waived for entry in entries),
            Reason.MATERIAL_NOT_REMOVED: any(entry.material != MATERIAL_REMOVED for entry in entries),
        }
    )


def key_objects(report: Report) -> Iterator[dict[str, Any]]:
    """Yield a JSON object about each key, in the order of the ring."""
    openings = [part.opening for part in report.parts if part.opening is not None]
    for entry in report.entries or ():
        name = LEGACY if entry.suite == LEGACY else entry.id
        shares = [share for part in report.parts for share in part.shares if key_of(share) == name]
        times, lines = ({name: getattr(entry, name) for name in names} for names in (DATES, LINES))
        period = report.period
        yield {
            "id": entry.id,
            "state": entry.state.value,
            "algorithms": _algorithms(entry, shares),
            # LANGGRAPH_AES_KEY may be shorter: LangGraph, not sealpoint, checks its length.
            "bits": None if name == LEGACY else KEY_BYTES * 8,
            **{name: text and text[:MAX_NAME_CHARS] for name, text in lines.items()},
            "source": entry.source,
            "material": entry.material,
            "waived": list(entry.waived),
            "times": {field: time and format_utc(time) for field, time in times.items()},
            "in_period": [field for field in DATES if period and times[field] and period.has(times[field])],
            "rows": sum(share.rows for share in shares),
            # Values under LANGGRAPH_AES_KEY are not counted as opened.
            "opened": sum(opening.run.opened[name] for opening in openings)
            if openings and name != LEGACY
            else None,
            "last_use": time_of(max((opening.run.newest.get(name, "") for opening in openings), default="")),
        }


def _algorithms(entry: RingEntry, shares: Iterable[Share]) -> list[str]:
    """Return the algorithms with which a key sealed values; without values, those of every suite."""
    if entry.suite == LEGACY:
        from sealpoint.seal.legacy import LegacyAes  # imported late, as in `make_suite`

        return [LegacyAes.DESCRIPTION]
    suites = sorted({share.suite for share in shares if share.suite is not None})
    return [SUITES[suite].DESCRIPTION if suite in SUITES else suite for suite in suites] or ["AES-256-GCM"]


_ALWAYS: Final = (
    "Clock, host and account are as reported by the operating system. They are not authenticated.",
    "The report is not signed. Its SHA-256 proves that it is unchanged only if the SHA-256 is kept where the"
    " operators of the agents cannot write.",
    "The report describes the databases under Scope at one moment, and only the tables that were read."
    " Embeddings and caches that were not read are readable.",
    "Any holder of the keys can make values that open. That a value opens shows which key sealed it, but not"
    " which account.",
    "Reading is not logged: the report does not show whether values were read before.",
    "Backups, replicas, archives, memory of processes and copies of keys are not examined.",
    "The ring no longer uses a destroyed key. Copies of its material may exist, and are not searched for.",
    "The times of keys are from the ring file. An account that can write to the file can change them.",
)


def limits(report: Report) -> Iterator[str]:
    """Yield sentences about what the report does not prove."""
    if report.no_heads is not None:
        yield (
            "No thread store was compared: checkpoints that were deleted, or restored to an earlier state,"
            " are not detected."
        )
    elif report.pin_reason is Why.NO_PIN:
        yield (
            "No pin of the thread store was given: it is not detected if thread store and database were both"
            " restored to an earlier state."
        )
    if report.changes is None:
        yield (
            "No ledger is configured: earlier changes to keys and databases are not shown, except for the"
            " dates in the ring."
        )
    else:
        yield "The ledger records only commands of sealpoint, no changes by other means."
    yield from _ALWAYS


def exceptions(report: Report) -> Iterator[tuple[str, str | None, str]]:
    """Yield the waived checks, and the options and states of keys that weaken the report.

    Each yielded tuple has a name, a key id or ``None``, and a sentence.
    """
    accepted = sum(part.opening.run.accepted for part in report.parts if part.opening)
    options = report.result.options
    if options["allow_plaintext"]:
        yield "allow-plaintext", None, f"unauthenticated values were accepted: {accepted}"
    elif accepted:
        what = "values under LANGGRAPH_AES_KEY, whose types are not authenticated, were accepted"
        yield "legacy-accepted", None, f"{what}: {accepted}"
    if options["allow_store"] is not None:
        what = "unsealed values of LangGraph's Store and caches were accepted"
        yield "allow-store", None, f"{what}: {options['allow_store']}"
    for entry in report.entries or ():
        for name, sentence in _of_key(entry):
            yield name, entry.id, sentence
    for recorded in report.changes.entries if report.changes else ():
        for name in recorded["waived"] if recorded["outcome"] != BEGUN else ():
            yield str(name), None, f"waived by {recorded['event']}, entry {recorded['seq']} of the ledger"


def _of_key(entry: RingEntry) -> Iterator[tuple[str, str]]:
    if entry.state is KeyState.DESTROYED:
        if DATABASE_CHECK in entry.waived:
            yield DATABASE_CHECK, "no database was examined before the key was destroyed"
        if RELATION_CHECK in entry.waived:
            yield RELATION_CHECK, "a database without values under any key of the ring was accepted"
        if entry.material != MATERIAL_REMOVED:
            is_gone = entry.material == MATERIAL_GONE
            gone = "it was already gone" if is_gone else "it must be removed at its source"
            yield "material-not-removed", f"no run removed the key's material: {gone}"
    if entry.is_compromised:
        yield "compromised", "the key was marked as compromised"
    if entry.state is KeyState.STAGED:
        what = "the key is staged but opens values; by NIST SP 800-57 a key is not used before its activation"
        yield "staged-opens", what
    if entry.source == "inline":
        yield "inline-material", "the key material is in the ring file"


SCHEMA: Final = "urn:sealpoint:report:1"


@dataclass(slots=True)
class Report:
    """The questions and findings of one run of the command `report`.

    Attributes:
        result: Facts and options of the run: whether unsealed values were accepted, and the reason for
            accepting readable parts of LangGraph's Store and caches, if any.
        period: Period of the listed changes; ``None`` for all time.
        parts: Findings about each database.
        entries: Key entries of the ring; ``None`` without a ring.
        keys_problem: Class of the error that made keys unavailable; ``None`` without an error.
        changes: The ledger's entries in the period; ``None`` without a ledger.
        threads: Identifier of the thread store that was compared.
        pin: Pin of the thread store, as the reader gave it.
        pin_reason: Reason why the thread store is not shown to continue the log of the pin.
        no_heads: Reason why no thread store was compared; ``None`` if one was compared.
        command: Command line that creates the same report again.
    """

    result: Result
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

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object, see ``schemas/report-1.json``."""
        answers = verdicts(self)
        found = {reason for verdict in answers for reason in verdict.reasons}
        reasons = [reason for reason in ORDER if reason in found]
        self.result.add(*reasons)
        openings = [part.opening for part in self.parts if part.opening is not None]
        counts = {
            "rows": sum(part.rows for part in self.parts),
            "opened": sum(opening.opened for opening in openings),
            "failed": sum(opening.failures.count for opening in openings),
            **{word.replace(" ", "_"): sum(each.word == word for each in answers) for word in WORDS.values()},
        }
        self.result.end(counts)
        document = {
            **self.result.head(),
            "schema": SCHEMA,
            "period": self.period and self.period.object(),
            "questions": [verdict.object() for verdict in answers],
            "limits": list(limits(self)),
            "databases": [part.object() for part in self.parts],
            "keys": None if self.entries is None else list(key_objects(self)),
            "keys_problem": self.keys_problem,
            "changes": self.changes and self.changes.object(),
            "erasures": self.changes and self.changes.erasures(self.entries or ()),
            "integrity": {
                "threads": self.threads,
                "pin": self.pin and self.pin._asdict(),
                "continues": None
                if self.pin is None
                else answer([self.pin_reason] if self.pin_reason else []),
            },
            "exceptions": [
                {"exception": name, "key": key_id, "sentence": sentence}
                for name, key_id, sentence in exceptions(self)
            ],
            "again": {"command": self.command},
            **self.result.tail(),
            "reasons": [each.value for each in reasons],
        }
        self.result.report = document
        return document


def text_of(document: dict[str, Any]) -> str:
    """Return an object as JSON text for a file, in ASCII: its bytes do not depend on an encoding."""
    return json.dumps(document, indent=2) + "\n"


_SHOWN_CHARS: Final = 120
_SHORT_CHARS: Final = 16
_DASH: Final = "\N{EN DASH}"


def render_page(document: dict[str, Any]) -> str:
    """Return the HTML page of a report, given as its JSON object.

    Raises:
        MissingExtraError: If Jinja2 is not installed.
    """
    text = text_of(document)
    return load_template().render(
        report=document,
        text=text,
        digest=hashlib.sha256(text.encode("ascii")).hexdigest(),
        dates=[name for name in DATES if name != "expires"],  # "expires" has a column in another table
        lines=LINES,
    )


@cache
def load_template() -> Template:
    """Return the Jinja2 template of the page, compiled once."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "evidence") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "plain": _plain,
        "visible": _visible,
        "short": _short,
        "number": _number,
        "moment": _moment,
    }
    source = (
        resources.files("sealpoint.admin.evidence.report")
        .joinpath("page.html.j2")
        .read_text(encoding="utf-8")
    )
    return environment.from_string(source)


def _plain(text: object) -> str:
    """Return a text, shortened, in which codes replace unprintable characters."""
    whole = str(text)
    return _visible(whole if len(whole) <= _SHOWN_CHARS else f"{whole[: _SHOWN_CHARS - 1]}…")


def _visible(text: object) -> str:
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


def _short(text: object) -> str:
    whole = _plain(text)
    return whole if len(whole) <= _SHORT_CHARS else f"{whole[:_SHORT_CHARS]}…"


def _number(value: int | None) -> str:
    return _DASH if value is None else f"{value:,}".replace(",", "\u202f")


def _moment(text: str | None) -> str:
    return _DASH if text is None else text.replace("T", " ").removesuffix("Z")
