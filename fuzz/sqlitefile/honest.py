"""Honest databases, which the forged ones are made of, and the keys of their values."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.seal.items import ItemName, Items
from sealpoint.seal.tokens import Tokens
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from sealpoint.sqlite import SqliteSaver, schema

KEYS: Final = ("k1", "k2", "k3")
PLAINTEXT: Final = "plaintext"


class Shape(NamedTuple):
    """How a database is made.

    Attributes:
        page_bytes: Size of its pages.
        seals: What the values of each thread are sealed under: one of `KEYS`, or `PLAINTEXT`.
        checkpoints: How many each thread has. Each has two writes.
        has_log: Whether the last checkpoints of each thread are still in the write-ahead log.
        has_gaps: Whether pages are free, because a thread was deleted.
        items: How many items of LangGraph's Store there are under each seal.
    """

    page_bytes: int
    seals: tuple[str, ...]
    checkpoints: int
    has_log: bool = False
    has_gaps: bool = False
    items: int = 0


SHAPES: Final = (
    Shape(512, ("k1",), 3),
    Shape(4096, ("k1",), 6),
    Shape(1024, ("k1", "k2", "k3"), 4, has_log=True),
    Shape(512, ("k2",), 24, has_gaps=True),
    Shape(2048, ("k1", PLAINTEXT), 6, has_gaps=True),
    Shape(4096, ("k2", "k1"), 34, has_log=True),
)
"""All page sizes with and without interior pages, overflow pages, free pages and a log."""
WITH_ITEMS: Final = (
    Shape(512, ("k1",), 3, items=30),
    Shape(1024, ("k1", "k2"), 3, has_log=True, items=40),
    Shape(4096, ("k2",), 0, items=60),
)
"""Also one without the tables of a saver."""


class Honest(NamedTuple):
    """A database: its file, and its write-ahead log, which may be empty."""

    data: bytes
    log: bytes


def material(key_id: str) -> bytes:
    """Return the material of a key."""
    return key_id.encode().ljust(32, b".")


def ring(active: str = "k1", disabled: tuple[str, ...] = ()) -> KeyRing:
    """Return a ring of all `KEYS`."""
    states = dict.fromkeys(KEYS, KeyState.DECRYPT_ONLY) | dict.fromkeys(disabled, KeyState.DISABLED)
    states[active] = KeyState.ACTIVE
    return KeyRing([Key(key_id, material(key_id), state) for key_id, state in states.items()])


def serde(seal: str = "k1") -> Any:
    """Return a strict serializer that seals under a key, or one that does not seal."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    return strict if seal == PLAINTEXT else EncryptedSerializer(RingCipher(ring(seal)), strict)


def at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    """Return a config."""
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **named}}


def checkpoint(number: int, **values: Any) -> Any:
    """Return a checkpoint that is the same each time."""
    return {
        "v": 4,
        "id": f"c{number:04}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, "1"),
        "versions_seen": {},
        "updated_channels": None,
    }


@cache
def make(shape: Shape) -> Honest:
    """Make a database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoints.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {shape.page_bytes}")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            _put_items(connection, shape)
            first = max(shape.checkpoints - 2, 0)
            _put(connection, shape.seals, range(first))
            if shape.has_gaps:
                _put(connection, ("k3",), range(100, 100 + first))
                SqliteSaver(connection).delete_thread("thread of k3")
            if not shape.has_log:
                _put(connection, shape.seals, range(first, shape.checkpoints))
                connection.execute("PRAGMA journal_mode = DELETE")
                return Honest(path.read_bytes(), b"")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            _put(connection, shape.seals, range(first, shape.checkpoints))
            return Honest(path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes())


def _put_items(connection: sqlite3.Connection, shape: Shape) -> None:
    if shape.items:
        connection.execute(schema.CREATE_STORE[0])
    for seal in shape.seals:
        tokens = Tokens(partial(ring, seal))
        items = Items(EncryptedSerializer(RingCipher(ring(seal))), frozenset("n"), frozenset(), tokens)
        for number in range(shape.items):
            name = ItemName(("items", seal), f"i{number:04}")
            value = items.seal(name, {"n": number, "text": "x" * (2500 if number % 9 == 0 else 60)})
            row = ".".join(name.namespace), name.key, json.dumps(value).encode()
            connection.execute("INSERT INTO store (prefix, key, value) VALUES (?, ?, ?)", row)
    connection.commit()


def _put(connection: sqlite3.Connection, seals: tuple[str, ...], numbers: range) -> None:
    for seal in seals:
        saver = SqliteSaver(connection, serde=serde(seal))
        for number in numbers:
            text = "x" * (2500 if number % 4 == 0 else 60)  # of every fourth, some overflows
            config = saver.put(
                at(f"thread of {seal}", f"c{number - 1:04}" if number else None),
                checkpoint(number, n=number, text=text),
                {"source": "loop", "step": number},
                {},
            )
            saver.put_writes(config, [("n", number), ("text", text[:40])], f"task {number}")
