"""What a write says of its call, and which writes must stand beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
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
from sealpoint.seal.calls import Claims, StoredWrite, new_call, places_of, require_whole
from tests.graphs.savers import SEALED

CHANNELS: Final = ("a", "b", ERROR, INTERRUPT, RESUME)
calls = st.lists(st.tuples(st.sampled_from(CHANNELS), st.none()), min_size=1, max_size=8)


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
        needed = {
            idx for write in left if write.claims for places in places_of(write.claims.call) for idx in places
        }
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


def test_a_call_has_at_most_as_many_special_writes_as_two_bytes_count() -> None:
    call = new_call([(RESUME, None)] * 0xFFFF)
    assert places_of(call) == ([], frozenset((-4,)))
    with pytest.raises(ConfigError, match="65536 special writes; at most 65535"):
        new_call([(RESUME, None)] * (0xFFFF + 1))


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


def test_a_saver_that_stores_writes_one_by_one(connection: sqlite3.Connection) -> None:
    saver = SealedSaver(Theirs(connection), serde=SEALED, allow_partial_writes=True)
    config = begun(saver)
    saver.put_writes(config, [("amount", 5), ("flagged", True)], "task")
    delete(connection, 1)
    found: Any = saver.get_tuple(config)
    assert found.pending_writes == [("task", "amount", 5)]
    with pytest.raises(ConfigError, match="65536 special writes"):
        saver.put_writes(config, [(RESUME, None)] * (0xFFFF + 1), "task")


def test_a_later_call_without_the_answer_moves_positions(connection: sqlite3.Connection) -> None:
    """Its writes are ignored where others stand; SQLite keeps rows of both calls."""
    saver = SealedSaver(Theirs(connection), serde=SEALED)
    config = begun(saver)
    saver.put_writes(config, [(RESUME, "r"), ("a", "x")], "task")
    saver.put_writes(config, [("a", "x'"), ("b", "y'")], "task")
    found: Any = saver.get_tuple(config)
    assert [write[2] for write in found.pending_writes] == ["r", "x'", "x"]
