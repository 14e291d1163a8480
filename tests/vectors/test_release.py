"""What a release stored as a whole is opened by this one, and nothing of its vectors was edited."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import chdir, closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

from sealpoint.admin.cli.app import run as program
from sealpoint.langgraph import EncryptedSerializer, SealedCache, SealedSaver
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore
from tests.support.servers.postgres import schema, server
from tests.vectors.releases import FOLDER, RELEASES
from tests.vectors.write import CACHED, ERASED, ITEM, SCHEMAS, THREAD, at, graph_of, seal_saver, seal_store

STATE: Final = {"text": "yes", "amount": 2.0, "items": [{"é": b"\0\xff"}]}

releases = pytest.mark.parametrize("release", RELEASES)


@pytest.mark.claim("v1")
@releases
def test_nothing_was_edited_or_removed(release: str) -> None:
    """The lines are as `sha256sum` writes them in the folder. None of a release ever changes."""
    lines = (FOLDER / f"{release}.sha256").read_text(encoding="utf-8").splitlines()
    pinned = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = (file for file in (FOLDER / release).rglob("*") if file.is_file())
    found = {str(file.relative_to(FOLDER / release)): sha256(file.read_bytes()).hexdigest() for file in files}
    assert found == pinned


def test_every_folder_is_pinned() -> None:
    assert {file.parent.name for file in FOLDER.glob("*/values.json")} == {*RELEASES}


def lost(old: Any, new: Any, where: str = "") -> list[str]:
    """What of a JSON Schema is not in a later one as it was: members and values may be added."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in old.keys() - {"description"}:
            place = f"{where}/{name}"
            found += lost(old[name], new[name], place) if name in new else [place]
        return found
    if isinstance(old, list) and isinstance(new, list):
        is_set = where.rpartition("/")[2] in {"enum", "required", "allOf"} or len(old) == len(new)
        found = [part for part in old if all(lost(part, other, where) for other in new)]
        return [f"{where}: {part}" for part in found] if is_set else [where]
    return [] if old == new else [where]


@releases
@pytest.mark.parametrize("name", sorted(file.name for file in SCHEMAS.glob("*.json")))
def test_schema_keeps_what_it_promised(release: str, name: str) -> None:
    """What a program reads of the results of a release, it finds in those of this one."""
    frozen = FOLDER / release / name
    if frozen.exists():  # a later release may add one
        assert lost(json.loads(frozen.read_bytes()), json.loads((SCHEMAS / name).read_bytes())) == []


def test_no_schema_is_removed() -> None:
    frozen = {file.name for file in FOLDER.glob("*/*-[0-9].json")}
    assert frozen <= {file.name for file in SCHEMAS.glob("*.json")}


@pytest.mark.parametrize(
    "new",
    [
        {"required": ["a"], "properties": {"a": {"enum": ["x"]}}},
        {"required": ["a"], "properties": {"b": {"enum": ["x", "y"]}}},
        {"required": [], "properties": {"a": {"enum": ["x", "y"]}}},
    ],
)
def test_a_schema_that_lost_something_is_noticed(new: Any) -> None:
    old = {"required": ["a"], "properties": {"a": {"enum": ["x", "y"], "description": "d"}}}
    assert lost(old, new)
    assert not lost(old, {**old, "required": ["b", "a"], "more": 1})


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release stored, private as it was: a checkout keeps no such modes."""
    copy = shutil.copytree(FOLDER / request.param, tmp_path / request.param)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return Path(copy, "whole")


every_whole = pytest.mark.parametrize("whole", RELEASES, indirect=True)


@every_whole
def test_commands_pass_all_of_it(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, items, thread store, pins, ledger, the record of an erasure, key files and a wrapped key."""
    commands = (
        "keys check",
        "verify state.db --pin threads.pin",
        "ledger verify --vkey ledger/vkey --pin ledger.pin",
        "erasures --vkey ledger/vkey",  # not `ok`: it may be overdue by today
    )
    results = []
    with chdir(whole):
        for words in commands:
            program([*words.split(), "--keys", "keys.toml", "--json"])
            results.append(json.loads(capsys.readouterr().out))
    assert [found["ok"] for found in results[:-1]] == [True, True, True]
    assert (results[1]["bound"], results[1]["heads"]["recorded"]) == (16, 8)
    assert [erasure["threads"] for erasure in results[-1]["erasures"]] == [1]


@pytest.mark.claim("v1")
@every_whole
def test_agents_read_all_of_it(whole: Path) -> None:
    """Also under pseudonyms; indexed metadata and items are found by their tokens."""
    ring = whole / "keys.toml"
    with (
        closing(SqliteThreadStore(whole / "threads.db")) as threads,
        closing(sqlite3.connect(whole / "state.db", check_same_thread=False)) as connection,
        closing(sqlite3.connect(whole / "state.db", isolation_level=None)) as items,
    ):
        saver = seal_saver(SqliteSaver(connection), threads, ring)
        assert graph_of(saver).get_state(at(THREAD)).values == STATE
        assert saver.get_tuple(at(ERASED)) is None
        assert len([*saver.list(at(THREAD), filter={"tenant": "blue"})]) == 4
        store = seal_store(items, ring)
        namespace, key, value = ITEM
        items_found = [store.get(namespace, key), *store.search(namespace, filter={"user": "ada"})]
        assert [item and (item.key, item.value) for item in items_found] == [(key, value)] * 2
    cache: Any = SqliteCache(path=str(whole / "cache.db"))
    sealed = SealedCache(cache, serde=EncryptedSerializer.from_key_file(ring))
    assert sealed.get([CACHED[0]]) == dict([CACHED])
    cache._conn.close()


@every_whole
def test_rows_of_postgres(whole: Path, pytestconfig: pytest.Config) -> None:
    """Rows of the saver in LangGraph's tables, and a thread store in the tables that the release made."""
    folder = whole.parent
    with (
        schema(server(pytestconfig)) as dsn,
        psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection,
    ):
        (name,) = (connection.execute("SELECT current_schema() AS name").fetchone() or {}).values()
        saver = PostgresSaver(connection)
        saver.setup()
        connection.execute(f"CREATE SCHEMA {name}_threads")
        tables = (folder / "threads.sql").read_text(encoding="utf-8").replace("{schema}", f"{name}_threads.")
        connection.execute(tables.encode())
        for table, rows in json.loads((folder / "postgres.json").read_bytes()).items():
            target = f"{name}_{table}" if "." in table else table
            connection.execute(
                f"INSERT INTO {target} OVERRIDING SYSTEM VALUE"
                f" SELECT * FROM jsonb_populate_recordset(NULL::{target}, %s)",
                [json.dumps(rows)],
            )
        with closing(PostgresThreadStore(dsn, schema=f"{name}_threads")) as threads:
            serde = EncryptedSerializer.from_key_file(whole / "keys.toml")
            sealed = SealedSaver(saver, serde=serde, threads=threads, allow_shared_role=True)
            assert graph_of(sealed).get_state(at(THREAD)).values == STATE
            assert len([*sealed.list(at(THREAD))]) == 4
            assert threads.last_special() == 3
