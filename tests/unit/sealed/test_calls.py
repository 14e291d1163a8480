"""What a write says of its call, and which writes must stand beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.errors import ConfigError, WritesLostError
from sealpoint.langgraph import SealedSaver
from sealpoint.sealed.body import pack_claims, split_claims
from sealpoint.sealed.calls import MAX_SPECIAL, Claims, StoredWrite, new_call, places_of, require_whole
from tests.graphs.savers import SEALED

CHANNELS: Final = ("a", "b", ERROR, INTERRUPT, RESUME)
calls = st.lists(st.tuples(st.sampled_from(CHANNELS), st.none()), min_size=1, max_size=8)
texts = st.text(st.characters())


def indexes(call: bytes) -> list[int]:
    ordinary, special = places_of(call)
    return sorted([*ordinary, *special])


@given(path=texts, idx=st.integers(-(2**31), 2**31 - 1), writes=calls, rest=st.binary())
def test_claims_with_a_call_read_back(path: str, idx: int, writes: Any, rest: bytes) -> None:
    claims = Claims(path, idx, new_call(writes))
    assert split_claims(pack_claims(claims) + rest) == (claims, rest)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ("ab", [0, 1]),
        ([RESUME, RESUME, "a", "b"], [-4, 2, 3]),
        ([INTERRUPT], [-3]),
        (["a", ERROR, "b"], [-1, 0, 2]),
    ],
)
def test_places_of_a_call(channels: Sequence[str], expected: list[int]) -> None:
    """As LangGraph's savers number writes: a special write keeps its position reserved."""
    assert indexes(new_call([(channel, None) for channel in channels])) == expected


def test_calls_have_ids_of_their_own() -> None:
    assert len({new_call([("a", None)])[:8] for _ in range(100)}) == 100


def test_a_call_with_very_many_special_writes_is_refused() -> None:
    with pytest.raises(ConfigError, match="65536 special writes"):
        new_call([(RESUME, None)] * (MAX_SPECIAL + 1))


@given(st.lists(calls, min_size=1, max_size=3), st.data())
def test_each_missing_write_is_noticed(made: list[Any], data: st.DataObject) -> None:
    """Calls of one task as SQLite keeps them: the first ordinary write of a place, any special one."""
    rows: dict[int, StoredWrite] = {}
    for writes in made:
        call = new_call(writes)
        for (channel, _), idx in zip(writes, numbers(writes), strict=True):
            if idx < 0 or idx not in rows:
                rows[idx] = StoredWrite(Claims("", idx, call), "t", channel, "", b"")
    require_whole([*rows.values()])
    if len(rows) > 1:
        gone = data.draw(st.sampled_from(sorted(rows)))
        left = [write for idx, write in rows.items() if idx != gone]
        needed = {idx for write in left if write.claims for idx in indexes(write.claims.call)}
        if gone in needed:
            with pytest.raises(WritesLostError):
                require_whole(left)
        else:  # no call that still stands has it
            require_whole(left)


def numbers(writes: Any) -> list[int]:
    fixed = {ERROR: -1, INTERRUPT: -3, RESUME: -4}
    return [fixed.get(channel, position) for position, (channel, _) in enumerate(writes)]


def test_writes_of_earlier_releases_say_nothing() -> None:
    old = [StoredWrite(Claims("", idx), "t", "a", "", b"") for idx in (0, 2)]
    require_whole(old)
    new = StoredWrite(Claims("", 1, new_call([("a", 0), ("a", 1), ("a", 2)])), "t", "a", "", b"")
    require_whole([*old, new])
    with pytest.raises(WritesLostError):
        require_whole([old[0], new])
    require_whole([old[0], new, StoredWrite(None, "t", "a", "", b"")])  # it may be the third
    with pytest.raises(WritesLostError):
        require_whole([old[0], new, StoredWrite(None, "other", "a", "", b"")])


# --- through a saver ------------------------------------------------------------------------------------


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as made:
        yield made


def begun(saver: Any) -> Any:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    return saver.put(config, empty_checkpoint(), {}, {})


def delete(connection: sqlite3.Connection, idx: int) -> None:
    connection.execute("DELETE FROM writes WHERE idx = ?", [idx])
    connection.commit()


@pytest.mark.parametrize("gone", [-4, 1, 2])
def test_a_write_taken_out_of_its_call(connection: sqlite3.Connection, gone: int) -> None:
    saver = SealedSaver(Theirs(connection), serde=SEALED)
    config = begun(saver)
    saver.put_writes(config, [(RESUME, "yes"), ("amount", 5), ("flagged", True)], "task")
    delete(connection, gone)
    for read in (
        lambda: saver.get_tuple(config),
        lambda: [*saver.list(config)],
        lambda: saver.copy_thread("t", "u"),
    ):
        with pytest.raises(WritesLostError, match="task 'task'"):
            read()


def test_a_saver_that_stores_writes_one_by_one(connection: sqlite3.Connection) -> None:
    saver = SealedSaver(Theirs(connection), serde=SEALED, allow_partial_writes=True)
    config = begun(saver)
    saver.put_writes(config, [("amount", 5), ("flagged", True)], "task")
    delete(connection, 1)
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task", "amount", 5)]


def test_a_later_call_without_the_answer_moves_positions(connection: sqlite3.Connection) -> None:
    """Its writes are ignored where others stand; SQLite keeps rows of both calls."""
    saver = SealedSaver(Theirs(connection), serde=SEALED)
    config = begun(saver)
    saver.put_writes(config, [(RESUME, "r"), ("a", "x")], "task")
    saver.put_writes(config, [("a", "x'"), ("b", "y'")], "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert [write[2] for write in found.pending_writes or ()] == ["r", "x'", "x"]


def test_a_copy_can_go_on(connection: sqlite3.Connection) -> None:
    """Its writes have the numbers that they claim, so that a later call of the task finds its places."""
    saver = SealedSaver(Theirs(connection), serde=SEALED)
    config = begun(saver)
    saver.put_writes(config, [(RESUME, "r"), ("a", "x")], "task", "path")
    saver.copy_thread("t", "u")
    copy: Any = {"configurable": {**config["configurable"], "thread_id": "u"}}
    for each in (config, copy):
        saver.put_writes(each, [("a", "x'"), ("b", "y'")], "task", "path")
    first, second = saver.get_tuple(config), saver.get_tuple(copy)
    assert first is not None
    assert second is not None
    assert first.pending_writes == second.pending_writes
    rows = "SELECT task_path, idx, channel FROM writes WHERE thread_id = ? ORDER BY idx"
    assert connection.execute(rows, "t").fetchall() == connection.execute(rows, "u").fetchall()
