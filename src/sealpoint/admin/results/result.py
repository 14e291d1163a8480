"""Results: the one maker of the JSON objects that commands print, and of what ``ok`` says in them.

``ok`` is true only if a run looked at everything that it was asked about and found it so, false if it found
otherwise, and ``None`` if it does not know: nothing was there, an option accepted values unseen, or the run
ended early. ``reasons`` says why it is not true. `SCHEMA` names the JSON Schema of all objects, which is
``schemas/result-1.json`` in the package `sealpoint`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, Protocol
from uuid import uuid4

from sealpoint.admin.results.reasons import AnyReason, Reason, answer
from sealpoint.utc import now

MAX_TABLES: Final = 1_000  # how many tables that are not read are named; the others are counted

SCHEMA: Final = "urn:sealpoint:result:1"
BEGUN: Final = "begun"  # in the ledger, the outcome of a run that has not ended

_DISTRIBUTIONS: Final = ("sealpoint", "cryptography", "ormsgpack", "psycopg")


class Database(Protocol):
    """What a result says about a database.

    Attributes:
        name: Its name in messages: a path, or a URL without a password.
        kind: ``sqlite`` or ``postgres``.
    """

    name: str
    kind: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells it from a copy and from another database of the same name."""

    @property
    def missing_tables(self) -> tuple[str, ...]:
        """The tables that every saver or Store makes, and that are not there though others of it are."""

    def tables(self) -> Sequence[Any]:
        """Return all its tables."""


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

    def looks_at(self, store: Database) -> dict[str, Any]:
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
        if store.missing_tables:
            self.add(Reason.TABLES_MISSING)
        self._parts.append(found)
        return found

    def add(self, *reasons: AnyReason) -> None:
        """Record why ``ok`` is not true."""
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


@cache
def _versions() -> dict[str, str]:
    import platform
    import sqlite3
    from importlib.metadata import PackageNotFoundError, version

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
