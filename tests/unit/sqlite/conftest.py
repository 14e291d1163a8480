"""A database in memory, and a saver on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from sealpoint.sqlite import SqliteSaver


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield connection


@pytest.fixture
def saver(connection: sqlite3.Connection) -> SqliteSaver:
    saver = SqliteSaver(connection)
    saver.setup()
    return saver
