"""Every connection to a file is closed by what opened it, also after an error at any step of opening."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows, SqliteWholeRows
from sealpoint.errors import ThreadStoreTimeoutError
from sealpoint.sqlite import SqliteSaver
from sealpoint.threads import SqliteThreadStore

Steps = Callable[[], None]


class Failing(sqlite3.Connection):
    """A connection whose statements call ``step`` first."""

    step: Steps

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.step()
        return super().execute(*arguments)

    def cursor(self, *_: Any) -> sqlite3.Cursor:  # type: ignore[override]
        return super().cursor(FailingCursor)


class FailingCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> Self:
        self.connection.step()  # type: ignore[attr-defined]
        return super().execute(*arguments)


def open_saver(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()


OPENERS: dict[str, Callable[[Path], Any]] = {
    "saver": open_saver,
    "rows": lambda path: SqliteRows(path, writable=True).close(),
    "whole rows": lambda path: SqliteWholeRows(path, writable=True).close(),
    "new thread store": lambda path: SqliteThreadStore(path.with_name("new.db"), create=True).close(),
    "thread store": lambda path: SqliteThreadStore(path.with_name("threads.db")).close(),
}

ERRORS: dict[str, Callable[[], BaseException]] = {
    "damaged": lambda: sqlite3.DatabaseError("malformed"),
    "late": lambda: ThreadStoreTimeoutError("late"),
    "interrupted": KeyboardInterrupt,
    "memory": MemoryError,
}


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("opener", OPENERS)
def test_an_error_at_any_step_of_opening_leaves_no_connection(
    opener: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "app.db"
    OPENERS["saver"](path)
    SqliteThreadStore(tmp_path / "threads.db", create=True).close()
    opened, kept, connect, left = list[Failing](), list[BaseException](), sqlite3.connect, [0]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise ERRORS[error]()  # noqa: RSE102 -- it is called

    def note(*arguments: Any, **options: Any) -> Failing:
        made = connect(*arguments, **options, factory=Failing)
        made.step = step
        opened.append(made)
        return made

    monkeypatch.setattr(sqlite3, "connect", note)
    for last in count(1):
        left[0] = last
        try:
            OPENERS[opener](path)
        except BaseException as caught:  # noqa: BLE001 -- an interrupt, too
            kept.append(caught)  # with the frames of its traceback: no finalizer closes a connection
        assert [each for each in opened if is_open(each)] == [], f"after step {last}: {kept}"
        if left[0] > 0:
            break  # it has fewer steps
    assert len(kept) > 3
