"""Reasons: why the answer of a run is not yes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, Self, TypeVar


class AnyReason(StrEnum):
    """Why an answer is not yes: a sentence for people, and whether it refutes, so that the answer is no."""

    sentence: str
    refutes: bool

    def __new__(cls, name: str, sentence: str, refutes: bool = False) -> Self:
        """Make a member, the value of which is its name alone."""
        made = str.__new__(cls, name)
        made._value_, made.sentence, made.refutes = name, sentence, refutes
        return made


def answer(reasons: Collection[AnyReason]) -> bool | None:
    """Return the answer for which these are the reasons: ``None`` if they leave it open."""
    return False if any(reason.refutes for reason in reasons) else None if reasons else True


class Reason(AnyReason):
    """Why ``ok`` is not true."""

    DAMAGED = "damaged", "a part of the database cannot be read, and not all of it was counted", True
    VALUES_FAILED = "values-failed", "values do not open", True
    KEYS_MISSING = "keys-missing", "keys are not available", True
    NONE_OPENS = (
        "none-opens",
        "no value under a key of the ring opens: it is another key, or all were changed",
        True,
    )
    WRAPPERS_FAILING = "wrappers-failing", "a wrapper does not wrap and unwrap, or will soon fail", True
    VALUES_LEFT = "values-left", "values are left that are not under the active key", True
    NOT_BOUND = "not-bound", "rows are left that are not bound to their places", True
    STILL_BOUND = "still-bound", "rows are left that are bound to their places", True
    OTHER_KEYS = "other-keys", "values are not under the key", True
    NOT_SEALED = "not-sealed", "values are not sealed", True
    READABLE_TABLES = "readable-tables", "tables of LangGraph are in the database that are not read", True
    READABLE_BESIDE = "readable-beside", "more is readable beside the values", True
    TYPES_NOT_ALLOWED = "types-not-allowed", "types are not on the allowlist", True
    OLD_CONTENT_FOUND = "old-content-found", "old content is still in the file", True
    HEADS_DIFFER = "heads-differ", "checkpoints are not as the thread store remembers them", True
    PIN_DIFFERS = "pin-differs", "the thread store does not continue the log that was pinned", True
    LEDGER_BROKEN = "ledger-broken", "the entries of the ledger are not those that were signed", True
    LEDGER_DIFFERS = "ledger-differs", "the ledger does not continue the head that was pinned", True
    SIGNER_WRONG = "signer-wrong", "the ledger is not signed with the verifier key", True
    DOCUMENTS_MISSING = "documents-missing", "documents of the ledger are missing or were changed", True
    CAME_BACK = "came-back", "rows that were erased are there again, or may be", True
    OVERDUE = "overdue", "erasures are not complete by their dates", True
    NOT_ASKED = "not-asked", ""
    NOT_APPLIED = "not-applied", "this is a plan: nothing was changed"
    NO_KEYS = "no-keys", "the ring has no key that opens values"
    NO_ROWS = "no-rows", "the database has no values, or no checkpoints"
    NO_DATABASE = "no-database", "no database was examined"
    KEY_IN_USE = "key-in-use", "databases have values under the key, which do not open now"
    TABLES_MISSING = "tables-missing", "the database lacks tables that LangGraph makes"
    PARENTS_MISSING = "parents-missing", "checkpoints name parents that are not there"
    UNBOUND = "unbound", "rows are not bound to their places, although others are"
    NO_HEADS = "no-heads", "the thread store remembers no checkpoint"
    DELETIONS_INTERRUPTED = (
        "deletions-interrupted",
        "deletions began and did not end: delete again, or `sealpoint heads adopt`",
    )
    PIN_TRIMMED = "pin-trimmed", "events that were pinned have been removed by `sealpoint heads trim`"
    PIN_EMPTY = "pin-empty", "the thread store had no events when it was pinned"
    PLAINTEXT_ALLOWED = "plaintext-allowed", "values that are not sealed were accepted"
    STORE_ALLOWED = "store-allowed", "what LangGraph's Store and caches leave readable was accepted"
    LEGACY_ALLOWED = (
        "legacy-allowed",
        "values under LANGGRAPH_AES_KEY, which authenticates no type, were accepted",
    )
    NOT_OPENED = "not-opened", "values that need a key were not opened"
    NOT_VERIFIED = "not-verified", "no value was opened again"
    SAMPLED = "sampled", "only a sample was opened again"
    KEY_CHECK_WAIVED = "key-check-waived", "the ring was not tried first"
    DATABASE_CHECK_WAIVED = (
        "database-check-waived",
        "the search of databases for values under the key was waived",
    )
    UNRELATED_ALLOWED = (
        "unrelated-allowed",
        "a database without a value under any key of the ring was accepted",
    )
    MATERIAL_NOT_REMOVED = "material-not-removed", "this run did not remove the key's material"
    OLD_CONTENT_NOT_READ = (
        "old-content-not-read",
        "parts of the file that no statement reads may hold old content",
    )
    OLD_TEXT_READABLE = "old-text-readable", "text of old values also stands in readable columns"
    OLD_VALUES_NOT_SEARCHED = (
        "old-values-not-searched",
        "the file was searched for old tags, and not for old values",
    )
    NOT_COMPARED = "not-compared", "the ledger does not name all ids that were erased"
    SIGNER_NOT_GIVEN = "signer-not-given", "no verifier key was given"
    PIN_NOT_GIVEN = "pin-not-given", "no earlier head was given to compare with"
    NO_ENTRIES = "no-entries", "the ledger has no entries"
    APPEND_UNFINISHED = "append-unfinished", "the writing of an entry has begun and not ended"
    NOT_A_RESULT = "not-a-result", "files are not what a command printed with --json for a range of a run"
    RANGES_MISSING = "ranges-missing", "results of ranges are missing"
    RANGES_OVERLAP = "ranges-overlap", "results are of the same threads"
    RUNS_DIFFER = "runs-differ", "results are of several runs, commands or options"
    DATABASES_DIFFER = "databases-differ", "results are of several databases, or do not say of which server"
    RINGS_DIFFER = "rings-differ", "results are of several rings, or of one that was changed meanwhile"
    BEGAN_BEFORE = "began-before", "results are of before their run"
    NOT_RECORDED = "not-recorded", "no verified ledger has the digests of all results"
    ENDED_EARLY = "ended-early", "the run ended early"
    NOT_COMPLETED = "not-completed", "an error ended the run"


R = TypeVar("R", bound=AnyReason)

REFUTING: Final = frozenset(reason for reason in Reason if reason.refutes)


def applying(reasons: Mapping[R, object]) -> list[R]:
    """Return the reasons that apply, in their order."""
    return [reason for reason, applies in reasons.items() if applies]
