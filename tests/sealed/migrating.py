"""The processes of a migration: the three beginnings, and what each step deploys."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import psycopg
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.graphs.graphs import Basket, Notes, Parcel, Part, Place
from tests.graphs.openers import Opener

AES_KEY: Final = b"16, 24, 32 bytes"
RING: Final = KeyRing(
    [
        Key("k1", bytes(range(32)), KeyState.ACTIVE),
        Key("langgraph", AES_KEY, KeyState.DECRYPT_ONLY, suite="aes"),
    ],
    index=bytes(range(32, 64)),
)
CIPHER: Final = RingCipher(RING)
SERDE: Final = EncryptedSerializer(CIPHER)
# Of the graphs, for rows that no key of ours authenticated
OWN_TYPES: Final = (Basket, Parcel, Part, Place, Notes)


@dataclass(frozen=True)
class Beginning:
    """What writes the rows of a database before its migration.

    Attributes:
        old: Its serializer.
        opened: Returns the bytes that it has sealed, or that are not sealed.
        plaintext: What the new serializer is told about unsealed rows.
        rebind: Options of the run that binds them.
    """

    old: Any
    opened: Callable[[str, bytes], tuple[str, bytes]]
    plaintext: Any
    rebind: dict[str, Any]

    @property
    def serde(self) -> EncryptedSerializer:
        """That of the new processes, until all rows are bound."""
        return EncryptedSerializer(CIPHER, plaintext=self.plaintext).with_msgpack_allowlist(OWN_TYPES)


OTHER_AES: Final[Any] = TheirEncrypted.from_pycryptodome_aes(key=bytes(16))
_aes: Any = TheirEncrypted.from_pycryptodome_aes(key=AES_KEY)


def _open_aes(tag: str, blob: bytes) -> tuple[str, bytes]:
    kind, _, name = tag.partition("+")
    return kind, _aes.cipher.decrypt(name, blob)


BEGINNINGS: Final = {
    "plain": Beginning(Theirs(), lambda tag, blob: (tag, blob), "allow", {"allow_plaintext": True}),
    "aes": Beginning(_aes, _open_aes, "refuse", {"allow_legacy": True}),
    "serializer": Beginning(SERDE, lambda tag, blob: SERDE.open(tag, blob).typed, "refuse", {}),
}


def wrap(saver: Any, step: int, beginning: Beginning) -> Any:
    """What step ``step`` of the page deploys; 0 is the old program. ``saver`` has the old serializer."""
    if step == 0:
        return saver
    if step == 3:
        return SealedSaver(saver, serde=SERDE)
    before = {"allow_write_with": beginning.old} if step == 1 else {}
    return SealedSaver(saver, serde=beginning.serde, unbound="allow", **before)


def deployed(opener: Opener, step: int, beginning: Beginning) -> Opener:
    """An opener, which ignores the serializer that it is given."""

    @asynccontextmanager
    async def opening(place: str, serde: Any) -> AsyncIterator[Any]:
        async with opener(place, beginning.old) as saver:
            yield wrap(saver, step, beginning)

    return opening


TABLES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "file": {"checkpoints": ("type", "checkpoint"), "writes": ("type", "value")},
    "postgres": {
        "checkpoints": (),
        "checkpoint_blobs": ("type", "blob"),
        "checkpoint_writes": ("type", "blob"),
    },
}


def rows(kind: str, place: str, beginning: Beginning) -> dict[str, list[Any]]:
    """All columns of all rows, without order; what is sealed with a nonce is opened."""
    found: dict[str, list[Any]] = {}
    for table, sealed in TABLES[kind].items():
        if kind == "file":
            with closing(sqlite3.connect(place)) as connection:
                cursor: Any = connection.execute(f"SELECT * FROM {table}")
                names, listed = [each[0] for each in cursor.description], cursor.fetchall()
        else:
            with psycopg.connect(place) as postgres:
                cursor = postgres.execute(f"SELECT * FROM {table}".encode())
                names, listed = [each.name for each in cursor.description], cursor.fetchall()
        found[table] = sorted(
            (_shown(dict(zip(names, row, strict=True)), sealed, beginning) for row in listed), key=repr
        )
    return found


def _shown(row: dict[str, Any], sealed: tuple[str, ...], beginning: Beginning) -> dict[str, Any]:
    if sealed and row[sealed[1]] is not None:
        row["tag"] = row[sealed[0]]
        row.update(zip(sealed, beginning.opened(*(row[name] for name in sealed)), strict=True))
    return row


class Recording:
    """Notes what LangGraph has a saver store, to store the same again in another."""

    def __init__(self, saver: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for method in ("put", "aput", "put_writes", "aput_writes"):
            setattr(saver, method, self._noting(method, getattr(saver, method)))

    def _noting(self, method: str, call: Any) -> Any:
        @wraps(call)  # LangGraph looks at the names of the arguments
        def noted(config: Any, *arguments: Any, **named: Any) -> Any:
            # A config holds objects of the run, which cannot be copied.
            kept = {name: dict(part) if isinstance(part, dict) else part for name, part in config.items()}
            self.calls.append((method.removeprefix("a"), (kept, *copy.deepcopy(arguments)), named))
            return call(config, *arguments, **named)

        return noted
