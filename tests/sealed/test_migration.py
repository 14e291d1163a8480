"""A migration without a stop: what each step writes, what the others read of it, and every order of them."""

from __future__ import annotations

import asyncio
import inspect
import operator
import pydoc
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from itertools import count, cycle, product
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.graph import START, StateGraph

import sealpoint.sealed
from sealpoint.errors import (
    ConfigError,
    IntegrityError,
    PlaintextError,
    SealingCheckError,
    UnauthenticatedTypeError,
    UnknownKeyError,
)
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, require_sealing
from sealpoint.metrics import METRICS
from sealpoint.threads.sqlite import MemoryThreadStore
from tests.graphs import plays
from tests.graphs.graphs import SCRIPTS, extend
from tests.graphs.openers import Entry, on_psycopg, on_sqlite3
from tests.graphs.plays import play
from tests.graphs.savers import ENTRIES, SEALED, opened
from tests.sealed.migrating import (
    BEGINNINGS,
    CIPHER,
    OTHER_AES,
    SERDE,
    Beginning,
    Recording,
    deployed,
    rows,
    wrap,
)
from tests.sealed.savers import SAVERS, Sync
from tests.sealed.scene import at
from tests.support.databases.rebinding import rebound
from tests.support.sample_types import Point
from tests.support.servers.postgres import schema, server
from tests.support.values.strategies import anything

NAMES: Final = [name for name, entry in SAVERS.items() if entry.kind != "memory"]
MAIN: Final = ["LangGraph SqliteSaver", "LangGraph AsyncPostgresSaver", "LangGraph PostgresSaver"]


@pytest.fixture
def place(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Any]:
    """Empty places for savers of the table."""
    numbers = count()
    with ExitStack() as stack:

        def place(name: str) -> str:
            if SAVERS[name].kind == "file":
                return str(tmp_path / f"{next(numbers)}.db")
            return stack.enter_context(schema(server(pytestconfig)))

        yield place


@pytest.fixture(params=BEGINNINGS)
def beginning(request: pytest.FixtureRequest) -> Beginning:
    return BEGINNINGS[request.param]


def names_of(patch: pytest.MonkeyPatch, name: str, beginning: Beginning) -> list[str]:
    """Put the processes of each step into the table of `plays`, and return their names."""
    entry = SAVERS[name]
    for step in range(4):
        opener = deployed(entry.opener, step, beginning)
        patch.setitem(ENTRIES, f"step {step}", Entry(entry.kind, opener, entry.awaited))
    return [f"step {step}" for step in range(4)]


# --- what is written is what the bare saver writes ------------------------------------------------


SOME: Final = [script for script in SCRIPTS if script != "delta 210"]
PAIRS: Final = [(each, name) for each in BEGINNINGS for name in (NAMES if each == "plain" else MAIN)]


