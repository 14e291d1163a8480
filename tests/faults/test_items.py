"""Items of LangGraph's Store while keys are rotated and items bound: none is lost, in spite of kills.

SEALPOINT_LIVE_PUTS says how many puts each process makes, SEALPOINT_KILLS how many processes are killed.
"""

from __future__ import annotations

import json
import os
import random
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.rows import Batch, Failure, Progress
from sealpoint.admin.databases.sqlite.rows import SqliteRows, SqliteWholeRows
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from tests.faults.rotations import copy, rotator
from tests.faults.rotator import BATCH, make_cipher, make_store
from tests.support.databases.sealed import checked, values_of

PUTS = int(os.environ.get("SEALPOINT_LIVE_PUTS", "80"))
KILLS = int(os.environ.get("SEALPOINT_KILLS", "3"))
ITEMS, BATCHES = 300, 300 // BATCH.rows


def make(path: Path, key: str) -> None:
    with make_store(str(path), key) as store:
        store.setup()
        for number in range(ITEMS):
            store.put(("before",), str(number), {"n": number, "text": "é" * 300})


def found(path: Path, key: str = "k1") -> dict[str, tuple[int, str]]:
    """All items that were there before, as an agent reads them."""
    with make_store(str(path), key) as store:
        items = store.search(("before",), limit=2 * ITEMS)
    return {item.key: (item.value["n"], item.value["text"]) for item in items}


def tags(path: Path) -> set[str]:
    return {str(cell.tag).rpartition("@")[2] for cell in values_of(path)}


def test_nothing_that_agents_put_meanwhile_is_lost(tmp_path: Path) -> None:
    """Two keys take turns for as long as three processes put; each of them checks what it reads."""
    path, over, said = tmp_path / "x.db", threading.Event(), list[list[str]]()
    make(path, "k1")
    before = found(path)

    def agents() -> None:
        try:
            with rotator() as running:
                said.extend(running.run(*(f"put {path} {key} {key} {PUTS}" for key in ("k1", "k2", "k3"))))
        finally:
            over.set()

    thread = threading.Thread(target=agents)
    thread.start()
    moved = rounds = 0
    while not over.is_set():
        with closing(SqliteRows(path, writable=True)) as store, store.hold():
            events = list(rotate(store, make_cipher(("k2", "k3")[rounds % 2]), batch=Batch(rows=50)))
        assert not any(isinstance(event, Failure) for event in events), events
        moved += max(event.changed for event in events if isinstance(event, Progress))
        rounds += 1
    thread.join()
    assert [words[0] for words in said] == ["end"] * 3, said
    assert [words[3] for words in said] == ["0"] * 3, "lost or reverted items"
    print(f"{3 * PUTS} puts, {rounds} rotations, {moved} moved")  # noqa: T201 -- to be seen with -s
    assert found(path) == before
    assert checked(path) == "ok"


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_rotation_of_items_is_run_again(tmp_path: Path, mode: str) -> None:
    plain, path, moments = tmp_path / "plain.db", tmp_path / "x.db", random.Random(mode)
    make(plain, "k1")
    copy(plain, path, mode)
    before = found(path)
    with rotator() as running:
        for number in range(KILLS):
            key = ("k2", "k3", "k1")[number % 3]
            batches = moments.randrange(2, BATCHES - 1)
            assert running.kill("rotate", path, key, batches, moments.uniform(0, 0.005))
            assert checked(path) == "ok"
            assert found(path) == before
            with closing(SqliteRows(path, writable=True)) as store, store.hold():
                events = list(rotate(store, make_cipher(key), batch=BATCH))
                assert outstanding(store, key) == []
            assert not any(isinstance(event, Failure) for event in events)
            assert (found(path), tags(path)) == (before, {key})


def test_a_killed_unbinding_of_items_is_run_again(tmp_path: Path) -> None:
    """Until then an agent reads any mix; at the end each is JSON of LangGraph's store, and is bound again."""
    path, moments = tmp_path / "x.db", random.Random(1)
    make(path, "k1")
    before = found(path)
    with rotator() as running:
        assert running.kill("unbind", path, "k1", moments.randrange(2, BATCHES - 1), 0.001)
    assert found(path) == before
    assert tags(path) == {"k1", "json"}
    with closing(SqliteWholeRows(path, writable=True)) as store, store.hold():
        assert not [
            each
            for each in rebind(store, make_cipher("k1"), RebindOptions(unbind=True))
            if isinstance(each, Failure)
        ]
    assert tags(path) == {"json"}
    assert {cell.where.names["key"]: json.loads(cell.value)["n"] for cell in values_of(path)} == {
        key: number for key, (number, _) in before.items()
    }
    with closing(SqliteWholeRows(path, writable=True)) as store, store.hold():
        list(rebind(store, make_cipher("k2"), RebindOptions(allow_plaintext=True)))
    assert (found(path), tags(path)) == (before, {"k2"})
