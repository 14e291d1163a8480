"""Walks over ancestors: the short way finds what the general one finds, and refuses what it refuses."""

from __future__ import annotations

import datetime
import sqlite3
from typing import Any

import ormsgpack
import pytest

from sealpoint import EncryptedSerializer, JsonPlusSerializer, RingCipher
from sealpoint.base import BaseCheckpointSaver
from sealpoint.errors import BlockedTypeError, RowError, SealpointError
from sealpoint.sqlite import SqliteSaver, reader
from tests.support.databases.checkpoints import at, make
from tests.support.sample_types import Color

KEY = bytes(range(32))
CHANNELS = ("a", "b")
DAY = datetime.date(2026, 2, 28)


def strict() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY, serde=JsonPlusSerializer(allowed_msgpack_modules=None))


def trusting() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY, serde=JsonPlusSerializer(allowed_msgpack_modules=True))


@pytest.fixture
def sealed(connection: sqlite3.Connection) -> SqliteSaver:
    return SqliteSaver(connection, serde=trusting())


def walk(saver: SqliteSaver, config: Any, *channels: str) -> Any:
    return saver.get_delta_channel_history(config=config, channels=channels or CHANNELS)


def walk_generally(saver: SqliteSaver, config: Any, *channels: str) -> Any:
    """Build every ancestor, one after the other."""
    return BaseCheckpointSaver.get_delta_channel_history(saver, config=config, channels=channels or CHANNELS)


def grow(saver: SqliteSaver, parents: list[int | None], stored: dict[int, dict[str, Any]]) -> None:
    """Put checkpoints by the numbers of their parents, with a write to each channel on top of each."""
    for number, parent in enumerate(parents):
        config = at("t", None if parent is None else f"{parent:03}")
        config = saver.put(config, make(f"{number:03}", other=DAY, **stored.get(number, {})), {}, {})
        saver.put_writes(config, [("a", number), ("b", DAY), ("c", 0)], "task")


@pytest.mark.parametrize("size", [0, 1, 700])
def test_large_rows_are_read_a_few_at_a_time(
    sealed: SqliteSaver, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    grow(sealed, [None, *range(60)], {})
    whole = walk(sealed, at())
    monkeypatch.setattr(reader, "PAGE_BYTES", size)
    assert walk(sealed, at()) == whole


def test_it_reads_as_far_as_the_stored_value(sealed: SqliteSaver) -> None:
    """What lies behind is not even opened."""
    grow(sealed, [None, *range(100)], {60: {"a": "sixty"}})
    sealed.conn.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE checkpoint_id < '060'")
    assert walk(sealed, at(), "a")["a"]["seed"] == "sixty"
    with pytest.raises(SealpointError):
        walk(sealed, at(), "b")


def test_what_it_passes_by_is_not_built(sealed: SqliteSaver) -> None:
    """A type that is not allowed is refused where a channel stores it, and not on the way there."""
    grow(sealed, [None, *range(9)], {5: {"c": Color.RED}, 2: {"a": 1}, 1: {"b": Color.RED}})
    narrow = SqliteSaver(sealed.conn, serde=strict())
    assert walk(narrow, at(), "a")["a"]["seed"] == 1
    with pytest.raises(BlockedTypeError):
        walk(narrow, at(), "b")


PLAIN = JsonPlusSerializer()


@pytest.mark.parametrize("middle", ["001", "030", "058"])
@pytest.mark.parametrize(
    "forged",
    [
        {"checkpoint_id": "029.5"},
        trusting().dumps_typed(make("other")),
        trusting().dumps_typed(DAY),
        trusting().dumps_typed({**make("030"), "channel_values": DAY}),
        trusting().dumps_typed({**make("030"), "channel_versions": None}),
        PLAIN.dumps_typed(make("030")),
        ("msgpack+cobblestone256@k2", b"x" * 100),
        ("msgpack+cobblestone256@k1", b"x" * 100),
        (5, b"x"),
        {"parent_checkpoint_id": b"029"},
    ],
    ids=lambda forged: str(forged)[:30] if isinstance(forged, dict) else None,
)
def test_what_is_forged_is_refused_alike(sealed: SqliteSaver, forged: Any, middle: str) -> None:
    """By the same class of error, wherever in a range of rows it stands."""
    grow(sealed, [None, *range(59)], {})
    columns = forged if isinstance(forged, dict) else dict(zip(("type", "checkpoint"), forged, strict=True))
    if "checkpoint_id" in columns:
        statement = "UPDATE checkpoints SET parent_checkpoint_id = ? WHERE parent_checkpoint_id = ?"
        sealed.conn.execute(statement, (columns["checkpoint_id"], middle))
    names = ", ".join(f"{name} = ?" for name in columns)
    sealed.conn.execute(
        f"UPDATE checkpoints SET {names} WHERE checkpoint_id = ?", (*columns.values(), middle)
    )
    with pytest.raises(SealpointError) as expected:
        walk_generally(sealed, at())
    with pytest.raises(type(expected.value)):
        walk(sealed, at())


def test_an_object_may_be_a_dict(sealed: SqliteSaver) -> None:
    """Then the outline lacks it, and the whole checkpoint says what is stored."""
    grow(sealed, [None, 0, 1], {})
    record = ormsgpack.packb(["builtins", "dict", [["a", "seed"]]])
    content = ormsgpack.packb({**make("000"), "channel_values": ormsgpack.Ext(0, record)})
    cipher = trusting().cipher
    assert isinstance(cipher, RingCipher)
    forged = cipher.seal("msgpack", content)
    sealed.conn.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = '000'", forged)
    assert walk(sealed, at())["a"]["seed"] == "seed"
    assert walk(sealed, at()) == walk_generally(sealed, at())


def test_a_missing_parent_ends_it_and_a_circle_is_met_where_it_closes(sealed: SqliteSaver) -> None:
    grow(sealed, [None, *range(30)], {20: {"a": 1}})
    sealed.conn.execute("UPDATE checkpoints SET parent_checkpoint_id = '025' WHERE checkpoint_id = '003'")
    assert walk(sealed, at(), "a")["a"]["seed"] == 1
    with pytest.raises(RowError, match="cycle"):
        walk(sealed, at(), "b")
    sealed.conn.execute("DELETE FROM checkpoints WHERE checkpoint_id = '014'")
    assert walk(sealed, at()) == walk_generally(sealed, at())
    assert [write[2] for write in walk(sealed, at())["b"]["writes"]] == [DAY] * 15


def test_ancestors_are_counted(sealed: SqliteSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(sealed, [None, *range(30)], {})
    monkeypatch.setattr("sealpoint.sqlite.reader.MAX_ANCESTORS", 30)
    with pytest.raises(RowError, match="over 30 ancestors"):
        walk(sealed, at())
    monkeypatch.setattr("sealpoint.sqlite.reader.MAX_ANCESTORS", 31)
    assert len(walk(sealed, at())["a"]["writes"]) == 30
