"""Tables of LangGraph before 0.2: named with their age and what to do, and never as a stranger's."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint import sqlite
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import OldTablesError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.cli.conftest import Run

PLACE: Final[Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
SERDE: Final = EncryptedSerializer.from_key(bytes(32))

# As the wheels of langgraph 0.0.30 and 0.1.19 create them
FIRST: Final = """
    CREATE TABLE checkpoints (thread_id TEXT NOT NULL, thread_ts TEXT NOT NULL, parent_ts TEXT,
        checkpoint BLOB, PRIMARY KEY (thread_id, thread_ts));"""
LAST: Final = """
    CREATE TABLE checkpoints (thread_id TEXT NOT NULL, thread_ts TEXT NOT NULL, parent_ts TEXT,
        checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, thread_ts));
    CREATE TABLE writes (thread_id TEXT NOT NULL, thread_ts TEXT NOT NULL, task_id TEXT NOT NULL,
        idx INTEGER NOT NULL, channel TEXT NOT NULL, value BLOB,
        PRIMARY KEY (thread_id, thread_ts, task_id, idx));
    INSERT INTO writes VALUES ('1', '1', 't', 0, 'c', x'00'), ('1', '1', 't', 1, 'c', x'00');"""
ROWS: Final = "INSERT INTO checkpoints (thread_id, thread_ts) VALUES ('1', '1'), ('1', '2'), ('2', '1')"
TABLES: Final = {"0.0": FIRST, "0.1": LAST, "0.0, then set up by 0.2": FIRST}
COUNTS: Final = {"0.0": "3 of 'checkpoints'", "0.1": "3 of 'checkpoints' and 2 of 'writes'"}

COMMANDS: Final = (
    *("audit", "status", "init", "inspect", "types", "trial", "rebind", "rotate", "verify"),
    *(("rebind", "--apply"), ("rotate", "--apply"), ("scrub", "--apply"), ("erase", "--thread", "1")),
)


@pytest.fixture(params=TABLES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(TABLES[request.param])
        connection.execute(ROWS)
        if "0.2" in request.param:
            SqliteSaver(connection).setup()
    return file


def require_named(text: str) -> None:
    assert "of LangGraph before 0.2" in text
    assert not any(word in text for word in ("forged", "damaged", "trust", "sqlite_master", "no such column"))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_the_age_and_count_the_rows(
    run: Run, path: Path, keys: Path, command: str | tuple[str, ...]
) -> None:
    before = path.read_bytes()
    name, *words = (command,) if isinstance(command, str) else command
    ended = run(name, path, *words)
    assert ended.code == Exit.USAGE
    require_named(ended.err)
    assert "a new database" in ended.err
    assert "3 of 'checkpoints'" in ended.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", COUNTS, indirect=True)
def test_audit_counts_the_rows_of_each_table(run: Run, path: Path, request: pytest.FixtureRequest) -> None:
    expected = COUNTS[request.node.callspec.params["path"]]
    assert f"unsealed rows: {expected}\n" in run("audit", path).err


@pytest.mark.parametrize("allowed", [False, True])
def test_savers_name_the_age(path: Path, allowed: bool) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.text_factory = bytes if allowed else str
        saver = SealedSaver(SqliteSaver(connection), serde=SERDE, allow_schema=allowed)
        for call in (lambda: saver.get_tuple(PLACE), lambda: [*saver.list(PLACE)], saver.setup):
            with pytest.raises(OldTablesError) as caught:
                call()
            require_named(f"{caught.value} {caught.value.hint}")


@pytest.mark.parametrize("allowed", [False, True])
def test_async_savers_name_the_age(path: Path, allowed: bool) -> None:
    async def read() -> None:
        async with aiosqlite.connect(path) as connection:
            saver = SealedSaver(AsyncSqliteSaver(connection), serde=SERDE, allow_schema=allowed)
            await saver.aget_tuple(PLACE)

    with pytest.raises(OldTablesError, match=r"before 0\.2"):
        asyncio.run(read())


def test_sealpoints_own_saver_names_the_age(path: Path) -> None:
    with pytest.raises(OldTablesError), sqlite.SqliteSaver.from_conn_string(str(path)) as saver:
        saver.get_tuple(PLACE)


@pytest.mark.parametrize("path", ["0.1"], indirect=True)
def test_what_acts_by_itself_is_named_before_the_age(run: Run, path: Path) -> None:
    """Nothing of the author's runs while rows are counted."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON checkpoints BEGIN SELECT 1; END")
    assert "has a trigger 't'" in run("audit", path).err


@pytest.mark.parametrize("path", ["0.0"], indirect=True)
def test_a_view_among_old_tables_is_not_counted(run: Run, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE VIEW writes AS SELECT thread_ts FROM checkpoints")
    ended = run("audit", path)
    assert ended.code == Exit.USAGE
    assert "of 'writes'" not in ended.err
