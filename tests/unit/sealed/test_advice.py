"""What SealedSaver says of arguments that a first program often has wrong: each hint is the line to write."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, PlaintextError, SealpointError, UnboundValueError, UnknownKeyError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.sealed import write

SERDE = EncryptedSerializer.from_key(bytes(range(32)))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (SqliteSaver.from_conn_string, "with ... as saver: SealedSaver(saver, ...)"),
        (AsyncSqliteSaver.from_conn_string, "async with ... as saver: SealedSaver(saver, ...)"),
    ],
)
def test_a_context_manager_is_no_saver(make: Any, line: str) -> None:
    """LangGraph's `from_conn_string` returns one, and its own pages show no other way."""
    manager: AbstractContextManager[Any] = make(":memory:")
    with pytest.raises(ConfigError, match="context manager") as caught:
        SealedSaver(cast(Any, manager), serde=SERDE)
    assert caught.value.hint == f"enter it first: {line}"


@pytest.mark.parametrize("given", ["state.db", SqliteSaver, None], ids=repr)
def test_what_is_no_saver_is_answered_with_one(given: Any) -> None:
    """Not with the layouts that savers have."""
    with pytest.raises(ConfigError, match="not a saver") as caught:
        SealedSaver(given, serde=SERDE)
    assert caught.value.hint == "wrap a saver: SealedSaver(SqliteSaver(connection), ...)"


def test_a_connection_is_no_saver() -> None:
    """Though it is a context manager, as savers of `from_conn_string` are."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigError) as caught:
        SealedSaver(cast(Any, connection), serde=SERDE)
    assert str(caught.value) == "Connection is not a saver"


def test_a_path_is_no_thread_store() -> None:
    """In the ring file it is one."""
    ring = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=bytes(range(32)))
    serde = EncryptedSerializer(RingCipher(ring))
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigError) as caught:
        SealedSaver(SqliteSaver(connection), serde=serde, threads=cast(Any, "threads.db"))
    assert str(caught.value) == "threads is str, not a thread store"
    assert caught.value.hint == "open it: threads=SqliteThreadStore(PATH), or PostgresThreadStore(URL)"


def test_a_path_is_no_serializer() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigError) as caught:
        SealedSaver(SqliteSaver(connection), serde=cast(Any, "keys.toml"))
    assert "EncryptedSerializer.from_key_file(PATH)" in str(caught.value.hint)


def test_pseudonyms_need_an_index_key_and_the_hint_names_the_command() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(UnknownKeyError) as caught:
        SealedSaver(SqliteSaver(connection), serde=SERDE, pseudonyms=True)
    assert "sealpoint keys generate --index" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("kind", "error", "message", "plain"),
    [
        ("plain", PlaintextError, "value of type 'msgpack' is not sealed to its row", True),
        ("k1", UnboundValueError, "'msgpack+cobblestone256@k1' is not bound to a row", False),
    ],
)
def test_an_existing_row_is_refused_with_all_that_reading_it_takes(
    tmp_path: Path, kind: str, error: type[SealpointError], message: str, *, plain: bool
) -> None:
    """One option after another, each named by the error of the one before, is three runs of an agent."""
    write(tmp_path / "x.db", kind, "a")
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SERDE)
        with pytest.raises(error) as caught:
            saver.get_tuple({"configurable": {"thread_id": "a", "checkpoint_ns": ""}})
    assert str(caught.value) == message
    assert "`sealpoint rebind DB --apply`, or pass unbound='allow'" in caught.value.hint
    assert ("--allow-plaintext" in caught.value.hint) is plain
    assert ("plaintext='allow' in the serializer" in caught.value.hint) is plain
