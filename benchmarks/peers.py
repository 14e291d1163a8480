"""The peers: who is compared, under which names, and how each is made."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ormsgpack
from Crypto.Cipher import AES
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde import encrypted as lg_encrypted
from langgraph.checkpoint.serde import jsonplus as lg_jsonplus
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from pydantic import BaseModel

from sealpoint import EncryptedSerializer, JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.sqlite import SqliteSaver

LG: Final = "LG"
LG_ENC: Final = "LG-enc"
LG_GCM: Final = "LG-enc GCM"
PLAIN: Final = "plain"
SEALED: Final = "sealed"
SEALED_XAES: Final = "sealed XAES"
SERIALIZER: Final = "serializer"
WHOLE: Final = "whole"
WHOLE_XAES: Final = "whole XAES"
PACKED: Final = "compressed"
HEADS: Final = "heads"
FLOOR: Final = "floor"
VALIDATION: Final = "validation"
STRICT: Final = "strict"
SCAN: Final = "check alone"
SEALED_STRICT: Final = "sealed strict"
INVENTORY: Final = "inventory"
SCRIPT: Final = "a script"
COPY: Final = "cp + fsync"
ROTATE: Final = "rotate"
ROTATE_XAES: Final = "rotate XAES"
VERIFY: Final = "verify"
WRITE_BACK: Final = "write back"

LEGEND: Final = {
    LG: "LangGraph's JsonPlusSerializer, no encryption",
    LG_ENC: "LangGraph's EncryptedSerializer as it comes: AES-EAX by pycryptodome",
    LG_GCM: "the same with mode=AES.MODE_GCM",
    PLAIN: "sealpoint's JsonPlusSerializer, no encryption",
    SEALED: "sealpoint's EncryptedSerializer as it comes: cobblestone256",
    SEALED_XAES: "the same with suite xaes256gcm",
    SERIALIZER: "LangGraph's saver with sealpoint's EncryptedSerializer, suite xaes256gcm",
    WHOLE: "LangGraph's saver in SealedSaver as it comes: cobblestone256",
    WHOLE_XAES: "the same with suite xaes256gcm",
    PACKED: "LangGraph's saver in SealedSaver, compress='zstd'",
    HEADS: "the same beside a thread store: SQLite in a file, Postgres in another schema",
    FLOOR: "bare ormsgpack of the same content without objects, and one AES-GCM call",
    VALIDATION: "pydantic's validation of the same fields, alone: nothing is unpacked or opened",
    STRICT: "sealpoint's JsonPlusSerializer with an allowlist: the check, then strict decoding",
    SCAN: "the check alone, which builds nothing",
    SEALED_STRICT: "sealpoint's EncryptedSerializer over a strict serializer",
    INVENTORY: "the types that a row names, counted without building any",
    SCRIPT: "list, loads, dumps with the new key, put: what one writes over a saver; it leaves the writes",
    COPY: "a copy of the file, and fsync",
    ROTATE: "sealpoint's rotation as it comes: to cobblestone256, by compare-and-swap",
    ROTATE_XAES: "the same where rows are and stay in suite xaes256gcm",
    VERIFY: "sealpoint's verification: every row opened",
    WRITE_BACK: "bare sqlite3 reads each value and writes one as long: no cryptography, no comparison",
}

LANGGRAPHS: Final = (LG, LG_ENC, LG_GCM)

KEY: Final = bytes(range(32))
_UNPACK: Final = ormsgpack.OPT_NON_STR_KEYS

Saver = BaseCheckpointSaver[str]


class _Sqlite(SqliteSaver, BaseCheckpointSaver):  # type: ignore[misc,override,type-arg]
    """Ours, as an instance of the class that a graph asks for; every method is ours."""


def _sealed(suite: str) -> EncryptedSerializer:
    ring = KeyRing([Key(id="k1", material=KEY, state=KeyState.ACTIVE)])
    return EncryptedSerializer(RingCipher(ring, suite), JsonPlusSerializer(allowed_msgpack_modules=True))


def serializers() -> dict[str, Any]:
    """Return all serializers; each revives any type, which is how LangGraph's comes."""

    def langgraph() -> Any:
        return lg_jsonplus.JsonPlusSerializer(allowed_msgpack_modules=True)

    encrypted = lg_encrypted.EncryptedSerializer.from_pycryptodome_aes
    return {
        LG: langgraph(),
        LG_ENC: encrypted(langgraph(), key=KEY),
        LG_GCM: encrypted(langgraph(), key=KEY, mode=AES.MODE_GCM),
        PLAIN: JsonPlusSerializer(allowed_msgpack_modules=True),
        SEALED: _sealed("cobblestone256"),
        SEALED_XAES: _sealed("xaes256gcm"),
    }


@contextmanager
def savers(folder: Path, names: Collection[str] = ()) -> Iterator[Mapping[str, Saver]]:
    """Open a saver for each serializer, or for ``names`` of them, each on a file of its own.

    Files are written without waiting for the disk, which would take 0.05 to 4 ms a commit.
    """
    made = serializers()
    connections = []
    opened: dict[str, Any] = {}
    for name in names or made:
        connection = sqlite3.connect(folder / f"{name}.sqlite", check_same_thread=False)
        connections.append(connection)
        saver: Any = (LangGraphSqliteSaver if name in LANGGRAPHS else _Sqlite)(connection, serde=made[name])
        saver.setup()
        connection.execute("PRAGMA synchronous = OFF")
        opened[name] = saver
    try:
        yield opened
    finally:
        for connection in connections:
            connection.close()


def floor(typed: tuple[str, bytes]) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return dumps and loads of the floor, for what the serializers made of a value."""
    kind, data = typed
    aead = AESGCM(KEY)

    def seal(content: bytes) -> bytes:
        nonce = os.urandom(12)
        return nonce + aead.encrypt(nonce, content, b"")

    def open_(blob: bytes) -> bytes:
        return aead.decrypt(blob[:12], blob[12:], b"")

    sealed = seal(data)
    if kind != "msgpack":
        return lambda: seal(data), lambda: open_(sealed)
    structure = _without_objects(data)
    packed = seal(ormsgpack.packb(structure, option=_UNPACK))
    return (
        lambda: seal(ormsgpack.packb(structure, option=_UNPACK)),
        lambda: ormsgpack.unpackb(open_(packed), option=_UNPACK),
    )


def validation(value: dict[str, Any]) -> Callable[[], object] | None:
    """Return what validates the models of a state once more, if it has any."""
    models = [model for held in value.values() for model in (held if isinstance(held, list) else [held])]
    if not all(isinstance(model, BaseModel) for model in models):
        return None
    parts = [(type(model).__pydantic_validator__, type(model), model.model_dump()) for model in models]

    def validate() -> None:
        for validator, cls, fields in parts:
            validator.validate_python({**fields}, self_instance=object.__new__(cls))

    return validate


def _without_objects(data: bytes) -> Any:
    """Return what msgpack bytes hold, with the payload of an extension in its place."""
    return ormsgpack.unpackb(data, ext_hook=lambda _, inner: _without_objects(inner), option=_UNPACK)
