"""What SealedSaver says of arguments that a first program often has wrong: each hint is the line to write."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, closing
from typing import Any, cast

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.errors import ConfigError, UnknownKeyError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver

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


def test_a_path_is_no_serializer() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ConfigError) as caught:
        SealedSaver(SqliteSaver(connection), serde=cast(Any, "keys.toml"))
    assert "EncryptedSerializer.from_key_file(PATH)" in str(caught.value.hint)


def test_pseudonyms_need_an_index_key_and_the_hint_names_the_command() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(UnknownKeyError) as caught:
        SealedSaver(SqliteSaver(connection), serde=SERDE, pseudonyms=True)
    assert "sealpoint keys generate --index" in str(caught.value.hint)
