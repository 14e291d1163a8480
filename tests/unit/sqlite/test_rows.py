"""Rows that somebody else wrote: what is not what its key says is an error, never a value."""

from __future__ import annotations

from typing import Any

import pytest

from sealpoint import EncryptedSerializer, JsonPlusSerializer
from sealpoint.errors import MetadataError, PlaintextError, RowError, SealpointError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump, make, put_chain


def forge(saver: SqliteSaver, table: str, **columns: Any) -> None:
    """Change columns of every row of a table, past the saver."""
    assignments = ", ".join(f"{name} = ?" for name in columns)
    with saver.cursor() as cursor:
        cursor.execute(f"UPDATE main.{table} SET {assignments}", [*columns.values()])


def read_every_way(saver: SqliteSaver, error: type[Exception], match: str | None = None) -> None:
    """Read the rows by each method that decodes them. No error quotes them."""
    for read in (
        lambda: saver.get_tuple(at()),
        lambda: saver.get_tuple(at("t", "1")),
        lambda: list(saver.list(None)),
    ):
        with pytest.raises(error, match=match) as caught:
            read()
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


WHOLE: dict[str, Any] = {**make("1")}
NOT_CHECKPOINTS: list[Any] = [None, "secret", [["id", "1"]], {}, {"id": None}, {"id": 1}, {"id": "2"}]
NOT_DICTS: list[Any] = [None, [], "secret"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        *((value, "does not hold the checkpoint") for value in NOT_CHECKPOINTS),
        *(
            ({**WHOLE, name: wrong}, f"checkpoint '1' lacks one of .*{name}")
            for name in ("channel_values", "channel_versions", "versions_seen")
            for wrong in NOT_DICTS
        ),
        *(
            ({key: WHOLE[key] for key in WHOLE if key != name}, f"checkpoint '1' lacks one of .*{name}")
            for name in ("channel_values", "channel_versions", "versions_seen")
        ),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_row_holds_the_checkpoint_of_its_id(saver: SqliteSaver, value: object, reason: str) -> None:
    """A graph would meet what is missing much later, where nothing tells which row it was."""
    put_chain(saver, "1")
    kind, data = JsonPlusSerializer().dumps_typed(value)
    forge(saver, "checkpoints", type=kind, checkpoint=data)
    read_every_way(saver, RowError, reason)


@pytest.mark.claim("b2")
def test_a_checkpoint_moved_to_another_id_is_refused(saver: SqliteSaver) -> None:
    saver.put(at(), make("0"), {}, {})
    forge(saver, "checkpoints", checkpoint_id="1")
    read_every_way(saver, RowError)


def test_a_row_without_an_id_is_refused(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    kind, data = saver.serde.dumps_typed(make(""))
    forge(saver, "checkpoints", checkpoint_id="", type=kind, checkpoint=data)
    with pytest.raises(RowError):
        list(saver.list(None))
    with pytest.raises(RowError):
        saver.get_tuple(at())


@pytest.mark.parametrize(
    ("table", "column"), [("checkpoints", "type"), ("checkpoints", "metadata"), ("writes", "value")]
)
def test_text_that_is_not_utf8_is_refused(saver: SqliteSaver, table: str, column: str) -> None:
    """And not quoted: it may be what was decrypted."""
    put_chain(saver, "1")
    saver.conn.execute(f"UPDATE {table} SET {column} = CAST(x'736563726574ff' AS TEXT)")
    read_every_way(saver, RowError)


@pytest.mark.parametrize(
    ("table", "column", "value", "error"),
    [
        *(("checkpoints", "checkpoint", value, SealpointError) for value in (None, 5, "\x00")),
        *(("writes", "value", value, SealpointError) for value in (None, 5, "\x00")),
        *(("writes", column, b"x", RowError) for column in ("task_id", "task_path", "channel", "idx")),
        ("checkpoints", "type", 5, SealpointError),
        ("checkpoints", "parent_checkpoint_id", b"x", RowError),
    ],
)
def test_a_value_of_another_storage_class_is_refused(
    saver: SqliteSaver, table: str, column: str, value: object, error: type[Exception]
) -> None:
    """Every column takes every value in SQLite; ``bytes(5)`` would be five zeros."""
    put_chain(saver, "1")
    forge(saver, table, **{column: value})
    read_every_way(saver, error)


@pytest.mark.parametrize(
    "metadata", ["", "null", "[" * 300 + "]" * 300, '{"a": nan}', "{'secret': 1}", 5, b"\xff"]
)
def test_metadata_is_json(saver: SqliteSaver, metadata: Any) -> None:
    put_chain(saver, "1")
    for stored in (metadata, metadata.encode()) if isinstance(metadata, str) else (metadata,):
        forge(saver, "checkpoints", metadata=stored)
        read_every_way(saver, MetadataError)


def test_a_filter_on_malformed_metadata_is_an_error_of_ours(saver: SqliteSaver) -> None:
    """SQLite looks into it before any row is decoded."""
    put_chain(saver, "1")
    forge(saver, "checkpoints", metadata="{'a': 1")  # not even JSON5, which SQLite reads from 3.42 on
    put_chain(saver, "2")
    for wanted in ({"step": 1}, {"a.b": None}):
        with pytest.raises(MetadataError):
            list(saver.list(None, filter=wanted))


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
        with pytest.raises(RowError, match="cycle"):
            saver.get_delta_channel_history(config=at("t", checkpoint_id), channels=["absent"])
    before = dump(saver.conn)
    with pytest.raises(RowError, match="cycle"):
        saver.prune(["t"])
    assert dump(saver.conn) == before


@pytest.mark.claim("b1")
def test_a_plaintext_row_is_refused_under_encryption(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    sealed = SqliteSaver(saver.conn, serde=EncryptedSerializer.from_key(bytes(range(32))))
    read_every_way(sealed, PlaintextError)
