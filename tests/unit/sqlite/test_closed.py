"""Connections are closed if what opens them fails: Python 3.13 reports those that nobody closes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sealpoint.errors import ThreadStoreError
from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.aio import AsyncSqliteSaver
from sealpoint.threads import SqliteThreadStore


class FailedError(Exception):
    pass


def fail(*_: object, **__: object) -> NoReturn:
    raise FailedError


class Failing(SqliteSaver):
    __init__ = fail


class FailingAsync(AsyncSqliteSaver):
    __init__ = fail


def open_saver(_: Path) -> None:
    with Failing.from_conn_string(":memory:"):
        pass


def open_async_saver(_: Path) -> None:
    async def enter() -> None:
        async with FailingAsync.from_conn_string(":memory:"):
            pass

    asyncio.run(enter())


class Connection(sqlite3.Connection):
    """Has a method that can be replaced."""


OPENED: dict[str, Callable[[Path], object]] = {
    "SqliteSaver": open_saver,
    "AsyncSqliteSaver": open_async_saver,
    "a database that is created": lambda folder: SqliteThreadStore(folder / "new.db", create=True),
    "a file that is no thread store": lambda folder: SqliteThreadStore(folder / "empty.db"),
    "a thread store whose log cannot be read": lambda folder: SqliteThreadStore(folder / "threads.db"),
}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Those that are opened."""
    connect, opened = sqlite3.connect, list[sqlite3.Connection]()

    def record(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **{"factory": Connection, **options}))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", record)
    return opened


@pytest.mark.parametrize("name", OPENED)
def test_a_connection_is_closed_if_it_cannot_be_used(
    name: str, tmp_path: Path, connections: list[sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.db").touch()
    SqliteThreadStore(tmp_path / "threads.db", create=True).close()
    monkeypatch.setattr(SqliteThreadStore, "_read_clock", fail)
    if name == "a database that is created":
        monkeypatch.setattr(Connection, "setlimit", fail)
    with pytest.raises((FailedError, ThreadStoreError)):
        OPENED[name](tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[-1].cursor()
