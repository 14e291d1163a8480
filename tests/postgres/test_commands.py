"""The commands on a server: what they say, and the code they end in, where Postgres has ways of its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.exits import Exit
from tests.postgres.harm import OUT_OF_ROW, lose_values
from tests.support.databases.postgres import blobs, put_blobs
from tests.support.keys.rings import states_text, write


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only")))


def at(dsn: str) -> str:
    """A connection string as a URL without a password."""
    parts = {key: value for key, value in conninfo_to_dict(dsn).items() if key != "password"}
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


def test_locked_rows_end_a_rotation_early(url: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    put_blobs(url, blobs(9))
    command = ["rotate", at(url), "--apply", "--keys", keys]
    with psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version = '00000004' FOR UPDATE")
        assert run(command) == Exit.STOPPED
        told = capsys.readouterr()
        assert "stopped early: 1 rows are locked by other sessions" in told.err
        assert told.out.split("\n")[1].split()[:4] == ["8", "0", "0", "1"]  # moved, raced, failed, left
    assert run(command) == Exit.DONE


def test_a_value_that_is_lost_is_named(url: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    put_blobs(url, blobs(9, size=OUT_OF_ROW))
    lose_values(url, "version = '00000004'")
    assert run(["verify", at(url), "--keys", keys]) == Exit.UNOPENED
    told = capsys.readouterr()
    named, *summary = told.out.splitlines()
    assert "version='00000004': SealedValueError" in named
    assert summary == [
        "8 of 9 values open: 8 under k1",
        "refused values and rows: 1",
        "not ok: values do not open",
    ]
    assert run(["rotate", at(url), "--apply", "--keys", keys]) == Exit.UNOPENED
    assert "version='00000004': SealedValueError" in capsys.readouterr().err


def test_the_run_that_holds_a_database_is_named(
    url: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(PostgresRows(url)) as holder, holder.hold():
        assert run(["rotate", at(url), "--apply", "--keys", keys]) == Exit.HELD
        pid = holder.connection.info.backend_pid
    told = capsys.readouterr().err
    assert f"session {pid} of 'sealpoint'" in told
    assert "hint: wait until it has ended" in told
