"""Arguments and rows that are refused: each for its own reason, and its neighbour is taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import ConfigError, DatabaseCorruptError, RowError, SealpointError
from sealpoint.sqlite import SqliteSaver
from tests.support.checkpoints import at, ids_in, make, put_chain

ITSELF: list[Any] = []
ITSELF.append(ITSELF)

VALUES: list[tuple[Any, str]] = [
    (b"x", "is bytes, which JSON does not have"),
    ({1}, "is set, which JSON does not have"),
    (object(), "is object, which JSON does not have"),
    ([object()], "has no form in JSON"),
    ({"a": float("nan")}, "has no form in JSON"),
    (ITSELF, "has no form in JSON"),
    (2**63, "has over 64 bits"),
    (-(2**63) - 1, "has over 64 bits"),
    ("a\ud800", "holds a lone surrogate"),
    ("\udfff", "holds a lone surrogate"),
    (["\ud800"], "holds a lone surrogate"),
    ({"a": {"\udfff": 1}}, "holds a lone surrogate"),
]


@pytest.mark.parametrize(("value", "reason"), VALUES, ids=range(len(VALUES)))
def test_a_filter_value_is_refused_for_its_reason(saver: SqliteSaver, value: Any, reason: str) -> None:
    put_chain(saver, "1")
    with pytest.raises(ConfigError, match=f"filter value of 'step' {reason}"):
        ids_in(saver, at(), filter={"step": value})


@pytest.mark.parametrize(
    "value", [2**63 - 1, -(2**63), 1.5, True, "\ud7ff\ue000\U0001f600", [2**64], ("a",), {}]
)
def test_a_filter_value_that_has_a_form_is_taken(saver: SqliteSaver, value: Any) -> None:
    put_chain(saver, "1")
    assert ids_in(saver, at(), filter={"step": value}) == []


@pytest.mark.parametrize("text", ["\ud800", "a\udbff", "\udc00b"])
def test_a_place_holds_no_lone_surrogates(saver: SqliteSaver, text: str) -> None:
    """SQLite has no form for them."""
    put_chain(saver, "1")
    for config in (at(text), at("t", text), at("t", ns=text)):
        with pytest.raises(ConfigError, match="lone surrogate"):
            saver.get_tuple(config)
        with pytest.raises(ConfigError, match="lone surrogate"):
            ids_in(saver, config)
    for act in (saver.delete_thread, lambda thread_id: saver.copy_thread("t", thread_id)):
        with pytest.raises(ConfigError, match="lone surrogate"):
            act(text)
    assert ids_in(saver, at()) == ["1"]


@pytest.mark.parametrize("text", ["\ud7ff", "\ue000", "\U0001f600", "ä"])
def test_a_place_holds_all_other_characters(saver: SqliteSaver, text: str) -> None:
    put_chain(saver, "1", thread_id=text, ns=text)
    assert ids_in(saver, at(text, ns=text)) == ["1"]


@pytest.mark.parametrize("wrong", [None, [], "text", 1])
@pytest.mark.parametrize("name", ["channel_values", "channel_versions", "versions_seen"])
def test_a_checkpoint_without_its_parts_is_refused(saver: SqliteSaver, name: str, wrong: Any) -> None:
    """Not in the graph that uses them, where nothing tells which row it was."""
    put_chain(saver, "1")
    whole: dict[str, Any] = {**make("1")}
    for checkpoint in ({**whole, name: wrong}, {key: whole[key] for key in whole if key != name}):
        kind, data = saver.serde.dumps_typed(checkpoint)
        with saver.cursor() as cursor:
            cursor.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, data))
        with pytest.raises(RowError, match=f"checkpoint '1' lacks one of .*{name}"):
            saver.get_tuple(at())
        with pytest.raises(RowError, match=f"checkpoint '1' lacks one of .*{name}"):
            ids_in(saver, at())


@pytest.mark.parametrize("call", ["setup", "get_tuple", "cursor"])
def test_a_file_that_is_no_database_is_refused_in_our_words(tmp_path: Path, call: str) -> None:
    """Whatever a saver is asked first."""
    path = tmp_path / "x.db"
    path.write_bytes(b"no database" * 1000)
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        calls = {
            "setup": saver.setup,
            "get_tuple": lambda: saver.get_tuple(at()),
            "cursor": use_cursor(saver),
        }
        with pytest.raises(DatabaseCorruptError, match="SQLite cannot read the file"):
            calls[call]()
        assert not saver.is_setup


@pytest.mark.parametrize("call", ["setup", "get_tuple", "cursor"])
def test_a_schema_that_is_no_text_is_refused_in_our_words(tmp_path: Path, call: str) -> None:
    """The name of a column in bytes that are not UTF-8, which the module for SQLite cannot give."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        put_chain(SqliteSaver(connection), "1")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b"checkpoint BLOB", b"checkpoin\xff BLOB"))
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        calls = {
            "setup": saver.setup,
            "get_tuple": lambda: saver.get_tuple(at()),
            "cursor": use_cursor(saver),
        }
        with pytest.raises(SealpointError):
            calls[call]()
        assert not saver.is_setup


def use_cursor(saver: SqliteSaver) -> Callable[[], None]:
    def use() -> None:
        with saver.cursor(transaction=False):
            pass

    return use
