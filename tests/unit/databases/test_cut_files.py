"""Files that end at each of their page boundaries, and headers that count other pages than there are.

Nothing is missing without an error: what is read is what the whole file held, row by row, or it is
what the oracle reads from the pages that are left.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from fuzz.sqlitefile import honest, oracle, wal
from fuzz.sqlitefile.format import SqliteFile
from sealpoint.admin.databases.rows import Batch, pages
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.errors import SealpointError
from sealpoint.sqlite import SqliteSaver

Tamper = Callable[[SqliteFile, int], None]
Multiset = Counter[oracle.Finding]
Ids = Counter[tuple[str, str, int]]
Item = TypeVar("Item")


def cut(file: SqliteFile, kept: int) -> None:
    """The file ends early."""
    del file.pages[kept:]


def cut_and_stale(file: SqliteFile, kept: int) -> None:
    """And SQLite believes the size of the file instead of its header."""
    cut(file, kept)
    file.set_field("version valid for", file.get_field("change counter") + 1)


def cut_and_counted(file: SqliteFile, kept: int) -> None:
    """And its header says so."""
    cut(file, kept)
    file.set_field("page count", kept)


def cut_and_free(file: SqliteFile, kept: int) -> None:
    """And the list of free pages goes on from its last page."""
    cut_and_counted(file, kept)
    file.set_field("first free page", kept)


def lists_a_live_page(file: SqliteFile, kept: int) -> None:
    """It is whole, and a page that is in use is in the list of free ones, too."""
    free = file.append(b"".join(number.to_bytes(4, "big") for number in (0, 1, kept)))
    for field, value in {"page count": len(file.pages), "first free page": free, "free pages": 2}.items():
        file.set_field(field, value)


TAMPERS: dict[str, Tamper] = {
    "cut": cut,
    "cut and stale": cut_and_stale,
    "cut and counted": cut_and_counted,
    "counts fewer": lambda file, kept: file.set_field("page count", kept),
    "counts more": lambda file, kept: file.set_field("page count", len(file.pages) + kept),
    "cut and free": cut_and_free,
    "lists a live page": lists_a_live_page,
}


def read_rows(path: Path) -> Multiset:
    """What the commands read, several batches long."""
    found: Multiset = Counter()
    with closing(SqliteRows(path)) as store:
        counted = {(count.table, count.tag): count.rows for count in store.count()}
        for table in store.columns:
            for page in pages(store, table, batch=Batch(rows=7)):
                found.update((table.table, each.tag, oracle.digest(each.value)) for each in page.cells)
    by_tag: Counter[tuple[str, object]] = Counter()
    for (table_name, tag, _), rows in found.items():
        by_tag[table_name, tag] += rows
    assert by_tag == counted
    return found


def listed(path: Path) -> Ids:
    """What the saver lists: threads, checkpoints and how many writes are on each."""
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection, serde=honest.serde())
        return Counter(
            (
                each.config["configurable"]["thread_id"],
                each.config["configurable"]["checkpoint_id"],
                len(each.pending_writes or ()),
            )
            for each in saver.list(None)
        )


def write(path: Path, data: bytes, log: bytes) -> None:
    """Write a file, and its log if it has one."""
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(data)
    if log:
        path.with_name(f"{path.name}-wal").write_bytes(log)


def read_or_refuse(read: Callable[[Path], Counter[Item]], path: Path) -> Counter[Item] | None:
    """What is read, or nothing of it."""
    try:
        return read(path)
    except (SealpointError, sqlite3.DatabaseError):
        return None


def told(data: bytes, log: bytes) -> Multiset | None:
    """What the oracle reads."""
    try:
        return oracle.read(data, log).multiset()
    except oracle.UndefinedError:
        return None


SMALL_SHAPES = [honest.SHAPES[0], honest.SHAPES[2], honest.Shape(512, ("k2",), 5, has_gaps=True)]


@pytest.mark.broad
@pytest.mark.parametrize("shape", SMALL_SHAPES, ids=["plain", "log", "gaps"])
@pytest.mark.parametrize("tamper", TAMPERS)
def test_nothing_is_missing_without_an_error(tamper: str, shape: honest.Shape, tmp_path: Path) -> None:
    path, made = tmp_path / "checkpoints.db", honest.make(shape)
    write(path, *made)
    whole, ids = read_rows(path), listed(path)
    assert whole == told(*made)
    refused = 0
    for kept in range(1, len(SqliteFile(made.data).pages) + (tamper != "cut")):
        file = SqliteFile(made.data)
        TAMPERS[tamper](file, kept)
        data = file.to_bytes()
        write(path, data, made.log)
        rows = read_or_refuse(read_rows, path)
        write(path, data, made.log)
        refused += rows is None
        assert rows in (None, whole, told(data, made.log)), f"{kept} pages: other rows"
        assert read_or_refuse(listed, path) in (None, ids), f"{kept} pages: other checkpoints"
    assert refused or tamper in ("counts more", "lists a live page") or made.log


def frames_of(log: bytes) -> Iterator[bytes]:
    """The log up to each of its frames."""
    size = wal.FRAME_BYTES + int.from_bytes(log[8:12], "big")
    yield from (log[:end] for end in range(wal.HEADER_BYTES, len(log), size))


def test_a_log_that_ends_early_is_read_to_its_last_commit(tmp_path: Path) -> None:
    """Beside a file that is cut, all is read or nothing."""
    path, made = tmp_path / "checkpoints.db", honest.make(honest.SHAPES[2])
    for number, log in enumerate(frames_of(made.log)):
        write(path, made.data, log)
        whole = told(made.data, log)
        assert read_rows(path) == whole
        for kept in range(1, len(SqliteFile(made.data).pages)) if number % 3 == 0 else ():
            file = SqliteFile(made.data)
            cut(file, kept)
            write(path, file.to_bytes(), log)
            rows = read_or_refuse(read_rows, path)
            assert rows in (None, whole), f"{kept} pages, {len(log)} bytes of log"
