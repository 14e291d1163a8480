"""What SealedSaver says of arguments that a first program often has wrong: each hint is the line to write."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Final, cast

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, PlaintextError, SealpointError, UnboundValueError, UnknownKeyError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.databases.sealed import write

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


WRAP: Final = "wrap a saver: SealedSaver(SqliteSaver(connection), ...)"
OF_RING: Final = EncryptedSerializer(
    RingCipher(KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=bytes(range(32))))
)


@pytest.mark.parametrize(
    ("saver", "options", "message", "hint"),
    [
        ("state.db", {}, "str is not a saver", WRAP),
        (SqliteSaver, {}, "SqliteSaver is a class, not a saver", WRAP),
        (None, {}, "NoneType is not a saver", WRAP),
        ("a connection", {}, "Connection is not a saver", WRAP),
        (
            "a saver",
            {"threads": "threads.db", "serde": OF_RING},
            "threads is str, not a thread store",
            "open it: threads=SqliteThreadStore(PATH), or PostgresThreadStore(URL)",
        ),
        (
            "a saver",
            {"serde": "keys.toml"},
            "serde is str, not an EncryptedSerializer",
            "create one: EncryptedSerializer.from_key_file(PATH)",
        ),
        (
            "a saver",
            {"pseudonyms": True},
            "no key 'index' in the ring (held: k1)",
            "add an index key: sealpoint keys generate --index",
        ),
    ],
)
def test_a_wrong_argument_is_answered_with_the_right_one(
    saver: Any, options: Any, message: str, hint: str
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        given = {"a connection": connection, "a saver": SqliteSaver(connection)}.get(saver, saver)
        with pytest.raises((ConfigError, UnknownKeyError)) as caught:
            SealedSaver(given, **{"serde": SERDE, **options})
    assert (str(caught.value), caught.value.hint) == (message, hint)


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
    row = "(table 'checkpoints', thread 'a', checkpoint '000002')"
    assert str(caught.value) == f"{message} {row}"
    assert "`sealpoint rebind DB --apply`, or pass unbound='allow'" in caught.value.hint
    assert ("--allow-plaintext" in caught.value.hint) is plain
    assert ("plaintext='allow' in the serializer" in caught.value.hint) is plain
