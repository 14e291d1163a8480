"""Results: the one maker of the JSON objects that commands print, and of what ``ok`` says in them.

``ok`` is true only if a run looked at everything that it was asked about and found it so, false if it found
otherwise, and ``None`` if it does not know: nothing was there, an option accepted values unseen, or the run
ended early. ``reasons`` says why it is not true. `SCHEMA` names the JSON Schema of all objects, which is
``schemas/result-1.json`` beside this package.
"""

from __future__ import annotations

import os
import platform
import pwd
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from sealpoint.keys.digest import ring_digest
from sealpoint.keys.state import KeyState
from sealpoint.utc import now

if TYPE_CHECKING:
    from pathlib import Path

    from sealpoint.databases.rows import RowStore
    from sealpoint.keys.entry import RingEntry

MAX_TABLES: Final = 1_000
"""How many tables that are not read are named; the others are counted."""

SCHEMA: Final = "urn:sealpoint:result:1"

_DISTRIBUTIONS: Final = ("sealpoint", "cryptography", "ormsgpack", "psycopg")


class Reason(StrEnum):
    """Why ``ok`` is not true. Those of `REFUTING` make it false, the others ``None``."""

    DAMAGED = "damaged"
    VALUES_FAILED = "values-failed"
    KEYS_MISSING = "keys-missing"
    WRAPPERS_FAILING = "wrappers-failing"
    VALUES_LEFT = "values-left"
    NOT_BOUND = "not-bound"
    STILL_BOUND = "still-bound"
    OTHER_KEYS = "other-keys"
    NOT_SEALED = "not-sealed"
    READABLE_TABLES = "readable-tables"
    READABLE_BESIDE = "readable-beside"
    TYPES_NOT_ALLOWED = "types-not-allowed"
    OLD_CONTENT_FOUND = "old-content-found"
    HEADS_DIFFER = "heads-differ"
    PIN_DIFFERS = "pin-differs"
    LEDGER_BROKEN = "ledger-broken"
    LEDGER_DIFFERS = "ledger-differs"
    SIGNER_WRONG = "signer-wrong"
    DOCUMENTS_MISSING = "documents-missing"
    NOT_ASKED = "not-asked"
    NOT_APPLIED = "not-applied"
    NO_KEYS = "no-keys"
    NO_ROWS = "no-rows"
    NO_DATABASE = "no-database"
    KEY_IN_USE = "key-in-use"
    TABLES_MISSING = "tables-missing"
    PARENTS_MISSING = "parents-missing"
    UNBOUND = "unbound"
    NO_HEADS = "no-heads"
    DELETIONS_INTERRUPTED = "deletions-interrupted"
    PIN_TRIMMED = "pin-trimmed"
    PIN_EMPTY = "pin-empty"
    PLAINTEXT_ALLOWED = "plaintext-allowed"
    LEGACY_ALLOWED = "legacy-allowed"
    NOT_OPENED = "not-opened"
    NOT_VERIFIED = "not-verified"
    SAMPLED = "sampled"
    KEY_CHECK_WAIVED = "key-check-waived"
    DATABASE_CHECK_WAIVED = "database-check-waived"
    UNRELATED_ALLOWED = "unrelated-allowed"
    MATERIAL_NOT_REMOVED = "material-not-removed"
    OLD_CONTENT_NOT_READ = "old-content-not-read"
    OLD_VALUES_NOT_SEARCHED = "old-values-not-searched"
    SIGNER_NOT_GIVEN = "signer-not-given"
    PIN_NOT_GIVEN = "pin-not-given"
    NO_ENTRIES = "no-entries"
    APPEND_UNFINISHED = "append-unfinished"
    ENDED_EARLY = "ended-early"
    NOT_COMPLETED = "not-completed"


