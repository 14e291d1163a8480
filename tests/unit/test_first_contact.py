"""The calls of a first program that are wrong: each is refused at once, and says what to write."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver as LangGraphSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphEncrypted
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from langgraph.store.memory import InMemoryStore

from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealpointError
from sealpoint.langgraph import (
    AsyncSqliteSaver,
    EncryptedSerializer,
    InMemorySaver,
    SealedCache,
    SealedSaver,
    SealedStore,
    SqliteSaver,
    encryption,
    require_sealing,
)
from sealpoint.threads import MemoryThreadStore, SqliteThreadStore, open_thread_store

KEY = bytes(range(32))
BASE64 = base64.b64encode(KEY)
SERDE: Any = EncryptedSerializer.from_key(KEY)
RING: Any = SERDE.cipher.ring
OTHER: Any = LangGraphEncrypted(SERDE.cipher)
PASSWORD = "correct-horse"
URL = f"postgresql://ada:{PASSWORD}@host/threads"


def untyped(value: Any) -> Any:
    return value


BYTES = "bytes.fromhex(TEXT) or base64.b64decode(TEXT)"
CREATE = "EncryptedSerializer.from_key_file(PATH)"
CIPHER = "RingCipher(ring)"
LOAD = "KeyRing.load(PATH)"
GRAPH = "pass a compiled graph, a saver, a store or a cache"
OPEN = "SqliteSaver.from_conn_string(PATH)"

WRONG: dict[str, tuple[Callable[[], Any], str, str]] = {
    # what is called, the message, and a part of the hint
    "a key as hex": (lambda: EncryptedSerializer.from_key(untyped(KEY.hex())), "is str, not bytes", BYTES),
    "a key as base64": (
        lambda: EncryptedSerializer.from_key(BASE64),
        "44 bytes of material instead of 32",
        BYTES,
    ),
    "a key as text": (lambda: EncryptedSerializer.from_key(untyped("secret")), "is str, not bytes", BYTES),
    "a short key": (
        lambda: EncryptedSerializer.from_key(KEY[:16]),
        "16 bytes of material instead of 32",
        BYTES,
    ),
    "the key of a Key as hex": (lambda: Key("k1", untyped(KEY.hex()), KeyState.ACTIVE), "not bytes", BYTES),
    "a serializer of a key": (lambda: EncryptedSerializer(untyped(KEY)), "cipher is bytes", "from_key(KEY)"),
    "a serializer of a path": (
        lambda: EncryptedSerializer(untyped("keys.toml")),
        "cipher is str",
        "from_key_file",
    ),
    "a serializer of a ring": (lambda: EncryptedSerializer(RING), "cipher is KeyRing, not a Ciph", CIPHER),
    "a serializer of a class": (lambda: EncryptedSerializer(untyped(RingCipher)), "cipher is type", CIPHER),
    "a serializer of nothing": (lambda: EncryptedSerializer(untyped(None)), "cipher is NoneType", CIPHER),
    "a serializer of one": (lambda: EncryptedSerializer(SERDE), "cipher is EncryptedSerializer", CIPHER),
    "an inner serializer that is none": (
        lambda: EncryptedSerializer(SERDE.cipher, untyped("x")),
        "str",
        CREATE,
    ),
    "a cipher of a path": (lambda: RingCipher(untyped("keys.toml")), "ring is str, not a KeyRing", LOAD),
    "a cipher of a key": (lambda: RingCipher(untyped(KEY)), "ring is bytes, not a KeyRing", LOAD),
    "a ring of a path": (lambda: KeyRing(untyped("keys.toml")), "one of the keys is str, not a Key", LOAD),
    "a ring of bytes": (lambda: KeyRing([untyped(KEY)]), "one of the keys is bytes, not a Key", LOAD),
    "an encryption of a path": (lambda: encryption(untyped("keys.toml")), "ring is str, not a KeyRing", LOAD),
    "an encryption of a serializer": (lambda: encryption(SERDE), "ring is Encr", LOAD),
    "a sealed saver, the wrong way round": (
        lambda: SealedSaver(SERDE, untyped(LangGraphSaver())),
        "EncryptedSerializer is not a saver",
        "SealedSaver(SqliteSaver(connection), ...)",
    ),
    "a sealed saver of a URL": (
        lambda: SealedSaver(URL, SERDE),
        "str is not a saver",
        "SealedSaver(SqliteSaver(",
    ),
    "a sealed saver of a store": (
        lambda: SealedSaver(InMemoryStore(), SERDE),
        "InMemoryStore is not",
        "SealedSaver(",
    ),
    "a sealed store of a saver": (
        lambda: SealedStore(LangGraphSaver(), SERDE),
        "Saver is not",
        "SealedStore(Sql",
    ),
    "a sealed store of a path": (
        lambda: SealedStore(Path("items.db"), SERDE),
        "PosixPath is not a st",
        "SealedStore(",
    ),
    "a sealed cache of a path": (
        lambda: SealedCache(untyped("x.db"), SERDE),
        "str is not a cache",
        "SealedCache(",
    ),
    "a sealed cache, the wrong way round": (
        lambda: SealedCache(SERDE, untyped(InMemoryCache())),
        "EncryptedSerializer is not a cache",
        "SealedCache(InMemoryCache(), ...)",
    ),
    "LangGraph's serializer for a saver": (
        lambda: SealedSaver(LangGraphSaver(), OTHER),
        "serde is langgraph.checkpoint.serde.encrypted.EncryptedSerializer, not an EncryptedSerializer",
        CREATE,
    ),
    "LangGraph's serializer for a store": (
        lambda: SealedStore(InMemoryStore(), OTHER),
        "is langgraph.",
        CREATE,
    ),
    "LangGraph's serializer for a cache": (
        lambda: SealedCache(InMemoryCache(), OTHER),
        "is langgraph.",
        CREATE,
    ),
    "a key for a saver": (
        lambda: SealedSaver(LangGraphSaver(), untyped(KEY)),
        "serde is bytes, not an Enc",
        CREATE,
    ),
    "a saver of a path": (lambda: SqliteSaver(untyped("x.db")), "str is not a connection of sqlite3", OPEN),
    "a saver of a Path": (lambda: SqliteSaver(untyped(Path("x.db"))), "PosixPath is not a connection", OPEN),
    "async saver of a path": (lambda: AsyncSqliteSaver("x.db"), "str is not a connection of sqlite3", OPEN),
    "a saver with a key": (
        lambda: InMemorySaver(serde=untyped(KEY)),
        "serde is bytes, not a Serializer",
        CREATE,
    ),
    "a file for the threads of a URL": (
        lambda: SqliteThreadStore(URL),
        "a URL is not a file",
        "open_thread_store(",
    ),
    "a check of a path": (lambda: require_sealing("x.db"), "str: it has no serializer", GRAPH),
    "a check of a class": (lambda: require_sealing(LangGraphSaver), "it has no serializer", GRAPH),
    "a check before with": (
        lambda: require_sealing(LangGraphSqliteSaver.from_conn_string("x")),
        "no serial",
        GRAPH,
    ),
    "a check of a bare store": (
        lambda: require_sealing(InMemoryStore()),
        "InMemoryStore: it has no",
        "SealedStore(",
    ),
    "a check of a bare cache": (lambda: require_sealing(InMemoryCache()), "does not seal", "SealedCache("),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_says_what_to_write(name: str) -> None:
    call, message, hint = WRONG[name]
    with pytest.raises(SealpointError) as caught:
        call()
    assert message in str(caught.value)
    assert hint in caught.value.hint
    shown = f"{caught.value}{caught.value.hint}"
    assert not any(secret in shown for secret in (KEY.hex(), BASE64.decode(), PASSWORD))


def test_the_serializer_may_stand_after_what_is_wrapped() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        for made in (
            SealedSaver(LangGraphSaver(), SERDE),
            SealedSaver(LangGraphSqliteSaver(connection), SERDE),
            SealedStore(InMemoryStore(), SERDE),
            SealedCache[Any](InMemoryCache(), SERDE),
        ):
            assert made.serde is SERDE
            require_sealing(made)


@pytest.mark.parametrize("kind", [SealedSaver, SealedStore, SealedCache])
def test_a_serializer_that_is_missing_is_named(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'serde'"):
        kind(InMemoryStore())
    with pytest.raises(TypeError, match=r"__init__\(\) takes 3 positional arguments but 4"):
        kind(InMemoryStore(), SERDE, MemoryThreadStore())


def test_a_thread_store_is_opened_by_a_path(tmp_path: Path) -> None:
    with closing(open_thread_store(tmp_path / "threads.db", create=True)) as store:
        assert [*store.heads()] == []
