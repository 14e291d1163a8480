"""A copy of a database in WAL mode without its `-wal`: the hint names what was not copied."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run

PLACE: Final[Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
CHECKPOINT: Final[Any] = {"id": "1", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
COMMANDS: Final = (
    *("audit", "status", "init", "inspect", "types", "trial", "rebind", "rotate", "verify"),
    *(
        ("rebind", "--apply"),
        ("scrub", "--apply"),
        ("erase", "--thread", "1"),
        ("decrypt", "--out", "/dev/null"),
    ),
)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A database that an agent has open, whose rows all stand in the log."""
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        SqliteSaver(connection).put(PLACE, CHECKPOINT, {}, {})
        assert path.stat().st_size == 4096
        yield path


def copied(live: Path, log: str) -> Path:
    path = live.with_name("copy.db")
    shutil.copy(live, path)
    if log == "empty":
        path.with_name("copy.db-wal").write_bytes(b"")
    elif log == "of another":
        path.with_name("copy.db-wal").write_bytes(bytes(4096))
    return path


@pytest.mark.parametrize("log", ["missing", "empty", "of another"])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_hint_names_the_log_and_how_to_copy(
    run: Run, live: Path, keys: Path, command: str | tuple[str, ...], log: str
) -> None:
    name, *words = (command,) if isinstance(command, str) else command
    path = copied(live, log)
    if name == "decrypt":
        words = ["--out", str(live.with_name("plain.db"))]
    for _ in range(2):  # the first has SQLite create an empty log
        ended = run(name, path, *words)
        assert ended.code == Exit.USAGE
        assert "the original's log copy.db-wal" in ended.err
        assert 'sqlite3 ORIGINAL ".backup COPY"' in ended.err
        assert not any(word in ended.err for word in ("forged", "damaged"))


def test_a_copy_by_sqlites_backup_has_the_rows(run: Run, live: Path) -> None:
    path = live.with_name("backup.db")
    with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    assert run("status", path, "--json").document["databases"][0]["shares"][0]["rows"] == 1


def test_a_file_without_a_log_is_not_said_to_lack_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
    ended = run("audit", path)
    assert "is it the right file?" in ended.err
    assert "-wal" not in ended.err