@pytest.mark.claim("m1")
@pytest.mark.broad
@pytest.mark.parametrize("script", SOME)
@pytest.mark.parametrize(("begun", "name"), PAIRS)
def test_each_column_is_as_the_bare_saver_writes_it(
    place: Any, begun: str, name: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupts, subgraphs, forks, errors, delta channels and all kinds of values, as graphs store them."""
    beginning = BEGINNINGS[begun]
    steps, recorded = names_of(monkeypatch, name, beginning), list[Recording]()
    bare = ENTRIES[steps[0]]

    @asynccontextmanager
    async def recording(place: str, serde: Any) -> AsyncIterator[Any]:
        async with bare.opener(place, serde) as saver:
            recorded.append(Recording(saver))
            yield saver

    monkeypatch.setitem(ENTRIES, "recorded", Entry(bare.kind, recording, bare.awaited))
    play(script, "recorded", place(name), False)
    calls = [call for each in recorded for call in each.calls]
    assert {method for method, *_ in calls} == {"put", "put_writes"}
    found = []
    for step in steps[:2]:
        here = place(name)
        with opened(step, here, sealed=False) as (saver, runner):
            sync = Sync(saver, runner, awaited=bare.awaited)
            configs = [getattr(sync, method)(*arguments, **more) for method, arguments, more in calls]
        found.append((configs, rows(bare.kind, here, beginning)))
    assert repr(found[0]) == repr(found[1])  # NaN is not equal to itself
    assert found[0][1]["checkpoints"]


VALUES: Final = [
    None,
    True,
    7,
    2.5,
    "text",
    "",
    b"",
    b"bytes",
    [],
    [None],
    {},
    {"a": [1]},
    (1, 2),
    {1},
    "\ud800",
]


@pytest.mark.broad
@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "SqliteSaver", "LangGraph PostgresSaver"])
def test_each_value_is_written_as_the_bare_saver_writes_it(
    place: Any, beginning: Beginning, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, places, ids = names_of(monkeypatch, name, beginning)[:2], (place(name), place(name)), count(1)
    with ExitStack() as stack:
        opening = (opened(step, here, sealed=False) for step, here in zip(steps, places, strict=True))
        savers = [stack.enter_context(each)[0] for each in opening]
        for saver in savers:
            saver.setup()

        @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(value=anything() | st.sampled_from(VALUES))
        def law(value: Any) -> None:
            id_ = f"{next(ids):08}"
            ended = [stored(saver, value, id_) for saver in savers]
            found = [rows(ENTRIES[steps[0]].kind, here, beginning) for here in places]
            assert repr(ended[0]) == repr(ended[1])
            assert repr(found[0]) == repr(found[1])
            for saver in savers:
                saver.delete_thread("t")

        law()


def stored(saver: Any, value: Any, id_: str) -> Any:
    """The result of storing a value in each place that it may have, or the class of the error."""
    values, versions = {"a": value, "b": [value]}, {"a": id_, "b": id_}
    checkpoint: Any = {**empty_checkpoint(), "id": id_, "ts": ""}
    checkpoint |= {"channel_values": values, "channel_versions": versions}
    place = {"thread_id": "t", "checkpoint_ns": "", "user_id": "u"}
    config = {"configurable": place, "metadata": {"run": "r"}}
    try:
        done = saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)
        saver.put_writes(done, [("a", value), ("__interrupt__", [value])], "task", "path")
        saver.put_writes(done, [("__error__", value)], "task")
    except Exception as error:  # noqa: BLE001 -- a value that no serializer takes, or no column
        return type(error)
    return done


# --- threads of several processes -----------------------------------------------------------------


def play_by_turns(script: str, steps: Sequence[str], place: str) -> plays.Transcript:
    """Play a script, each call by the process of the next step, with a saver of its own."""
    lines, outcome, transcript, turn = SCRIPTS[script](), None, [], cycle(steps)
    compile_ = next(lines)
    while asked := plays.next_call(lines, outcome):
        step = next(turn)
        with opened(step, place, sealed=False) as (saver, runner):
            try:
                outcome = plays.perform(compile_(saver), asked, step, runner)
            except RuntimeError as error:  # what a node raises
                outcome = error
        transcript.append((asked.method, plays.plain(outcome)))
    for last in plays.AT_THE_END:
        step = next(turn)
        with opened(step, place, sealed=False) as (saver, runner):
            found = plays.perform(compile_(saver), last, step, runner)
        transcript.append((last.method, plays.plain(found)))
    return transcript


TURNS: Final = ["01", "10", "12", "21", "112", "23"]


@pytest.mark.broad
@pytest.mark.parametrize("script", SOME)
@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize(("begun", "name"), PAIRS)
def test_processes_of_two_steps_go_on_with_each_others_threads(
    place: Any, begun: str, name: str, turns: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All outcomes, the state at the end and the history are those of the bare saver."""
    steps = names_of(monkeypatch, name, BEGINNINGS[begun])
    before, _ = play(script, steps[0], place(name), False)
    assert play_by_turns(script, [steps[int(step)] for step in turns], place(name)) == before


class Visit(TypedDict, total=False):
    """Channels of each kind: new in every step, stored once, text, and a delta."""

    notes: Annotated[list[str], operator.add]
    born: list[int]
    said: str
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]


def note(state: Visit) -> Any:
    return {"notes": [state["said"]], "log": [state["said"]]}


