"""Compiled graphs under LANGGRAPH_STRICT_MSGPACK=true, which LangGraph reads when it is imported.

So the scenarios run in a process of their own, all in one; each test asks how its own went.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, TypedDict

import aiosqlite
import ormsgpack
import pytest
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    BlockedTypeError,
    IntegrityError,
    PlaintextError,
    SealpointError,
    UnknownKeyError,
)
from sealpoint.langgraph import (
    AsyncSqliteSaver,
    EncryptedSerializer,
    InMemorySaver,
    JsonPlusSerializer,
    SqliteSaver,
)

KEY: Final = bytes(range(32))
OTHER_KEY: Final = bytes(range(32, 64))
THREAD: Final[Any] = {"configurable": {"thread_id": "t"}}
FORGED: Final = {"role": "admin"}
UPLOAD: Final = ormsgpack.packb(FORGED)
"""What a user uploads: bytes to the graph, which happen to be msgpack."""

SAVERS: Final = (Theirs, SqliteSaver)


class Mood(Enum):
    CALM = "calm"


@dataclass
class Plan:
    steps: list[str]
    mood: Mood


class Draft(BaseModel):
    title: str
    plan: Plan | None = None


@dataclass
class Stranger:
    """Stands in no schema."""

    name: str


class State(TypedDict):
    upload: Any
    approved: bool
    plan: Plan
    drafts: Annotated[list[Draft], operator.add]


def graph(saver: Any, value: Any = UPLOAD) -> Any:
    """Two branches: one stores a value, the other waits for approval. Until then the value is pending."""

    def fetch(state: State) -> Any:
        plan = Plan(["ask"], Mood.CALM)
        return {"upload": value, "plan": plan, "drafts": [Draft(title="one", plan=plan)]}

    def ask(state: State) -> Any:
        return {"approved": interrupt("go on?")}

    built: Any = StateGraph(State)
    for node in (fetch, ask):
        built.add_node(node.__name__, node)
        built.add_edge(START, node.__name__)
    return built.compile(checkpointer=saver)


@contextmanager
def paused(saver: Any, serde: Any) -> Iterator[tuple[Any, sqlite3.Connection]]:
    """A graph that waits, and its database."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        waiting = graph(saver(connection, serde=serde))
        waiting.invoke({"drafts": []}, THREAD)
        yield waiting, connection
    finally:
        connection.close()


def rows(connection: sqlite3.Connection) -> list[Any]:
    return [*connection.execute("SELECT * FROM checkpoints"), *connection.execute("SELECT * FROM writes")]


def langgraphs(key: bytes = KEY) -> TheirSerializer:
    return TheirSerializer.from_pycryptodome_aes(key=key)


def raised(function: Callable[[], Any]) -> BaseException | None:
    try:
        function()
    except Exception as error:  # noqa: BLE001 -- which one it is, the caller asks
        return error
    return None


# --- scenarios, in the strict process -------------------------------------------------------------


class Own(EncryptedSerializer):
    """A user's subclass."""


def check_kept(saver: Any) -> None:
    """The graph's saver is of the same class, its serializer too, with the same cipher and policy."""
    before = saver.serde
    kept = graph(saver).checkpointer
    assert type(kept) is type(saver)
    assert type(kept.serde) is type(before)
    assert kept.serde.cipher is before.cipher
    assert kept.serde.plaintext == before.plaintext
    allowed = {(__name__, name) for name in ("Plan", "Mood", "Draft")}
    assert kept.serde.serde.allowlist.types >= allowed
    assert not kept.serde.serde.allowlist.permissive
    assert not before.serde.allowlist.types & allowed  # what others share is as it was


def a_compiled_graph_keeps_class_cipher_and_policy() -> None:
    """Under every saver, theirs and ours, also for a subclass and for another policy."""
    cipher = RingCipher(KeyRing([Key(id="k1", material=KEY, state=KeyState.ACTIVE)]))
    for serde in (EncryptedSerializer(cipher), Own(cipher), Own(cipher, plaintext="allow")):
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        for saver in (*SAVERS, AsyncSqliteSaver):
            check_kept(saver(connection, serde=serde))
        connection.close()
        check_kept(TheirMemory(serde=serde))
        with InMemorySaver(serde=serde) as memory:
            check_kept(memory)
        asyncio.run(check_kept_on_aiosqlite(serde))


async def check_kept_on_aiosqlite(serde: Any) -> None:
    async with aiosqlite.connect(":memory:") as connection:
        for saver in (TheirAsync, AsyncSqliteSaver):
            check_kept(saver(connection, serde=serde))


def types_of_the_schema_are_rebuilt() -> None:
    """Dataclass, pydantic model and enum, one inside the other, sealed and plain, or by LangGraph's."""
    for saver in SAVERS:
        for serde in (EncryptedSerializer.from_key(KEY), JsonPlusSerializer(), langgraphs()):
            with paused(saver, serde) as (waiting, _):
                final = waiting.invoke(Command(resume=True), THREAD)
                plan = Plan(["ask"], Mood.CALM)
                assert final == {
                    "upload": UPLOAD,
                    "approved": True,
                    "plan": plan,
                    "drafts": [Draft(title="one", plan=plan)],
                }
                assert waiting.get_state(THREAD).values == final


def other_types_are_refused() -> None:
    """LangGraph hands out the arguments of such a value instead."""
    for saver in SAVERS:
        for serde in (EncryptedSerializer.from_key(KEY), JsonPlusSerializer(), langgraphs()):
            with sqlite3.connect(":memory:", check_same_thread=False) as connection:
                stranger = graph(saver(connection, serde=serde), Stranger("who"))
                stranger.invoke({"drafts": []}, THREAD)
                refused = raised(lambda: stranger.invoke(Command(resume=True), THREAD))  # noqa: B023
                if isinstance(serde, TheirSerializer):
                    assert refused is None
                    assert stranger.get_state(THREAD).values["upload"] == {"name": "who"}
                else:
                    assert isinstance(refused, BlockedTypeError)
                    assert "Stranger" in str(refused)
            connection.close()


