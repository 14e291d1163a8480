"""Threads of wrapped savers: copied, renamed by pseudonyms, listed in pages, and read by a bare saver."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import ERROR, TASKS
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from sealpoint.errors import SealpointError
from tests.graphs.graphs import SCRIPTS, extend
from tests.graphs.plays import perform, plain
from tests.graphs.savers import SEALED
from tests.sealed.reading import content, parts
from tests.sealed.savers import ALONE, BARE, SAVERS, Open, Sync, opened, wrap
from tests.sealed.scene import ALICE, BOB, C1, PLACES, ROOT, at, fill, version

EXACT: Final = "sealed"
FORMS: Final = ("sealed", "all options")
COPIED: Final = [name for name in SAVERS if "pool" not in name]


def tuples(saver: Any, thread: str) -> list[dict[str, Any]]:
    found = [content(each) for each in saver.list(at(thread, None))]
    return [{name: part for name, part in each.items() if name != "config"} for each in found]


def without_threads(found: list[dict[str, Any]]) -> list[str]:
    return [repr(each).replace("('str', 'copy')", "('str', 'alice')") for each in found]


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", COPIED)
def test_a_copied_thread_is_the_same(open_: Open, name: str, form: str) -> None:
    """Checkpoints, metadata, parents, writes in their order, and delta histories; the source stays."""
    saver = open_(name, form)
    fill(saver)
    before = tuples(saver, ALICE)
    saver.copy_thread(ALICE, "copy")
    assert tuples(saver, ALICE) == before
    assert sorted(without_threads(tuples(saver, "copy"))) == sorted(without_threads(before))
    for place in PLACES:
        if place.thread == ALICE:
            histories = [
                saver.get_delta_channel_history(config=at(thread, place.ns, place.id), channels=["log"])
                for thread in (ALICE, "copy")
            ]
            assert histories[1] == histories[0]
    saver.delete_thread(ALICE)
    assert without_threads(tuples(saver, "copy"))
    assert not tuples(saver, ALICE)
    assert tuples(saver, BOB)


@pytest.mark.broad
@pytest.mark.parametrize("script", ["resumed elsewhere", "subgraphs", "delta 30"])
@pytest.mark.parametrize(
    "name", ["LangGraph SqliteSaver", "LangGraph PostgresSaver", "LangGraph InMemorySaver", "InMemorySaver"]
)
def test_a_copy_goes_on_as_the_original(open_: Open, name: str, script: str) -> None:
    """A graph that was stopped, in the original and in its copy, ends the same in both."""
    saver = open_(name, EXACT)
    lines = SCRIPTS[script]()
    graph = next(lines)(saver.saver)
    first = next(lines)
    perform(graph, first, f"SealedSaver, {name}", saver.runner)
    saver.copy_thread("t", "copy")
    ends = []
    for thread in ("t", "copy"):
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 100}
        state = graph.get_state(config)
        stopped = any(task.interrupts for task in state.tasks)
        answer: Any = Command(resume={"yes": 1}) if stopped else None
        outcome = graph.invoke(answer, config)
        ends.append((plain(outcome), plain(graph.get_state(config).values)))
    assert ends[1] == ends[0]


BARE_READERS: Final = [name for name in SAVERS if "pool" not in name and "pipeline" not in name]


@pytest.mark.claim("s24")
@pytest.mark.broad
@pytest.mark.parametrize("values", [{"text": "a", "n": 1}, {"items": [1]}, {}])
@pytest.mark.parametrize("reader", [BARE, ALONE])
@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "LangGraph PostgresSaver", "SqliteSaver"])
def test_an_unwrapped_saver_never_reads_wrong_values(
    open_: Open, name: str, reader: str, values: dict[str, Any]
) -> None:
    """It raises, also where all values are text and numbers, which Postgres keeps in its JSON."""
    saver = open_(name, EXACT)
    versions = dict.fromkeys(values, version(1))
    checkpoint: Any = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    saver.put(at("t"), checkpoint, {"source": "input"}, versions)
    unwrapped: Any = saver.saver.inner
    unwrapped.serde = SEALED if reader == ALONE else SqliteSaver.serde
    for read in (lambda: unwrapped.get_tuple(at("t")), lambda: list(unwrapped.list(at("t")))):
        with pytest.raises((SealpointError, NotImplementedError, ValueError)):
            read()


@pytest.mark.parametrize("name", SAVERS)
def test_rows_of_the_serializer_alone_are_refused_and_read_if_allowed(open_: Open, name: str) -> None:
    """They come first in a deployment that adds the wrapper."""
    from sealpoint.langgraph import SealedSaver

    entry = SAVERS[name]
    if name == "InMemorySaver" or entry.kind == "memory":
        pytest.skip("nothing is kept in memory between two releases")
    alone = open_(name, ALONE)
    fill(alone)
    refusing, allowing = (
        Sync(SealedSaver(alone.saver, serde=SEALED, unbound=policy), alone.runner, awaited=entry.awaited)
        for policy in ("refuse", "allow")
    )
    for place in PLACES:
        with pytest.raises(SealpointError):
            refusing.get_tuple(place.config)
        assert parts(allowing.get_tuple(place.config)) == parts(alone.get_tuple(place.config))
    with pytest.raises(SealpointError):
        list(refusing.list(None))
    listings = [sorted(map(parts, saver.list(None)), key=repr) for saver in (alone, allowing)]
    assert listings[1] == listings[0]
    allowing.copy_thread(BOB, "copy")
    for place in PLACES[-3:]:
        written = [
            content(saver.get_tuple(at(thread, place.ns, place.id)))["writes"]
            for saver, thread in ((alone, BOB), (refusing, "copy"))
        ]
        assert written[1] == written[0]
    place = PLACES[4]  # an old one, of a subgraph
    values = allowing.get_tuple(place.config).checkpoint["channel_values"]
    if entry.kind == "postgres":
        assert values[TASKS] == [{"send": "alice child:1 1 "}]


def put(saver: Any, thread: Any, id_: str, **metadata: Any) -> None:
    saver.put(at(thread), {**empty_checkpoint(), "id": id_, "ts": "2026"}, metadata, {})


@pytest.mark.parametrize("form", FORMS)
def test_a_listing_of_many_is_that_of_a_bare_saver(tmp_path: Path, form: str) -> None:
    """Over pages, with ids that several threads share, for many filters and limits."""
    chance = random.Random(7)
    rows = [
        (
            f"thread {chance.randrange(12)}",
            f"{chance.randrange(120):04}",
            chance.randrange(3),
            chance.randrange(2),
        )
        for _ in range(500)
    ]
    with (
        closing(sqlite3.connect(tmp_path / "1.db", check_same_thread=False)) as one,
        closing(sqlite3.connect(tmp_path / "2.db", check_same_thread=False)) as other,
    ):
        bare, wrapped = SqliteSaver(one), wrap(SqliteSaver(other), form)
        for saver in (bare, wrapped):
            saver.conn.execute("PRAGMA synchronous = OFF")
            for thread, id_, color, size in rows:
                put(saver, thread, id_, user_id=color, hidden=size, step=color)
        for config in (None, at("thread 3"), at("thread 3", None)):
            for chosen in (None, {"user_id": 1}, {"hidden": 1}, {"step": 2, "hidden": 0}, {"user_id": 5}):
                for before in (None, at("thread 3", ROOT, "0060")):
                    whole = [ids(each) for each in bare.list(config, filter=chosen, before=before)]
                    found = [ids(each) for each in wrapped.list(config, filter=chosen, before=before)]
                    assert [id_ for _, id_ in found] == [id_ for _, id_ in whole]
                    assert sorted(found) == sorted(whole)
                    for limit in (1, 7, 130):
                        part = wrapped.list(config, filter=chosen, before=before, limit=limit)
                        some = [ids(each) for each in part]
                        assert [id_ for _, id_ in some] == [id_ for _, id_ in whole[:limit]]
                        assert len(set(some)) == len(some)
                        assert set(some) <= set(whole)


def ids(found: Any) -> tuple[str, str]:
    named = found.config["configurable"]
    return named["thread_id"], named["checkpoint_id"]


@pytest.mark.broad
@pytest.mark.parametrize("thread", [7, "7", "t-" + "a" * 32, "sp00", "é ß", "a/b:c|d", " "])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "SqliteSaver", "LangGraph PostgresSaver"])
def test_any_thread_id_is_that_of_a_bare_saver(open_: Open, name: str, form: str, thread: Any) -> None:
    """Numbers, and texts that look like pseudonyms."""
    if isinstance(thread, int) and "Postgres" in name:
        pytest.skip("bare PostgresSaver refuses numbers")
    found = []
    for each in (BARE, form):
        saver = open_(name, each)
        put(saver, thread, C1, step=1)
        saver.put_writes(at(thread, ROOT, C1), [("x", 1)], "task")
        found.append(
            [
                content(saver.get_tuple(at(thread))),
                [content(item) for item in saver.list(at(thread))],
                [str(ids(item)[0]) for item in saver.list(None)],
            ]
        )
        saver.delete_thread(thread)
        assert saver.get_tuple(at(thread)) is None
        put(saver, thread, C1, step=2)
        assert saver.get_tuple(at(thread)).metadata["step"] == 2
    assert found[1] == found[0]


def test_threads_of_before_keep_their_ids_when_pseudonyms_are_used(tmp_path: Path) -> None:
    """New ones get a pseudonym, and both are found by their ids."""
    with opened("LangGraph SqliteSaver", str(tmp_path / "x.db"), "sealed") as (old, _):
        put(old, "before", C1)
        new = wrap(old.inner, "pseudonyms")
        put(new, "before", f"{C1}2")
        put(new, "after", C1)
        columns = {row[0] for row in old.conn.execute("SELECT thread_id FROM checkpoints")}
        assert "before" in columns
        assert "after" not in columns
        assert len(columns) == 2
        assert sorted(ids(each)[0] for each in new.list(None)) == ["after", "before", "before"]
        assert new.get_tuple(at("after")) is not None
        assert len([*new.list(at("before"))]) == 2


@pytest.mark.parametrize(
    "name", ["LangGraph SqliteSaver", "LangGraph PostgresSaver", "LangGraph InMemorySaver"]
)
def test_writes_of_a_copy_are_put_again_as_in_the_original(open_: Open, name: str) -> None:
    """Of a task that failed and then ended, when it is replayed: those that are there are kept."""
    saver = open_(name, EXACT)
    put(saver, "t", C1)
    writes = [("log", "a"), ("note", "b")]
    saver.put_writes(at("t", ROOT, C1), [(ERROR, "failed")], "task")
    saver.put_writes(at("t", ROOT, C1), writes, "task")
    saver.copy_thread("t", "copy")
    for thread in ("t", "copy"):
        saver.put_writes(at(thread, ROOT, C1), writes, "task")
        found = saver.get_tuple(at(thread))
        assert found.pending_writes == [
            ("task", ERROR, "failed"),
            ("task", "log", "a"),
            ("task", "note", "b"),
        ]


@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "LangGraph PostgresSaver", "SqliteSaver"])
@pytest.mark.parametrize("path", ["", "path"])
def test_all_writes_of_a_half_bound_thread_are_copied(open_: Open, name: str, path: str) -> None:
    """Some were put before the wrapper, and one beside them after it. One task has one numbering."""
    from sealpoint.langgraph import SealedSaver

    alone = open_(name, ALONE)
    saver: Any = SealedSaver(alone.saver, serde=SEALED, unbound="allow")
    put(alone, "t", C1)
    alone.put_writes(at("t", ROOT, C1), [("log", "a"), ("log", "b")], "task", "path")
    alone.put_writes(at("t", ROOT, C1), [(ERROR, "failed")], "task", "path")
    saver.put_writes(at("t", ROOT, C1), [("log", "a"), ("log", "b"), ("log", "c")], "task", path)
    before = saver.get_tuple(at("t")).pending_writes
    assert sorted(value for _, _, value in before) == ["a", "b", "c", "failed"]
    saver.copy_thread("t", "copy")
    strict: Any = SealedSaver(alone.saver, serde=SEALED)
    for reader in (saver, strict):
        found = reader.get_tuple(at("copy")).pending_writes
        for special in (True, False):  # a saver sorts by paths that the copy does not know
            assert [write for write in found if (write[1] == ERROR) is special] == [
                write for write in before if (write[1] == ERROR) is special
            ]


@pytest.mark.parametrize("name", COPIED)
def test_all_writes_of_a_task_with_two_paths_are_copied(open_: Open, name: str) -> None:
    """LangGraph passes no path where it does not know the task any more."""
    saver = open_(name, EXACT)
    put(saver, "t", C1)
    saver.put_writes(at("t", ROOT, C1), [("log", "a"), ("log", "b")], "task", "path")
    saver.put_writes(at("t", ROOT, C1), [("log", "a"), ("log", "b"), ("log", "c")], "task")
    before = saver.get_tuple(at("t")).pending_writes
    assert sorted(value for _, _, value in before) == ["a", "b", "c"]
    saver.copy_thread("t", "copy")
    assert saver.get_tuple(at("copy")).pending_writes == before


class Slow(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=2)]
    n: int


@pytest.mark.parametrize("name", COPIED)
def test_a_delta_channel_that_rests_is_copied(open_: Open, name: str) -> None:
    """Later checkpoints have its version and not its value, which the copy keeps nevertheless."""

    def count(state: Slow) -> Any:
        return {"n": state["n"] + 1, **({"log": [str(state["n"])]} if state["n"] % 3 == 0 else {})}

    saver = open_(name, EXACT)
    builder: Any = StateGraph(Slow).add_node("count", count).add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "count" if state["n"] < 9 else END)
    graph = builder.compile(checkpointer=saver.saver)

    def run(method: str, *arguments: Any) -> Any:
        if not saver.awaited:
            return getattr(graph, method)(*arguments)
        return saver.runner.run(getattr(graph, f"a{method}")(*arguments))

    for _ in range(2):
        run("invoke", {"n": 0, "log": ["start"]}, at("t"))
    saver.copy_thread("t", "copy")
    original, copied = (run("get_state", at(thread)).values for thread in ("t", "copy"))
    assert copied == original
    ids = [each.config["configurable"]["checkpoint_id"] for each in saver.list(at("t"))]
    for id_ in ids:
        assert run("get_state", at("copy", ROOT, id_)).values == run("get_state", at("t", ROOT, id_)).values
