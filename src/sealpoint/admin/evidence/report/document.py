"""The report: one JSON object, and the page that is made from it alone.

The page is one HTML file that loads nothing and runs nothing.

Text from databases and rings is escaped by Jinja2. What does not print, such as a mark that reverses the
direction of text, is shown as its code, and long texts are shortened. The object stands at the end of the
page, byte for byte, so the page alone is enough to check its digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from sealpoint.admin.evidence.report.questions import WORDS, verdicts
from sealpoint.admin.evidence.report.sources import MAX_NAME_CHARS, ORDER, Changes, Part, Period, Why, key_of
from sealpoint.admin.evidence.verify import BEGUN
from sealpoint.admin.maintenance.result import AnyReason, Reason, Result, answer
from sealpoint.base.checkpoint import UUID
from sealpoint.crypto.suites import SUITES
from sealpoint.errors import MissingExtraError
from sealpoint.keys.entry import DATABASE_CHECK, DATES, MATERIAL_REMOVED, RELATION_CHECK, RingEntry
from sealpoint.keys.state import KEY_BYTES, LEGACY, KeyState
from sealpoint.utc import format_utc

if TYPE_CHECKING:
    from jinja2 import Template

    from sealpoint.admin.maintenance.heads import Pin
    from sealpoint.admin.maintenance.status import Share

_ALL: Final = "AES-256-GCM"
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)


def key_objects(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the keys as JSON, in the order of the ring."""
    openings = [part.opening for part in report.parts if part.opening is not None]
    for entry in report.entries or ():
        name = LEGACY if entry.suite == LEGACY else entry.id
        shares = [share for part in report.parts for share in part.shares if key_of(share) == name]
        times = {field: getattr(entry, field) for field in DATES}
        period = report.period
        yield {
            "id": entry.id,
            "state": entry.state.value,
            "algorithms": _algorithms(entry, shares),
            # The material of LANGGRAPH_AES_KEY is checked by LangGraph, and may be shorter.
            "bits": None if name == LEGACY else KEY_BYTES * 8,
            "owner": entry.owner and entry.owner[:MAX_NAME_CHARS],
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
            "last_use": _last_use([opening.run.newest.get(name, "") for opening in openings]),
        }


def _algorithms(entry: RingEntry, shares: Iterable[Share]) -> list[str]:
    """Return the algorithms of the suites that were found; without values, what all suites have."""
    if entry.suite == LEGACY:
        from sealpoint.crypto.legacy import LegacyAes  # as in `make_suite`

        return [LegacyAes.DESCRIPTION]
    suites = sorted({share.suite for share in shares if share.suite is not None})
    return [SUITES[suite].DESCRIPTION if suite in SUITES else suite for suite in suites] or [_ALL]


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


_ALWAYS: Final = (
    "The clock, the host and the account are those that this program was given. None is authenticated.",
    "Nothing here is signed. The SHA-256 of the report shows that it is unchanged only if it is kept where"
    " the operators of the agents cannot write.",
    "It describes one moment of the databases that are named under Scope, and only the tables that were read."
    " LangGraph's Store and its caches are never sealed by a saver.",
    "Any holder of the keys can make values that open. A value that opens was made with the key, not by a"
    " particular account.",
    "Reading is not logged: that no value was read before is not shown.",
    "Backups, replicas, archives and memory of processes are not examined, and neither are copies of keys.",
    "A destroyed key is one that the ring no longer uses. Copies of its material are not searched for.",
    "The times of keys are those of the ring file. An account that can write the file can change them.",
)


def limits(report: Report) -> Iterator[str]:
    """Yield what a report does not prove."""
    if report.no_heads is not None:
        yield (
            "That no checkpoint was deleted, or replaced by an earlier state of itself: only a thread store"
            " remembers them, and none was compared."
        )
    elif report.pin_reason is Why.NO_PIN:
        yield (
            "That the thread store and the database were not put back together to an earlier state: only a"
            " pin that is kept elsewhere shows that, and none was given."
        )
    if report.changes is None:
        yield (
            "What happened to keys and databases before this moment: no ledger is configured, so only the"
            " ring's own dates are shown."
        )
    else:
        yield "What was done without the commands of sealpoint: the ledger records these alone."
    yield from _ALWAYS


def exceptions(report: Report) -> Iterator[dict[str, Any]]:
    """Yield each check that was waived, and each option and state that weakens what is shown."""
    accepted = sum(part.opening.run.accepted for part in report.parts if part.opening)
    if report.allow_plaintext:
        yield _exception(
            "allow-plaintext", None, f"values that no key authenticates were accepted: {accepted}"
        )
    elif accepted:
        yield _exception(
            "legacy-accepted",
            None,
            f"values under LANGGRAPH_AES_KEY, which authenticates no type, were accepted: {accepted}",
        )
    for entry in report.entries or ():
        yield from _of_key(entry)
    for recorded in report.changes.entries if report.changes else ():
        for name in recorded["waived"] if recorded["outcome"] != BEGUN else ():
            yield _exception(
                str(name), None, f"waived by {recorded['event']}, entry {recorded['seq']} of the ledger"
            )