def put_in_place(connection: sqlite3.Connection, row: tuple[str, bytes]) -> None:
    """Whoever holds the database but no key: put a type and bytes in place of the pending upload."""
    changed = connection.execute("UPDATE writes SET type = ?, value = ? WHERE channel = 'upload'", row)
    assert changed.rowcount == 1
    connection.commit()


def pending(connection: sqlite3.Connection) -> tuple[str, bytes]:
    (row,) = connection.execute("SELECT type, value FROM writes WHERE channel = 'upload'").fetchall()
    return row[0], row[1]


def attack(serde: Any, make_row: Callable[[tuple[str, bytes]], tuple[str, bytes]], saver: Any) -> Any:
    """Resume a graph whose pending upload was replaced; return what it made of it, or the error."""
    with paused(saver, serde) as (waiting, connection):
        put_in_place(connection, make_row(pending(connection)))
        before = rows(connection)
        reading = raised(lambda: waiting.get_state(THREAD))
        error = raised(lambda: waiting.invoke(Command(resume=True), THREAD))
        assert type(reading) is type(error)
        if error is None:
            return waiting.get_state(THREAD).values["upload"]
        assert rows(connection) == before
        return error


def a_forged_plaintext_row() -> None:
    """Accepted by LangGraph's serializer: the graph goes on with what was forged."""
    for saver in SAVERS:
        assert attack(langgraphs(), lambda _: ("msgpack", UPLOAD), saver) == FORGED
        refused = attack(EncryptedSerializer.from_key(KEY), lambda _: ("msgpack", UPLOAD), saver)
        assert isinstance(refused, PlaintextError)


def a_forged_plaintext_checkpoint() -> None:
    """The whole state, by whoever can write to the file: LangGraph's serializer accepts it."""
    for saver in SAVERS:
        for serde in (langgraphs(), EncryptedSerializer.from_key(KEY)):
            with paused(saver, serde) as (waiting, connection):
                forge_checkpoint(waiting, connection)
                if isinstance(serde, TheirSerializer):
                    assert waiting.get_state(THREAD).values["upload"] == FORGED
                else:
                    assert isinstance(raised(lambda: waiting.get_state(THREAD)), PlaintextError)


def forge_checkpoint(waiting: Any, connection: sqlite3.Connection) -> None:
    checkpoint = waiting.checkpointer.get_tuple(THREAD).checkpoint
    checkpoint["channel_values"] = {"upload": FORGED}
    checkpoint["channel_versions"]["upload"] = checkpoint["channel_versions"]["__start__"]
    connection.execute("DELETE FROM writes")
    forged = JsonPlusSerializer().dumps_typed(checkpoint)
    connection.execute(
        "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?", (*forged, checkpoint["id"])
    )


def a_relabelled_row() -> None:
    """Accepted by LangGraph's serializer: uploaded bytes, still under their seal, become a mapping."""

    def relabel(row: tuple[str, bytes]) -> tuple[str, bytes]:
        assert row[0].startswith("bytes+")
        return row[0].replace("bytes+", "msgpack+"), row[1]

    for saver in SAVERS:
        assert attack(langgraphs(), relabel, saver) == FORGED
        assert isinstance(attack(EncryptedSerializer.from_key(KEY), relabel, saver), IntegrityError)


def a_row_of_a_foreign_ring() -> None:
    """Refused by LangGraph's serializer too; by ours also where the key has the same id."""
    for saver in SAVERS:
        foreign = langgraphs(OTHER_KEY).dumps_typed(FORGED)
        refused = attack(langgraphs(), lambda _: foreign, saver)  # noqa: B023
        assert isinstance(refused, ValueError)
        assert not isinstance(refused, SealpointError)
        for key_id, wanted in (("k1", IntegrityError), ("k2", UnknownKeyError)):
            foreign = EncryptedSerializer.from_key(OTHER_KEY, key_id=key_id).dumps_typed(FORGED)
            refused = attack(EncryptedSerializer.from_key(KEY), lambda _: foreign, saver)  # noqa: B023
            assert isinstance(refused, wanted)


SCENARIOS: Final = (
    a_compiled_graph_keeps_class_cipher_and_policy,
    types_of_the_schema_are_rebuilt,
    other_types_are_refused,
    a_forged_plaintext_row,
    a_forged_plaintext_checkpoint,
    a_relabelled_row,
    a_row_of_a_foreign_ring,
)


def run() -> None:
    """Run all scenarios; print, by name, how each ended: nothing, or a traceback."""
    ends = {}
    for scenario in SCENARIOS:
        error = raised(scenario)
        ends[scenario.__name__] = "".join(traceback.format_exception(error)) if error else ""
    sys.stdout.write(json.dumps(ends))


# --- tests, in this process -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def ends() -> Any:
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import run; run()"],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", [each.__name__ for each in SCENARIOS])
def test_in_strict_mode(ends: Any, scenario: str) -> None:
    if ends[scenario]:
        pytest.fail(ends[scenario], pytrace=False)


def test_langgraph_is_not_strict_in_this_process() -> None:
    """So the scenarios do need their own: here a graph leaves the saver as it is."""
    with InMemorySaver(serde=EncryptedSerializer.from_key(KEY)) as saver:
        assert graph(saver).checkpointer is saver
