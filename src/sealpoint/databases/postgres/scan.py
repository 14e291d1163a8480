"""Walking over the rows of a Postgres table: selection, and limits of what is sent to the client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple

from sealpoint.crypto.tag import BOUND_MARK, LEGACY_END, SEALED_MARK, key_end
from sealpoint.databases.cells import Selection
from sealpoint.databases.postgres.columns import Access
from sealpoint.databases.rows import Rewritten
from sealpoint.sqlite.failures import MAX_VALUE_BYTES

_SEALED: Final = f"%{SEALED_MARK}%"
_LEGACY: Final = f"%{LEGACY_END}"
# What of a text that is too long for a tag shows whether it counts as sealed, and under which key.
SHORT_TAG: Final = f"""CASE WHEN length(tag) <= 100 THEN tag
    ELSE left(tag, 49) || CASE strpos(tag, '{SEALED_MARK}') WHEN 0 THEN ' ' ELSE '{SEALED_MARK}' END
        || right(tag, 50) END"""


class Bound(NamedTuple):
    """The end of a batch.

    Attributes:
        key: The primary key of its last row.
        rows: How many there are.
        is_last: Whether it is the last batch.
        is_oversized: Whether it is one row that is too large to be read.
    """

    key: tuple[Any, ...]
    rows: int
    is_last: bool
    is_oversized: bool = False

    @property
    def next(self) -> tuple[Any, ...] | None:
        """The key after which the next batch begins."""
        return None if self.is_last else self.key


def bound_of(found: Sequence[tuple[Any, ...]], rows: int, size_bytes: int) -> Bound | None:
    """Return the end of a batch of ``rows``, and about ``size_bytes``, from the next rows' sizes and keys.

    Returns:
        ``None`` if there are no rows.
    """
    before: tuple[Any, ...] = ()
    for place, (size, *key) in enumerate(found, 1):
        if size > MAX_VALUE_BYTES:  # it is a batch of its own
            return Bound(before or tuple(key), max(place - 1, 1), is_last=False, is_oversized=not before)
        before = tuple(key)
        size_bytes -= size
        if size_bytes <= 0 or place == rows:
            return Bound(before, place, is_last=False)
    return Bound(before, len(found), is_last=True) if found else None


@dataclass(slots=True)
class Pass:
    """The state of a walk of `rewrite` over all tables.

    Attributes:
        seen: Values that were read.
        changed: Values that were changed, by this run or by others.
        locked: Values that other sessions had locked.
    """

    seen: int = 0
    changed: int = 0
    locked: int = 0

    @property
    def is_stuck(self) -> bool:
        """Whether another pass can do nothing until other sessions release their locks."""
        return self.locked > 0 and not self.changed

    def add(self, rows: int, done: Rewritten) -> None:
        """Add a batch; ``rows`` is its number of rows before locking."""
        self.seen += done.seen
        self.changed += done.changed + done.raced
        self.locked += max(0, rows - done.seen)


def condition(access: Access, primary: str, after: Any, selection: Selection) -> tuple[str, tuple[Any, ...]]:
    """Return the condition after WHERE: `Selection.takes` in SQL.

    Args:
        access: The column.
        primary: The columns of the primary key.
        after: The primary key after which rows are selected; ``None`` at the start.
        selection: The selection.
    """
    tag, parts, parameters = f"coalesce({access.tag}, '')", [access.holds], []
    if after is not None:
        parts.append(f"({primary}) > ({places(after)})")
        parameters.extend(after)
    if selection.bound is not None:
        parts.append(f"{tag} {'' if selection.bound else 'NOT '}LIKE %s")
        parameters.append(f"{_SEALED}{BOUND_MARK}%")
    if not selection.plaintext:
        parts.append(f"{tag} LIKE %s")
        parameters.append(_SEALED)
    if not selection.legacy:
        parts.append(f"{tag} NOT LIKE %s")
        parameters.append(_LEGACY)
    if selection.without_key is not None:
        parts.append(f"{tag} NOT LIKE %s")
        parameters.append(_under(selection.without_key))
    if selection.with_key is not None:
        parts.append(f"({tag} LIKE %s OR {tag} LIKE %s OR {tag} NOT LIKE %s)")
        parameters += [_under(selection.with_key), _LEGACY, _SEALED]
    if selection.thread_id is not None:
        parts.append("thread_id = %s")
        parameters.append(selection.thread_id)
    return " AND ".join(parts), tuple(parameters)


def _under(key_id: str) -> str:
    """Return the LIKE pattern of tags that name a key; ids contain no wildcards."""
    return _SEALED + re.sub(r"([\\%_])", r"\\\1", key_end(key_id))


def size_of(access: Access) -> str:
    """Return the number of bytes sent for a row, in SQL; key and tag may be forged and large."""
    texts = [access.tag, *(column for column in access.column.key if column != "idx"), *access.beside]
    excess = [f"greatest(octet_length({text}) - 1000, 0)" for text in texts]
    return " + ".join([f"coalesce({access.size}, 0)::bigint", *excess])


def places(values: Sequence[Any]) -> str:
    """Return a placeholder for each value."""
    return ", ".join(["%s"] * len(values))


def locked_since(start: float, done: Rewritten) -> Rewritten:
    """Add the time during which rows were locked, until the end of their transaction."""
    return done._replace(lock_seconds=perf_counter() - start) if done.seen else done
