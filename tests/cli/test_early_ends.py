"""Runs that end early or are not read on: what they say then is true, and so is the exit code."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Column
from sealpoint.admin.databases.rows import Page
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import CODE, Run
from tests.support.databases.sealed import write


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A database with more values that are not sealed than a pipe and a batch have room for."""
    path = tmp_path / "many.db"
    write(path, "plain", "a")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000)"
            " INSERT INTO checkpoints SELECT 'thread ' || n, checkpoint_ns, checkpoint_id, NULL, type,"
            " checkpoint, metadata FROM numbers, (SELECT * FROM checkpoints LIMIT 1)"
        )
    return path


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_verify_whose_output_is_not_read_on_says_what_is_true(
    many: Path, keys: Path, option: list[str]
) -> None:
    """`sealpoint verify DB | head -1`."""
    command = [*CODE, "verify", str(many), "--keys", str(keys), *option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        _, said = process.communicate()
    assert process.returncode == Exit.UNOPENED
    assert "Traceback" not in said
    assert option or "3,012 values: value of type 'msgpack' is not sealed" not in said
    assert option or said.startswith("3,006 values: value of type 'msgpack' is not sealed\n")


def test_status_whose_output_is_not_read_keeps_its_answer(many: Path, keys: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*CODE, "status", str(many), "--only", "k2", "--keys", str(keys)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == Exit.FOUND


INTERRUPTED = {
    "verify": "stopped early: 1000 of 3012 values were checked\n",
    "types": "stopped early: 1000 of 3012 values were checked\n",
    "audit": "ended by Ctrl-C",
    "status": "ended by Ctrl-C",
    "inspect": "ended by Ctrl-C",
}


@pytest.mark.parametrize("command", INTERRUPTED)
def test_interrupt_says_how_far_a_run_came(
    run: Run, many: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """With a real SIGINT, after the first batch of those that read values."""
    genuine = SqliteRows.read

    def read(self: SqliteRows, table: Column, after: object, *rest: Any, **more: Any) -> Page:
        if after is not None:
            os.kill(os.getpid(), signal.SIGINT)
        return genuine(self, table, after, *rest, **more)

    monkeypatch.setattr(SqliteRows, "read", read)
    if command not in {"verify", "types", "trial"}:
        monkeypatch.setattr(SqliteRows, "count", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        monkeypatch.setattr(SqliteRows, "key_texts", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    ended = run(command, many, "--keys", keys)
    assert ended.code == Exit.STOPPED
    assert INTERRUPTED[command] in ended.err
    if command == "verify":
        assert "\n0 of 1000 values read so far open\n" in ended.out
        assert ended.out.endswith("\nnot ok: values do not open\n")
    assert "ended by Ctrl-C; the same command can be run again\n" in ended.err
    assert "Traceback" not in ended.err


def test_file_that_is_no_database_is_a_wrong_argument(run: Run, tmp_path: Path, keys: Path) -> None:
    """And a database that is damaged is not: also if its first page is, while there is a log."""
    other = tmp_path / "passwd"
    other.write_text("root:x:0:0:root:/root:/bin/bash\n" * 200)
    for command in (["status"], ["verify"], ["rotate"], ["decrypt", "--out", tmp_path / "new.db"]):
        ended = run(command[0], other, *command[1:], "--keys", keys)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert f"error: {other} is not a SQLite database\nhint: name a SQLite file" in ended.err
    tmp_path.joinpath("passwd-wal").write_bytes(b"x")
    assert run("status", other).code == Exit.UNOPENED
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert run("status", damaged).code == Exit.UNOPENED
