"""Kinds of tampering that put genuine rows, or parts of them, where they do not belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from tests.sealed.raw import Raw, Row
from tests.sealed.scene import ALICE, BOB, C1, C2, C3, C9, CHILD, MALLORY, ROOT, version

Act = Callable[[Raw], None]


def of(thread: str, ns: str | None = None, id_: str | None = None, **more: Any) -> Row:
    """Columns that name a row or several."""
    given = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_, **more}
    return {name: value for name, value in given.items() if value is not None}


def found(db: Raw, table: str, where: Row) -> list[Row]:
    rows = db.rows(table, **named(db, where))
    if not rows:
        raise LookupError(f"no row of {table} to tamper with: {where}")
    return rows


def named(db: Raw, columns: Row) -> Row:
    """Columns with the text that stands for a thread."""
    thread = columns.get("thread_id")
    return columns if thread is None else {**columns, "thread_id": db.threads.get(thread, thread)}


def copied(table: str, where: Row, **to: Any) -> Act:
    def act(db: Raw) -> None:
        for row in found(db, table, where):
            db.put(table, {**row, **named(db, to)})

    return act


def edited(table: str, where: Row, **to: Any) -> Act:
    """Change columns; a function is applied to the column of that name."""

    def act(db: Raw) -> None:
        for row in found(db, table, where):
            db.delete(table, row)
            new = {name: value(row[name]) if callable(value) else value for name, value in to.items()}
            db.put(table, {**row, **named(db, new)})

    return act


def exchanged(table: str, one: Row, other: Row, *columns: str) -> Act:
    def act(db: Raw) -> None:
        (first,), (second,) = found(db, table, one), found(db, table, other)
        db.delete(table, first)
        db.delete(table, second)
        db.put(table, {**first, **{name: second[name] for name in columns}})
        db.put(table, {**second, **{name: first[name] for name in columns}})

    return act


def replaced(table: str, target: Row, source: Row, *columns: str) -> Act:
    """Columns of one row over those of another."""

    def act(db: Raw) -> None:
        (into,), (out,) = found(db, table, target), found(db, table, source)
        db.put(table, {**into, **{name: out[name] for name in columns}})

    return act


def every(*acts: Act) -> Act:
    def act(db: Raw) -> None:
        for each in acts:
            each(db)

    return act


def all_tables(where: Row, **to: Any) -> Act:
    """Copy rows of all tables that have these columns."""

    def act(db: Raw) -> None:
        for table in db.tables:
            if not (table == "blobs" and "checkpoint_id" in where):
                copied(table, where, **to)(db)

    return act


def threads_exchanged(db: Raw) -> None:
    for table in db.tables:
        both = {thread: db.rows(table, thread_id=db.threads[thread]) for thread in (ALICE, BOB)}
        for row in both[ALICE] + both[BOB]:
            db.delete(table, row)
        for thread, rows in both.items():
            other = db.threads[BOB if thread == ALICE else ALICE]
            for row in rows:
                db.put(table, {**row, "thread_id": other})


CHECKPOINTS: Final[dict[str, Act]] = {
    "row to another thread, same id": copied("checkpoints", of(ALICE, ROOT, C3), thread_id=BOB),
    "row to another thread, as the newest": copied(
        "checkpoints", of(ALICE, ROOT, C3), thread_id=BOB, checkpoint_id=C9
    ),
    "row to another thread, older id": copied(
        "checkpoints", of(ALICE, ROOT, C3), thread_id=BOB, checkpoint_id=C1
    ),
    "thread copied to a new thread": all_tables(of(ALICE), thread_id=MALLORY),
    "thread copied over another thread": all_tables(of(ALICE, ROOT), thread_id=BOB),
    "threads exchanged": threads_exchanged,
    "row to another namespace, same id": copied("checkpoints", of(ALICE, CHILD, C2), checkpoint_ns=ROOT),
    "root's row to a subgraph": copied("checkpoints", of(ALICE, ROOT, C2), checkpoint_ns=CHILD),
    "namespace copied over another": all_tables(of(ALICE, CHILD), checkpoint_ns=ROOT),
    "namespace copied to a new one": all_tables(of(ALICE, CHILD), checkpoint_ns="child:2"),
    "namespace copied to another thread": all_tables(of(ALICE, CHILD), thread_id=BOB),
    "older row relabelled as the newest": copied("checkpoints", of(ALICE, ROOT, C1), checkpoint_id=C9),
    "newest row relabelled as the newest": copied("checkpoints", of(ALICE, ROOT, C3), checkpoint_id=C9),
    "older row and writes relabelled as the newest": all_tables(of(ALICE, ROOT, C1), checkpoint_id=C9),
    "older row over the newest": copied("checkpoints", of(ALICE, ROOT, C1), checkpoint_id=C3),
    "newer row over an older": copied("checkpoints", of(ALICE, ROOT, C3), checkpoint_id=C1),
    "older over the newest, but the parent": copied(
        "checkpoints", of(ALICE, ROOT, C1), checkpoint_id=C3, parent_checkpoint_id=C2
    ),
    "rows of two steps exchanged": exchanged(
        "checkpoints",
        of(ALICE, ROOT, C2),
        of(ALICE, ROOT, C3),
        "checkpoint",
        "metadata",
        "type",
        "parent_checkpoint_id",
    ),
    "metadata of two steps exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C2), of(ALICE, ROOT, C3), "metadata"
    ),
    "metadata of two threads exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C3), of(BOB, ROOT, C3), "metadata"
    ),
    "metadata of two namespaces exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C2), of(ALICE, CHILD, C2), "metadata"
    ),
    "older metadata over the newest": replaced(
        "checkpoints", of(ALICE, ROOT, C3), of(ALICE, ROOT, C1), "metadata"
    ),
    "newer metadata over an older": replaced(
        "checkpoints", of(ALICE, ROOT, C1), of(ALICE, ROOT, C3), "metadata"
    ),
    "documents of two steps exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C2), of(ALICE, ROOT, C3), "checkpoint", "type"
    ),
    "documents of two threads exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C3), of(BOB, ROOT, C3), "checkpoint", "type"
    ),
    "documents of two namespaces exchanged": exchanged(
        "checkpoints", of(ALICE, ROOT, C2), of(ALICE, CHILD, C2), "checkpoint", "type"
    ),
    "older document over the newest": replaced(
        "checkpoints", of(ALICE, ROOT, C3), of(ALICE, ROOT, C1), "checkpoint", "type"
    ),
    "parent edited": edited("checkpoints", of(ALICE, ROOT, C3), parent_checkpoint_id=C1),
    "parent is the row itself": edited("checkpoints", of(ALICE, ROOT, C3), parent_checkpoint_id=C3),
    "parent that is not there": edited("checkpoints", of(ALICE, ROOT, C3), parent_checkpoint_id=C9),
    "parent given to the first row": edited("checkpoints", of(ALICE, ROOT, C1), parent_checkpoint_id=C3),
    "parents in a circle": every(
        edited("checkpoints", of(ALICE, ROOT, C2), parent_checkpoint_id=C3),
        edited("checkpoints", of(ALICE, ROOT, C3), parent_checkpoint_id=C2),
    ),
}

_LOG: Final = of(ALICE, ROOT, C2, task_id="task-1", channel="log")
_NOTE: Final = of(ALICE, ROOT, C2, task_id="task-1", idx=1)
_NOTE_2: Final = of(ALICE, ROOT, C2, task_id="task-1", idx=2)
_MORE: Final = of(ALICE, ROOT, C2, task_id="task-3", channel="log")
_ASK: Final = of(ALICE, ROOT, C2, channel=INTERRUPT)
_ANSWER: Final = of(ALICE, ROOT, C2, channel=RESUME)
_VALUE: Final = ("type", "blob")

WRITES: Final[dict[str, Act]] = {
    "write duplicated": copied("writes", _LOG, idx=7),
    "write duplicated in front": copied("writes", _LOG, idx=-9),
    "write renumbered": edited("writes", _LOG, idx=7),
    "writes of a task renumbered": exchanged("writes", _NOTE, _NOTE_2, "idx"),
    "write to another task": edited("writes", _LOG, task_id="task-9"),
    "write copied to another task": copied("writes", _LOG, task_id="task-2", idx=5),
    "write over that of another task": replaced("writes", _MORE, _LOG, *_VALUE),
    "write to another channel": edited("writes", _LOG, channel="note"),
    "write to a new channel": edited("writes", _LOG, channel="fresh"),
    "writes of two tasks exchanged": exchanged("writes", _LOG, _MORE, *_VALUE),
    "writes of two channels exchanged": exchanged("writes", _LOG, _NOTE, *_VALUE),
    "writes of one channel exchanged": exchanged("writes", _NOTE, _NOTE_2, *_VALUE),
    "channels of two writes exchanged": exchanged("writes", _LOG, _NOTE, "channel"),
    "write over another of its channel": replaced("writes", _NOTE, _NOTE_2, *_VALUE),
    "write to another checkpoint": copied("writes", of(ALICE, ROOT, C1, channel="log"), checkpoint_id=C2),
    "writes of an older checkpoint": copied("writes", of(ALICE, ROOT, C1), checkpoint_id=C3),
    "write of an older checkpoint, as a new task": copied(
        "writes",
        of(ALICE, ROOT, C1, task_id="task-1", channel="log"),
        checkpoint_id=C3,
        task_id="task-4",
    ),
    "writes to another thread": copied("writes", of(ALICE, ROOT), thread_id=BOB),
    "write to another thread": copied("writes", _LOG, thread_id=BOB),
    "writes to another namespace": copied("writes", of(ALICE, CHILD), checkpoint_ns=ROOT),
    "writes to a subgraph": copied("writes", of(ALICE, ROOT, C1), checkpoint_ns=CHILD),
    "write for a checkpoint that is not there": copied("writes", _LOG, checkpoint_id=C9),
    "interrupt made a write": edited("writes", _ASK, channel="note", idx=9),
    "interrupt made an answer": edited("writes", _ASK, channel=RESUME, idx=-4),
    "interrupt renumbered as a write": edited("writes", _ASK, idx=9),
    "interrupt's value in the answer": replaced("writes", _ANSWER, _ASK, *_VALUE),
    "answer made an interrupt": every(
        lambda db: db.delete("writes", found(db, "writes", _ASK)[0]),
        edited("writes", _ANSWER, channel=INTERRUPT, idx=-3),
    ),
    "answer of another thread": replaced("writes", _ANSWER, of(BOB, ROOT, C2, channel=RESUME), *_VALUE),
    "answer of an older checkpoint": replaced(
        "writes", _ANSWER, of(ALICE, ROOT, C1, channel=RESUME), *_VALUE
    ),
    "answer to another task": edited("writes", _ANSWER, task_id="task-1"),
    "write made an interrupt": edited("writes", _LOG, channel=INTERRUPT, idx=-3),
    "write made an answer": copied("writes", _LOG, channel=RESUME, idx=-4),
    "error made a write": edited("writes", of(ALICE, ROOT, C2, channel=ERROR), channel="note", idx=9),
    "write made an error": copied("writes", _NOTE, channel=ERROR, idx=-1),
    "path edited": edited("writes", _LOG, task_path="~__pregel_push, z"),
    "path emptied": edited("writes", of(ALICE, ROOT, C2, task_id="task-1"), task_path=""),
    "paths of two tasks exchanged": exchanged("writes", _LOG, _MORE, "task_path"),
}

_ITEMS: Final = of(ALICE, ROOT, channel="items", version=version(3))
_OLD_ITEMS: Final = of(ALICE, ROOT, channel="items", version=version(1))
_DOC: Final = of(ALICE, ROOT, channel="doc", version=version(2))
_LOG_SNAPSHOT: Final = of(ALICE, ROOT, channel="log", version=version(1))

BLOBS: Final[dict[str, Act]] = {
    "blob's older version over the newer": replaced("blobs", _ITEMS, _OLD_ITEMS, *_VALUE),
    "blob's newer version over the older": replaced("blobs", _OLD_ITEMS, _ITEMS, *_VALUE),
    "blobs of two channels exchanged": exchanged(
        "blobs", _DOC, of(ALICE, ROOT, channel="doc", version=version(3)), *_VALUE
    ),
    "blob of another channel": replaced(
        "blobs", of(ALICE, ROOT, channel="doc", version=version(3)), _ITEMS, *_VALUE
    ),
    "blob of another thread": copied("blobs", _ITEMS, thread_id=BOB),
    "blobs of another thread": copied("blobs", of(ALICE, ROOT), thread_id=BOB),
    "blobs of another namespace": copied("blobs", of(ALICE, CHILD), checkpoint_ns=ROOT),
    "blob for a channel without one": copied("blobs", _ITEMS, channel="note"),
    "snapshot copied to a newer version": copied("blobs", _LOG_SNAPSHOT, version=version(2)),
    "snapshot from another channel": copied("blobs", _DOC, channel="log"),
    "snapshot of another thread": copied("blobs", _LOG_SNAPSHOT, thread_id=BOB),
    "blob deleted": lambda db: db.delete("blobs", found(db, "blobs", _DOC)[0]),
    "snapshot deleted": lambda db: db.delete("blobs", found(db, "blobs", _LOG_SNAPSHOT)[0]),
    "blob typed empty": edited("blobs", _DOC, type="empty"),
    "blob emptied and typed empty": edited("blobs", _DOC, type="empty", blob=None),
    "blob renamed": edited("blobs", _DOC, channel="fresh"),
    "blob's version renamed": edited("blobs", _DOC, version=version(7)),
    "empty blob of a delta channel": copied(
        "blobs", _LOG_SNAPSHOT, version=version(2), type="empty", blob=None
    ),
}
