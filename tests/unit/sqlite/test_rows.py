"""Rows that somebody else wrote: what is not what its key says is an error, never a value."""

from __future__ import annotations

from typing import Any

import pytest

from sealpoint import EncryptedSerializer, JsonPlusSerializer
from sealpoint.errors import MetadataError, PlaintextError, RowError, SealpointError
from sealpoint.sqlite import SqliteSaver
from tests.support.checkpoints import at, dump, make, put_chain


def forge(saver: SqliteSaver, table: str, **columns: Any) -> None:
    """Change columns of every row of a table, past the saver."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    with saver.cursor() as cursor:
        cursor.execute(f"UPDATE main.{table} SET {assignments}", [*columns.values()])


def read_every_way(saver: SqliteSaver, error: type[Exception]) -> None:
    """Read the rows by each method that decodes them."""
    for config in (at(), at("t", "1")):
        with pytest.raises(error):
            saver.get_tuple(config)
    with pytest.raises(error):
        list(saver.list(None))


@pytest.mark.parametrize(
    "value",
    [None, 5, "text", b"bytes", [1], {}, {"id": None}, {"id": 1}, {"id": "2"}, {b"id": "1"}, [["id", "1"]]],
    ids=repr,
)
def test_a_row_holds_the_checkpoint_of_its_id(saver: SqliteSaver, value: object) -> None:
    put_chain(saver, "1")
    kind, data = JsonPlusSerializer().dumps_typed(value)
    forge(saver, "checkpoints", type=kind, checkpoint=data)
    read_every_way(saver, RowError)


def test_a_checkpoint_moved_to_another_id_is_refused(saver: SqliteSaver) -> None:
    saver.put(at(), make("0"), {}, {})
    forge(saver, "checkpoints", checkpoint_id="1")
    read_every_way(saver, RowError)


@pytest.mark.parametrize("column", ["type", "checkpoint"])
@pytest.mark.parametrize("value", [None, 5, 1.5, "\x00"])
def test_a_value_of_another_storage_class_is_refused(saver: SqliteSaver, column: str, value: object) -> None:
    """SQLite returns an integer, a fraction or text where somebody put one."""
    put_chain(saver, "1")
    forge(saver, "checkpoints", **{column: value})
    read_every_way(saver, SealpointError)


@pytest.mark.parametrize("column", ["task_id", "task_path", "channel", "idx"])
def test_a_write_is_named_by_text_and_a_number(saver: SqliteSaver, column: str) -> None:
    put_chain(saver, "1")
    forge(saver, "writes", **{column: b"x"})
    read_every_way(saver, RowError)


def test_a_parent_is_named_by_text(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    forge(saver, "checkpoints", parent_checkpoint_id=b"0")
    read_every_way(saver, RowError)


def test_a_thread_is_named_by_text(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    forge(saver, "checkpoints", thread_id=b"t")
    with pytest.raises(RowError):
        list(saver.list(None))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"x"',
        "5",
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": NaN}',
        '{"a": [Infinity]}',
        '{"a": -Infinity}',
        "{'a': 1}",
        '{"a": 1}{}',
        '{"a": 1,}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "text"])
def test_metadata_is_strict_json(saver: SqliteSaver, text: str, as_bytes: bool) -> None:
    put_chain(saver, "1")
    forge(saver, "checkpoints", metadata=text.encode() if as_bytes else text)
    read_every_way(saver, MetadataError)


@pytest.mark.parametrize("value", [5, 1.5, b"\xff", b'{"a": "\xff"}'])
def test_metadata_is_text(saver: SqliteSaver, value: object) -> None:
    put_chain(saver, "1")
    forge(saver, "checkpoints", metadata=value)
    read_every_way(saver, MetadataError)


def test_no_metadata_is_empty_metadata(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    forge(saver, "checkpoints", metadata=None)
    (found,) = saver.list(None)
    assert found.metadata == {}


@pytest.mark.parametrize("parents", [{"1": "1"}, {"1": "2", "2": "1"}, {"1": "3", "2": "1", "3": "2"}])
def test_a_circle_of_parents_ends_in_an_error(saver: SqliteSaver, parents: dict[str, str]) -> None:
    """Whichever checkpoint of the circle, or beside it, the walk begins at."""
    put_chain(saver, *parents, "9")
    with saver.cursor() as cursor:
        for child, parent in parents.items():
            cursor.execute(
                "UPDATE checkpoints SET parent_checkpoint_id = ? WHERE checkpoint_id = ?", (parent, child)
            )
    for checkpoint_id in (*parents, "9"):
        with pytest.raises(RowError, match="circle"):
            saver.get_delta_channel_history(config=at("t", checkpoint_id), channels=["absent"])
    before = dump(saver.conn)
    with pytest.raises(RowError, match="circle"):
        saver.prune(["t"])
    assert dump(saver.conn) == before


def test_a_plaintext_row_is_refused_under_encryption(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    sealed = SqliteSaver(saver.conn, serde=EncryptedSerializer.from_key(bytes(range(32))))
    read_every_way(sealed, PlaintextError)


def test_a_plaintext_write_is_refused_under_encryption(saver: SqliteSaver) -> None:
    sealed = SqliteSaver(saver.conn, serde=EncryptedSerializer.from_key(bytes(range(32))))
    put_chain(sealed, "1")
    saver.put_writes(at("t", "1"), [("x", "forged")], "task2")
    read_every_way(sealed, PlaintextError)
