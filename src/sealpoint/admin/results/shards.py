"""Shard: a range of threads in the order of the primary keys, for one command of a run.

Ranges that begin where others end, from one without a start to one without an end, have every thread,
whatever the order is: of those that start at or below it, the last one does not end there.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Final, NamedTuple
from uuid import UUID

from sealpoint.errors import excerpt

MAX_BOUND_BYTES: Final = 200  # a server shows 1024 bytes of a statement; a mark has both bounds in hex
_HEX: Final = "((?:[0-9a-f]{2})*)"
_MARK: Final = re.compile(rf"/\* sealpoint ([0-9a-f-]{{36}}) ([a-z]+) {_HEX} {_HEX} \*/$")


class Shard(NamedTuple):
    """A range of threads. The one without a start has the items of LangGraph's Store too."""

    run: str  # a UUID of version 7, which begins with the time (RFC 9562, section 5.7)
    command: str
    threads_from: str | None = None
    threads_below: str | None = None

    def time(self) -> float:
        """Return when the run was made, in seconds since 1970, or raise an error if a part is not valid."""
        run, texts = UUID(self.run), [bound for bound in self[2:] if bound is not None]
        if (run.version, str(run)) != (7, self.run) or not all(
            0 < len(text.encode()) <= MAX_BOUND_BYTES and "\0" not in text for text in texts
        ):
            raise ValueError("the parts of a shard are not valid")
        return (run.int >> 80) / 1000

    def words(self) -> str:
        """Return what it is, for people."""
        return ", ".join(f"{name} {excerpt(part)}" for name, part in self._asdict().items() if part)

    def condition(self) -> str:
        """Return, in SQL, whether a thread is in the range."""
        bounds = ((">=", self.threads_from), ("<", self.threads_below))
        parts = [f"thread_id {sign} {as_literal(bound)}" for sign, bound in bounds if bound is not None]
        return " AND ".join(parts) or "true"

    def mark(self) -> str:
        """Return a comment in SQL from which `find_mark` reads the shard."""
        bounds = [(bound or "").encode().hex() for bound in self[2:]]
        return " ".join(["/* sealpoint", *self[:2], *bounds, "*/"])


def find_mark(statement: str | None) -> Shard | None:
    """Return the shard whose mark is at the end of a statement, if there is one."""
    run, command, *bounds = found.groups() if (found := _MARK.search(statement or "")) else ("", "")
    texts = (bytes.fromhex(bound).decode(errors="replace") or None for bound in bounds)
    return Shard(run, command, *texts) if run else None


def as_literal(text: str) -> str:
    """Return a constant in SQL, by the numbers of its characters; the planner does not know a function's."""
    return "U&'" + "".join(rf"\+{ord(sign):06x}" for sign in text) + "'"


def new_run() -> str:
    """Return the id of a new run."""
    bits = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    return str(UUID(int=bits & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62))
