"""Agents write without a pause while keys are rotated: no update is lost or reverted, nobody is locked out.

SEALPOINT_LIVE_WRITES says how many writes each of four savers makes, in processes of their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Failure, Progress
from tests.faults.rotations import make, rerun, rotator
from tests.faults.rotator import make_cipher
from tests.support.databases.sealed import checked, opened, values_of

WRITES = int(os.environ.get("SEALPOINT_LIVE_WRITES", "100"))
SAVERS = ("ours-k1", "ours-k2", "theirs-k1", "theirs-k2")  # half of them have not heard of the new key
WRITERS = {**dict.fromkeys(SAVERS, WRITES), "upsert-k1": 8 * WRITES}


class Figures:
    """What a run of rotations cost those who write meanwhile."""

    def __init__(self) -> None:
        self.rotations = self.moved = self.raced = 0
        self.lock_seconds = 0.0
        self.waits: list[float] = []

    def add(self, events: Iterator[object]) -> None:
        """Take in one rotation."""
        moved = raced = 0
        for event in events:
            assert not isinstance(event, Failure), event
            assert isinstance(event, Progress)
            moved, raced = event.changed, event.raced
            self.lock_seconds = max(self.lock_seconds, event.lock_seconds)
        self.rotations, self.moved, self.raced = self.rotations + 1, self.moved + moved, self.raced + raced

    def __str__(self) -> str:
        waits = sorted(self.waits)
        shares = ", ".join(f"{waits[int(len(waits) * share)] * 1000:.2f}" for share in (0.5, 0.99, 0.999))
        return (
            f"{len(waits)} writes, {self.rotations} rotations, {self.moved} moved, {self.raced} raced, "
            f"longest lock {self.lock_seconds * 1000:.1f} ms, "
            f"writes p50, p99, p99.9 {shares} ms, longest {waits[-1] * 1000:.1f} ms"
        )


def test_nothing_that_agents_write_meanwhile_is_lost(tmp_path: Path) -> None:
    """Keys take turns for as long as agents write; each agent checks at the end what it wrote."""
    path, figures, over = tmp_path / "x.db", Figures(), threading.Event()
    make(path, "k1")
    before = opened(path, make_cipher("k1"))
    said: list[list[str]] = []

    def agents() -> None:
        try:
            with rotator() as running:
                said.extend(running.run(*(f"write {path} {name} {count}" for name, count in WRITERS.items())))
        finally:
            over.set()

    thread = threading.Thread(target=agents)
    thread.start()
    keys = ("k2", "k3")
    while not over.is_set():
        with closing(SqliteRows(path, writable=True)) as store, store.hold():
            aim = make_cipher(keys[figures.rotations % 2])
            figures.add(rotate(store, aim, batch=Batch(rows=200)))
    thread.join()
    assert [words[0] for words in said] == ["end"] * len(WRITERS), said
    assert [words[3] for words in said] == ["0"] * len(WRITERS), "lost or reverted updates"
    figures.waits = [
        float(wait) for name in WRITERS for wait in (tmp_path / f"{name}.waits").read_text().split()
    ]
    print(figures)  # noqa: T201 -- to be seen with -s
    rerun(path, "k3", allow_plaintext=False)
    assert rerun(path, "k3", allow_plaintext=False) == (0, 0)
    after = opened(path, make_cipher("k3"))
    assert after.items() >= before.items()
    assert {value.tag.partition("@")[2] for value in values_of(path)} == {"k3"}
    assert checked(path) == "ok"
