"""Rotations as a table of sequences: whatever was done before, every value opens afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sealpoint.databases.cells import Selection, open_cell
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.maintenance.rotate import outstanding
from sealpoint.maintenance.verify import verify
from sealpoint.serde import EncryptedSerializer
from tests.support.harm import HARM
from tests.support.sealed import (
    Place,
    bind,
    checked,
    failures,
    make_cipher,
    moved,
    place_of,
    run,
    sealing,
    states,
    values_of,
    write,
)

# --- steps ----------------------------------------------------------------------------------------


@dataclass
class Story:
    """A database in the making, and what must be in it at the end."""

    path: Path
    read: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)  # by thread, as LangGraph reads it
    bound: set[str] = field(default_factory=set)  # threads that no saver of today reads
    bad: dict[Place, tuple[Any, Any]] = field(default_factory=dict)  # values that never open, untouched
    keys: list[str] = field(default_factory=lambda: ["langgraph"])  # all that were ever used


@dataclass(frozen=True)
class Write:
    """LangGraph writes into a thread: under a key of ours, ``plain``, or its own ``eax`` or ``gcm``."""

    kind: str
    thread: str

    def __call__(self, story: Story, crashes: bool) -> None:
        write(story.path, self.kind, self.thread)
        story.read[self.thread] = states(story.path, sealing(self.kind), self.thread)
        if self.kind not in ("plain", "eax", "gcm"):
            story.keys.append(self.kind)


@dataclass(frozen=True)
class Bind:
    """The values of a thread are bound to their rows, under a key."""

    key: str
    thread: str

    def __call__(self, story: Story, crashes: bool) -> None:
        bind(story.path, make_cipher(self.key), self.thread)
        story.bound.add(self.thread)


@dataclass(frozen=True)
class Rotate:
    """All goes under a key, while others are in the ring in these states."""

    key: str
    others: tuple[str, ...] = ()
    plaintext: bool = False
    legacy: bool = False
    suite: str = "cobblestone256"

    def __call__(self, story: Story, crashes: bool) -> None:
        cipher = make_cipher(self.key, *self.others, suite=self.suite)
        options = {"allow_plaintext": self.plaintext, "allow_legacy": self.legacy}
        for batches in (1, 2) if crashes else ():
            run(story.path, cipher, batches, **options)
        seen = run(story.path, cipher, **options)
        story.keys.append(self.key)
        takes = Selection(self.key, plaintext=self.plaintext, legacy=self.legacy).takes
        reported = {place for place, (tag, _) in story.bad.items() if takes(tag)}
        assert {(event.table, *event.place.values()) for event in failures(seen)} == reported
        assert moved(run(story.path, cipher, **options)) == 0


@dataclass(frozen=True)
class Damage:
    """Somebody changes a value in the middle of a thread, past every saver."""

    thread: str
    what: str

    def __call__(self, story: Story, crashes: bool) -> None:
        value = [each for each in values_of(story.path) if each.where.key[0] == self.thread][1]
        with closing(sqlite3.connect(story.path)) as connection, connection:
            connection.text_factory = bytes
            HARM[self.what](connection, value)
        story.read.pop(self.thread)
        harmed = next(
            each
            for each in values_of(story.path)
            if each.where.column == value.where.column and each.where.locator == value.where.locator
        )
        story.bad[place_of(harmed)] = harmed.tag, harmed.value


SEQUENCES: dict[str, tuple[Any, ...]] = {
    "two rotations in a row": (Write("k1", "a"), Rotate("k2", ("k1",)), Rotate("k3", ("k2",))),
    "writers in between": (
        Write("k1", "a"), Rotate("k2", ("k1",)), Write("k1", "b"), Write("k2", "c"),
        Rotate("k3", ("k1", "k2")),
    ),
    "back to the old key": (
        Write("k1", "a"), Rotate("k2", ("k1",)), Write("k2", "b"), Rotate("k1", ("k2",)),
    ),
    "a staged key opens": (
        Write("k1", "a"), Write("k2", "b"), Rotate("k1", ("k2=staged",)), Rotate("k2", ("k1",)),
    ),
    "plaintext, then a key, then another": (
        Write("plain", "a"), Rotate("k1", plaintext=True), Rotate("k2", ("k1",)),
    ),
    "plaintext among sealed": (
        Write("k1", "a"), Write("plain", "b"), Rotate("k2", ("k1",), plaintext=True),
    ),
    "EAX and GCM rows of LangGraph among ours": (
        Write("eax", "a"), Write("k1", "b"), Write("gcm", "c"),
        Rotate("k2", ("k1", "langgraph"), legacy=True),
        Write("gcm", "d"), Rotate("k3", ("k2", "langgraph"), legacy=True),
    ),
    "everything at once": (
        Write("plain", "a"), Write("eax", "b"), Write("gcm", "c"), Write("k1", "d"), Write("k1", "e"),
        Bind("k1", "e"), Rotate("k2", ("k1", "langgraph"), plaintext=True, legacy=True),
    ),
    "bound to rows": (
        Write("k1", "a"), Write("k1", "b"), Bind("k1", "b"), Rotate("k2", ("k1",)), Rotate("k3", ("k2",)),
    ),
    "to another suite and back": (
        Write("k1", "a"), Bind("k1", "a"), Write("k1", "b"), Rotate("k2", ("k1",), suite="xaes256gcm"),
        Rotate("k3", ("k2",)),
    ),
    "a retired key disabled, another destroyed": (
        Write("k1", "a"), Rotate("k2", ("k1",)), Rotate("k3", ("k2", "k1=disabled")),
        Rotate("k4", ("k3", "k2=disabled", "k1=destroyed")),
    ),
    **{
        f"one bad row: {what}": (
            Write("k1", "a"), Write("k1", "b"), Damage("b", what), Write("k1", "c"),
            Rotate("k2", ("k1",)),
        )
        for what in HARM
    },
    "one bad row that is bound": (
        Write("k1", "a"), Write("k1", "b"), Bind("k1", "b"), Damage("b", "flipped bit"),
        Rotate("k2", ("k1",)),
    ),
    "one bad row of LangGraph's": (
        Write("eax", "a"), Write("gcm", "b"), Damage("b", "flipped bit"),
        Rotate("k1", ("langgraph",), legacy=True),
    ),
}  # fmt: skip


def runs() -> Iterator[Any]:
    """Each sequence as it is, and once for each rotation in it, which then crashes twice."""
    for name, steps in SEQUENCES.items():
        yield pytest.param(steps, None, id=name)
        for number, step in enumerate(steps):
            if isinstance(step, Rotate):
                yield pytest.param(steps, number, id=f"{name}, crash in step {number}")


@pytest.mark.broad
@pytest.mark.parametrize(("steps", "crash"), [*runs()])
def test_sequence(tmp_path: Path, steps: tuple[Any, ...], crash: int | None) -> None:
    """Every value opens and is what LangGraph wrote; what does not open stands as it stood."""
    story = Story(tmp_path / "x.db")
    for number, step in enumerate(steps):
        before = _good(story)
        step(story, number == crash)
        if isinstance(step, Rotate):
            assert _good(story) == before
    last = steps[-1].key
    everything = make_cipher(last, *(set(story.keys) - {last}))
    for thread, expected in story.read.items():
        if thread not in story.bound:
            assert states(story.path, EncryptedSerializer(everything), thread) == expected
    left = {place_of(value): value for value in values_of(story.path)}
    assert {place: (left[place].tag, left[place].value) for place in story.bad} == story.bad
    good = [value for place, value in left.items() if place not in story.bad]
    assert all(value.tag.endswith(f"@{last}") for value in good)
    assert checked(story.path) == "ok"
    with closing(SqliteRows(story.path)) as store:
        reported = failures(list(verify(store, everything)))
        assert {(each.table, *each.place.values()) for each in reported} == set(story.bad)
        assert sum(count.rows for count in outstanding(store, last)) == len(story.bad)


def _good(story: Story) -> dict[Place, tuple[str, bytes]]:
    """What stands in every value that opens."""
    if not story.path.exists():
        return {}
    cipher = make_cipher("", *{*story.keys, "k1", "k2", "k3", "k4"})
    return {
        place_of(value): open_cell(cipher, value, allow_plaintext=True).typed
        for value in values_of(story.path)
        if place_of(value) not in story.bad
    }
