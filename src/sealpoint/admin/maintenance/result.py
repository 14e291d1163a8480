"""Results: the one maker of the JSON objects that commands print, and of what ``ok`` says in them.

``ok`` is true only if a run looked at everything that it was asked about and found it so, false if it found
otherwise, and ``None`` if it does not know: nothing was there, an option accepted values unseen, or the run
ended early. ``reasons`` says why it is not true. `SCHEMA` names the JSON Schema of all objects, which is
``schemas/result-1.json`` in the package `sealpoint`.
"""

from __future__ import annotations

import os
import platform
import pwd
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from sealpoint.admin.databases.rows import BATCH, Batch, Failures, RowStore
from sealpoint.admin.databases.shards import Shard
from sealpoint.admin.keys.change import ring_digest
from sealpoint.admin.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.key import active_id
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.utc import now

MAX_TABLES: Final = 1_000  # how many tables that are not read are named; the others are counted

SCHEMA: Final = "urn:sealpoint:result:1"

_DISTRIBUTIONS: Final = ("sealpoint", "cryptography", "ormsgpack", "psycopg")


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


def failure_reasons(failures: Failures) -> list[Reason]:
    """Return why an answer with these is no: with another ring, values whose key is missing may open."""
    foreign = failures.foreign
    failed = not failures.lacks_keys_only or failures.unopened.keys() - {*foreign}
    lacking = failures.count and not failed and not foreign
    return applying({Reason.VALUES_FAILED: failed, Reason.KEYS_MISSING: lacking, Reason.NONE_OPENS: foreign})


def write_whole(path: Path, text: str) -> None:
    """Write a file that others read, a pin or a report, in one step; one that is there is replaced.

    The error of the system names ``path``.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        fresh.unlink(missing_ok=True)


class Result:
    """One run of one command: what it was asked, what it looked at, and why ``ok`` is not true."""

    def __init__(self, command: str, options: Mapping[str, Any] | None = None) -> None:
        self.run: str = str(uuid4())
        self._command = command
        self._began = now()
        self.options = dict(options or {})
        # The ring whose keys, or whose word about keys, the run goes by.
        self.ring: dict[str, Any] | None = None
        self._reasons = set[AnyReason]()
        self._parts = list[dict[str, Any]]()
        self.counts: dict[str, int] = {}
        self.has_ended = False
        self.report: Mapping[str, Any] | None = None  # with nothing of a value or a thread
        self.stated: Mapping[str, Any] = {}

    def looks_at(self, store: RowStore) -> dict[str, Any]:
        """Record a database, and return what the object says about it and its tables."""
        tables = store.tables()
        not_read = [table.name for table in tables if not table.is_read]
        found = {
            "database": {"name": store.name, "kind": store.kind, "identity": dict(store.identity)},
            "scope": {
                "read": [table.name for table in tables if table.is_read],
                "not_read": not_read[:MAX_TABLES],
                "others": len(not_read[MAX_TABLES:]),
                "missing": list(store.missing_tables),
            },
        }
        self.add(Reason.TABLES_MISSING, when=bool(store.missing_tables))
        self._parts.append(found)
        return found

    def add(self, *reasons: AnyReason, when: bool = True) -> None:
        """Record why ``ok`` is not true, if ``when``."""
        if when:
            self._reasons.update(reasons)

    def join(self, part: Result) -> None:
        """Add what was found in one of several databases: the reasons of each are reasons of the whole."""
        self._reasons |= part._reasons
        self._parts += part._parts
        self.ring, self.options = part.ring or self.ring, part.options or self.options
        for name, number in part.counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why ``ok`` is not true, without what a report alone says; in the order of `Reason`."""
        return tuple(reason for reason in Reason if reason in self._reasons)

    @property
    def ok(self) -> bool | None:
        """Whether it is so; ``None`` if that was not shown."""
        return answer(self._reasons)

    def head(self) -> dict[str, Any]:
        """Return what is known when a run begins: the first members of every object."""
        return {
            "schema": SCHEMA,
            "command": self._command,
            "run": self.run,
            "began": self._began,
            "versions": _versions(),
            "host": os.uname().nodename,
            "account": _account(),
            "options": self.options,
        }

    def end(self, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what the command found, and what is known when a run ends: the last members of an object."""
        self.counts |= {name: found for name, found in (body or {}).items() if type(found) is int}
        self.has_ended = True
        return {**(body or {}), **self.tail()}

    def tail(self) -> dict[str, Any]:
        """Return what is known when a run ends."""
        return {"ring": self.ring, "ended": now(), "ok": self.ok, "reasons": list(self.reasons)}

    def document(self, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the whole object around what the command found."""
        return {**self.head(), **self.end(body)}

    def evidence(self) -> dict[str, Any]:
        """Return the object without what could be of a value or a thread: databases, numbers and verdict."""
        if self.report is not None:
            return dict(self.report)
        found = {**self.head(), "databases": self._parts, "counts": self.counts, **self.tail()}
        return {**found, "options": {name: each for name, each in self.options.items() if name != "thread"}}


def describe_ring(entries: Sequence[RingEntry]) -> dict[str, Any]:
    """Return what objects and entries of the ledger say about a ring."""
    return {"digest": ring_digest(entries), "active": active_id(entries)}


@cache
def _versions() -> dict[str, str]:
    found = dict[str, str]()
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):  # psycopg is an extra
            found[name] = version(name)
    return found | {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}


def _account() -> dict[str, Any]:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers often run as a number without a name
        name = None
    return {"uid": uid, "name": name}


class Check(StrEnum):
    """How many of the rotated values are opened again at the end."""

    ALL = "all"
    SAMPLE = "sample"
    NONE = "none"


class Compress(StrEnum):
    """How values are resealed."""

    ZSTD = "zstd"
    NONE = "none"


# An UPDATE may write whole pages of the table, of its two indexes, and of TOAST.
_WAL_OF_ROW: Final = 5 * 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a job does."""

    allow_plaintext: bool = False
    allow_legacy: bool = False
    batch: Batch = BATCH
    # Batches become smaller if writers wait longer for one.
    max_lock_seconds: float = MAX_LOCK_SECONDS
    # At most; of all workers together.
    rows_per_second: float | None = None
    max_seconds: float | None = None
    # Of WAL that replicas have not replayed, before the next batch.
    max_lag_bytes: int | None = None
    # Processes; more than one only for Postgres.
    workers: int = 1
    check: Check = Check.ALL
    scrub: bool = False
    # Open some rows first, to refuse the ring of another environment.
    check_keys: bool = True
    # Compress what is resealed, or do not; None leaves each value as it is.
    compress: bool | None = None
    # Only this range of threads, for Postgres.
    shard: Shard | None = None
    # What a value may be that no key has authenticated.
    limits: Limits = DEFAULT_LIMITS

    @property
    def paced_batch(self) -> Batch:
        """The batch, with no more rows than one second may change, and no more WAL than replicas may lack."""
        rate, lag = self.rows_per_second or self.batch.rows, (self.max_lag_bytes or 2**63) // self.workers
        rows, size = min(self.batch.rows, int(rate), lag // _WAL_OF_ROW), min(self.batch.size_bytes, lag // 4)
        return replace(self.batch, rows=max(1, rows), size_bytes=max(1, size))
