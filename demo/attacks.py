"""Attacks by a writer of the database: SQL on a copy, and the result of reading it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from demo.agent import AMOUNT, THREAD, THREAD_ID
from sealpoint.errors import IntegrityError, PlaintextError, RolledBackError, RowError, UnknownKeyError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

OpenSaver = Callable[[sqlite3.Connection], "BaseCheckpointSaver[Any]"]

MALLORY: Final = "claim-of-mallory"
NEWEST: Final = "(SELECT max(checkpoint_id) FROM checkpoints)"


@dataclass(frozen=True, slots=True)
class Side:
    """A database, and the savers that read it: with all its keys, and with one missing."""

    database: Path
    saver: OpenSaver
    without_key: OpenSaver


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        name: What is done, in at most 22 characters.
        sealed: The error that SealedSaver must raise, beside a thread store.
        alone: The same for a saver that has only the serializer.
        apply: Changes a copy of the database.
        effect: Describes the false data that a reader accepts.
        thread: The thread that is read.
        keyless: Whether the reader lacks a key.
    """

    name: str
    sealed: type[Exception]
    alone: type[Exception] | None
    apply: Callable[[sqlite3.Connection], object]
    effect: Callable[[list[CheckpointTuple]], str] = lambda _: ""
    thread: RunnableConfig = field(default_factory=lambda: THREAD)
    keyless: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attack: the error that stopped it, or else what was read."""

    error: Exception | None
    effect: str = ""

    @property
    def verdict(self) -> str:
        """``refused`` or ``ACCEPTED``."""
        return "refused" if self.error else "ACCEPTED"


def read(database: Path, saver: OpenSaver, thread: RunnableConfig = THREAD) -> list[CheckpointTuple]:
    """Return a whole thread, newest first, as the agent's saver reads it."""
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        return list(saver(connection).list(thread))


def messages(found: CheckpointTuple) -> list[Any]:
    """Return the messages of a checkpoint."""
    return list(found.checkpoint["channel_values"]["messages"])


def attempt(attack: Attack, side: Side) -> Outcome:
    """Attack a copy and read the whole thread."""
    with copied(side.database) as database:
        with closing(sqlite3.connect(database)) as connection, connection:
            attack.apply(connection)
        try:
            thread = read(database, side.without_key if attack.keyless else side.saver, attack.thread)
            return Outcome(None, attack.effect(thread))
        except Exception as error:  # noqa: BLE001 -- any error means that the attack failed
            return Outcome(error)


@contextmanager
def copied(database: Path) -> Iterator[Path]:
    """Make a temporary copy of a database, and yield its path."""
    with TemporaryDirectory(prefix="sealpoint-demo-") as folder:
        copy = Path(folder) / "copy.db"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        yield copy


def _flip(connection: sqlite3.Connection) -> None:
    (blob,) = connection.execute(
        f"SELECT checkpoint FROM checkpoints WHERE checkpoint_id = {NEWEST}"  # noqa: S608 -- a constant
    ).fetchone()
    changed = blob[:-1] + bytes([blob[-1] ^ 1])
    connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE checkpoint = ?", (changed, blob))


def _relabel(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE writes SET type = replace(type, 'msgpack', 'null') WHERE channel = '__interrupt__'"
    )


def _insert_plaintext(connection: sqlite3.Connection) -> None:
    forged = empty_checkpoint()
    forged["channel_values"]["messages"] = [AIMessage(f"Done: {AMOUNT} sent to Mallory.")]
    kind, data = JsonPlusSerializer().dumps_typed(forged)
    connection.execute(
        "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata)"
        " VALUES (?, '', ?, ?, ?, '{}')",
        (THREAD_ID, forged["id"], kind, data),
    )


def _exchange_value(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE writes SET (type, value) = (SELECT type, value FROM writes WHERE channel = '__resume__')"
        " WHERE channel = '__interrupt__'"
    )


def _edit_metadata(connection: sqlite3.Connection) -> None:
    (stored,) = connection.execute(
        f"SELECT metadata FROM checkpoints WHERE checkpoint_id = {NEWEST}"  # noqa: S608 -- a constant
    ).fetchone()
    edited = json.dumps(json.loads(stored) | {"member": "member-0666"}).encode()
    connection.execute("UPDATE checkpoints SET metadata = ? WHERE metadata = ?", (edited, stored))


def _change_thread(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE checkpoints SET thread_id = ?", (MALLORY,))
    connection.execute("UPDATE writes SET thread_id = ?", (MALLORY,))


def _delete(connection: sqlite3.Connection) -> None:
    connection.execute(
        f"DELETE FROM checkpoints WHERE checkpoint_id = {NEWEST}"  # noqa: S608 -- a constant
    )


def _question(thread: list[CheckpointTuple]) -> str:
    writes = (write for found in thread for write in found.pending_writes or ())
    return (
        f"the question to the human is {next(v for _, channel, v in writes if channel == '__interrupt__')!r}"
    )


def _answer(thread: list[CheckpointTuple]) -> str:
    return f'the agent\'s last message is "{messages(thread[0])[-1].content}"'


def _last(thread: list[CheckpointTuple]) -> str:
    return f"the thread ends after step {dict(thread[0].metadata)['step']}"


def _member(thread: list[CheckpointTuple]) -> str:
    return f"the claim is one of {dict(thread[0].metadata)['member']}"


def _answer_for_mallory(thread: list[CheckpointTuple]) -> str:
    return f'in Mallory\'s thread: "{messages(thread[0])[-1].content}"'


ATTACKS: Final = (
    Attack("one bit flipped", IntegrityError, IntegrityError, _flip, _answer),
    Attack("type changed to null", IntegrityError, IntegrityError, _relabel, _question),
    Attack("plaintext row added", PlaintextError, PlaintextError, _insert_plaintext, _answer),
    Attack("key k1 missing", UnknownKeyError, UnknownKeyError, lambda _: None, _answer, keyless=True),
    Attack("value of another row", IntegrityError, None, _exchange_value, _question),
    Attack("metadata edited", RowError, None, _edit_metadata, _member),
    Attack(
        "rows of another thread",
        IntegrityError,
        None,
        _change_thread,
        _answer_for_mallory,
        thread={"configurable": {"thread_id": MALLORY}},
    ),
    Attack("newest row deleted", RolledBackError, None, _delete, _last),
)
