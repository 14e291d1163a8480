"""The role for maintenance of postgres.md and migration.md: its rights are enough, and each is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.columns import BLOBS
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import SchemaError
from tests.postgres.test_commands import at
from tests.postgres.test_rebind import put
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.postgres import K1, put_blobs, put_writes, reseal
from tests.support.keys.rings import states_text, write

DOCS: Final = Path(__file__).parents[2] / "docs"
VALUE: Final = K1.seal("msgpack", b"\x01")
READERS: Final = (
    ("status",),
    ("verify", "--keys"),
    ("audit",),
    ("types", "--keys"),
    ("inspect",),
    ("inspect", "--thread", "t", "--keys"),
    ("rotate", "--keys"),
)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only")))


def granted(page: str, name: str) -> str:
    """The statements of a page, for a role of another name."""
    made, *_ = re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return re.sub(r"\bsealpoint\b", name, made)


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """URL of the role that the page makes."""
    put_blobs(url, [("t", "", "n", f"{place}", *VALUE) for place in range(3)])
    put_writes(url, [("task", 0, "n", *VALUE)])
    schema = schema_of(url)
    name = f"{schema}_role"
    alter(url, granted("postgres.md", name).replace("SCHEMA public", f"SCHEMA {schema}"))
    try:
        yield make_conninfo(url, user=name)
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name}")


def commands(url: str, keys: str) -> Iterator[list[str]]:
    for name, *words in READERS:
        yield [name, at(url), *words, *([keys] if words[-1:] == ["--keys"] else [])]


def test_the_role_runs_every_command(role: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(role, keys):
        assert run(command) == Exit.DONE, command
    assert run(["rotate", at(role), "--apply", "--workers", "2", "--keys", keys]) == Exit.DONE
    assert run(["status", at(role), "--only", "k2", "--keys", keys]) == Exit.DONE
    assert "superuser" not in capsys.readouterr().err


def test_select_alone_is_enough_to_read(
    url: str, role: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(role)["user"]
    alter(url, f"REVOKE UPDATE ON checkpoints, checkpoint_blobs, checkpoint_writes FROM {name}")
    for command in commands(role, keys):
        assert run(command) == Exit.DONE, command
    assert run(["rotate", at(role), "--apply", "--keys", keys]) == Exit.USAGE
    told = capsys.readouterr().err
    assert "InsufficientPrivilege" in told
    assert "to change values also UPDATE on them" in told  # else `rotate` is refused after `verify` is not


@pytest.mark.parametrize("lacking", ["", "UPDATE ON checkpoints", "INSERT ON checkpoint_blobs"])
def test_rebinding_needs_the_rights_of_its_page(url: str, role: str, tmp_path: Path, lacking: str) -> None:
    alter(url, "DELETE FROM checkpoint_blobs; DELETE FROM checkpoint_writes")
    put(url)
    name = psycopg.conninfo.conninfo_to_dict(role)["user"]
    alter(url, granted("migration.md", str(name)))
    if lacking:
        alter(url, f"REVOKE {lacking} FROM {name}")
    ring = write(tmp_path / "k1.toml", states_text(k1="active"))
    words = ["rebind", at(role), "--apply", "--keys", str(ring)]
    assert run(words) == (Exit.USAGE if lacking else Exit.DONE)
    if not lacking:
        assert run(["verify", at(role), "--bound", "--keys", str(ring)]) == Exit.DONE
        alter(url, f"REVOKE DELETE ON checkpoint_blobs FROM {name}")
        assert run([*words, "--unbind"]) == Exit.USAGE
        alter(url, f"GRANT DELETE ON checkpoint_blobs TO {name}")
        assert run([*words, "--unbind"]) == Exit.DONE


def test_a_superuser_is_warned_in_one_line(
    url: str, role: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands(url, keys):
        assert run(command) == Exit.DONE
        told = capsys.readouterr()
        (line,) = [line for line in told.err.splitlines() if "superuser" in line]
        assert line.startswith("warning: connected as a superuser: a role with SELECT and UPDATE")
        assert line.endswith("(docs/postgres.md#a-role-for-maintenance)")
        assert "superuser" not in told.out


def test_a_superuser_that_takes_another_role_is_one(url: str, role: str) -> None:
    """It can take its rights back, and so can what runs in its session."""
    name = psycopg.conninfo.conninfo_to_dict(role)["user"]
    path = make_conninfo(url, options=f"-c search_path={schema_of(url)} -c role={name}")
    with closing(PostgresRows(path, writable=True)) as store:
        assert store.is_superuser
        assert store.rewrite(BLOBS, None, reseal).changed == 3


def test_a_schema_that_has_another_name_for_a_while_ends_a_reading(url: str, role: str) -> None:
    """Its tables are locked, and its name is not: what was read under it may have been another table's."""
    schema = schema_of(url)
    with (
        closing(PostgresRows(role)) as store,
        pytest.raises(SchemaError, match="schema was changed"),
        store.transaction("checkpoint_blobs", "ACCESS SHARE"),
    ):
        alter(url, f"ALTER SCHEMA {schema} RENAME TO away; ALTER SCHEMA away RENAME TO {schema}")


@pytest.mark.parametrize("lacking", ["", "UPDATE ON checkpoints"])
def test_rotating_bound_rows_needs_the_rights_of_the_page(
    url: str, role: str, tmp_path: Path, lacking: str
) -> None:
    alter(url, "DELETE FROM checkpoint_blobs; DELETE FROM checkpoint_writes")
    put(url, wrapped=True)
    if lacking:
        alter(url, f"REVOKE {lacking} FROM {psycopg.conninfo.conninfo_to_dict(role)['user']}")
    ring = write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only"))
    words = ["rotate", at(role), "--apply", "--keys", str(ring)]
    assert run(words) == (Exit.USAGE if lacking else Exit.DONE)
    if not lacking:
        assert run(["verify", at(role), "--bound", "--keys", str(ring)]) == Exit.DONE
