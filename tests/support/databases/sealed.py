"""Databases that real LangGraph wrote, plain or sealed in every way there is, and what stands in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.databases.cells import Cell, Column, Opener
from sealpoint.admin.databases.rows import Batch, pages
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Event, Failure, Progress
from sealpoint.base import empty_checkpoint
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.seal.calls import Claims, pack_claims
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.checkpoints import at
from tests.support.databases.headers import packed_header
from tests.support.keys.rings import material_of

AES_KEY = b"sixteen or 32 bytes of a secret!"
STATES = ("staged", "active", "decrypt-only", "disabled", "destroyed")
CHECKPOINTS_WRITTEN = 3
SMALL = Batch(rows=3)

Place = tuple[str, *tuple[Any, ...]]


VALUES: Final = 12
"""How many values `write` puts into a thread."""


def make_ring(active: str, *others: str) -> KeyRing:
    """A ring that seals under ``active``; the other keys open, or are in a state given as ``id=state``.

    The id ``langgraph`` is LANGGRAPH_AES_KEY.
    """
    keys = [Key(active, material_of(active), KeyState.ACTIVE)] if active else []
    for other in others:
        key_id, _, state_name = other.partition("=")
        state = KeyState(state_name or "decrypt-only")
        legacy = key_id == "langgraph"
        material = AES_KEY if legacy else material_of(key_id)
        gone = state is KeyState.DESTROYED
        keys.append(Key(key_id, b"" if gone else material, state, suite="aes" if legacy else None))
    return KeyRing(keys)


def make_cipher(active: str, *others: str, suite: str = "cobblestone256") -> RingCipher:
    return RingCipher(make_ring(active, *others), suite)


def sealing(kind: str) -> Any:
    """The serializer for values of a kind: a key id, ``plain``, LangGraph's ``eax`` or ``gcm``."""
    if kind == "plain":
        return None
    if kind == "eax":
        return TheirEncrypted.from_pycryptodome_aes(key=AES_KEY)
    if kind == "gcm":
        return TheirEncrypted.from_pycryptodome_aes(key=AES_KEY, mode=AES.MODE_GCM)
    return EncryptedSerializer(make_cipher(kind))


@contextmanager
def langgraph(path: Path, serde: Any) -> Iterator[Theirs]:
    """LangGraph's own saver on a file."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # no power cut is tested, and the disk is slow
        yield Theirs(connection, serde=serde) if serde else Theirs(connection)


def write(path: Path, kind: str, thread_id: str, **values: Any) -> None:
    """Let LangGraph write checkpoints and writes into a thread."""
    with langgraph(path, sealing(kind)) as saver:
        config = at(thread_id)
        for step in range(CHECKPOINTS_WRITTEN):
            channels = {"step": step, "empty": b"", "text": f"{thread_id} {step} é", **values}
            checkpoint = {**empty_checkpoint(), "id": f"{step:06}", "channel_values": channels}
            config = saver.put(config, checkpoint, {"step": step}, {})  # type: ignore[arg-type]
            saver.put_writes(config, [("a", b""), ("b", None), ("c", {"n": [step]})], f"task {step}")


def states(path: Path, serde: Any, thread_id: str) -> list[tuple[Any, ...]]:
    """All that LangGraph reads of a thread."""
    with langgraph(path, serde) as saver:
        return [
            (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes)
            for found in saver.list(at(thread_id))
        ]


def values_of(path: Path, read: Callable[[Column], Column] = lambda column: column) -> list[Cell]:
    """All values as they stand in the file; ``read`` says what is read of a column."""
    with closing(SqliteRows(path)) as store:
        return [
            value for column in store.columns for page in pages(store, read(column)) for value in page.cells
        ]


def place_of(value: Cell) -> Place:
    return value.where.column.table, *value.where.key


def opened(path: Path, cipher: RingCipher) -> dict[Place, tuple[str, bytes]]:
    """The inner type and the bytes of every value."""
    values = values_of(path)
    return {place_of(value): Opener(cipher, allow_plaintext=True).open(value).typed for value in values}


def tags_of(path: Path) -> set[Any]:
    return {value.tag for value in values_of(path)}


def bind(path: Path, cipher: RingCipher, thread_id: str) -> None:
    """Seal a thread's values anew, each bound to its row, as `SealedSaver` stores them."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path, attrgetter("widened")):
            if value.where.key[0] == thread_id:
                inner, data = Opener(cipher).parts(value).opened.typed
                tag, blob = cipher.seal(inner, head_of(value) + data, row=value.where.row)
                put(connection, value, tag, blob)


def head_of(value: Cell) -> bytes:
    """What `SealedSaver` seals in front of a value of a row."""
    if value.where.column.table == "writes":
        return pack_claims(Claims("", value.where.names["idx"]))
    beside = value.where.beside
    metadata = decode_metadata(beside["metadata"])
    return packed_header({"metadata": metadata, "parent": beside["parent_checkpoint_id"]})


def put(connection: sqlite3.Connection, value: Cell, tag: Any, blob: Any) -> None:
    """Put something else in the place of a value, past every saver."""
    connection.execute(
        f"UPDATE {value.where.column.table} SET type = ?, {value.where.column.name} = ? WHERE rowid = ?",
        (tag, blob, value.where.locator),
    )


def run(path: Path, cipher: RingCipher, batches: int | None = None, **options: Any) -> list[Event]:
    """Rotate, to the end or for so many batches."""
    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        seen: list[Event] = []
        with closing(rotate(store, cipher, **{"batch": SMALL, **options})) as events:
            for event in events:
                seen.append(event)
                if batches is not None and sum(isinstance(each, Progress) for each in seen) >= batches:
                    break
        return seen


def failures(events: list[Event]) -> list[Failure]:
    return [event for event in events if isinstance(event, Failure)]


def moved(events: list[Event]) -> int:
    """How many values a run changed."""
    return max((event.changed for event in events if isinstance(event, Progress)), default=0)


def checked(path: Path) -> str:
    """What SQLite says of the file's integrity."""
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