def _of_key(entry: RingEntry) -> Iterator[dict[str, Any]]:
    is_destroyed = entry.state is KeyState.DESTROYED
    gone = "it was gone before" if entry.material == "gone-before" else "it must be removed at its source"
    cases = (
        (
            DATABASE_CHECK,
            is_destroyed and DATABASE_CHECK in entry.waived,
            "no database was examined before the key was destroyed",
        ),
        (
            RELATION_CHECK,
            is_destroyed and RELATION_CHECK in entry.waived,
            "a database without values under any key of the ring was accepted",
        ),
        (
            "material-not-removed",
            is_destroyed and entry.material != MATERIAL_REMOVED,
            f"no run removed the key's material: {gone}",
        ),
        ("compromised", entry.is_compromised, "the key was marked as compromised"),
        (
            "staged-opens",
            entry.state is KeyState.STAGED,
            "the key is staged and opens values; in NIST SP 800-57 no key is used before its activation",
        ),
        ("inline-material", entry.source == "inline", "the material stands in the ring file"),
    )
    for name, applies, sentence in cases:
        if applies:
            yield _exception(name, entry.id, sentence)


def _exception(name: str, key_id: str | None, sentence: str) -> dict[str, Any]:
    return {"exception": name, "key": key_id, "sentence": sentence}


SCHEMA: Final = "urn:sealpoint:report:1"


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

    def document(self) -> dict[str, Any]:
        """Return the object: see ``schemas/report-1.json``."""
        answers = verdicts(self.parts, self.entries, self.changes, self.pin_reason, self.no_heads)
        found = {reason for verdict in answers for reason in verdict.reasons}
        reasons = [reason for reason in ORDER if reason in found]
        self.result.add(*(reason for reason in reasons if isinstance(reason, Reason)))
        openings = [part.opening for part in self.parts if part.opening is not None]
        counts = {
            "rows": sum(part.rows for part in self.parts),
            "opened": sum(opening.opened for opening in openings),
            "failed": sum(opening.failures.count for opening in openings),
            **{word.replace(" ", "_"): sum(each.word == word for each in answers) for word in WORDS.values()},
        }
        head, tail = self.result.head(), self.result.end(counts)
        document = {
            **head,
            "schema": SCHEMA,
            "options": {"allow_plaintext": self.allow_plaintext},
            "period": self.period and self.period.object(),
            "questions": [verdict.object() for verdict in answers],
            "limits": list(limits(self)),
            "databases": [part.object() for part in self.parts],
            "keys": None if self.entries is None else list(key_objects(self)),
            "keys_problem": self.keys_problem,
            "changes": self.changes and self.changes.object(),
            "integrity": {
                "threads": self.threads,
                "pin": self.pin and self.pin._asdict(),
                "continues": None
                if self.pin is None
                else answer([self.pin_reason] if self.pin_reason else []),
            },
            "exceptions": list(exceptions(self)),
            "again": {"command": self.command},
            "ring": tail["ring"],
            "ended": tail["ended"],
            "ok": answer(reasons),
            "reasons": [each.value for each in reasons],
        }
        self.result.report = document
        return document


def text_of(document: dict[str, Any]) -> str:
    """Return an object as it is written to files: ASCII, so that its bytes are the same everywhere."""
    return json.dumps(document, indent=2) + "\n"


_SHOWN_CHARS: Final = 120
_SHORT_CHARS: Final = 16
_DASH: Final = "\N{EN DASH}"


def render_page(document: dict[str, Any]) -> str:
    """Return the page of a report.

    Raises:
        MissingExtraError: If Jinja2 is not installed.
    """
    text = text_of(document)
    return load_template().render(
        report=document, text=text, digest=hashlib.sha256(text.encode("ascii")).hexdigest()
    )


@cache
def load_template() -> Template:
    """Load the template, and compile it once."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "evidence") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "plain": plain,
        "visible": visible,
        "short": short,
        "number": number,
        "moment": moment,
    }
    source = (
        resources.files("sealpoint.admin.evidence.report")
        .joinpath("page.html.j2")
        .read_text(encoding="utf-8")
    )
    return environment.from_string(source)


def plain(text: object) -> str:
    """Return a text without characters that do not print, and not too long."""
    whole = str(text)
    return visible(whole if len(whole) <= _SHOWN_CHARS else f"{whole[: _SHOWN_CHARS - 1]}…")


def visible(text: object) -> str:
    """Return a text with the codes of characters that do not print."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


def short(text: object) -> str:
    """Return the beginning of an id or a digest, marked as shortened."""
    whole = plain(text)
    return whole if len(whole) <= _SHORT_CHARS else f"{whole[:_SHORT_CHARS]}…"


def number(value: int | None) -> str:
    """Return a number with its thousands apart; a dash for none."""
    return _DASH if value is None else f"{value:,}".replace(",", "\u202f")


def moment(text: str | None) -> str:
    """Return a time for people; a dash for none."""
    return _DASH if text is None else text.replace("T", " ").removesuffix("Z")
