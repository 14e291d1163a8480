"""``kill -9`` at any moment of a rotation or a rebinding of items, and agents that remember meanwhile."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind, sealing_sentinels
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Failure
from tests.faults.rotations import rotator
from tests.faults.rotator import BATCH, make_cipher, open_memory
from tests.postgres.test_commands import at
from tests.support.servers.postgres import schema, server

KILLS = int(os.environ.get("SEALPOINT_KILLS", "4"))
PUTS = int(os.environ.get("SEALPOINT_LIVE_PUTS", "150"))
ITEMS_THERE = 150
BATCHES = ITEMS_THERE // BATCH.rows
WRITERS = ("sealed1-k1", "sealed2-k2", "plain1-k1", "plain2-k2")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[str]:
    """A database of LangGraph's store with items, some sealed and some not."""
    if request.param == "sqlite":
        fill(path := str(tmp_path / "x.db"))
        yield path
    else:
        with schema(server(pytestconfig)) as dsn:
            fill(url := at(dsn))
            yield url


def fill(database: str) -> None:
    for name in ("sealed-k1", "plain-k1"):
        with open_memory(database, name) as store:
            store.setup()
            for number in range(ITEMS_THERE // 2):
                store.put(("there", name), str(number), {"n": number, "text": "x" * 500})


def remembered(database: str, unbound: str = "allow") -> dict[Any, Any]:
    """All that a sealed store reads."""
    with open_memory(database, "sealed-k3", unbound) as store:
        found = store.search((), limit=10_000)
    return {(item.namespace, item.key): item.value for item in found}


def tags(database: str) -> set[str]:
    """The tags of all items: ``json`` for those that are not sealed."""
    with closing(kind_of(database).open(database)) as store:
        return {cell.tag for cell in cells_of(store, [ITEMS])}


def rebound(database: str, key: str, **options: Any) -> None:
    cipher = make_cipher(key)
    opened = kind_of(database).open_whole(database, writable=True, sentinel=sealing_sentinels(cipher))
    with closing(opened) as store, store.hold():
        events = [*rebind(store, cipher, RebindOptions(batch=Batch(200), **options))]
    assert not [event for event in events if isinstance(event, Failure)]


def rotated(database: str, key: str) -> None:
    with closing(kind_of(database).open(database, writable=True)) as store, store.hold():
        events = [*rotate(store, make_cipher(key), batch=Batch(200))]
    assert not [event for event in events if isinstance(event, Failure)]


@pytest.mark.costly
@pytest.mark.parametrize("kills", [KILLS, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_run_over_items_is_run_again(database: str, kills: int) -> None:
    """Sealing, rotation and the way back, always in the same database; after each kill all is read."""
    moments, before = random.Random(0), remembered(database)
    assert len(before) == ITEMS_THERE
    rebound(database, "k1", unbind=True)
    acts = [("seal-items", "k1"), ("rotate", "k2"), ("unbind", "k2")]
    ended = 0
    with rotator() as running:
        for number in range(kills):
            act, key = acts[number % len(acts)]
            batches = moments.randrange(1, BATCHES - 1)
            ended += not running.kill(act, database, key, batches, moments.uniform(0, 0.005))
            assert remembered(database) == before
            if act == "rotate":
                rotated(database, key)
            else:
                rebound(database, key, unbind=act == "unbind", allow_plaintext=act != "unbind")
            assert remembered(database) == before
            ends = {tag.partition(".")[2] for tag in tags(database)}
            assert ends == ({""} if act == "unbind" else {f"row@{key}"})
    assert ended < kills, "no run was killed before its end"


@pytest.mark.costly
@pytest.mark.parametrize("puts", [PUTS, pytest.param(15_000, marks=pytest.mark.soak)])
def test_nothing_that_agents_remember_meanwhile_is_lost(database: str, puts: int) -> None:
    """Rotation, sealing and both in a row take turns, for as long as four processes put and delete."""
    over, said, before = threading.Event(), list[list[str]](), remembered(database)

    def agents() -> None:
        try:
            with rotator() as running:
                said.extend(running.run(*(f"remember {database} {name} {puts}" for name in WRITERS)))
        finally:
            over.set()

    thread = threading.Thread(target=agents)
    thread.start()
    turns = 0
    while not over.is_set() or turns < 4:
        key = ("k2", "k3")[turns % 2]
        if turns % 3 != 0:
            rotated(database, key)
        if turns % 3 != 1:
            rebound(database, key, unbind=turns % 4 == 3, allow_plaintext=turns % 4 != 3)
        turns += 1
    thread.join()
    assert [words[0] for words in said] == ["end"] * len(WRITERS), said
    assert [words[3] for words in said] == ["0"] * len(WRITERS), "lost or reverted updates"
    rebound(database, "k1", allow_plaintext=True)
    assert remembered(database, "refuse").items() >= before.items()
