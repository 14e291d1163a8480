"""Queries, and checks of rows, that thread stores in SQLite and in Postgres share.

A long result is read a page at a time, so that other calls can run between two pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

from sealpoint.errors import ThreadStoreDownError
from sealpoint.seal.heads import Head, Kind, Special
from sealpoint.seal.places import Spot
from sealpoint.threads.store import PAGE_ROWS, REPLACED, Answer, Event, parse_specials

# ruff: noqa: S608 -- statements are put together from constants, a checked name and placeholders only

SPOT: Final = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
END: Final = "SELECT coalesce(max(seq), 0) FROM {schema}heads"
CLOCK: Final = f"raised, ({END})"
IDENTITIES: Final = "SELECT identity FROM {schema}identities"
TRIMMED: Final = "SELECT trimmed FROM {schema}store"
AFTER: Final = "(thread_id, checkpoint_ns, checkpoint_id) > (?, ?, ?)"

MACS: Final = f"""
    SELECT mac FROM {{schema}}heads WHERE {SPOT} AND length(mac) > 0
    AND mac <> (SELECT mac FROM {{schema}}heads AS latest WHERE {SPOT} ORDER BY seq DESC LIMIT 1)
    GROUP BY mac ORDER BY max(seq) DESC LIMIT {REPLACED}"""

EVENTS: Final = """
    SELECT seq, at, thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM {schema}heads
    WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""


def same_spot(one: str, other: str) -> str:
    """Return the SQL condition that rows of two tables have the same thread, namespace and checkpoint id."""
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in Spot._fields)


# Events of special writes that no deletion has ended.
LIVE_SPECIAL: Final = f"""head_seq >= coalesce((
            SELECT max(seq) FROM {{schema}}heads AS deleted
            WHERE deleted.kind = {Kind.DELETED:d} AND {same_spot("deleted", "special")}), 0)"""


def specials_of(records: str, which: str) -> str:
    """Return an SQL subquery for the special writes that meet the condition ``which``, as records."""
    return f"(SELECT {records} FROM {{schema}}specials AS special WHERE {which} AND {LIVE_SPECIAL})"


# On Postgres, a replaced event may lack the mark ``gone``: a head is the last event of its checkpoint.
_LAST: Final = f"""seq = (
            SELECT max(seq) FROM {{schema}}heads AS latest WHERE {same_spot("latest", "head")})"""


def standing(records: str, live: str) -> tuple[str, str, str]:
    """Return the SQL statements NEWEST, BETWEEN and LIVE; ``live`` selects events not marked ``gone``.

    The column ``gone`` marks events that a later deletion has replaced: they are in the log, but not in the
    index of the other events. A subquery for each row is used, not a join: the database reads that index from
    its end, up to the first match.
    """
    found = f"SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac FROM {live} AND {_LAST}"
    answer = f"""
        SELECT found.*, {specials_of(records, same_spot("special", "found"))}, {CLOCK}
        FROM {{schema}}store LEFT JOIN"""
    newest = f"""{answer} (
            {found} AND thread_id = ? AND checkpoint_ns = ? AND kind = {Kind.PUT:d}
            ORDER BY checkpoint_id DESC, seq DESC LIMIT 1
        ) AS found ON true"""
    between = f"""{answer} (
            {found} AND thread_id = ? {{conditions}} AND kind <> {Kind.DELETED:d}
        ) AS found ON true"""
    # In the order of the index, so that no more of it is read than the limit.
    names = f"""
        SELECT checkpoint_ns, checkpoint_id FROM {live} AND {_LAST}
        AND thread_id = ? AND kind <> {Kind.DELETED:d}
        ORDER BY checkpoint_ns, kind, checkpoint_id LIMIT ?"""
    return newest, between, names


