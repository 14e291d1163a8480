"""What a report does not prove, and what was waived: as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sealpoint.evidence.report.questions import Facts
from sealpoint.evidence.report.why import Why
from sealpoint.evidence.verify import BEGUN
from sealpoint.keys.entry import DATABASE_CHECK, MATERIAL_REMOVED, RELATION_CHECK
from sealpoint.keys.state import KeyState

if TYPE_CHECKING:
    from sealpoint.keys.entry import RingEntry

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


def limits(facts: Facts) -> list[str]:
    """Return what the report does not prove."""
    return [*_of_this(facts), *_ALWAYS]


def _of_this(facts: Facts) -> Iterator[str]:
    if facts.no_heads is not None:
        yield (
            "That no checkpoint was deleted, or replaced by an earlier state of itself: only a thread store"
            " remembers them, and none was compared."
        )
    elif facts.pin is Why.NO_PIN:
        yield (
            "That the thread store and the database were not put back together to an earlier state: only a"
            " pin that is kept elsewhere shows that, and none was given."
        )
    if facts.changes is None:
        yield (
            "What happened to keys and databases before this moment: no ledger is configured, so only the"
            " ring's own dates are shown."
        )
    else:
        yield "What was done without the commands of sealpoint: the ledger records these alone."


def exceptions(facts: Facts, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each check that was waived, and each option and state that weakens what is shown."""
    accepted = sum(part.opening.run.accepted for part in facts.parts if part.opening)
    if options["allow_plaintext"]:
        yield _exception(
            "allow-plaintext", None, f"values that no key authenticates were accepted: {accepted}"
        )
    elif accepted:
        sentence = f"values under LANGGRAPH_AES_KEY, which authenticates no type, were accepted: {accepted}"
        yield _exception("legacy-accepted", None, sentence)
    for entry in facts.entries or ():
        yield from _of_key(entry)
    for recorded in facts.changes.entries if facts.changes else ():
        yield from _of_recorded(recorded)


def _of_key(entry: RingEntry) -> Iterator[dict[str, Any]]:
    if entry.state is KeyState.DESTROYED:
        yield from _of_destroyed(entry.id, entry.waived, entry.material)
    if entry.is_compromised:
        yield _exception("compromised", entry.id, "the key was marked as compromised")
    if entry.state is KeyState.STAGED:
        sentence = (
            "the key is staged and opens values; in NIST SP 800-57 no key is used before its activation"
        )
        yield _exception("staged-opens", entry.id, sentence)
    if entry.source == "inline":
        yield _exception("inline-material", entry.id, "the material stands in the ring file")


def _of_recorded(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a run waived, by the entry of its end."""
    for name in entry["waived"] if entry["outcome"] != BEGUN else ():
        sentence = f"waived by {entry['event']}, entry {entry['seq']} of the ledger"
        yield _exception(str(name), None, sentence)


def _of_destroyed(key_id: str, waived: tuple[str, ...], material: str | None) -> Iterator[dict[str, Any]]:
    if DATABASE_CHECK in waived:
        yield _exception(DATABASE_CHECK, key_id, "no database was examined before the key was destroyed")
    if RELATION_CHECK in waived:
        yield _exception(
            RELATION_CHECK, key_id, "a database without values under any key of the ring was accepted"
        )
    if material != MATERIAL_REMOVED:
        found = "it was gone before" if material == "gone-before" else "it must be removed at its source"
        yield _exception("material-not-removed", key_id, f"no run removed the key's material: {found}")


def _exception(name: str, key_id: str | None, sentence: str) -> dict[str, Any]:
    return {"exception": name, "key": key_id, "sentence": sentence}
