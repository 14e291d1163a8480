"""A file of 200 GiB that is nearly all a hole: its pages lead to any number of rows, and every call ends."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.base import empty_checkpoint
from sealpoint.errors import DatabaseCorruptError, EndlessTreeError
from sealpoint.guards import limits, statements
from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.aio import AsyncSqliteSaver

PAGE: Final = 4096
CLAIMED: Final = 200 << 30
CONFIG: Final[Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
TREES: Final = {"index": ("sqlite_autoindex_checkpoints_1", 2), "table": ("checkpoints", 5)}


def interior_page(kind: int, cell: bytes, child: int) -> bytes:
    """A page all of whose children are one page; ``cell`` follows the number of each child."""
    cell = child.to_bytes(4) + cell
    count = min(300, (PAGE - 12) // (len(cell) + 2))
    page, start = bytearray(PAGE), PAGE - count * len(cell)
    struct.pack_into(">BHHHBI", page, 0, kind, 0, count, start, 0, child)
    for number in range(count):
        place = start + number * len(cell)
        struct.pack_into(">H", page, 12 + 2 * number, place)
        page[place : place + len(cell)] = cell
    return bytes(page)


@pytest.fixture(params=TREES)
def tree(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, tree: str) -> Path:
    """A database with three checkpoints, whose index or table seems to have some 10^8 rows."""
    made, (name, kind) = tmp_path / "app.db", TREES[tree]
    with SqliteSaver.from_conn_string(str(made)) as saver:
        for number in range(3):
            saver.put(CONFIG, {**empty_checkpoint(), "id": str(number)}, {}, {})
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        find = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (root,) = connection.execute(find, (name,)).fetchone()
    with made.open("r+b") as file:
        data = file.read()
        pages, leaf = len(data) // PAGE, data[(root - 1) * PAGE : root * PAGE]
        first = int.from_bytes(leaf[8:10])
        # Of an index its first record, of a table the row id 1.
        cell = leaf[first : first + 1 + leaf[first]] if tree == "index" else b"\x01"
        file.write(leaf)
        for number in range(pages + 1, pages + 4):
            file.write(interior_page(kind, cell, number))
        file.seek((root - 1) * PAGE)
        file.write(interior_page(kind, cell, pages + 4))
        file.truncate(CLAIMED)
        file.seek(28)
        file.write((CLAIMED // PAGE).to_bytes(4))
    return made


def test_the_saver_has_the_budget_of_the_commands(path: Path) -> None:
    """Of what the file has on the disk: 75 million steps of SQLite, some seconds."""
    with SqliteSaver.from_conn_string(str(path)) as saver, closing(SqliteRows(path)) as rows:
        saver.setup()
        with rows.cursor() as cursor:
            of_commands = rows.size_bytes(cursor)
        assert saver._database.size_bytes == of_commands
        assert statements.LEAST_OPCODES + (statements.OPCODES_PER_BYTE + 1) * of_commands < 76_000_000


CALLS: dict[str, Callable[[SqliteSaver], Any]] = {
    "get_tuple": lambda saver: saver.get_tuple(CONFIG),
    "list": lambda saver: [*saver.list(None)],
    "list of a thread": lambda saver: [*saver.list(CONFIG)],
    "list with a filter": lambda saver: [*saver.list(None, filter={"source": "nowhere"})],
    "list with a limit": lambda saver: [*saver.list({"configurable": {"thread_id": "t"}}, limit=2)],
    "history": lambda saver: saver.get_delta_channel_history(config=CONFIG, channels=["x"]),
    "prune": lambda saver: saver.prune(["t"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r"]),
    "delete_thread": lambda saver: saver.delete_thread("t"),
}
ENDED = (EndlessTreeError, DatabaseCorruptError)  # SQLite may notice it first
REFUSED = {"index": {"list", "list of a thread", "prune", "copy_thread"}, "table": {"list with a filter"}}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_ends(call: str, path: Path, tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLES_BYTES", 1 << 18)  # otherwise some seconds each
    ended = False
    with SqliteSaver.from_conn_string(str(path)) as saver:
        try:
            CALLS[call](saver)
        except ENDED:
            ended = True
    assert ended or call not in REFUSED[tree]


def test_the_async_saver_ends(path: Path, tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLES_BYTES", 1 << 18)
    metadata = {"source": "nowhere"} if tree == "table" else None

    async def walk() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            async for _ in saver.alist(None, filter=metadata):
                pass

    with pytest.raises(ENDED):
        asyncio.run(walk())
