"""Scrubbing: after it no old ciphertext is in the file or its log; before it, the search finds it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell, Where
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.maintenance.scrub import FRAGMENT_BYTES, MAX_FRAGMENTS, Traces, scrub
from tests.support.databases.sealed import checked, make_cipher, make_ring, opened, run, values_of, write

RING = make_ring("k2", "k1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that was sealed under k1."""
    path = tmp_path / "x.db"
    for thread_id in "abcdef":
        write(path, "k1", thread_id, text="x" * 5000)
    return path


def content(path: Path) -> bytes:
    """The database and all that hangs on it, in one piece."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


@pytest.mark.claim("u7")
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_nothing_old_is_left(path: Path, mode: str) -> None:
    """Neither the fragments that are searched for, nor any other part of any old value."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    old, every, traces = values_of(path), opened(path, make_cipher("k1")), Traces()
    run(path, make_cipher("k2", "k1"), before_change=traces.add)
    done = scrub(path, RING, traces.samples)
    assert done.found == ()
    assert done.fragments == len(traces.samples) > 0
    assert done.searched_bytes >= path.stat().st_size
    after = content(path)
    assert b"+cobblestone256@k1" not in after
    for value in old:
        assert all(value.value[at : at + 16] not in after for at in range(0, len(value.value) - 16, 16))
    assert opened(path, make_cipher("k2")) == every
    assert checked(path) == "ok"


@pytest.mark.claim("u6")
def test_a_reader_kept_old_values_in_the_file_until_the_scrub(path: Path) -> None:
    """The log could not be taken over while it read; another connection keeps the log from vanishing."""
    traces = Traces()
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM checkpoints").fetchone()
        run(path, make_cipher("k2", "k1"), before_change=traces.add)
        reader.execute("COMMIT")
        before = content(path)
        assert all(fragment in before for sample in traces.samples for fragment in sample.fragments)
        assert scrub(path, RING, traces.samples).found == ()
        after = content(path)
        assert not any(fragment in after for sample in traces.samples for fragment in sample.fragments)


@pytest.mark.claim("u7")
def test_the_search_finds_what_is_there(path: Path) -> None:
    """What was not rotated is found by its fragments, and by its tags once no row carries them."""
    traces = Traces()
    for value in values_of(path):
        traces.add(value)
    assert scrub(path, RING, traces.samples).found != ()
    assert scrub(path, RING).found == ()  # rows carry the tags
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE copy AS SELECT * FROM checkpoints")
        connection.execute("DELETE FROM checkpoints")
        connection.execute("DELETE FROM writes")
    found = scrub(path, RING).found
    assert found != ()
    assert {name for name, _ in found} == {"x.db"}
    assert path.read_bytes()[found[0][1] :].startswith(b"+cobblestone256@k1")


def test_a_fragment_across_two_chunks_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = Traces()
    traces.add(values_of(path)[4])
    ((_, place),) = scrub(path, RING, traces.samples).found
    for inside in range(1, FRAGMENT_BYTES):
        monkeypatch.setattr("sealpoint.admin.maintenance.scrub._CHUNK_BYTES", place + inside)
        assert scrub(path, RING, traces.samples).found == (("x.db", place),)


def test_traces_are_a_sample_of_all_values() -> None:
    """As many as there is room for, each of them from a value, and late values as likely as early ones."""
    traces = Traces()
    values = [number.to_bytes(2, "big") * FRAGMENT_BYTES for number in range(1000)]
    too_short: list[Any] = [None, 7, "text", b"", b"x" * (FRAGMENT_BYTES - 1)]
    for blob in (*too_short, *values):
        traces.add(Cell(blob, "msgpack+cobblestone256@k1", Where(CHECKPOINTS, ("t", "", "1"))))
        assert blob in values or traces.samples == []
    assert len(traces.samples) == MAX_FRAGMENTS
    assert all(len(fragment) == FRAGMENT_BYTES for sample in traces.samples for fragment in sample.fragments)
    numbers = sorted(
        next(at for at, blob in enumerate(values) if sample.fragments[0] in blob) for sample in traces.samples
    )
    assert numbers[0] < 250
    assert numbers[-1] >= 750
