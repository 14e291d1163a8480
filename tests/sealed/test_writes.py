"""Pending writes that are deleted, or replaced by older ones: what is noticed, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import EarlierWriteError, WritesLostError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.seal.calls import NULL_TASK_ID
from sealpoint.seal.rows import MARK
from tests.sealed.deltas import KINDS, Database, database
from tests.sealed.raw import Row
from tests.sealed.scene import NEW, at, checkpoint_id

WRITER: Final = "writer"
C1, C2 = checkpoint_id(1), checkpoint_id(2)
Rows = list[Row]


@pytest.fixture(params=["alone", "beside a store"])
def layers(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=KINDS)
def db(request: pytest.FixtureRequest, tmp_path: Path, layers: str) -> Iterator[Database]:
    with database(request.param, request.config, tmp_path, beside=layers == "beside a store") as made:
        yield made


def put(db: Database, number: int) -> Any:
    """Store a checkpoint of a delta graph upon the one before it."""
    checkpoint: Any = {**empty_checkpoint(), "v": NEW, "id": checkpoint_id(number)}
    parent = at(WRITER, "", checkpoint_id(number - 1) if number > 1 else None)
    return db.saver().put(parent, checkpoint, {"step": number, MARK: {"log": (1, 1)}}, {})


def rows(db: Database, **where: Any) -> Rows:
    found: Rows = db.raw.rows("writes", thread_id=WRITER, **where)
    return found


def fill(db: Database) -> dict[str, Rows]:
    """Store two checkpoints, and all kinds of writes upon them; return the rows that are replaced."""
    older: dict[str, Rows] = {}
    first = put(db, 1)
    db.saver().put_writes(first, [("log", ["earlier"])], "again")
    older["result"] = rows(db, task_id="again")
    db.delete(older["result"])
    for task, log in (("again", "x"), ("other", "y")):
        db.saver().put_writes(first, [("log", [log]), ("flagged", True)], task)
    tip = put(db, 2)
    db.saver().put_writes(tip, [("amount", 50_000), ("flagged", True)], "done")
    for channel, kept, value in (
        (INTERRUPT, "question", "pay 5?"),
        (RESUME, "answer", ["yes"]),
        (INTERRUPT, "", "pay 50,000?"),
        (RESUME, "", ["yes", "no"]),
    ):
        db.saver().put_writes(tip, [(channel, value)], "asks")
        older[kept] = rows(db, task_id="asks", channel=channel)
    db.saver().put_writes(tip, [(ERROR, "failed")], "fails")
    return older


Act = Callable[[Database, dict[str, Rows]], None]


def deleted(**where: Any) -> Act:
    return lambda db, _: db.delete(rows(db, **where))


def put_back(kept: str, **where: Any) -> Act:
    def act(db: Database, older: dict[str, Rows]) -> None:
        db.delete(rows(db, **where))
        db.put(older[kept])

    return act


ACTS: Final[dict[str, Act]] = {
    "one write": deleted(checkpoint_id=C2, task_id="done", idx=1),
    "one task": deleted(checkpoint_id=C2, task_id="done"),
    "an answer": deleted(checkpoint_id=C2, channel=RESUME),
    "a question": deleted(checkpoint_id=C2, channel=INTERRUPT),
    "an error": deleted(checkpoint_id=C2, channel=ERROR),
    "all writes": deleted(checkpoint_id=C2),
    "an older answer": put_back("answer", channel=RESUME),
    "an older question": put_back("question", channel=INTERRUPT),
    "one write of an ancestor": deleted(checkpoint_id=C1, task_id="again", idx=1),
    "one task of an ancestor": deleted(checkpoint_id=C1, task_id="again"),
    "all writes of an ancestor": deleted(checkpoint_id=C1),
    "an older result of an ancestor": put_back("result", checkpoint_id=C1, task_id="again"),
}

READS: Final[dict[str, Callable[[Any], Any]]] = {
    "get_tuple": lambda saver: saver.get_tuple(at(WRITER, "", C2)),
    "get_tuple of the ancestor": lambda saver: saver.get_tuple(at(WRITER, "", C1)),
    "latest": lambda saver: saver.get_tuple(at(WRITER)),
    "list": lambda saver: [*saver.list(at(WRITER))],
    "list of all threads": lambda saver: [*saver.list(None, filter={"step": 2})],
    "delta history": lambda saver: saver.get_delta_channel_history(config=at(WRITER), channels=["log"]),
    "copy": lambda saver: saver.copy_thread(WRITER, "copy"),
}
OF_TIP: Final = ("get_tuple", "latest", "list", "list of all threads", "copy")
LATEST: Final = (*OF_TIP, "delta history")
OF_ANCESTOR: Final = ("get_tuple of the ancestor", "list", "copy")

HELD: Final[dict[str, dict[str, tuple[Any, tuple[str, ...]]]]] = {
    "alone": {
        "one write": (WritesLostError, OF_TIP),
        "one write of an ancestor": (WritesLostError, (*OF_ANCESTOR, "delta history")),
        "one task of an ancestor": (WritesLostError, ("delta history",)),
        "all writes of an ancestor": (WritesLostError, ("delta history",)),
        "an older result of an ancestor": (WritesLostError, ("delta history",)),
    },
    "beside a store": {
        "one write": (WritesLostError, LATEST),
        "an answer": (WritesLostError, LATEST),
        "a question": (WritesLostError, LATEST),
        "an error": (WritesLostError, LATEST),
        "all writes": (WritesLostError, LATEST),
        "an older answer": (EarlierWriteError, LATEST),
        "an older question": (EarlierWriteError, LATEST),
    },
}
"""What is noticed, by which reads. Everything else is not: docs/threads.md lists it."""


@pytest.mark.claim("s21")
@pytest.mark.parametrize("name", ACTS)
def test_edits_of_writes(db: Database, layers: str, name: str) -> None:
    older = fill(db)
    for read in READS.values():
        read(db.saver())
    ACTS[name](db, older)
    held = {**HELD["alone"], **HELD[layers]}
    error, refused = held.get(name, (None, ()))
    for how, read in READS.items():
        if how in refused:
            with pytest.raises(error):
                read(db.saver())
        else:
            read(db.saver())


# --- through a graph -------------------------------------------------------------------------------------


class Payment(TypedDict, total=False):
    answers: list[str]
    amount: int
    flagged: bool


def asks() -> Any:
    """A graph that asks three times before it pays."""
    graph: Any = StateGraph(Payment)
    questions = ("pay 5?", "pay 50,000?", "sure?")
    graph.add_node("pay", lambda _: {"answers": [interrupt(question) for question in questions]})
    graph.add_edge(START, "pay")
    return graph


THREAD: Final[Any] = {"configurable": {"thread_id": WRITER}}


def step(db: Database, given: Any, graph: Callable[[], Any] = asks) -> Any:
    """Go on, as a new process does."""
    return graph().compile(checkpointer=db.saver()).invoke(given, THREAD, durability="sync")


@pytest.mark.claim("s19", "h9")
def test_an_older_answer_put_back(db: Database, layers: str) -> None:
    """The user said no to the second question."""
    step(db, {})
    step(db, Command(resume="yes"))
    older = rows(db, channel=RESUME)
    step(db, Command(resume="no"))
    db.delete(rows(db, channel=RESUME))
    db.put(older)
    if layers == "alone":  # a limit
        step(db, Command(resume="yes"))
        assert step(db, Command(resume="sure"))["answers"] == ["yes", "yes", "sure"]
        return
    with pytest.raises(EarlierWriteError):
        step(db, None)
    with pytest.raises(EarlierWriteError):
        step(db, Command(resume="yes"))


@pytest.mark.claim("s19", "h9")
def test_an_older_question_put_back(db: Database, layers: str) -> None:
    """The user would be asked about 5, and approve 50,000."""
    step(db, {})
    older = rows(db, channel=INTERRUPT)
    step(db, Command(resume="yes"))
    db.delete(rows(db, channel=INTERRUPT))
    db.put(older)
    graph = asks().compile(checkpointer=db.saver())
    if layers == "alone":  # a limit
        assert graph.get_state(THREAD).interrupts[0].value == "pay 5?"
        return
    with pytest.raises(EarlierWriteError):
        graph.get_state(THREAD)


def test_an_answer_is_asked_for_once(db: Database) -> None:
    """Nothing is noticed where nothing was done."""
    assert step(db, {})["__interrupt__"][0].value == "pay 5?"
    assert step(db, Command(resume="yes"))["__interrupt__"][0].value == "pay 50,000?"
    assert step(db, Command(resume="no"))["__interrupt__"][0].value == "sure?"
    db.saver().copy_thread(WRITER, "copy")
    assert step(db, Command(resume="sure"))["answers"] == ["yes", "no", "sure"]
    copy: Any = {"configurable": {"thread_id": "copy"}}
    graph = asks().compile(checkpointer=db.saver())
    assert graph.invoke(Command(resume="so"), copy)["answers"] == ["yes", "no", "so"]


def splits() -> Any:
    """A graph with a node that has ended, beside one that waits."""
    graph: Any = StateGraph(Payment)
    graph.add_node("check", lambda _: {"amount": 50_000, "flagged": True})
    graph.add_node("ask", lambda _: {"answers": [interrupt("pay?")]})
    graph.add_edge(START, "check")
    graph.add_edge(START, "ask")
    return graph


@pytest.mark.claim("s12")
def test_half_a_result(db: Database) -> None:
    step(db, {}, splits)
    db.delete(rows(db, channel="flagged"))
    with pytest.raises(WritesLostError):
        step(db, None, splits)
    with pytest.raises(WritesLostError):
        step(db, Command(resume="yes"), splits)


@pytest.mark.claim("s16")
def test_halves_of_two_results(db: Database) -> None:
    """The first was deleted, the node ran again, and one row of it is put back."""
    tip = put(db, 1)
    db.saver().put_writes(tip, [("amount", 5), ("approved", True)], "task")
    (_, approved) = rows(db)
    db.delete(rows(db))
    db.saver().put_writes(tip, [("amount", 50_000), ("approved", False)], "task")
    db.delete(rows(db, channel="approved"))
    db.put([approved])
    with pytest.raises(WritesLostError, match="two results"):
        db.saver().get_tuple(at(WRITER))


def test_two_calls_of_a_task(db: Database) -> None:
    """The second stores what the first has not: LangGraph stores what the user has given before again."""
    tip = put(db, 1)
    db.saver().put_writes(tip, [("a", 1)], "task")
    db.saver().put_writes(tip, [("a", 2), ("b", 2), (INTERRUPT, "?")], "task")
    db.saver().put_writes(tip, [("a", 3), ("b", 3), ("c", 3)], "task")
    found = {channel: value for _, channel, value in db.saver().get_tuple(at(WRITER)).pending_writes}
    assert (found["a"], found["b"]) == (1, 2)


@pytest.mark.claim("s17")
@pytest.mark.parametrize("update", [{"answers": ["never pay"]}, None], ids=["update", "goto"])
def test_what_the_user_stored_while_a_node_waits(db: Database, layers: str, update: Any) -> None:
    """No node stored it, so that none runs again."""
    step(db, {})
    step(db, Command(update=update) if update else Command(goto="pay"))
    of_user = rows(db, task_id=NULL_TASK_ID)
    assert of_user
    db.saver().copy_thread(WRITER, "copy")
    db.delete(of_user)
    if layers == "alone":  # a limit
        step(db, Command(resume="yes"))
        return
    with pytest.raises(WritesLostError, match="update of the user"):
        step(db, Command(resume="yes"))
    db.delete(db.raw.rows("writes", thread_id="copy", task_id=NULL_TASK_ID))
    with pytest.raises(WritesLostError, match="update of the user"):
        db.saver().get_tuple(at("copy"))


@pytest.mark.claim("h7")
def test_a_whole_result(db: Database) -> None:
    """A limit of every layer: the node runs again, as if it had been interrupted."""
    step(db, {}, splits)
    (gone,) = rows(db, channel="flagged")
    db.delete(rows(db, task_id=gone["task_id"]))
    state = step(db, Command(resume="yes"), splits)
    assert (state["amount"], state["flagged"]) == (50_000, True)


def test_writes_that_are_stored_while_a_child_is_made() -> None:
    """They are no part of it, and none has gone: LangGraph waits for those of delta channels alone."""
    serde = EncryptedSerializer(RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)])))

    async def run() -> None:
        looked, go_on = asyncio.Event(), asyncio.Event()

        class Slow(InMemorySaver):
            async def aget_tuple(self, config: Any) -> Any:
                found = await super().aget_tuple(config)
                looked.set()
                await go_on.wait()
                return found

        saver = SealedSaver(Slow(), serde=serde)

        def aput(number: int, parent: Any) -> Any:
            checkpoint: Any = {**empty_checkpoint(), "v": NEW, "id": checkpoint_id(number)}
            return saver.aput(parent, checkpoint, {"step": number, MARK: {"log": (1, 1)}}, {})

        first = await aput(1, at(WRITER))
        child = asyncio.ensure_future(aput(2, first))
        await looked.wait()
        await saver.aput_writes(first, [("amount", 1)], "task")
        go_on.set()
        assert (await child)["configurable"]["checkpoint_id"] == C2

    asyncio.run(run())
