"""EncryptedSerializer and RingCipher beside LangGraph's own serializer and under its savers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import IntegrityError, PlaintextError
from sealpoint.serde import EncryptedSerializer
from tests.support.sample_types import Model
from tests.support.values.samples import MESSAGES, SAMPLES, alike

AES_KEYS = [b"sixteen byte key", b"a key of twenty-four ch.", b"and one of thirty-two characters"]
SHORT = {
    name: value for name, value in SAMPLES.items() if name in ("none", "bytes", "bytearray", "set", "model")
}


def legacy(key: bytes) -> RingCipher:
    old = Key(id="langgraph", material=key, state=KeyState.DECRYPT_ONLY, suite="aes")
    return RingCipher(KeyRing([Key(id="k1", material=bytes(32), state=KeyState.ACTIVE), old]))


@pytest.mark.parametrize("key", AES_KEYS, ids=len)
@pytest.mark.parametrize("name", SHORT)
def test_rows_under_langgraph_aes_key_are_read(key: bytes, name: str) -> None:
    row = TheirEncrypted.from_pycryptodome_aes(key=key).dumps_typed(SHORT[name])
    assert row[0].endswith("+aes")
    serde = EncryptedSerializer(legacy(key)).with_msgpack_allowlist([Model])
    assert alike(serde.loads_typed(row), SHORT[name])
    assert serde.dumps_typed(SHORT[name])[0].endswith("+cobblestone256@k1")


def test_rows_under_another_aes_key_are_refused() -> None:
    row = TheirEncrypted.from_pycryptodome_aes(key=AES_KEYS[0]).dumps_typed([1])
    with pytest.raises(IntegrityError):
        EncryptedSerializer(legacy(AES_KEYS[0][::-1])).loads_typed(row)


@pytest.mark.parametrize("name", SHORT)
def test_langgraphs_serializer_takes_a_ring_cipher(name: str) -> None:
    cipher = RingCipher(KeyRing([Key(id="k1", material=bytes(32), state=KeyState.ACTIVE)]))
    serde = TheirEncrypted(cipher=cipher)
    tag, blob = serde.dumps_typed(SHORT[name])
    assert tag.endswith("+cobblestone256@k1")
    assert alike(serde.loads_typed((tag, blob)), SHORT[name])
    with pytest.raises(IntegrityError):  # the type is not bound there, so it is not ours
        EncryptedSerializer(cipher).loads_typed((tag, blob))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_sealed_message_is_the_message(name: str) -> None:
    serde = EncryptedSerializer.from_key(bytes(32))
    assert alike(serde.loads_typed(serde.dumps_typed(MESSAGES[name])), MESSAGES[name])


# --- as serde= of LangGraph's unchanged savers ----------------------------------------------------


def savers(serde: Any) -> Iterator[BaseCheckpointSaver[Any]]:
    yield InMemorySaver(serde=serde)
    saver = SqliteSaver(sqlite3.connect(":memory:"), serde=serde)
    yield saver
    saver.conn.close()


def config(**more: str) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", **more}}


def test_langgraphs_savers_store_and_read_sealed_values() -> None:
    serde = EncryptedSerializer.from_key(bytes(32))
    for saver in savers(serde):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(MESSAGES.values()), "token": "planted-secret"}
        checkpoint["channel_versions"] = {"messages": "1", "token": "1"}
        where = saver.put(config(), checkpoint, {}, checkpoint["channel_versions"])
        saver.put_writes(where, [("messages", {"planted-secret"}), ("none", None)], "task")
        found = saver.get_tuple(config())
        assert found is not None
        assert alike(found.checkpoint["channel_values"], checkpoint["channel_values"])
        assert found.pending_writes == [("task", "messages", {"planted-secret"}), ("task", "none", None)]
        if isinstance(saver, SqliteSaver):
            check_database(saver.conn)


def check_database(conn: sqlite3.Connection) -> None:
    rows = conn.execute(
        "SELECT type, checkpoint FROM checkpoints UNION ALL SELECT type, value FROM writes"
    ).fetchall()
    assert sorted(tag for tag, _ in rows) == [
        "msgpack+cobblestone256@k1",
        "msgpack+cobblestone256@k1",
        "null+cobblestone256@k1",
    ]
    assert not any(b"planted-secret" in blob for _, blob in rows)


def test_langgraphs_savers_pass_the_refusal_of_plaintext_on() -> None:
    """A row that was put there in the clear does not come back as a checkpoint."""
    saver = SqliteSaver(sqlite3.connect(":memory:"), serde=EncryptedSerializer.from_key(bytes(32)))
    saver.put(config(), empty_checkpoint(), {}, {})
    plain = SqliteSaver(saver.conn)
    saver.conn.execute(
        "UPDATE checkpoints SET type = ?, checkpoint = ?", plain.serde.dumps_typed(empty_checkpoint())
    )
    with pytest.raises(PlaintextError):
        saver.get_tuple(config())
    saver.conn.close()
