"""What sealing alone does not hold, shown: each is a claim without modules in tests/support/claims.toml.

A test here that turns red is good news, and the claim must then say so.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from sealpoint import EncryptedSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import KeyDisabledError
from sealpoint.langgraph import SealedStore
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, make, put_chain

OLD, NEW = bytes(range(32)), bytes(range(32, 64))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.sqlite"


@pytest.fixture
def saver(file: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(str(file), serde=EncryptedSerializer.from_key(NEW)) as saver:
        saver.setup()
        yield saver


def strike(file: Path, statement: str, *parameters: object) -> None:
    """Change the file as somebody does who has no key."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, parameters)


def column(file: Path, statement: str) -> list[object]:
    """What somebody without a key reads."""
    with closing(sqlite3.connect(file)) as connection:
        return [row[0] for row in connection.execute(statement)]


@pytest.mark.claim("a5")
def test_no_key_is_in_the_file(saver: SqliteSaver, file: Path) -> None:
    put_chain(saver, "1", "2")
    stored = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert b"cobblestone256@k1" in stored
    for form in (NEW, NEW.hex().encode(), base64.b64encode(NEW)):
        assert form not in stored


@pytest.mark.claim("a3")
def test_types_and_key_ids_show(saver: SqliteSaver, file: Path) -> None:
    put_chain(saver, "1")
    assert column(file, "SELECT type FROM writes") == ["msgpack+cobblestone256@k1"]


@pytest.mark.claim("a4")
def test_ids_channels_and_metadata_show(saver: SqliteSaver, file: Path) -> None:
    config = saver.put(at("patient-7"), make("1"), {"source": "input", "step": 4}, {})
    saver.put_writes(config, [("diagnosis", "secret")], "task")
    assert column(file, "SELECT thread_id FROM checkpoints") == ["patient-7"]
    assert column(file, "SELECT channel FROM writes") == ["diagnosis"]
    assert column(file, "SELECT json_extract(CAST(metadata AS TEXT), '$.step') FROM checkpoints") == [4]


@pytest.mark.claim("a2")
def test_lengths_show(saver: SqliteSaver, file: Path) -> None:
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [("a", b"yes"), ("b", b"no")], "task")
    assert column(file, "SELECT length(value) - 72 FROM writes ORDER BY channel") == [3, 2]


@pytest.mark.claim("a2")
def test_lengths_of_compressed_values_show_more() -> None:
    """Who can put text next to a secret learns from the length whether it is equal."""
    serde = EncryptedSerializer.from_key(bytes(32), compress="zstd")
    secret, filler = "the password is 7f3c91aa52", "words that are always there, " * 20

    def length(guess: str) -> int:
        return len(serde.dumps_typed([secret, filler, guess])[1])

    assert length("the password is 7f3c91aa52") < length("the password is 05d2e8b7c1")


@pytest.mark.claim("b4")
def test_forged_metadata_is_believed(saver: SqliteSaver, file: Path) -> None:
    put_chain(saver, "1")
    strike(file, "UPDATE checkpoints SET metadata = ?, parent_checkpoint_id = ?", '{"step": 99}', "0")
    found = saver.get_tuple(at())
    assert found is not None
    assert found.metadata == {"step": 99}
    assert found.parent_config == at("t", "0")


@pytest.mark.claim("b3")
def test_a_value_moved_to_another_row_opens(saver: SqliteSaver, file: Path) -> None:
    """No saver binds rows yet: one write in the place of another, under the same tag."""
    for thread, answer in (("alice", "granted"), ("bob", "refused")):
        config = saver.put(at(thread), make("1"), {}, {})
        saver.put_writes(config, [("answer", answer)], "task")
    (hers,) = column(file, "SELECT value FROM writes WHERE thread_id = 'alice'")
    strike(file, "UPDATE writes SET value = ? WHERE thread_id = 'bob'", hers)
    found = saver.get_tuple(at("bob"))
    assert found is not None
    assert found.pending_writes == [("task", "answer", "granted")]


