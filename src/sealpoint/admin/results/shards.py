"""A shard is a range of thread ids, in the order of the primary key, for one command of a divided run.

If each range begins where another ends, one range has no start, and one has no end, every thread id is in a
range, in any collation: the last of the ranges that start at or below the id contains the id.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Final, NamedTuple
from uuid import UUID

from sealpoint.errors import excerpt

MAX_BOUND_BYTES: Final = 200  # a server shows 1024 bytes of a statement, and a mark has both bounds in hex
_HEX: Final = "((?:[0-9a-f]{2})*)"
_MARK: Final = re.compile(rf"/\* sealpoint ([0-9a-f-]{{36}}) ([a-z]+) {_HEX} {_HEX} \*/$")


class Shard(NamedTuple):
    """A range of threads. The range without a start also includes the items of LangGraph's Store."""

    run: str  # UUID of version 7, which begins with its time (RFC 9562, section 5.7)
    command: str
    threads_from: str | None = None
    threads_below: str | None = None

    def time(self) -> float:
        """Return when the run began, in seconds since 1970; raise ValueError if a field is invalid."""
        run, texts = UUID(self.run), [bound for bound in self[2:] if bound is not None]
        if (run.version, str(run)) != (7, self.run) or not all(
            0 < len(text.encode()) <= MAX_BOUND_BYTES and "\0" not in text for text in texts
        ):
            raise ValueError("the members of a shard are not valid")
        return (run.int >> 80) / 1000

    def words(self) -> str:
        """Return the shard as text for messages."""
        return ", ".join(f"{name} {excerpt(part)}" for name, part in self._asdict().items() if part)

    def condition(self) -> str:
        """Return the SQL condition that ``thread_id`` is in the range."""
        bounds = ((">=", self.threads_from), ("<", self.threads_below))
        parts = [f"thread_id {sign} {as_literal(bound)}" for sign, bound in bounds if bound is not None]
        return " AND ".join(parts) or "true"

    def mark(self) -> str:
        """Return the shard as a SQL comment, which `find_mark` parses."""
        bounds = [(bound or "").encode().hex() for bound in self[2:]]
        return " ".join(["/* sealpoint", *self[:2], *bounds, "*/"])


def find_mark(statement: str | None) -> Shard | None:
    """Return the shard that a comment of `Shard.mark` at the end of a SQL statement names, or ``None``."""
    run, command, *bounds = found.groups() if (found := _MARK.search(statement or "")) else ("", "")
    texts = (bytes.fromhex(bound).decode(errors="replace") or None for bound in bounds)
    return Shard(run, command, *texts) if run else None


def as_literal(text: str) -> str:
    """Return text as a SQL literal, so that the planner can estimate rows: it cannot for a function call."""
    return "U&'" + "".join(rf"\+{ord(sign):06x}" for sign in text) + "'"


def new_run() -> str:
    """Return a new id for a run, a UUID of version 7."""
    bits = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    return str(UUID(int=bits & ~(0xF << 76 | 3 << 62) | 7 << 76 | 2 << 62))
