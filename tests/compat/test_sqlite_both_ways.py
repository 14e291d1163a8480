"""What either saver wrote reads back equal through the other: plain and encrypted, every type."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirJsonPlus
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint import EncryptedSerializer, JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.base import empty_checkpoint
from sealpoint.errors import PlaintextError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump
from tests.support.values.samples import LOSSY, SAMPLES, alike

pytestmark = pytest.mark.usefixtures("paths_of_pathlib")
KEY = bytes(range(32))
AES_KEY = b"sixteen or 32 bytes of a secret!"
Saver = Callable[[sqlite3.Connection], Any]


def sealed() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY)


def ring_with_their_key() -> EncryptedSerializer:
    """Seals with a key of ours, and still opens what LANGGRAPH_AES_KEY sealed."""
    keys = [
        Key(id="k1", material=KEY, state=KeyState.ACTIVE),
        Key(id="langgraph", material=AES_KEY, state=KeyState.DECRYPT_ONLY, suite="aes"),
    ]
    return EncryptedSerializer(RingCipher(KeyRing(keys)))


def their_encrypted() -> TheirEncrypted:
    return TheirEncrypted.from_pycryptodome_aes(TheirJsonPlus(), key=AES_KEY)


DIRECTIONS: dict[str, tuple[Saver, Saver]] = {
    "theirs to ours": (Theirs, SqliteSaver),
    "ours to theirs": (SqliteSaver, Theirs),
    "theirs to ours, sealed": (
        lambda connection: Theirs(connection, serde=sealed()),
        lambda connection: SqliteSaver(connection, serde=sealed()),
    ),
    "ours to theirs, sealed": (
        lambda connection: SqliteSaver(connection, serde=sealed()),
        lambda connection: Theirs(connection, serde=sealed()),
    ),
    "theirs to ours, LANGGRAPH_AES_KEY": (
        lambda connection: Theirs(connection, serde=their_encrypted()),
        lambda connection: SqliteSaver(connection, serde=ring_with_their_key()),
    ),
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Both serializers log each type that no allowlist names; that is not what is looked at here."""
    caplog.set_level(logging.ERROR)


def write(saver: Any) -> None:
    """Two checkpoints with every sample among their values, and every sample among their writes."""
    config: Any = at("thread", ns="ns")
    config["configurable"]["user"] = "ann"
    for number in "12":
        checkpoint = {
            **empty_checkpoint(),
            "id": number,
            "channel_values": SAMPLES,
            "channel_versions": {"a": "1.5"},
        }
        config = saver.put(config, checkpoint, {"step": int(number), "parents": {"": "0"}}, {"a": "1.5"})
        saver.put_writes(config, [*SAMPLES.items()], f"task {number}", "~__pregel_pull, node")
        saver.put_writes(
            config, [("__interrupt__", ["stop?"]), ("__error__", "ValueError()")], f"task {number}"
        )


def strip(found: Any) -> tuple[Any, ...]:
    """All of a tuple that two ``==`` can compare: the samples are compared one by one."""
    checkpoint = {**found.checkpoint, "channel_values": [*found.checkpoint["channel_values"]]}
    writes = [(task_id, channel) for task_id, channel, _ in found.pending_writes]
    return found.config, checkpoint, found.metadata, found.parent_config, writes


@pytest.mark.parametrize(("writer", "reader"), DIRECTIONS.values(), ids=DIRECTIONS)
def test_what_one_wrote_the_other_reads(connection: sqlite3.Connection, writer: Saver, reader: Saver) -> None:
    """Each value as the writer itself reads it, and as it was, but for what the bytes never held."""
    write(writer(connection))
    seen = zip(writer(connection).list(at("thread")), reader(connection).list(at("thread")), strict=True)
    for own, other in seen:
        assert strip(own) == strip(other)
        for name, original in SAMPLES.items():
            value = other.checkpoint["channel_values"][name]
            assert alike(value, own.checkpoint["channel_values"][name]), name
            assert name in LOSSY or alike(value, original), name
        for (_, name, value), (_, _, expected) in zip(other.pending_writes, own.pending_writes, strict=True):
            assert alike(value, expected), name


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_columns_are_the_same(encrypted: bool) -> None:
    """In number, order and type; without encryption to the byte, whoever wrote them."""
    dumps = []
    for kind in (SqliteSaver, Theirs):
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
            write(kind(connection, serde=sealed() if encrypted else None))
            columns = [
                connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
                for table in ("checkpoints", "writes")
            ]
            rows = [[type(value) if encrypted else value for value in row] for row in dump(connection)]
            dumps.append((columns, rows))
    mine, theirs = dumps
    assert mine[0] == theirs[0]
    timeless = [row for row in mine[1] if len(row) == 9]  # writes; a checkpoint holds the time it was made
    assert timeless == [row for row in theirs[1] if len(row) == 9]


def test_no_sealed_row_holds_its_plaintext(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection, serde=sealed())
    write(saver)
    for row in dump(connection):
        kind, value = (row[4], row[5]) if len(row) == 7 else (row[7], row[8])
        assert kind.endswith("+cobblestone256@k1")
        assert b"ValueError" not in value
        assert b"channel_values" not in value


def test_new_rows_beside_old_ones(connection: sqlite3.Connection) -> None:
    """A thread that began under LANGGRAPH_AES_KEY goes on under the ring, and reads back whole."""
    Theirs(connection, serde=their_encrypted()).put(at(), {**empty_checkpoint(), "id": "1"}, {}, {})
    saver = SqliteSaver(connection, serde=ring_with_their_key())
    saver.put(at("t", "1"), {**empty_checkpoint(), "id": "2"}, {}, {})
    assert [found.checkpoint["id"] for found in saver.list(at())] == ["2", "1"]
    assert [row[4] for row in dump(connection)] == ["msgpack+aes", "msgpack+cobblestone256@k1"]


def test_a_plain_database_is_not_read_as_a_sealed_one(connection: sqlite3.Connection) -> None:
    write(Theirs(connection))
    with pytest.raises(PlaintextError):
        SqliteSaver(connection, serde=sealed()).get_tuple(at("thread", ns="ns"))
    migrating = EncryptedSerializer(
        sealed().cipher, JsonPlusSerializer(), plaintext="allow", allow_unauthenticated_types=True
    )
    assert SqliteSaver(connection, serde=migrating).get_tuple(at("thread", ns="ns")) is not None
