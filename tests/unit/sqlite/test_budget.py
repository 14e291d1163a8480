"""What is too much in a database, or does not belong there: refused, if possible before it is in memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import MetadataError, RowError, SealpointError
from sealpoint.sqlite import SqliteSaver, reader
from sealpoint.sqlite.budget import Budget
from tests.support.checkpoints import at, ids_in, make, put_chain

NUMBERS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT {what} FROM n"
)


@pytest.fixture
def cursor(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    with closing(connection.cursor()) as cursor:
        yield cursor


# --- budgets -------------------------------------------------------------------------------------


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


def test_a_budget_reads_one_row_more_and_no_further(cursor: sqlite3.Cursor) -> None:
    """However long the query is."""
    cursor.execute(NUMBERS.format(rows=10**12, what="i"))
    budget = Budget(3, 100)
    assert [number for (number,) in budget.take(cursor)] == [1, 2, 3]
    assert budget.spent


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


def read_within(path: Path, room_bytes: int) -> list[str]:
    """List and get in a process that has so much room beyond what it starts with."""
    command = [sys.executable, "-c", LIMITED, str(path), str(room_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.mark.parametrize(
    "assignment",
    [
        "checkpoints SET metadata = zeroblob(600000000)",
        "checkpoints SET type = CAST(zeroblob(600000000) AS TEXT)",
        "writes SET value = zeroblob(600000000)",
    ],
)
def test_a_huge_value_is_refused_unread(path: Path, assignment: str) -> None:
    """600 MB of zeros, in 100 MB of memory."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 65536")
        put_chain(SqliteSaver(connection), "1")
    with closing(sqlite3.connect(path)) as connection:  # without the saver's limit of 512 MB
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"UPDATE {assignment}")
        connection.commit()
    assert read_within(path, 100_000_000) == ["RowError", "RowError"]


def test_a_page_of_large_rows_is_not_in_memory_at_once(path: Path) -> None:
    """50 checkpoints of 5 MB are 250 MB, read in 90 MB of memory."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        saver = SqliteSaver(connection)
        for number in range(50):
            saver.put(at(), make(f"{number:02}", blob=bytes(5_000_000)), {}, {})
    assert read_within(path, 90_000_000) == ["read 50", "read True"]


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


def test_writes_on_one_checkpoint_are_counted(saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    put_chain(saver, "1")
    saver.put_writes(at("t", "1"), [("a", number) for number in range(4)], "more")
    monkeypatch.setattr(reader, "MAX_WRITES", 5)
    assert ids_in(saver) == ["1"]
    monkeypatch.setattr(reader, "MAX_WRITES", 4)
    read_refuses(saver, RowError)


def test_the_bytes_of_writes_on_one_checkpoint_are_counted(
    saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_chain(saver, "1")
    saver.put_writes(at("t", "1"), [("a", bytes(1000)), ("b", bytes(1000)), ("c", 1)], "more")
    monkeypatch.setattr(reader, "MAX_WRITES_BYTES", 5000)
    assert ids_in(saver) == ["1"]
    monkeypatch.setattr(reader, "MAX_WRITES_BYTES", 1500)
    read_refuses(saver, RowError)


def read_refuses(saver: SqliteSaver, error: type[Exception]) -> None:
    """Every method that reads refuses."""
    with pytest.raises(error):
        list(saver.list(None))
    with pytest.raises(error):
        saver.get_tuple(at())
    with pytest.raises(error):
        saver.get_tuple(at("t", "1"))


# --- what does not belong there ------------------------------------------------------------------


@pytest.mark.parametrize("column", ["type", "metadata", "parent_checkpoint_id", "checkpoint"])
def test_text_that_is_not_utf8_is_refused(saver: SqliteSaver, column: str) -> None:
    """And not quoted: it may be what was decrypted."""
    put_chain(saver, "1")
    saver.conn.execute(f"UPDATE checkpoints SET {column} = CAST(x'736563726574ff' AS TEXT)")
    for read in (lambda: list(saver.list(None)), lambda: saver.get_tuple(at())):
        with pytest.raises(RowError) as caught:
            read()
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("column", ["channel", "task_id", "type", "value", "task_path"])
def test_text_of_a_write_that_is_not_utf8_is_refused(saver: SqliteSaver, column: str) -> None:
    put_chain(saver, "1")
    saver.conn.execute(f"UPDATE writes SET {column} = CAST(x'ff' AS TEXT)")
    read_refuses(saver, RowError)


@pytest.mark.parametrize("value", [5, 2**62, 1.5, "text", None])
@pytest.mark.parametrize(
    "column", ["checkpoints SET checkpoint", "checkpoints SET type", "writes SET value", "writes SET type"]
)
def test_another_storage_class_is_refused(saver: SqliteSaver, column: str, value: object) -> None:
    """Every column takes every value in SQLite; ``bytes(5)`` would be five zeros."""
    put_chain(saver, "1")
    saver.conn.execute(f"UPDATE {column} = ?", (value,))
    read_refuses(saver, SealpointError)


@pytest.mark.parametrize("missing", ["channel_values", "channel_versions", "versions_seen", "id"])
@pytest.mark.parametrize("instead", [None, [], "text"])
def test_a_half_built_checkpoint_is_refused(saver: SqliteSaver, missing: str, instead: Any) -> None:
    """A graph would meet what is missing much later, or take it for empty."""
    put_chain(saver, "1")
    for checkpoint in (
        {key: value for key, value in make("1").items() if key != missing},
        {**make("1"), missing: instead},
    ):
        kind, data = saver.serde.dumps_typed(checkpoint)
        saver.conn.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, data))
        read_refuses(saver, RowError)


@pytest.mark.parametrize("metadata", ["{", "", "{'a': 1}", "nothing", '{"a": }'])
def test_a_filter_on_malformed_metadata_is_an_error_of_ours(saver: SqliteSaver, metadata: str) -> None:
    """SQLite looks into it before any row is decoded."""
    put_chain(saver, "1", "2")
    saver.conn.execute("UPDATE checkpoints SET metadata = ? WHERE checkpoint_id = '1'", (metadata,))
    for wanted in ({"step": 1}, {"a.b": None}):
        with pytest.raises(MetadataError):
            list(saver.list(None, filter=wanted))


def test_a_filter_finds_what_is_well_formed(saver: SqliteSaver) -> None:
    put_chain(saver, "1", "2")
    assert ids_in(saver, filter={"step": 1}) == ["2"]