REFUTING: Final = frozenset(
    {
        Reason.DAMAGED,
        Reason.VALUES_FAILED,
        Reason.KEYS_MISSING,
        Reason.WRAPPERS_FAILING,
        Reason.VALUES_LEFT,
        Reason.NOT_BOUND,
        Reason.STILL_BOUND,
        Reason.OTHER_KEYS,
        Reason.NOT_SEALED,
        Reason.READABLE_TABLES,
        Reason.READABLE_BESIDE,
        Reason.TYPES_NOT_ALLOWED,
        Reason.OLD_CONTENT_FOUND,
        Reason.HEADS_DIFFER,
        Reason.PIN_DIFFERS,
        Reason.LEDGER_BROKEN,
        Reason.LEDGER_DIFFERS,
        Reason.SIGNER_WRONG,
        Reason.DOCUMENTS_MISSING,
    }
)


class Result:
    """One run of one command: what it was asked, what it looked at, and why ``ok`` is not true.

    Attributes:
        run: Id of the run, a random UUID.
        counts: The numbers that the command found, by the names of its members.
        has_ended: Whether its last members were asked for.
        stated: What the subject of its entry in the ledger has, beside what the command was given.
    """

    def __init__(self, command: str, options: Mapping[str, Any] | None = None) -> None:
        """Begin a run.

        Args:
            command: Its name, such as ``keys list``.
            options: Those that can weaken what the run shows, with their values.
        """
        others = _collected.get()
        self.run: str = others[0].run if others else str(uuid4())
        if others is not None:
            others.append(self)
        self._command = command
        self._began = now()
        self._options = dict(options or {})
        self._ring: dict[str, Any] | None = None
        self._reasons = set[Reason]()
        self._parts = list[dict[str, Any]]()
        self.counts: dict[str, int] = {}
        self.has_ended = False
        self._evidence: Mapping[str, Any] | None = None
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

    def uses_ring(self, file: Path, entries: Sequence[RingEntry]) -> None:
        """Record the ring whose keys, or whose word about keys, the run goes by."""
        active = next((entry.id for entry in entries if entry.state is KeyState.ACTIVE), None)
        self._ring = {"file": str(file), "digest": ring_digest(entries), "active": active}

    def add(self, *reasons: Reason, when: bool = True) -> None:
        """Record why ``ok`` is not true, if ``when``."""
        if when:
            self._reasons.update(reasons)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why ``ok`` is not true: what refutes first, in the order of `Reason`."""
        return tuple(reason for reason in Reason if reason in self._reasons)

    @property
    def ok(self) -> bool | None:
        """Whether it is so; ``None`` if that was not shown."""
        if self._reasons & REFUTING:
            return False
        return None if self._reasons else True

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
            "options": self._options,
        }

    def end(self, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what the command found, and what is known when a run ends: the last members of an object."""
        self.counts |= {name: found for name, found in (body or {}).items() if type(found) is int}
        self.has_ended = True
        return {**(body or {}), **self.tail()}

    def tail(self) -> dict[str, Any]:
        """Return what is known when a run ends."""
        return {"ring": self._ring, "ended": now(), "ok": self.ok, "reasons": list(self.reasons)}

    def document(self, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the whole object around what the command found."""
        return {**self.head(), **self.end(body)}

    def evidence(self) -> dict[str, Any]:
        """Return the object without what could be of a value or a thread: databases, numbers and verdict."""
        if self._evidence is not None:
            return dict(self._evidence)
        return {**self.head(), "databases": self._parts, "counts": self.counts, **self.tail()}

    def replace_evidence(self, document: Mapping[str, Any]) -> None:
        """Let `evidence` return an object that has nothing of a value or a thread."""
        self._evidence = document


_collected: Final[ContextVar[list[Result] | None]] = ContextVar("collected", default=None)


@contextmanager
def collecting() -> Iterator[None]:
    """Collect the results that are made in a context: all are of one run, that of the first."""
    token = _collected.set([])
    try:
        yield
    finally:
        _collected.reset(token)


def collected() -> list[Result]:
    """Return the results of this run so far; none outside of `collecting`."""
    return list(_collected.get() or ())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return dict(_installed(_DISTRIBUTIONS)) | found


def _installed(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:  # psycopg is an extra
            continue


def _account() -> dict[str, Any]:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers often run as a number without a name
        name = None
    return {"uid": uid, "name": name}