VISIT: Final[Any] = StateGraph(Visit).add_node("note", note).add_edge(START, "note")
THREAD: Final[Any] = {"configurable": {"thread_id": "t", "user_id": "maria"}}


class Town:
    """A database, and what was said to its one thread by all processes whose request did not fail."""

    def __init__(self, kind: str, place: str, beginning: Beginning) -> None:
        self.opener = {"file": on_sqlite3(Theirs), "postgres": on_psycopg(PostgresSaver)}[kind]
        self.place, self.beginning = place, beginning
        self.said: list[str] = []
        self.are_old, self.are_bound = True, True  # whether all rows are as before, or bound

    def act(self, action: str) -> bool:
        """Let a process of a step answer a request, or run a command; return whether it was not refused."""
        if action in "RU":
            return self.rebind(unbind=action == "U")
        said = f"{len(self.said)}{action}"
        try:
            with self.opened(int(action)) as graph:
                new: Visit = {"said": said} if self.said else {"said": said, "born": [1, 2]}
                state = graph.invoke(new, THREAD)
        except Exception:  # noqa: BLE001 -- each old program has its own
            self.require_state(self.said)
            return False
        self.said.append(said)
        assert [state["notes"], state["log"], state["born"]] == [self.said, self.said, [1, 2]]
        self.are_old &= action in "01"
        self.are_bound &= action in "23"
        return True

    def rebind(self, *, unbind: bool) -> bool:
        options = {"unbind": True} if unbind else self.beginning.rebind
        rebound(self.place, CIPHER, **options)
        self.are_bound = not unbind
        self.are_old = unbind and self.beginning.old is SERDE
        return True

    def require_state(self, said: list[str]) -> None:
        """Whatever was refused, a process of the second step reads what was said."""
        with self.opened(2) as graph:
            values = graph.get_state(THREAD).values
            history = [*graph.get_state_history(THREAD)]
        assert (values.get("notes", []), values.get("log", [])) == (said, said)
        # One checkpoint of each input, and one after the node
        assert len(history) == 2 * len(said) + len(said)

    @contextmanager
    def opened(self, step: int) -> Iterator[Any]:
        with asyncio.Runner() as runner:
            opening = deployed(self.opener, step, self.beginning)(self.place, None)
            saver = runner.run(_entered(opening))
            try:
                yield VISIT.compile(checkpointer=saver)
            finally:
                runner.run(opening.__aexit__(None, None, None))


async def _entered(opening: Any) -> Any:
    return await opening.__aenter__()


def must_pass(town: Town, action: str) -> bool:
    """Whether the page promises that the next process answers."""
    return action in "12RU" or not town.said or (town.are_old if action == "0" else town.are_bound)


def run_through(town: Town, actions: str) -> None:
    for action in actions:
        promised = must_pass(town, action)
        assert town.act(action) or not promised, f"{action} in {actions}"
    town.require_state(town.said)


ORDERS: Final = {
    "as the page says": "0010111212222R2R2323333",
    "and back": "33232212111",
    "step 2 while old processes run": "0101202102012",
    "step 4 before step 3": "011223232R33",
    "rebind while processes of step 1 write": "01R1R12R22R33",
    "rebind before step 1": "00R0012R3",
    "back from 2 to 1": "0112121",
    "back from 4 to 3, and to 1": "02R332321213R3",
    "unbind, and back to the beginning": "012R3321U1U1U0",
}


