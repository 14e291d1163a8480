"""Verification names every value that does not open, whatever was done to it, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell, Selection
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure, Progress
from tests.support.databases.harm import HARM
from tests.support.databases.sealed import VALUES, bind, failures, make_cipher, moved, run, values_of, write


def check(path: Path, *keys: str, **options: Any) -> list[Failure]:
    with closing(SqliteRows(path)) as store:
        return failures(list(verify(store, make_cipher(*keys), **options)))


def test_what_opens_is_no_failure(path: Path) -> None:
    """Under whichever key, LangGraph's among them, and bound to rows or not."""
    for thread_id, kind in {"b": "k2", "c": "eax", "d": "gcm", "e": "k1"}.items():
        write(path, kind, thread_id)
    bind(path, make_cipher("k1"), "e")
    assert check(path, "k2", "k1", "langgraph") == []


@pytest.mark.claim("u16")
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
@pytest.mark.parametrize("bound", [False, True], ids=["free", "bound"])
def test_whatever_was_done_to_a_value_is_found(
    path: Path, harm: Callable[[sqlite3.Connection, Cell], None], bound: bool
) -> None:
    """No copy is made then, and rotation leaves it. It does not take one that no key sealed."""
    if bound:
        bind(path, make_cipher("k1"), "a")
    with closing(sqlite3.connect(path)) as connection, connection:
        harm(connection, values_of(path)[1])
    harmed, cipher, out = values_of(path)[1], make_cipher("k2", "k1"), path.with_name("out.db")
    for (failed,) in (check(path, "k2", "k1"), failures([*decrypt(path, out, cipher)])):
        assert (failed.place, failed.tag) == (harmed.where.names, harmed.tag)
    assert not out.exists()
    takes = Selection("k2", plaintext=False, legacy=False).takes(harmed.tag)
    for left in (VALUES - 1, 0):
        events = run(path, cipher)
        assert [failed.place for failed in failures(events)] == [harmed.where.names] * takes
        assert moved(events) == left
    one, after, *others = values_of(path)
    assert (after.tag, after.value) == (harmed.tag, harmed.value)
    assert all(value.tag.endswith("@k2") for value in (one, *others))


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_progress_tells_the_rows_and_bytes_that_were_read(path: Path, rows: int) -> None:
    """Of all values, whether they are opened or not; a value that is no bytes counts none."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET value = 'text' WHERE rowid = 1")
    sizes = [len(value.value) if isinstance(value.value, bytes) else 0 for value in values_of(path)]
    with closing(SqliteRows(path)) as store:
        events = [*verify(store, make_cipher("k1"), every=3, batch=Batch(rows=rows))]
    told = [event for event in events if isinstance(event, Progress)]
    assert [(one.rows, one.size_bytes) for one in told] == [(n.rows, sum(sizes[: n.rows])) for n in told]
    assert (told[-1].rows, told[-1].total) == (len(sizes), len(sizes))
    assert len(told) >= len(sizes) // rows
