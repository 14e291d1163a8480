"""A database in memory, and a saver on it; asynchronous savers on each kind of connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.sqlite import SqliteSaver
from tests.unit.sqlite.openers import ALL


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield connection


@pytest.fixture
def saver(connection: sqlite3.Connection) -> SqliteSaver:
    saver = SqliteSaver(connection)
    saver.setup()
    return saver


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "db")


@pytest.fixture(params=ALL)
def opened(request: pytest.FixtureRequest) -> Any:
    return ALL[request.param]
