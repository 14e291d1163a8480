"""Results: the JSON objects that commands print, and their verdict ``ok``.

``ok`` is true only if a run examined everything that it was asked about, and the answer is yes; false if the
answer is no; and ``None`` if it is not proven: there was nothing to examine, an option accepted values
without examination, or the run ended early. ``reasons`` lists why ``ok`` is not true. `SCHEMA` is
the id of the JSON Schema of all objects, ``schemas/result-1.json`` in the package `sealpoint`.
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

MAX_TABLES: Final = 1_000  # number of unread tables that are listed; further ones are only counted

SCHEMA: Final = "urn:sealpoint:result:1"
BEGUN: Final = "begun"  # outcome of a begin entry in the ledger

_DISTRIBUTIONS: Final = ("sealpoint", "cryptography", "ormsgpack", "psycopg")


class Database(Protocol):
    """The attributes by which a result describes a database.

    Attributes:
        name: Name in messages: a path, or a URL without a password.
        kind: ``sqlite`` or ``postgres``.
    """

    name: str
    kind: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """JSON members that distinguish the database from its copies and from others of the same name."""

    @property
    def missing_tables(self) -> tuple[str, ...]:
        """Names of tables of LangGraph's saver or Store that are missing although its other tables exist."""

    def tables(self) -> Sequence[Any]:
        """Return all tables of the database."""


class Result:
    """The result of one run: its question, the examined databases, and the reasons if ``ok`` is not true."""

    def __init__(self, command: str, options: Mapping[str, Any] | None = None) -> None:
        self.run: str = str(uuid4())
        self._command = command
        self._began = now()
        self.options = dict(options or {})
        # The ring whose keys or key entries the run used.
        self.ring: dict[str, Any] | None = None
        self._reasons = set[AnyReason]()
        self._parts = list[dict[str, Any]]()
        self.counts: dict[str, int] = {}
        self.has_ended = False
        self.report: Mapping[str, Any] | None = None  # no ids, no contents of values
        self.stated: Mapping[str, Any] = {}

    def looks_at(self, store: Database) -> dict[str, Any]:
        """Note that a database was examined; return the JSON members that describe it and its tables."""
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
        """Add reasons why ``ok`` is not true."""
        self._reasons.update(reasons)

    def join(self, part: Result) -> None:
        """Add the result of one of several databases: its reasons are reasons of the whole result."""
        self._reasons |= part._reasons
        self._parts += part._parts
        self.ring, self.options = part.ring or self.ring, part.options or self.options
        for name, number in part.counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons why ``ok`` is not true, in the order of `Reason`; those of class `Why` are left out."""
        return tuple(reason for reason in Reason if reason in self._reasons)

    @property
    def ok(self) -> bool | None:
        """The answer to the question; ``None`` if it is not proven."""
        return answer(self._reasons)

    def head(self) -> dict[str, Any]:
        """Return the first members of the JSON object: those that are known when the run begins."""
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
        """Return the last members of the JSON object: the command's own members, ``body``, and `tail`."""
        self.counts |= {name: found for name, found in (body or {}).items() if type(found) is int}
        self.has_ended = True
        return {**(body or {}), **self.tail()}

    def tail(self) -> dict[str, Any]:
        """Return the JSON members that every command has, and that are known only when the run ends."""
        return {"ring": self.ring, "ended": now(), "ok": self.ok, "reasons": list(self.reasons)}

    def document(self, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the whole JSON object; ``body`` contains the command's own members."""
        return {**self.head(), **self.end(body)}

    def evidence(self) -> dict[str, Any]:
        """Return the JSON members for the ledger: databases, counts and ``ok``, but no values or threads."""
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
    except KeyError:  # in containers, users often have no name
        name = None
    return {"uid": uid, "name": name}
