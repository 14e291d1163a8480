"""The state of a delta graph is made of writes: none of them can be taken out or exchanged unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.errors import DecodeError, WritesLostError
from sealpoint.seal.calls import Claims, StoredWrite, new_call, pack_made, parse_made, require_made
from sealpoint.seal.rows import MARK
from tests.sealed.deltas import KINDS, Database, database, rules
from tests.sealed.scene import at, checkpoint_id

THREAD: Final[Any] = {"configurable": {"thread_id": "delta"}}
WRITER: Final = "writer"
LOG: Final = ["asked", "policy 1", "policy 2", "done"]


@pytest.fixture(params=[False, True], ids=["alone", "beside a store"])
def beside(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest, tmp_path: Path, *, beside: bool) -> Any:
    with database(request.param, request.config, tmp_path, beside=beside) as made:
        yield made


def run(db: Database, durability: str) -> None:
    state = (
        rules()
        .compile(checkpointer=db.saver())
        .invoke({"log": ["begun"], "turn": 0}, THREAD, durability=durability)
    )
    assert state["log"] == ["begun", *LOG]


def log_of(db: Database) -> list[str]:
    state = rules().compile(checkpointer=db.saver()).get_state(THREAD)
    log: list[str] = state.values["log"]
    return log


@pytest.mark.claim("s13")
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_each_task_deleted(db: Database, durability: str) -> None:
    """With all that it has stored; the nodes do not run again."""
    run(db, durability)
    before = log_of(db)
    rows = db.raw.rows("writes", thread_id="delta")
    tasks = {(row["checkpoint_id"], row["task_id"]) for row in rows if row["channel"] == "log"}
    assert len(tasks) >= (2 if durability == "exit" else 4)
    for checkpoint, task in sorted(tasks):
        gone = [row for row in rows if (row["checkpoint_id"], row["task_id"]) == (checkpoint, task)]
        db.delete(gone)
        with pytest.raises(WritesLostError):
            log_of(db)
        db.put(gone)
    assert log_of(db) == before


C1, C2, C3 = map(checkpoint_id, (1, 2, 3))


def put(saver: Any, number: int, **more: Any) -> Any:
    """Store a checkpoint of a delta graph upon the one before it."""
    checkpoint: Any = {**empty_checkpoint(), "id": checkpoint_id(number)}
    parent = at(WRITER, "", checkpoint_id(number - 1) if number > 1 else None)
    return saver.put(parent, checkpoint, {"step": number, MARK: {"log": (1, 1)}, **more}, {})


def history(db: Database) -> list[Any]:
    found = db.saver().get_delta_channel_history(config=at(WRITER), channels=["log"])
    return [value for _, _, value in found["log"]["writes"]]


@pytest.mark.claim("s13")
def test_a_first_result_in_the_place_of_the_second(db: Database) -> None:
    """Both are lawful, and the child was made of the second."""
    first = put(db.saver(), 1)
    db.saver().put_writes(first, [("log", ["pay 5"])], "task")
    earlier = db.raw.rows("writes", thread_id=WRITER)
    db.delete(earlier)
    db.saver().put_writes(first, [("log", ["pay nothing"])], "task")  # it ran again
    put(db.saver(), 2)
    assert history(db) == [["pay nothing"]]
    db.delete(db.raw.rows("writes", thread_id=WRITER))
    db.put(earlier)
    with pytest.raises(WritesLostError):
        history(db)


@pytest.mark.claim("s15")
def test_later_writes_are_no_part_of_a_child(db: Database) -> None:
    """Those of another run or child, or deleted before and put back; answers and errors may change."""
    first = put(db.saver(), 1)
    for call in ([("log", ["a"])], [("__interrupt__", ["?"])]):
        db.saver().put_writes(first, call, "task")
    put(db.saver(), 2)
    for call in ([("__interrupt__", ["!"])], [("log", ["a"]), ("log", ["b"])]):
        db.saver().put_writes(first, call, "task")
    db.saver().put_writes(first, [("log", ["c"])], "task 2")
    assert history(db) == [["a"]]


def test_a_child_of_a_checkpoint_without_writes_has_none(db: Database) -> None:
    first = put(db.saver(), 1)
    put(db.saver(), 2)
    db.saver().put_writes(first, [("log", ["user is admin"])], "task")
    assert history(db) == []


def test_writes_deleted_while_the_process_goes_on(db: Database) -> None:
    """It has their values in its memory, and no node would run again."""
    saver = db.saver()
    first = put(saver, 1)
    for number in range(2):
        saver.put_writes(first, [("log", [number])], f"task {number}")
    db.delete(db.raw.rows("writes", thread_id=WRITER, task_id="task 0"))
    with pytest.raises(WritesLostError, match="is missing, and was stored before"):
        put(saver, 2)
    put(db.saver(), 3)  # of another process, which knows of none
    saver.delete_thread(WRITER)
    put(saver, 1)
    put(saver, 2)


def test_a_write_of_an_ancestor_that_no_child_needs(db: Database) -> None:
    """A checkpoint that is stored in full says nothing of its parent."""
    first = put(db.saver(), 1)
    db.saver().put_writes(first, [("log", ["a"])], "task")
    checkpoint: Any = {**empty_checkpoint(), "id": C2}
    db.saver().put(first, checkpoint, {"step": 2}, {})
    db.delete(db.raw.rows("writes", thread_id=WRITER))
    assert history(db) == []


def test_copies_need_the_same_writes(db: Database) -> None:
    first = put(db.saver(), 1)
    db.saver().put_writes(first, [("log", ["a"])], "task")
    put(db.saver(), 2)
    db.saver().copy_thread(WRITER, "copy")
    copied = db.saver().get_delta_channel_history(config=at("copy"), channels=["log"])
    assert [value for _, _, value in copied["log"]["writes"]] == [["a"]]
    db.delete(db.raw.rows("writes", thread_id="copy"))
    with pytest.raises(WritesLostError):
        db.saver().get_delta_channel_history(config=at("copy"), channels=["log"])
    assert history(db) == [["a"]]


# --- what a checkpoint says ------------------------------------------------------------------------------


def written(task: str, call: bytes, *channels: str) -> list[StoredWrite]:
    return [
        StoredWrite(Claims("", idx, call), task, channel, "", b"") for idx, channel in enumerate(channels)
    ]


def test_it_counts_ordinary_writes_by_task_and_call() -> None:
    one, two = new_call([("a", 0), ("b", 0)]), new_call([("a", 0)])
    writes = [*written("t", one, "a", "b"), *written("u", two, "a", "__resume__"), *written("v", b"", "a")]
    made = pack_made(writes)
    assert made is not None
    assert [[*calls.values()] for calls in parse_made(made).values()].count([2]) == 1
    assert len(made) == 80  # three records of 20 bytes
    for gone in range(len(writes)):
        left = writes[:gone] + writes[gone + 1 :]
        if writes[gone].channel == "__resume__":
            require_made(made, left)
        else:
            with pytest.raises(WritesLostError):
                require_made(made, left)
    assert pack_made(written("t", one, "__resume__")) == ""


def test_rows_that_were_bound_anew_stand_for_those_that_had_a_call() -> None:
    """`rebind --unbind` removes calls from writes, and binding them again does not bring them back."""
    made = pack_made(written("t", new_call([("a", 0), ("b", 0)]), "a", "b"))
    anew = written("t", b"", "a", "b")
    require_made(made, anew)
    require_made(made, [write._replace(claims=None) for write in anew])
    with pytest.raises(WritesLostError):
        require_made(made, anew[:1])
    with pytest.raises(WritesLostError):
        require_made(made, [write._replace(task_id="u") for write in anew])


@pytest.mark.parametrize("made", [1, None, "?", "AAAA", "é"])
def test_another_form_is_refused(made: Any) -> None:
    with pytest.raises(DecodeError):
        require_made(made, [])
