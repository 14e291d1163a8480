"""What is too much in a database is refused, if possible before it is in memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.errors import RowError
from sealpoint.guards.limits import Budget
from sealpoint.sqlite import SqliteSaver, reader
from tests.support.databases.checkpoints import at, ids_in, put_chain

NUMBERS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT {what} FROM n"
)


@pytest.fixture
def cursor(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    with closing(connection.cursor()) as cursor:
        yield cursor


@pytest.mark.parametrize(
    ("rows", "room", "taken", "spent"),
    [
        (0, (5, 100), 0, False),
        (4, (5, 100), 4, False),
        (5, (5, 100), 5, False),
        (6, (5, 100), 5, True),
        (10, (100, 30), 4, True),
        (3, (100, 30), 3, False),
        (4, (100, 30), 4, False),
        (5, (100, 0), 1, True),
        (1, (1, 0), 1, False),
        (2, (0, 100), 1, True),
    ],
)
def test_a_budget_takes_what_fits_and_says_what_is_left(
    cursor: sqlite3.Cursor, rows: int, room: tuple[int, int], taken: int, spent: bool
) -> None:
    """Rows of ten bytes: five of text and five of a value, and a number that costs nothing."""
    cursor.execute(NUMBERS.format(rows=rows, what="i, 'abcde', zeroblob(5)") + " LIMIT ?", (rows,))
    budget = Budget(*room)
    assert (len(budget.take(cursor)), budget.spent) == (taken, spent)


# --- huge values ---------------------------------------------------------------------------------

LIMITED = """
import resource, sqlite3, sys
from sealpoint.errors import SealpointError
from sealpoint.sqlite import SqliteSaver
saver = SqliteSaver(sqlite3.connect(sys.argv[1], check_same_thread=False))
saver.setup()
here = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
with open("/proc/self/statm", encoding="ascii") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), -1))
for read in (lambda: sum(1 for _ in saver.list(None)), lambda: bool(saver.get_tuple(here))):
    try:
        print("read", read())
    except SealpointError as error:
        print(type(error).__name__)
"""


@pytest.mark.claim("f18")
@pytest.mark.parametrize(
    "assignment",
    [
        "checkpoints SET metadata = zeroblob(600000000)",
        "writes SET value = zeroblob(600000000)",
    ],
)
def test_a_huge_value_is_refused_unread(tmp_path: Path, assignment: str) -> None:
    """600 MB of zeros, in 100 MB of memory beyond what the process starts with."""
    path = tmp_path / "checkpoints.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 65536")
        put_chain(SqliteSaver(connection), "1")
    with closing(sqlite3.connect(path)) as connection:  # without the saver's limit of 512 MB
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"UPDATE {assignment}")
        connection.commit()
    command = [sys.executable, "-c", LIMITED, str(path), "100000000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["RowError", "RowError"], "")


def test_pages_become_smaller_where_rows_are_large(
    saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the listing is lost or changes its place, nor do the writes."""
    put_chain(saver, *(f"{number:03}" for number in range(120)))
    whole = list(saver.list(None))
    for size in (0, 1, 500, 3000):
        monkeypatch.setattr(reader, "PAGE_BYTES", size)
        assert list(saver.list(None)) == whole
    assert all(found.pending_writes for found in whole)


# --- writes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "fits", "too_small"),
    [("MAX_WRITES", 5, 4), ("MAX_WRITES_BYTES", 5000, 1500)],
)
def test_writes_on_one_checkpoint_are_counted(
    saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch, limit: str, fits: int, too_small: int
) -> None:
    put_chain(saver, "1")
    writes = [("a", bytes(1000)), ("b", bytes(1000)), ("c", 1), ("d", 1)]
    saver.put_writes(at("t", "1"), writes, "more")
    monkeypatch.setattr(reader, limit, fits)
    assert ids_in(saver) == ["1"]
    monkeypatch.setattr(reader, limit, too_small)
    for read in (
        lambda: ids_in(saver),
        lambda: saver.get_tuple(at()),
        lambda: saver.get_tuple(at("t", "1")),
    ):
        with pytest.raises(RowError):
            read()