SPECIALS: Final = f"""
    SELECT thread_id, checkpoint_ns, checkpoint_id, {{records}}
    FROM {{schema}}specials AS special WHERE {LIVE_SPECIAL} {{conditions}}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""

# A checkpoint that was not recorded may have recorded special writes.
SPECIAL_NAMES: Final = f"""
    SELECT checkpoint_ns, checkpoint_id, max(CAST({LIVE_SPECIAL} AS integer))
    FROM {{schema}}specials AS special WHERE thread_id = ? {{conditions}}
    GROUP BY checkpoint_ns, checkpoint_id ORDER BY checkpoint_ns, checkpoint_id LIMIT ?"""


class DatabaseStore:
    """The methods of `ThreadStore` that SQLite and Postgres share; `ThreadStore` describes them.

    A subclass connects to its database, and appends events.

    A result row has the columns of a head, one column with the records of its special writes, and `CLOCK`.
    """

    _statements: ModuleType
    # Types of thread, namespace and checkpoint id in the database, and the function that converts to them
    _names: tuple[type, type, type]
    _encoded: Callable[..., tuple[Any, ...]]
    # Returns the rows of a statement that reads, with values and further conditions
    _rows: Callable[..., list[tuple[Any, ...]]]
    # Trims one page of checkpoints; returns their number and the last checkpoint, or no row at the end
    _trim_page: Callable[[int, Sequence[Any], int], list[tuple[Any, ...]]]
    # Returns the error for a store that is not as this package writes it
    _damaged: Callable[[str], ThreadStoreDownError]
    append: Callable[[Sequence[Head]], None]

    @property
    def identities(self) -> frozenset[str]:
        return frozenset(name for row in self._rows(IDENTITIES) for name in self._require(row, str))

    def between(
        self, thread_id: str, checkpoint_ns: str | None, least: str | None, below: str | None
    ) -> Answer:
        limits = (("checkpoint_ns =", checkpoint_ns), ("checkpoint_id >=", least), ("checkpoint_id <", below))
        given = [(condition, value) for condition, value in limits if value is not None]
        conditions = "".join(f"AND {condition} ? " for condition, _ in given)
        values = self._encoded(thread_id, *(value for _, value in given))
        return self._answer(self._rows(self._statements.BETWEEN, values, conditions))

    def has_live(self, thread_id: str) -> bool:
        return bool(self._rows(self._statements.LIVE, (*self._encoded(thread_id), 1)))

    def replaced(self, spot: Spot) -> Sequence[bytes]:
        return [
            mac for row in self._rows(MACS, self._encoded(*spot) * 2) for mac in self._require(row, bytes)
        ]

    def specials(self) -> Iterator[tuple[Spot, Sequence[Special]]]:
        for *names, records in self._ordered(SPECIALS, f"AND {AFTER}"):
            yield from self._specials([(self._spot(names), records)])

    def heads(self) -> Iterator[Head]:
        for row in self._ordered(self._statements.HEADS, f"WHERE {AFTER}"):
            yield self._head(row[:5])

    def events(self, until: int) -> Iterator[Event]:
        after = 0
        while rows := self._rows(EVENTS, (after, until, PAGE_ROWS)):
            for seq, at, *head in rows:
                self._require((seq, at), int, int)
                if seq <= after:
                    raise self._damaged("the rows of a table are not in order")
                after = seq
                yield Event(seq, self._head(head), at)

    def end(self) -> int:
        return self._number(END)

    def trimmed(self) -> int:
        return self._number(TRIMMED)

    def delete_thread(self, thread_id: str) -> None:
        """Append a DELETED event for each checkpoint of a thread whose head is not DELETED, page by page."""
        thread, count = self._encoded(thread_id), PAGE_ROWS
        while count == PAGE_ROWS:
            rows = self._rows(self._statements.LIVE, (*thread, PAGE_ROWS))
            self._delete(thread, rows)
            count = len(rows)
        after: tuple[Any, ...] = ()
        further = ""
        while rows := self._rows(SPECIAL_NAMES, (*thread, *after, PAGE_ROWS), further):
            self._delete(thread, [name for *name, is_live in rows if is_live])
            after = self._later(rows[-1][:2], after)
            further = "AND (checkpoint_ns, checkpoint_id) > (?, ?)"

    def trim(self, before: int) -> int:
        count = 0
        after: tuple[Any, ...] = ()
        while rows := self._trim_page(before, after, PAGE_ROWS):
            ((gone, *last),) = rows
            count, after = count + gone, self._later(tuple(last), after)
        return count

    def _delete(self, thread: tuple[Any, ...], names: Iterable[Sequence[Any]]) -> None:
        self.append(sorted(Head(self._spot((*thread, *name)), Kind.DELETED, b"") for name in names))

    def _ordered(self, statement: str, further: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, page by page; ``further`` is the SQL condition of later pages."""
        after: tuple[Any, ...] = ()
        while rows := self._rows(statement, (*after, PAGE_ROWS), further if after else ""):
            yield from rows
            after = self._later(rows[-1][:3], after)

    def _later(self, last: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``last``, the end of a page; raise if it does not sort after ``after`` (damaged index)."""
        if last <= after:
            raise self._damaged("the rows of an index are not in order")
        return last

    def _number(self, statement: str) -> int:
        rows = self._rows(statement)
        (number,) = self._require(rows[0] if rows else None, int)
        return int(number)

    def _answer(self, rows: Sequence[Sequence[Any]]) -> Answer:
        heads = [self._head(row[:5]) for row in rows if row[3] is not None]
        specials = self._specials((self._spot(row[:3]), row[5]) for row in rows if row[5] is not None)
        return Answer(heads, self._clock([row[6:] for row in rows[:1]]), specials)

    def _clock(self, rows: Sequence[Sequence[Any]]) -> int:
        """Return the clock of the store, computed from the first row; the row has the columns of `CLOCK`."""
        raised, last = rows[0] if rows else (None, None)
        if type(raised) is not int or type(last) is not int:
            raise self._damaged("the table of the store's clock has lost its only row")
        return raised + last

    def _head(self, row: Sequence[Any]) -> Head:
        *names, kind, mac = row
        self._require((kind, mac), int, bytes)
        if not 0 <= kind < len(Kind):
            raise self._damaged("a row has an unknown kind of event")
        return Head(self._spot(names), Kind(kind), mac)

    def _spot(self, names: Sequence[Any]) -> Spot:
        found = self._require(names, *self._names)
        try:
            return Spot._make(found if self._names[0] is str else [name.decode() for name in found])
        except UnicodeDecodeError:
            raise self._damaged("the name of a checkpoint is not UTF-8") from None

    def _specials(self, found: Iterable[tuple[Spot, Any]]) -> list[tuple[Spot, list[Special]]]:
        try:
            return [(spot, parse_specials(records)) for spot, records in found if records is not None]
        except (ValueError, AttributeError, TypeError):
            raise self._damaged("a special write does not have the form that a thread store writes") from None

    def _require(self, row: Sequence[Any] | None, *types: type) -> Sequence[Any]:
        """Return a row if its values have these types; raise otherwise, as may happen in a damaged file."""
        if row is None or tuple(map(type, row)) != types:
            raise self._damaged("a row has values that no thread store writes")
        return row
