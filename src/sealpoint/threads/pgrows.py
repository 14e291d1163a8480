"""Rows of a thread store in Postgres, as its statements take and return them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sealpoint.errors import ThreadStoreDownError, ThreadStoreError
from sealpoint.threads.specials import Special, parse_specials
from sealpoint.threads.store import Answer, Head, Kind, Spot

DAMAGED_HINT: Final = "restore it from backup, or name the schema of a thread store"


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Return names as the bytes that the tables have.

    Raises:
        ThreadStoreError: If one holds a lone surrogate.
    """
    try:
        return tuple([text.encode() for text in texts])
    except UnicodeEncodeError:
        raise ThreadStoreError(
            "the name of a checkpoint holds a lone surrogate", hint="use Unicode text"
        ) from None


def columns_of(heads: Iterable[Head]) -> list[list[Any]]:
    """Return heads as the columns that `APPEND` takes."""
    rows = [(*encoded(*spot), int(kind), mac) for spot, kind, mac in heads]
    return [[row[column] for row in rows] for column in range(5)]


def special_columns(specials: Iterable[tuple[Spot, Sequence[Special]]]) -> list[list[Any]]:
    """Return events of special writes as the columns that `APPEND_SPECIALS` takes."""
    rows = [
        (*encoded(*spot, event.task_id), event.idx, event.call, event.since)
        for spot, events in specials
        for event in events
    ]
    return [[row[column] for row in rows] for column in range(7)]


def answer_of(rows: Sequence[Sequence[Any]]) -> Answer:
    """Return what rows say: clock, head and records each; there may be no head, or no records."""
    heads = heads_of(row[1:6] for row in rows if row[5] is not None)
    return Answer(heads, rows[0][0], specials_of([(*row[1:4], row[6]) for row in rows if row[6] is not None]))


def specials_of(rows: Iterable[Sequence[Any]]) -> list[tuple[Spot, list[Special]]]:
    """Return the events of special writes that rows name: a checkpoint and its records each.

    Raises:
        ThreadStoreDownError: If a row has another form.
    """
    try:
        return [
            (Spot(thread_id.decode(), ns.decode(), checkpoint_id.decode()), parse_specials(records))
            for thread_id, ns, checkpoint_id, records in rows
        ]
    except ValueError:
        raise _damaged() from None


def heads_of(rows: Iterable[Sequence[Any]]) -> list[Head]:
    """Return the heads that rows name.

    Raises:
        ThreadStoreDownError: If a row has another form.
    """
    try:
        return [
            Head(Spot(thread_id.decode(), ns.decode(), checkpoint_id.decode()), Kind(kind), mac)
            for thread_id, ns, checkpoint_id, kind, mac in rows
        ]
    except ValueError:
        raise _damaged() from None


def _damaged() -> ThreadStoreDownError:
    return ThreadStoreDownError("a row does not contain what a thread store writes", hint=DAMAGED_HINT)