@pytest.mark.claim("m5")
@pytest.mark.broad
@pytest.mark.parametrize("kind", ["file", "postgres"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_wrong_order_is_refused_or_harmless(
    place: Any, beginning: Beginning, kind: str, order: str
) -> None:
    """Whoever is refused has lost nothing, and each process that can read all rows answers."""
    name = "LangGraph SqliteSaver" if kind == "file" else "LangGraph PostgresSaver"
    run_through(Town(kind, place(name), beginning), ORDERS[order])


@pytest.mark.broad(every=40)
@pytest.mark.parametrize("actions", ["".join(each) for each in product("0123RU", repeat=3)])
def test_every_short_order_is_refused_or_harmless(place: Any, beginning: Beginning, actions: str) -> None:
    run_through(Town("file", place("LangGraph SqliteSaver"), beginning), f"1{actions}21")


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def sealing() -> Iterator[Any]:
    """Wraps a saver on an empty database, as the first step does."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:

        def sealing(**named: Any) -> Any:
            serde = EncryptedSerializer(SEALED.cipher, plaintext="allow")
            more: dict[str, Any] = {"unbound": "allow", "allow_write_with": TheirSerializer(), "serde": serde}
            more |= named
            return SealedSaver(more.pop("saver", None) or Theirs(connection), **more)

        yield sealing


@pytest.mark.parametrize(
    ("named", "error", "hint"),
    [
        ({"unbound": "refuse"}, ConfigError, 'pass unbound="allow"'),
        ({"pseudonyms": True}, ConfigError, 'pass unbound="allow"'),
        ({"threads": MemoryThreadStore()}, ConfigError, 'pass unbound="allow"'),
        ({"allow_write_with": object()}, ConfigError, "JsonPlusSerializer()"),
        ({"allow_write_with": "msgpack"}, ConfigError, "JsonPlusSerializer()"),
        ({"allow_write_with": TheirSerializer}, ConfigError, "JsonPlusSerializer()"),
        ({"allow_write_with": TheirSerializer(pickle_fallback=True)}, ConfigError, "#rows-of-pickle"),
        ({"saver": TheirMemory()}, ConfigError, ""),
        ({"serde": SEALED}, PlaintextError, 'plaintext="allow"'),
        ({"allow_write_with": BEGINNINGS["aes"].old}, UnknownKeyError, 'suite = "aes"'),
        ({"allow_write_with": EncryptedSerializer.from_key(bytes(32), key_id="k9")}, UnknownKeyError, ""),
        ({"serde": SERDE, "allow_write_with": OTHER_AES}, IntegrityError, "the ring holds another key"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_does_not_fit_is_refused_before_a_row_is_written(
    sealing: Any, named: dict[str, Any], error: type[Exception], hint: str
) -> None:
    with pytest.raises(error) as raised:
        sealing(**named)
    assert hint in getattr(raised.value, "hint", "")


def test_a_serializer_that_seals_its_pickles_may_write(sealing: Any) -> None:
    """They are authenticated, and read as they were before."""
    old = EncryptedSerializer(SEALED.cipher, TheirSerializer(pickle_fallback=True))
    assert sealing(allow_write_with=old).allow_write_with is old
    assert f"allow_write_with={type(old).__name__}" in repr(sealing(allow_write_with=old))


def test_each_start_is_logged_and_each_call_counted(sealing: Any, caplog: pytest.LogCaptureFixture) -> None:
    serde = EncryptedSerializer.from_key(bytes(32), plaintext="allow")
    for _ in range(2):
        saver = sealing(serde=serde)
    assert [message for message in caplog.messages if "JsonPlusSerializer alone writes them" in message] != []
    assert len([message for message in caplog.messages if "allow_write_with" in message]) == 2
    graph = VISIT.compile(checkpointer=saver)
    graph.invoke({"said": "a"}, THREAD)
    stats = serde.cipher.stats()  # type: ignore[attr-defined]
    assert stats.unbound == saver.conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0] + 2
    assert sum(stats.sealed.values()) == 0
    metric = next(metric for metric in METRICS if metric.name == "sealpoint.unbound_writes")
    assert [sample.value for sample in metric.read(stats)] == [stats.unbound]


def test_it_is_refused_by_require_sealing(sealing: Any) -> None:
    with pytest.raises(SealingCheckError, match="allow_write_with is set") as raised:
        require_sealing(sealing())
    assert raised.value.hint == "remove allow_write_with when no process without SealedSaver is left"


@pytest.mark.broad
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_copied_thread_is_written_as_before(place: Any, beginning: Beginning, kind: str) -> None:
    """Old processes read it, although some of its rows were bound."""
    name = "LangGraph SqliteSaver" if kind == "file" else "LangGraph PostgresSaver"
    town = Town(kind, place(name), beginning)
    run_through(town, "01221")
    with town.opened(1) as graph:
        graph.checkpointer.copy_thread("t", "copy")
        source, copied = history(graph, "t"), history(graph, "copy")
    with town.opened(0) as graph:
        assert source == copied == history(graph, "copy")
    assert [values["notes"] for values, *_ in source][:2] == [town.said, town.said[:-1]]


def history(graph: Any, thread: str) -> list[Any]:
    return [(each.values, each.next, each.metadata) for each in graph.get_state_history(at(thread))]


def test_a_list_with_a_filter_finds_rows_of_each_kind(place: Any, beginning: Beginning) -> None:
    here = place("LangGraph SqliteSaver")
    run_through(Town("file", here, beginning), "012")
    with closing(sqlite3.connect(here)) as connection:
        for step in (1, 2):
            saver = wrap(Theirs(connection, serde=beginning.old), step, beginning)
            for wanted, number in (({"user_id": "maria"}, 9), ({"step": 0}, 1), ({"user_id": "eve"}, 0)):
                assert len([*saver.list(at("t"), filter=wanted)]) == number


# --- what an attacker can do meanwhile ------------------------------------------------------------


@pytest.fixture
def forged(place: Any) -> Town:
    """A thread of all steps, whose latest row an attacker has replaced by one that is not sealed."""
    town = Town("file", place("LangGraph SqliteSaver"), BEGINNINGS["plain"])
    run_through(town, "012R22")
    with closing(sqlite3.connect(town.place)) as connection, connection, town.opened(2) as graph:
        found: Any = graph.checkpointer.get_tuple(THREAD)
        found.checkpoint["channel_values"]["notes"] = ["forged"]
        row = TheirSerializer().dumps_typed(found.checkpoint)
        connection.execute(
            "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = ?",
            (*row, found.checkpoint["id"]),
        )
    return town


def notes(town: Town, step: int) -> Any:
    with town.opened(step) as graph:
        return graph.get_state(THREAD).values["notes"]


@pytest.mark.claim("m2")
def test_until_the_last_step_an_unsealed_row_takes_the_place_of_a_bound_one(forged: Town) -> None:
    assert [notes(forged, step) for step in (1, 2)] == [["forged"]] * 2
    with pytest.raises(PlaintextError):
        notes(forged, 3)


@pytest.mark.claim("m4")
def test_rebind_makes_a_forged_row_authentic(forged: Town) -> None:
    """Without the option for unsealed rows it is left, and the last step refuses it."""
    rebound(forged.place, CIPHER)
    with pytest.raises(PlaintextError):
        notes(forged, 3)
    forged.rebind(unbind=False)
    assert notes(forged, 3) == ["forged"]


@pytest.mark.claim("m3")
@pytest.mark.parametrize("step", [1, 2])
def test_an_unsealed_row_names_only_allowed_types(place: Any, step: int) -> None:
    beginning = BEGINNINGS["plain"]
    with closing(sqlite3.connect(place("LangGraph SqliteSaver"), check_same_thread=False)) as connection:
        saver = wrap(Theirs(connection, serde=beginning.old), step, beginning)
        stored(Theirs(connection, serde=beginning.old), Point(1), "1")
        with pytest.raises(UnauthenticatedTypeError):
            saver.get_tuple(at("t"))


# --- what help shows ------------------------------------------------------------------------------


def test_signature_and_help_are_those_of_the_class(sealing: Any) -> None:
    core = sealpoint.sealed.SealedSaver
    for kind in (SealedSaver, type(sealing())):
        assert inspect.signature(kind) == inspect.signature(core)
        assert inspect.getdoc(kind) == inspect.getdoc(core)
    assert [*inspect.signature(core).parameters][:2] == ["saver", "serde"]
    shown = pydoc.plain(pydoc.render_doc(SealedSaver))
    assert re.search(r"class SealedSaver\(.*\n \|  SealedSaver\(\n? *\|? *saver: ", shown)
    assert "A saver that seals checkpoints, writes and metadata" in shown


def test_a_subclass_shows_its_own_arguments() -> None:
    class Mine(SealedSaver):
        def __init__(self, path: str) -> None:
            """Wrap a file."""

    assert [*inspect.signature(Mine).parameters] == ["path"]
