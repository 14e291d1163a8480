"""Real graphs under every saver: sealed, all goes as it goes on the same saver without encryption."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from sealpoint.errors import BlockedTypeError
from tests.graphs.conftest import Places
from tests.graphs.graphs import SCRIPTS, SECRET, Kinds, Place
from tests.graphs.plays import Elsewhere, play
from tests.graphs.savers import BESIDE, BOUND_TAG, SAVERS, SEALED, TAG, WRAPPED, opened

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Async)?ShallowPostgresSaver is deprecated as of version 2.0.20:DeprecationWarning"
)

NEED_HISTORY: Final = {"time travel", "delta 210", "delta 30"}
"""Shallow savers are not for these: LangGraph's delta channels are put together from older writes."""

IN_THE_CLEAR: Final = "kinds of values"
"""On Postgres its secret stands in the clear, which has a test of its own."""

KINDS: Final = Kinds.__annotations__.keys()

LONG: Final = {
    "LangGraph SqliteSaver",
    "LangGraph PostgresSaver",
    "LangGraph AsyncPostgresSaver",
    "SqliteSaver",
    "AsyncSqliteSaver",
}
"""Savers on which a delta channel goes over hundreds of steps; on the others over some."""


def cases() -> Iterator[tuple[str, str]]:
    for saver, entry in SAVERS.items():
        left_out = {"delta 30" if saver in LONG else "delta 210"} | (
            set() if entry.keeps_history else NEED_HISTORY
        )
        if entry.kind == "postgres":
            left_out.add(IN_THE_CLEAR)
        yield from ((script, saver) for script in SCRIPTS if script not in left_out)


@pytest.mark.broad
@pytest.mark.parametrize(("script", "saver"), [*cases()])
def test_sealed_is_as_plain(places: Places, elsewhere: Elsewhere, script: str, saver: str) -> None:
    """Every outcome and the history are the same; all values carry our tag, and the secret is nowhere."""
    plain, in_plain = play(script, saver, places(saver), False, elsewhere)
    sealed, in_sealed = play(script, saver, places(saver), True, elsewhere)
    assert sealed == plain
    # A shallow saver deletes writes with the next checkpoint; those that arrive later remain.
    assert in_sealed.tags.total() == in_plain.tags.total() or not SAVERS[saver].keeps_history
    assert in_sealed.tags.total() > 0 < in_plain.tags.total()
    assert all(tag.endswith(TAG) for tag in in_sealed.tags)
    assert SECRET.encode() in in_plain.dump
    assert SECRET.encode() not in in_sealed.dump


@pytest.mark.broad
@pytest.mark.parametrize("saver", ["SqliteSaver", "LangGraph SqliteSaver", "LangGraph PostgresSaver"])
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "delta 210"])
def test_strict_is_as_plain(places: Places, strict: Elsewhere, script: str, saver: str) -> None:
    """Nothing has to be allowed by hand: the types that the graph's schema names are enough."""
    plain, _ = play(script, saver, places(saver), False)
    sealed, in_sealed = strict(play, script, saver, places(saver), True)
    assert sealed == plain
    assert all(tag.endswith(TAG) for tag in in_sealed.tags)


MAIN: Final = {f"SealedSaver, LangGraph {name}" for name in ("SqliteSaver", "PostgresSaver")}
"""Wrapped savers that play every script every day; the others play some, and all in `make soak`."""

SOME: Final = {"subgraphs", "time travel", "delta 30"}


def wrapped_cases() -> Iterator[Any]:
    for saver in WRAPPED:
        left_out = "delta 30" if saver in MAIN else "delta 210"
        for script in SCRIPTS:
            if script != left_out:
                is_long = saver not in MAIN and script not in SOME
                yield pytest.param(script, saver, marks=[pytest.mark.soak] if is_long else [])


@pytest.mark.broad
@pytest.mark.parametrize(("script", "saver"), [*wrapped_cases()])
def test_wrapped_is_as_plain(places: Places, elsewhere: Elsewhere, script: str, saver: str) -> None:
    """Every outcome and the history are the same, and the secret is nowhere, on Postgres too."""
    plain, in_plain = play(script, saver, places(saver), False, elsewhere)
    sealed, in_sealed = play(script, saver, places(saver), True, elsewhere)
    assert sealed == plain
    assert SECRET.encode() in in_plain.dump
    assert SECRET.encode() not in in_sealed.dump
    if WRAPPED[saver].kind != "memory":
        assert all(tag.endswith(BOUND_TAG) for tag in in_sealed.tags)


