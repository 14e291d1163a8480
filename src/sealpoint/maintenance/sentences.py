"""Reasons as sentences: why ``ok`` is not true, for people."""

from __future__ import annotations

from typing import Final

from sealpoint.maintenance.result import Reason

SENTENCES: Final = {
    Reason.DAMAGED: "the database is damaged, and not all of it was counted",
    Reason.VALUES_FAILED: "values do not open",
    Reason.KEYS_MISSING: "keys are not available",
    Reason.NOT_BOUND: "rows are left that are not bound to their places",
    Reason.STILL_BOUND: "rows are left that are bound to their places",
    Reason.VALUES_LEFT: "values are left that are not under the active key",
    Reason.OTHER_KEYS: "values are not under the key",
    Reason.NOT_SEALED: "values are not sealed",
    Reason.READABLE_TABLES: "tables of LangGraph that nothing seals are in the database",
    Reason.READABLE_BESIDE: "more is readable beside the values",
    Reason.TYPES_NOT_ALLOWED: "types are not on the allowlist",
    Reason.OLD_CONTENT_FOUND: "old content is still in the file",
    Reason.HEADS_DIFFER: "checkpoints are not as the thread store remembers them",
    Reason.PIN_DIFFERS: "the thread store does not continue the log that was pinned",
    Reason.NOT_ASKED: "",
    Reason.NOT_APPLIED: "this is a plan: nothing was changed",
    Reason.NO_KEYS: "the ring has no key that opens values",
    Reason.NO_ROWS: "the database has no values",
    Reason.NO_DATABASE: "no database was examined",
    Reason.TABLES_MISSING: "the database lacks tables that every saver makes",
    Reason.PARENTS_MISSING: "checkpoints name parents that are not there",
    Reason.UNBOUND: "rows are not bound to their places, although others are",
    Reason.NO_HEADS: "the thread store remembers no checkpoint",
    Reason.DELETIONS_INTERRUPTED: "deletions began and did not end: delete again, or `sealpoint heads adopt`",
    Reason.PIN_TRIMMED: "events that were pinned have been removed by `sealpoint heads trim`",
    Reason.PLAINTEXT_ALLOWED: "values that are not sealed were accepted",
    Reason.LEGACY_ALLOWED: "values under LANGGRAPH_AES_KEY, which authenticates no type, were accepted",
    Reason.NOT_OPENED: "sealed values were not opened",
    Reason.NOT_VERIFIED: "no value was opened again",
    Reason.SAMPLED: "only a sample was opened again",
    Reason.KEY_CHECK_WAIVED: "the ring was not tried first",
    Reason.DATABASE_CHECK_WAIVED: "no database was examined for values under the key",
    Reason.UNRELATED_ALLOWED: "a database without a value under any key of the ring was accepted",
    Reason.MATERIAL_NOT_REMOVED: "this run did not remove the key's material",
    Reason.OLD_CONTENT_NOT_READ: "free pages or the log of the file may hold old content, and were not read",
    Reason.OLD_VALUES_NOT_SEARCHED: "the file was searched for old tags, and not for old values",
    Reason.ENDED_EARLY: "the run ended early",
    Reason.NOT_COMPLETED: "an error ended the run",
}
