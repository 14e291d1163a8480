"""Partitioned tables: commands answer as on plain ones with the same rows; what is not allowed is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.cli.exits import Exit
from tests.postgres.test_commands import at
from tests.postgres.test_rebind import put
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.partitions import PARTITIONINGS, TABLES, partition
from tests.support.databases.postgres import (
    blobs,
    contents,
    put_blobs,
    set_up,
)
from tests.support.keys.rings import states_text, write
from tests.support.servers.postgres import schema, server

EVERY_DAY: Final = ("hash of thread_id", "range of checkpoint_id")
KINDS: Final = [
    pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.costly) for name in PARTITIONINGS
]
NESTED: Final = "range and hash"
# What differs from run to run, and where the names of tables and partitions are listed.
UNLIKE: Final = {"run", "began", "ended", "seconds", "database", "scope", "grants", "longest_lock_ms"}


@pytest.fixture
def parted(pytestconfig: pytest.Config) -> Iterator[str]:
    """An empty database of `PostgresSaver`, which a test partitions."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        yield dsn


@pytest.fixture
def rings(tmp_path: Path) -> dict[str, str]:
    """Ring files, by the key that is active."""
    states = {"k1": {"k1": "active", "k2": "staged"}, "k2": {"k2": "active", "k1": "decrypt-only"}}
    return {name: str(write(tmp_path / f"{name}.toml", states_text(**own))) for name, own in states.items()}


def fill(url: str, other: str, name: str) -> None:
    """Put rows of every kind into plain tables, and the same rows into partitioned ones."""
    for number in range(4):
        put(url, f"thread {number}", wrapped=number < 2, ns="sub" * (number % 2))
    partition(other, name)
    schema = schema_of(url)
    for table in TABLES:
        alter(other, f"INSERT INTO {table} SELECT * FROM {schema}.{table}")


@contextmanager
def maintenance(url: str, statements: list[str]) -> Iterator[str]:
    """URL of the role that ``sealpoint init`` advises, which may also erase and rebind."""
    name = f"{schema_of(url)}_role"
    made = "\n".join(line.removeprefix("-- for `sealpoint erase`: ") for line in statements)
    blobs = ", ".join(re.findall(r'"[^"]+"\.\"?checkpoint_blobs\w*"?', made.split("UPDATE")[0]))
    made += f"\nGRANT INSERT, DELETE ON {blobs} TO sealpoint;"
    alter(url, re.sub(r"\b(ROLE|TO) sealpoint\b", rf"\1 {name}", made))
    try:
        yield make_conninfo(url, user=name)
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name}")


def alike(found: Any) -> Any:
    """An answer without what differs, and lists in one order: partitions are read one after another."""
    if isinstance(found, dict):
        return {name: alike(part) for name, part in found.items() if name not in UNLIKE}
    if isinstance(found, list):
        return sorted(map(alike, found), key=repr)
    return found


def stored(url: str) -> Any:
    """What the tables hold: each value opened, with the key that it is under."""
    values = {place: (tag.rpartition("@")[2], value) for place, (tag, value) in contents(url).items()}
    keys = {place: key for place, (key, _) in values.items()}
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint,"
            " metadata - '__sealpoint__', metadata -> '__sealpoint__' ->> 'type' FROM checkpoints"
        ).fetchall()
    return keys, sorted(map(repr, rows))


@pytest.mark.parametrize("name", KINDS)
def test_every_command_answers_as_on_plain_tables(
    url: str, parted: str, rings: dict[str, str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves the same rows; on the partitioned tables as the role that `init` advises for them."""
    fill(url, parted, name)

    def answer(place: str, words: list[str]) -> tuple[Exit, Any]:
        capsys.readouterr()
        code = Exit(run([words[0], at(place), *words[1:], "--json"]))
        return code, json.loads(capsys.readouterr().out.replace(at(place), "DB"))

    def compare(*words: str, active: str = "k2") -> Any:
        line = [*words, "--keys", rings[active]]
        (code, expected), (also, found) = answer(url, line), answer(role, line)
        assert (also, found.keys()) == (code, expected.keys()), words
        for member in found.keys() - UNLIKE:
            assert alike(found[member]) == alike(expected[member]), (words, member)
        assert stored(parted) == stored(url), words
        return found

    _, found = answer(parted, ["init", "--keys", rings["k1"]])
    with maintenance(parted, found["grants"]) as role:
        scope = compare("status")["databases"][0]["scope"]
        assert {*TABLES} < {*scope["read"]}
        assert len(scope["read"]) == len(TABLES) * (1 + len(PARTITIONINGS[name].parts))
        compare("init")
        for words in (["verify"], ["verify", "--bound"], ["audit"], ["types"]):
            compare(*words)
        assert len(compare("inspect")["threads"]) == 4
        assert compare("inspect", "--thread", "thread 1")["values"]
        assert compare("rotate")["ok"] is None
        assert compare("rotate", "--apply", "--workers", "2", "--batch", "7")["ok"]
        assert compare("status", "--only", "k2")["ok"]
        assert compare("rebind", "--apply")["ok"] is not False
        assert compare("verify", "--bound")
        assert compare("rebind", "--unbind", "--apply", "--thread", "thread 1")["ok"] is not False
        assert compare("erase", "--thread", "thread 2", "--apply")["ok"]
        assert compare("verify")["rows"]
