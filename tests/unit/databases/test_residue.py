"""What no statement reads is counted, wherever deleted plaintext is left; a scrub leaves none of it."""

from __future__ import annotations

import random
import sqlite3
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from fuzz.sqlitefile.format import INTERIOR, SqliteFile
from fuzz.sqlitefile.gaps import gaps, slack_bytes
from sealpoint.admin.databases.rows import Residue
from sealpoint.admin.databases.sqlite import slack
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.audit import audit, audit_reasons
from sealpoint.admin.maintenance.scrub import scrub
from sealpoint.admin.results.reasons import Reason
from tests.support.databases.sealed import make_ring, write

MARK: Final = "Kumquat-4711 was read here"
NOTHING: Final = Residue(0, 0, 0, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sealed database with no residue."""
    path = tmp_path / "x.db"
    make(path)
    return path


def make(path: Path, *pragmas: str) -> None:
    """Write a sealed database, and leave no residue in it."""
    with closing(connect(path)) as connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE first (x)")  # for the pragmas are stored with it
        connection.execute("DROP TABLE first")
    write(path, "k1", "t")
    scrub(path, make_ring("k1"))
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA secure_delete = OFF")  # Debian's SQLite has it on
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def content(path: Path) -> bytes:
    """The database and its log or journal."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def residue(path: Path) -> Residue:
    with closing(SqliteRows(path)) as store:
        return store.residue()


def is_silent(path: Path) -> bool:
    """Whether a strict audit has nothing to say."""
    with closing(SqliteRows(path)) as store:
        reasons = list(audit_reasons(audit(store), strict=True))
    assert set(reasons) <= {Reason.OLD_CONTENT_NOT_READ}
    return not reasons


def insert(connection: sqlite3.Connection, rows: int, text: str = "", key: str = "u") -> None:
    """Insert sealed rows with text in a column that no saver seals, and in none of the others."""
    connection.executemany(
        "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
        " SELECT ?, '', checkpoint_id, task_id, ?, ?, type, value FROM writes WHERE thread_id = 't' LIMIT 1",
        [(f"{key}{row:05}", row, text) for row in range(rows)],
    )


def delete(connection: sqlite3.Connection, like: str = "u%") -> None:
    connection.execute("DELETE FROM writes WHERE thread_id LIKE ?", (like,))


def end_of_row(connection: sqlite3.Connection) -> None:
    insert(connection, 1, MARK)
    delete(connection)


def middle_of_rows(connection: sqlite3.Connection) -> None:
    insert(connection, 1, MARK)
    insert(connection, 1, key="v")
    delete(connection)


def shorter(connection: sqlite3.Connection) -> None:
    insert(connection, 1, MARK * 10)
    connection.execute("UPDATE writes SET channel = '' WHERE thread_id LIKE 'u%'")


def grown_table(connection: sqlite3.Connection) -> None:
    """The first page of a table keeps its rows when they move to new pages."""
    connection.execute("DELETE FROM writes WHERE rowid > 1")
    insert(connection, 1, MARK * 10)
    insert(connection, 300, key="v")
    delete(connection)


def grown_index(connection: sqlite3.Connection) -> None:
    """The same of an index, whose leaves keep the key, too."""
    insert(connection, 10, key=MARK * 5)
    insert(connection, 300, key="v")
    delete(connection, "Kumquat%")


def tail_of_chain(connection: sqlite3.Connection) -> None:
    """An overflow page that is used again in the transaction that has freed it."""
    insert(connection, 1, MARK * 1000)
    connection.execute("BEGIN")
    delete(connection)
    for size in (8250, 8500):  # the ends of most chains fill their pages, but not of these
        insert(connection, 1, "x" * size, key=f"v{size}")
    connection.execute("COMMIT")


def schema(connection: sqlite3.Connection) -> None:
    connection.execute(f"CREATE TABLE orders (x DEFAULT '{MARK}')")
    connection.execute("DROP TABLE orders")


CASES: dict[str, tuple[Callable[[sqlite3.Connection], None], str]] = {
    "unallocated": (end_of_row, "table leaf gap"),
    "free-block": (middle_of_rows, "table leaf block"),
    "shorter": (shorter, "table leaf"),
    "table-interior": (grown_table, "table interior gap"),
    "index-interior": (grown_index, "index interior"),
    "overflow": (tail_of_chain, "overflow"),
    "schema": (schema, "table leaf"),
    "UTF-16be": (end_of_row, "table leaf gap"),
}


@pytest.mark.parametrize("case", CASES)
def test_plaintext_in_unused_space_is_counted_until_a_scrub(tmp_path: Path, case: str) -> None:
    path, encoding = tmp_path / "x.db", case if case == "UTF-16be" else "UTF-8"
    make(path, f"encoding = '{encoding}'")
    assert (is_silent(path), residue(path)) == (True, NOTHING)
    change, kind = CASES[case]
    with closing(connect(path)) as connection:
        change(connection)
        assert not any(MARK in line for line in connection.iterdump())
    mark = MARK.encode(encoding)
    assert any(mark in gap.data and gap.kind.startswith(kind) for gap in gaps(path))
    assert not is_silent(path)
    found, exact = residue(path).slack_bytes or 0, slack_bytes(path)
    assert found >= exact >= len(MARK)
    assert found == exact or encoding != "UTF-8"
    scrub(path, make_ring("k1"))
    assert (is_silent(path), residue(path)) == (True, NOTHING)
    assert mark not in content(path)


@pytest.mark.parametrize("extra", ["page", "part"])
def test_bytes_to_which_nothing_refers_are_counted(path: Path, extra: str) -> None:
    text = MARK.encode().ljust(4096 if extra == "page" else 100, b"\0")
    path.write_bytes(path.read_bytes() + text)
    assert not is_silent(path)
    assert residue(path).slack_bytes == len(MARK) - MARK.count("\0")
    scrub(path, make_ring("k1"))
    assert residue(path) == NOTHING


def test_free_pages_and_the_log_are_counted_whole(path: Path) -> None:
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        insert(connection, 1, MARK * 1000)
        delete(connection)
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        found = residue(path)
        assert found.free_bytes == free * 4096 > 20_000
        assert found.log_bytes == path.with_name("x.db-wal").stat().st_size > 0
        assert not is_silent(path)
        scrub(path, make_ring("k1"))
        assert residue(path) == NOTHING


@pytest.mark.parametrize(
    ("kept", "later"), [("PERSIST", "DELETE"), ("PERSIST", "WAL"), ("TRUNCATE", "DELETE")]
)
def test_a_journal_that_is_kept_is_counted(path: Path, kept: str, later: str) -> None:
    with closing(connect(path)) as connection:
        insert(connection, 1, MARK)
        connection.execute(f"PRAGMA journal_mode = {kept}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("DELETE FROM writes WHERE thread_id LIKE 'u%'")
    journal = path.with_name("x.db-journal")
    if later == "WAL":
        left = journal.read_bytes()
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
        journal.write_bytes(left)  # as after a crash before it is removed
    assert (MARK.encode() in journal.read_bytes()) is (kept == "PERSIST")
    assert MARK.encode() not in path.read_bytes()
    assert is_silent(path) is (kept == "TRUNCATE")
    assert residue(path) == NOTHING._replace(journal_bytes=journal.stat().st_size)
    scrub(path, make_ring("k1"))
    assert (is_silent(path), residue(path)) == (True, NOTHING)
    assert MARK.encode() not in content(path)


@pytest.mark.parametrize(
    ("page_bytes", "pragma"),
    [(1024, "auto_vacuum = FULL"), (4096, "auto_vacuum = NONE"), (65536, "auto_vacuum = NONE")],
)
def test_the_number_is_that_of_another_parser(tmp_path: Path, page_bytes: int, pragma: str) -> None:
    path = tmp_path / "x.db"
    make(path, f"page_size = {page_bytes}", pragma)
    chance = random.Random(page_bytes)
    with closing(connect(path)) as connection:
        for turn in range(60):
            insert(connection, 10, "x" * chance.randrange(page_bytes), key=f"{chance.random()} {turn}")
            connection.execute("DELETE FROM writes WHERE rowid % 7 = ?", (chance.randrange(7),))
    assert residue(path).slack_bytes == slack_bytes(path) > 0
    scrub(path, make_ring("k1"))
    assert residue(path) == NOTHING
    assert slack_bytes(path) == 0


OTHER_PROCESS: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
try:
    connection.execute("BEGIN EXCLUSIVE")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_locks_of_this_process_are_kept(path: Path) -> None:
    """A process loses them when it closes any descriptor of the file."""
    path = path.rename(path.with_name("- ä\n%20?x=1#"))  # a file may have any name
    with closing(connect(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM writes").fetchone()
        assert residue(path) == NOTHING
        command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "database is locked\n"


# --- forged files -----------------------------------------------------------------------------


def tree(file: SqliteFile) -> int:
    """An interior page."""
    return next(number for number in range(2, len(file.pages)) if file.page(number)[0] in INTERIOR)


def cycle_of_free_list(file: SqliteFile) -> None:
    trunk = file.append()
    file.page(trunk)[:4] = trunk.to_bytes(4, "big")
    file.set_field("first free page", trunk)
    file.set_field("free pages", 2**31)


def cycle_of_chain(file: SqliteFile) -> None:
    leaves = [number for number in range(1, len(file.pages) + 1) if file.page(number)[0] == 13]
    cell = next(cell for number in leaves for cell in file.cells(number) if cell.overflow)
    file.page(cell.overflow)[:4] = cell.overflow.to_bytes(4, "big")


def edits(*changes: tuple[int, bytes], number: int = 0) -> Callable[[SqliteFile], None]:
    """Overwrite parts of a page, by default of an interior one."""

    def forge(file: SqliteFile) -> None:
        page = file.page(number or tree(file))
        for start, data in changes:
            page[start : start + len(data)] = data

    return forge


FORGERIES: Final[dict[str, Callable[[SqliteFile], None]]] = {
    "cycle of the tree": lambda file: edits((8, tree(file).to_bytes(4, "big")))(file),
    "far child": edits((8, b"\xff\xff\xff\xff")),
    "cycle of the free list": cycle_of_free_list,
    "many free pages": lambda file: file.set_field(
        "first free page", file.append(b"\0\0\0\0\xff\xff\xff\xff")
    ),
    "cycle of blocks": edits((1, b"\x07\xd0"), (2000, b"\x07\xd0\0\x04")),
    "cycle of a chain": cycle_of_chain,
    "many cells": edits((3, b"\xff\xff")),
    "far cell": edits((12, b"\xff\xff")),
    "endless varint": edits((12, b"\x0f\xfa"), (4090, b"\xff" * 6)),
    "bad page size": edits((16, b"\x10\x01"), number=1),
}


@pytest.fixture
def large(path: Path) -> bytes:
    """A file with trees of two levels, and a long row."""
    with closing(connect(path)) as connection:
        insert(connection, 300)
        insert(connection, 1, "x" * 20_000, key="v")
    return path.read_bytes()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_file_that_cannot_be_parsed_ends_the_walk(path: Path, large: bytes, forgery: str) -> None:
    file = SqliteFile(large)
    FORGERIES[forgery](file)
    path.write_bytes(file.to_bytes())
    command = [sys.executable, "-IS", slack.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (slack.DAMAGED, "", "")


def test_a_forged_file_takes_little_memory(path: Path) -> None:
    """A chain of pages, each with as many children as it has room for, all of them the same."""
    size, pages, cells = 65536, 40, 9000
    data = bytearray(size * pages)
    data[:100] = path.read_bytes()[:100]
    data[16:18] = b"\0\1"
    for number in range(pages - 1):
        start = number * size + (100 if number == 0 else 0)
        header = struct.pack(">BHHHBI", 5, 0, cells, 20_000, 0, 2)
        pointers = b"".join((20_000 + 5 * cell).to_bytes(2, "big") for cell in range(cells))
        data[start : start + 12 + len(pointers)] = header + pointers
        children = [2] * (cells - 1) + [number + 2]
        at = number * size + 20_000
        data[at : at + 5 * cells] = b"".join(child.to_bytes(4, "big") + b"\1" for child in children)
    path.write_bytes(data)
    with path.open("rb") as stream:
        tracemalloc.start()
        try:
            walk = slack.Walk(stream.fileno())
            with pytest.raises(ValueError, match="violates the SQLite file format"):
                walk.run()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_flipped_bits_end_in_a_number_or_a_refusal(path: Path, large: bytes) -> None:
    chance, refused = random.Random(1), 0
    for _ in range(100):
        data = bytearray(large)
        for _ in range(chance.randrange(1, 4)):
            page = chance.randrange(len(data) // 4096) * 4096
            place = chance.randrange(chance.choice([16, 4096]))  # most errors are in the headers of pages
            data[page + place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with path.open("rb") as stream:
            try:
                walk = slack.Walk(stream.fileno())
                walk.run()
            except (ValueError, IndexError):
                refused += 1
    assert 12 < refused < 88
