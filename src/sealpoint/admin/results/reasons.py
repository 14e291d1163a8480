"""Reasons why the answer of a run is not yes, so that ``ok`` is not true."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, Self, TypeVar


class AnyReason(StrEnum):
    """A reason why the answer is not yes: a name, a sentence, and whether it refutes (the answer is no)."""

    sentence: str
    refutes: bool

    def __new__(cls, name: str, sentence: str, refutes: bool = False) -> Self:
        """Make an enum member whose value is ``name``; the sentence and ``refutes`` are attributes."""
        made = str.__new__(cls, name)
        made._value_, made.sentence, made.refutes = name, sentence, refutes
        return made


def answer(reasons: Collection[AnyReason]) -> bool | None:
    """Return ``ok``: true without reasons, false if a reason refutes, otherwise ``None`` (not proven)."""
    return False if any(reason.refutes for reason in reasons) else None if reasons else True


class Reason(AnyReason):
    """A reason why ``ok`` is not true."""

    DAMAGED = "damaged", "a part of the database cannot be read, so not all values were counted", True
    VALUES_FAILED = "values-failed", "values do not open", True
    KEYS_MISSING = "keys-missing", "keys are not available", True
    NONE_OPENS = (
        "none-opens",
        "no value under a key of the ring opens: the ring has another key, or all values were changed",
        True,
    )
    WRAPPERS_FAILING = "wrappers-failing", "a wrapper does not wrap and unwrap, or will soon fail", True
    VALUES_LEFT = "values-left", "some values are not under the active key", True
    NOT_BOUND = "not-bound", "some rows are not bound to their places", True
    STILL_BOUND = "still-bound", "some rows are still bound to their places", True
    OTHER_KEYS = "other-keys", "some values are under other keys, or not sealed", True
    NOT_SEALED = "not-sealed", "some values are not sealed", True
    READABLE_TABLES = "readable-tables", "LangGraph has tables in the database that were not read", True
    READABLE_BESIDE = "readable-beside", "more text is readable outside of values", True
    TYPES_NOT_ALLOWED = "types-not-allowed", "values name types that are not on the allowlist", True
    OLD_CONTENT_FOUND = "old-content-found", "old content is still in the file", True
    HEADS_DIFFER = "heads-differ", "checkpoints differ from their records in the thread store", True
    PIN_DIFFERS = "pin-differs", "the thread store does not continue the log of the pin", True
    LEDGER_BROKEN = "ledger-broken", "the entries of the ledger do not match its signature", True
    LEDGER_DIFFERS = "ledger-differs", "the ledger does not continue the pinned head", True
    SIGNER_WRONG = "signer-wrong", "the ledger has no valid signature of the verifier key", True
    DOCUMENTS_MISSING = "documents-missing", "documents of the ledger are missing or were changed", True
    CAME_BACK = "came-back", "erased rows came back, or may have", True
    OVERDUE = "overdue", "erasures are not complete by their due dates", True
    NOT_ASKED = "not-asked", ""
    NOT_APPLIED = "not-applied", "this is a plan: nothing was changed"
    NO_KEYS = "no-keys", "the ring has no key that opens values"
    NO_ROWS = "no-rows", "the database has no values, or no checkpoints"
    NO_DATABASE = "no-database", "no database was examined"
    KEY_IN_USE = "key-in-use", "databases have values under the key, which no longer open"
    TABLES_MISSING = "tables-missing", "the database lacks tables that LangGraph creates"
    PARENTS_MISSING = "parents-missing", "parents of some checkpoints are missing"
    UNBOUND = "unbound", "some rows are bound to their places, but others are not"
    NO_HEADS = "no-heads", "the thread store has no checkpoints"
    DELETIONS_INTERRUPTED = (
        "deletions-interrupted",
        "deletions began but did not complete: delete again, or `sealpoint heads adopt`",
    )
    PIN_TRIMMED = "pin-trimmed", "`sealpoint heads trim` has removed events that the pin covers"
    PIN_EMPTY = "pin-empty", "the thread store had no events when the pin was made"
    PLAINTEXT_ALLOWED = "plaintext-allowed", "unsealed values were accepted"
    STORE_ALLOWED = "store-allowed", "unsealed values of LangGraph's Store and caches were accepted"
    LEGACY_ALLOWED = (
        "legacy-allowed",
        "values under LANGGRAPH_AES_KEY, whose types are not authenticated, were accepted",
    )
    NOT_OPENED = "not-opened", "sealed values were not opened"
    NOT_VERIFIED = "not-verified", "values were not opened again for verification"
    SAMPLED = "sampled", "only a sample of values was opened again for verification"
    KEY_CHECK_WAIVED = "key-check-waived", "the ring's keys were not tested first"
    DATABASE_CHECK_WAIVED = (
        "database-check-waived",
        "databases were not searched for values under the key",
    )
    UNRELATED_ALLOWED = (
        "unrelated-allowed",
        "a database without a value under any key of the ring was accepted",
    )
    MATERIAL_NOT_REMOVED = "material-not-removed", "this run did not remove the key's material"
    OLD_CONTENT_NOT_READ = (
        "old-content-not-read",
        "parts of the file that no SQL statement reads may contain old content",
    )
    OLD_TEXT_READABLE = "old-text-readable", "text of old values is also in readable columns"
    OLD_VALUES_NOT_SEARCHED = (
        "old-values-not-searched",
        "the file was searched for old tags, but not for old values",
    )
    NOT_COMPARED = "not-compared", "the ledger does not name all erased ids"
    SIGNER_NOT_GIVEN = "signer-not-given", "no verifier key was given"
    PIN_NOT_GIVEN = "pin-not-given", "no earlier head was given for comparison"
    NO_ENTRIES = "no-entries", "the ledger has no entries"
    APPEND_UNFINISHED = "append-unfinished", "the last entry is incomplete: its writing was interrupted"
    NOT_A_RESULT = "not-a-result", "files are not the --json output of a command on a range"
    RANGES_MISSING = "ranges-missing", "results of some ranges of the run are missing"
    RANGES_OVERLAP = "ranges-overlap", "results are of ranges that overlap"
    RUNS_DIFFER = "runs-differ", "results are of different runs, commands or options"
    DATABASES_DIFFER = "databases-differ", "results are of different databases, or do not name the server"
    RINGS_DIFFER = "rings-differ", "results are of different rings, or the ring was changed meanwhile"
    BEGAN_BEFORE = "began-before", "results are older than their run"
    NOT_RECORDED = "not-recorded", "no verified ledger has the digests of all results"
    ENDED_EARLY = "ended-early", "the run ended early"
    NOT_COMPLETED = "not-completed", "an error ended the run"


R = TypeVar("R", bound=AnyReason)

REFUTING: Final = frozenset(reason for reason in Reason if reason.refutes)


def applying(reasons: Mapping[R, object]) -> list[R]:
    """Return the reasons whose conditions are true."""
    return [reason for reason, applies in reasons.items() if applies]
