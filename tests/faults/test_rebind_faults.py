"""``kill -9`` at any moment of a rebinding, and agents that write without a pause while it runs."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Failure
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.faults.rotations import BATCHES, make, rotator
from tests.faults.rotator import make_cipher
from tests.support.databases.rebinding import rebound, run
from tests.support.databases.sealed import checked, failures, moved, tags_of

KILLS = int(os.environ.get("SEALPOINT_KILLS", "4"))
WRITES = int(os.environ.get("SEALPOINT_LIVE_WRITES", "50"))
BATCH_SECONDS = 0.005  # about; nothing depends on it
WRITERS = ("wrapped1-k1", "wrapped2-k2", "wrapped3-k1", "wrapped4-k2")


def read(path: Path, **named: Any) -> list[Any]:
    """All that SealedSaver reads."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SealedSaver(Theirs(connection), serde=EncryptedSerializer(make_cipher("k1")), **named)
        return [*saver.list(None)]


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_rebinding_is_run_again(tmp_path: Path, mode: str, kills: int) -> None:
    """There and back, always in the same file. After each kill all is read; the next run completes it."""
    path, moments = tmp_path / "x.db", random.Random(mode)
    make(path, "k1", mode)
    before = read(path, unbound="allow")
    with rotator() as running:
        for number in range(kills):
            unbind = bool(number % 2)
            act = "unbind" if unbind else "bind"
            batches = moments.randrange(2, BATCHES - 1)
            assert running.kill(act, path, "k1", batches, moments.uniform(0, BATCH_SECONDS))
            assert checked(path) == "ok"
            assert len({".row@" in tag for tag in tags_of(path)}) == 2
            assert read(path, unbound="allow") == before
            events = run(path, make_cipher("k1"), unbind=unbind)
            assert (moved(events) > 0, failures(events)) == (True, [])
            assert {".row@" in tag for tag in tags_of(path)} == {not unbind}
            assert read(path, unbound="allow" if unbind else "refuse") == before


@pytest.mark.costly
@pytest.mark.parametrize("writes", [WRITES, pytest.param(5_000, marks=pytest.mark.soak)])
def test_nothing_that_agents_write_meanwhile_is_lost(tmp_path: Path, writes: int) -> None:
    """Rotation, binding and unbinding take turns for as long as four agents write."""
    path, over = tmp_path / "x.db", threading.Event()
    make(path, "k1")
    before = {place_of(found): found for found in read(path, unbound="allow")}
    said: list[list[str]] = []

    def agents() -> None:
        try:
            with rotator() as running:
                said.extend(running.run(*(f"write {path} {name} {writes}" for name in WRITERS)))
        finally:
            over.set()

    thread = threading.Thread(target=agents)
    thread.start()
    turns = 0
    while not over.is_set() or turns < 2:
        cipher = make_cipher(("k2", "k3")[turns % 2])
        with closing(SqliteRows(path, writable=True)) as store, store.hold():
            assert not [
                event for event in rotate(store, cipher, batch=Batch(200)) if isinstance(event, Failure)
            ]
        rebound(path, cipher, batch=Batch(200), unbind=bool(turns % 2))
        turns += 1
    thread.join()
    assert [words[0] for words in said] == ["end"] * len(WRITERS), said
    assert [words[3] for words in said] == ["0"] * len(WRITERS), "lost or reverted updates"
    rebound(path, make_cipher("k1"))
    after = {place_of(found): found for found in read(path)}
    assert after.items() >= before.items()
    assert checked(path) == "ok"


def place_of(found: Any) -> tuple[str, ...]:
    return tuple(found.config["configurable"].values())