DAILY: Final = {
    ("beside a store, LangGraph SqliteSaver", "subgraphs", "async"),
    ("beside a store, LangGraph SqliteSaver", "time travel", "sync"),
    ("beside a store, LangGraph SqliteSaver", "crash and resume", "exit"),
    ("beside a store, LangGraph AsyncPostgresSaver, pool", "time travel", "async"),
}
"""What is played beside a thread store every day; all in `make soak`."""


EXIT_TRAVEL: Final = ("time travel", "exit")
"""That script goes back to checkpoints within a run, which this mode does not store."""


def cases_beside_a_store() -> Iterator[Any]:
    for saver in BESIDE:
        for script in SCRIPTS:
            for durability in ("async", "sync", "exit"):
                if (script != "delta 210" or durability == "async") and (script, durability) != EXIT_TRAVEL:
                    daily = (saver, script, durability) in DAILY
                    yield pytest.param(script, saver, durability, marks=[] if daily else [pytest.mark.soak])


@pytest.mark.parametrize(("script", "saver", "durability"), [*cases_beside_a_store()])
def test_beside_a_store_is_as_plain(
    places: Places, elsewhere: Elsewhere, script: str, saver: str, durability: str
) -> None:
    """In every mode of durability, and when the checkpoints are listed once more at the end: no alarm."""
    plain, _ = play(script, saver, places(saver), False, elsewhere, durability)
    place = places(saver)
    sealed, in_sealed = play(script, saver, place, True, elsewhere, durability)
    assert sealed == plain
    assert SECRET.encode() not in in_sealed.dump
    if BESIDE[saver].kind != "memory":
        with opened(saver, place, sealed=True) as (again, runner):
            assert listed(again, runner, BESIDE[saver].awaited) > 0


def listed(saver: Any, runner: asyncio.Runner, awaited: bool) -> int:
    """Read every checkpoint of the thread, compared with its head; return how many there are."""

    async def all_of() -> int:
        return len([found async for found in saver.alist({"configurable": {"thread_id": "t"}})])

    return runner.run(all_of()) if awaited else len([*saver.list({"configurable": {"thread_id": "t"}})])


@pytest.mark.broad
@pytest.mark.parametrize("saver", sorted(MAIN))
@pytest.mark.parametrize("script", ["subgraphs", "pydantic state", "dataclass state"])
def test_wrapped_strict_is_as_plain(places: Places, strict: Elsewhere, script: str, saver: str) -> None:
    plain, _ = play(script, saver, places(saver), False)
    sealed, in_sealed = strict(play, script, saver, places(saver), True)
    assert sealed == plain
    assert all(tag.endswith(BOUND_TAG) for tag in in_sealed.tags)


def test_strict_is_strict(strict: Elsewhere) -> None:
    """Without a graph whose schema names it, the same type is refused there, and read here."""
    sealed = SEALED.dumps_typed(Place("mill lane"))
    assert SEALED.loads_typed(sealed) == Place("mill lane")
    with pytest.raises(BlockedTypeError):
        strict(read, sealed)


def read(sealed: tuple[str, bytes]) -> object:
    """By the serializer of the process that it runs in, for no key is handed over."""
    value: object = SEALED.loads_typed(sealed)
    return value


@pytest.mark.broad
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "delta 210"])
@pytest.mark.parametrize("saver", ["SqliteSaver", "InMemorySaver"])
def test_ours_is_as_langgraphs(places: Places, script: str, saver: str) -> None:
    """Without encryption too, our savers do what LangGraph's of the same name do."""
    ours, _ = play(script, saver, places(saver), False)
    theirs, _ = play(script, f"LangGraph {saver}", places(saver), False)
    assert ours == theirs


def test_what_stays_in_the_clear_on_postgres(places: Places) -> None:
    """PostgresSaver hands str, int, float, bool and None to no serializer: they stand in its JSON."""
    place = places("LangGraph PostgresSaver")
    _, in_sealed = play(IN_THE_CLEAR, "LangGraph PostgresSaver", place, True)
    with psycopg.connect(place) as connection:
        inline = connection.execute(
            "SELECT DISTINCT jsonb_object_keys(checkpoint -> 'channel_values') FROM checkpoints"
        ).fetchall()
        sealed = connection.execute("SELECT DISTINCT channel, type FROM checkpoint_blobs").fetchall()
    assert {name for (name,) in inline if name in KINDS} == {"text", "number", "ratio", "flag", "nothing"}
    assert {name for name, tag in sealed if name in KINDS and tag.endswith(TAG)} == {"raw", "lines", "fields"}
    assert SECRET.encode() in in_sealed.dump
