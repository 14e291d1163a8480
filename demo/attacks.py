"""Attacks by a writer of the database: SQL on a copy, and the result of reading it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from demo.agent import AMOUNT, THREAD, THREAD_ID
from sealpoint.errors import IntegrityError, PlaintextError, UnknownKeyError

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

NEWEST: Final = "(SELECT max(checkpoint_id) FROM checkpoints)"


@dataclass(frozen=True, slots=True)
class Side:
    """A database, and the serializers that read it: with all its keys, and with one missing."""

    database: Path
    serde: SerializerProtocol
    without_key: SerializerProtocol


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        name: What is done, in at most 20 characters.
        refusal: The error that sealpoint must raise; ``None`` for an attack that a serializer cannot detect.
        apply: Changes a copy of the database.
        effect: Describes the false data that a reader accepts.
        why: Why a serializer cannot detect it.
        keyless: Whether the reader lacks a key.
    """

    name: str
    refusal: type[Exception] | None
    apply: Callable[[sqlite3.Connection], object]
    effect: Callable[[list[CheckpointTuple]], str] = lambda _: ""
    why: str = ""
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


def read(database: Path, serde: SerializerProtocol) -> list[CheckpointTuple]:
    """Return the whole thread, newest first, as LangGraph's own saver reads it."""
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        return list(SqliteSaver(connection, serde=serde).list(THREAD))


def messages(found: CheckpointTuple) -> list[Any]:
    """Return the messages of a checkpoint."""
    return list(found.checkpoint["channel_values"]["messages"])


def attempt(attack: Attack, side: Side) -> Outcome:
    """Attack a copy and read the whole thread."""
    with _copy(side.database) as database:
        with closing(sqlite3.connect(database)) as connection, connection:
            attack.apply(connection)
        try:
            thread = read(database, side.without_key if attack.keyless else side.serde)
            return Outcome(None, attack.effect(thread))
        except Exception as error:  # noqa: BLE001 -- any error means that the attack failed
            return Outcome(error)


@contextmanager
def _copy(database: Path) -> Iterator[Path]:
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


def _move(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE writes SET (type, value) = (SELECT type, value FROM writes WHERE channel = '__resume__')"
        " WHERE channel = '__interrupt__'"
    )


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


ATTACKS: Final = (
    Attack("one bit flipped", IntegrityError, _flip, _answer),
    Attack("type changed to null", IntegrityError, _relabel, _question),
    Attack("plaintext row added", PlaintextError, _insert_plaintext, _answer),
    Attack("key k1 missing", UnknownKeyError, lambda _: None, _answer, keyless=True),
    Attack("value moved", None, _move, why="a serializer does not know the row of a value"),
    Attack("newest row deleted", None, _delete, why="encryption cannot detect a missing row"),
)