@pytest.mark.claim("b3")
def test_a_thread_copied_under_another_name_opens(saver: SqliteSaver, file: Path) -> None:
    """A checkpoint holds its own id, but not its thread."""
    saver.put(at("alice"), make("1", secret="hers"), {}, {})
    strike(file, "UPDATE checkpoints SET thread_id = 'bob'")
    found = saver.get_tuple(at("bob"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"secret": "hers"}


@pytest.mark.claim("b6", "c2")
def test_an_older_value_of_a_row_opens(saver: SqliteSaver, file: Path) -> None:
    saver.put(at(), make("1", balance=100), {}, {})
    (older,) = column(file, "SELECT checkpoint FROM checkpoints")
    saver.put(at(), make("1", balance=0), {}, {})
    strike(file, "UPDATE checkpoints SET checkpoint = ?", older)
    found = saver.get_tuple(at())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"balance": 100}


@pytest.mark.claim("b6")
def test_a_deleted_row_is_not_missed(saver: SqliteSaver, file: Path) -> None:
    put_chain(saver, "1", "2")
    strike(file, "DELETE FROM checkpoints WHERE checkpoint_id = '2'")
    found = saver.get_tuple(at())
    assert found is not None
    assert found.checkpoint["id"] == "1"


@pytest.mark.claim("a6")
def test_a_reader_of_the_file_keeps_no_writer_out(saver: SqliteSaver, file: Path) -> None:
    put_chain(saver, "1")
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM checkpoints").fetchone()
        put_chain(saver, "2", "3")
    assert column(file, "SELECT count(*) FROM checkpoints") == [3]


@pytest.mark.claim("d2")
def test_an_old_key_forges_until_it_is_disabled() -> None:
    """Whoever holds a key that still opens can write under its id; disabling it ends that."""
    thief = RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]))
    forged = EncryptedSerializer(thief).dumps_typed("forged")

    def reader(state: KeyState) -> EncryptedSerializer:
        ring = KeyRing([Key("new", NEW, KeyState.ACTIVE), Key("old", OLD, state)])
        return EncryptedSerializer(RingCipher(ring))

    assert reader(KeyState.DECRYPT_ONLY).loads_typed(forged) == "forged"
    with pytest.raises(KeyDisabledError):
        reader(KeyState.DISABLED).loads_typed(forged)


@pytest.mark.claim("e1")
def test_code_in_the_process_has_keys_and_values() -> None:
    serde = EncryptedSerializer.from_key(NEW)
    assert isinstance(serde.cipher, RingCipher)
    assert serde.cipher.ring.require_active().material == NEW


# --- items of LangGraph's Store -------------------------------------------------------------------


@pytest.fixture
def store(file: Path) -> Iterator[SealedStore]:
    with SqliteStore.from_conn_string(str(file)) as store:
        store.setup()
        yield SealedStore(store, serde=EncryptedSerializer.from_key(NEW))


@pytest.mark.claim("i11")
def test_an_older_value_of_an_item_opens(store: SealedStore, file: Path) -> None:
    """So does one of another database under the same ring, and an item that was deleted is not missed."""
    store.put(("a",), "x", {"is_member": True})
    (older,) = column(file, "SELECT value FROM store")
    store.put(("a",), "x", {"is_member": False})
    strike(file, "UPDATE store SET value = ?", older)
    item = store.get(("a",), "x")
    assert item is not None
    assert item.value == {"is_member": True}
    elsewhere = InMemoryStore()
    other = SealedStore(elsewhere, serde=EncryptedSerializer.from_key(NEW))
    assert isinstance(older, bytes)
    elsewhere.put(("a",), "x", json.loads(older))
    found = other.get(("a",), "x")
    assert found is not None
    assert found.value == {"is_member": True}
    strike(file, "DELETE FROM store")
    assert store.get(("a",), "x") is None


@pytest.mark.claim("i12")
@pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")
def test_times_of_items_are_believed(store: SealedStore, file: Path) -> None:
    store.put(("a",), "x", {"n": 1}, ttl=60)
    store.put(("a",), "y", {"n": 2}, ttl=60)
    strike(file, "UPDATE store SET updated_at = '2001-01-01 00:00:00' WHERE key = 'y'")
    assert [item.key for item in store.search(("a",))] == ["x", "y"]
    strike(file, "UPDATE store SET expires_at = '2001-01-01 00:00:00' WHERE key = 'y'")
    store.inner.sweep_ttl()
    assert [item.key for item in store.search(("a",))] == ["x"]
