"""`sealpoint erase` on Postgres: locks, rights, hostile owners, embeddings, and other savers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.tables import grants
from sealpoint.admin.maintenance import erase
from sealpoint.admin.results.exits import Exit
from tests.postgres.test_commands import at
from tests.postgres.test_schema import FUNCTION, alter, schema_of
from tests.postgres.test_store_schema import INDEX
from tests.support.databases.erasing import Agents, make_ring, talk
from tests.support.databases.postgres import saver_at, set_up

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "store")


@pytest.fixture
def agents(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    return fill(url, tmp_path, monkeypatch)


@pytest.fixture
def embedding(vector_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    """The same, and each with an embedding."""
    set_up(PostgresSaver, vector_url)
    found = fill(vector_url, tmp_path, monkeypatch)
    add_vectors(found)
    return found


def fill(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    """Agents with the threads ``alice`` and ``bob``, and an item of each."""
    monkeypatch.setenv("SEALPOINT_KEYS", str(tmp_path / "keys.toml"))
    found = Agents(at(url), make_ring(tmp_path, ledger=False))
    with found.store() as store:
        for name in ("alice", "bob"):
            found.talk(name)
            store.put((name,), "k", {"a": name})
    return found


def erased(database: str, *names: str) -> int:
    return run(["erase", database, *(word for name in names for word in ("--thread", name)), "--apply"])


@pytest.mark.parametrize("table", TABLES)
def test_locked_rows_are_left_and_found_again(
    agents: Agents, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No writer waits for it, and it does not say that all is gone."""
    monkeypatch.setattr(erase, "MAX_LOOKS", 4)
    monkeypatch.setattr(erase, "MAX_PAUSE_SECONDS", 0)
    words = ["erase", agents.database, "--thread", "alice", "--store-namespace", "alice", "--apply"]
    owner = "prefix" if table == "store" else "thread_id"
    with psycopg.connect(agents.database) as writer:
        locking = f"SELECT FROM {table} WHERE {owner} = 'alice' FOR NO KEY UPDATE"
        locked = writer.execute(locking.encode()).rowcount
        assert run(words) == Exit.STOPPED
        assert "new rows were still found in search 4" in capsys.readouterr().err
        left = {place: rows for place, rows in agents.rows().items() if place[1] == "alice"}
        assert left == {(table, "alice"): locked}
    monkeypatch.undo()
    monkeypatch.setenv("SEALPOINT_KEYS", str(agents.ring))
    assert run([*words, "--allow-missing"]) == Exit.DONE
    assert agents.owners() == {"bob"}


def test_a_lock_that_is_released_meanwhile_is_no_end(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(agents.database) as writer:
        writer.execute("SELECT FROM checkpoints WHERE thread_id = 'alice' FOR UPDATE")
        genuine = erase.Erasing._record

        def record(self: erase.Erasing) -> int:
            if self.looks == 3:
                writer.rollback()
            return genuine(self)

        monkeypatch.setattr(erase.Erasing, "_record", record)
        assert erased(agents.database, "alice") == Exit.DONE
    assert "alice" not in {name for table, name in agents.rows() if table != "store"}


@contextmanager
def role(agents: Agents) -> Iterator[tuple[str, str]]:
    """A role as `init` advises it, and its name; the last line is taken out of its comment by a test."""
    schema = schema_of(agents.database)
    name = f"{schema}_eraser"
    statements = grants(schema, (*TABLES, "store_vectors") if has_vectors(agents) else TABLES)
    alter(
        agents.database,
        statements.replace("sealpoint LOGIN", f"{name} LOGIN").replace("TO sealpoint;", f"TO {name};"),
    )
    try:
        yield make_conninfo(agents.database, user=name), name
    finally:
        alter(agents.database, f"DROP OWNED BY {name}; DROP ROLE {name}")


def has_vectors(agents: Agents) -> bool:
    with agents.connected() as connection:
        found = connection.execute("SELECT to_regclass('store_vectors') IS NOT NULL AS there").fetchone()
    return bool(found["there"])


def allow(agents: Agents, name: str) -> None:
    """Run what the comments of the grants say is for `erase`."""
    tables = (*TABLES, "store_vectors") if has_vectors(agents) else TABLES
    lines = grants(schema_of(agents.database), tables).splitlines()
    for line in lines:
        if line.startswith("-- for `sealpoint erase`: "):
            alter(agents.database, line.partition(": ")[2].replace("TO sealpoint;", f"TO {name};"))


def test_a_role_needs_the_right_to_delete(agents: Agents, capsys: pytest.CaptureFixture[str]) -> None:
    with role(agents) as (url, name):
        before = agents.rows()
        assert run(["erase", at(url), "--thread", "alice"]) == Exit.DONE  # the plan
        assert erased(at(url), "alice") == Exit.USAGE
        told = capsys.readouterr().err
        assert "InsufficientPrivilege" in told
        assert "GRANT SELECT, UPDATE, DELETE ON" in told
        assert agents.rows() == before
        allow(agents, name)
        assert erased(at(url), "alice") == Exit.DONE
    assert {"alice"} == {name for _, name in before} - {
        name for table, name in agents.rows() if table != "store"
    }


def add_vectors(agents: Agents) -> None:
    with PostgresStore.from_conn_string(agents.database, index=INDEX) as store:  # type: ignore[arg-type]
        store.setup()
        for name in ("alice", "bob"):
            store.put((name,), "text", {"text": name})


@pytest.mark.parametrize("by_role", [False, True])
def test_embeddings_go_too(embedding: Agents, by_role: bool) -> None:
    words = ["--store-namespace", "alice", "--apply"]
    if by_role:
        with role(embedding) as (url, name):
            allow(embedding, name)
            assert run(["erase", at(url), *words]) == Exit.DONE
    else:
        assert run(["erase", embedding.database, *words]) == Exit.DONE
    assert {name for table, name in embedding.rows() if table.startswith("store")} == {"bob"}


HOSTILE = {
    "a trigger": "CREATE TRIGGER t AFTER DELETE ON store_vectors EXECUTE FUNCTION act()",
    "a rule": "CREATE RULE r AS ON DELETE TO store_vectors DO ALSO NOTIFY x",
    "a child": "CREATE TABLE c () INHERITS (store_vectors)",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_hangs_on_the_embeddings_is_refused(
    embedding: Agents, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server deletes them with their items, with the rights of this session in what it runs later."""
    alter(embedding.database, f"{FUNCTION} {HOSTILE[case]}")
    before = embedding.rows()
    assert run(["erase", embedding.database, "--store-namespace", "alice", "--apply"]) == Exit.USAGE
    assert "table 'store_vectors'" in capsys.readouterr().err
    assert embedding.rows() == before


def test_rows_of_a_table_that_inherits_are_refused(agents: Agents) -> None:
    alter(agents.database, "CREATE TABLE c () INHERITS (checkpoints)")
    assert erased(agents.database, "alice") == Exit.USAGE


@pytest.mark.parametrize("kind", [PostgresSaver, ShallowPostgresSaver])
def test_rows_of_other_savers_are_erased(
    kind: Any, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also channels without a value, and checkpoints that are not sealed."""
    url = request.getfixturevalue("url" if kind is PostgresSaver else "shallow_url")
    monkeypatch.setenv("SEALPOINT_KEYS", str(make_ring(tmp_path, ledger=False)))
    with saver_at(kind, url) as saver:
        for name in ("alice", "bob"):
            talk(saver, name)
    alter(
        url,
        "INSERT INTO checkpoint_blobs SELECT thread_id, '', 'unset', '0', 'empty', NULL FROM"
        " (SELECT DISTINCT thread_id FROM checkpoints) AS t"
        if kind is PostgresSaver
        else "SELECT",
    )
    assert erased(at(url), "alice") == Exit.DONE
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for table in TABLES[:3]:
            found = connection.execute(f"SELECT DISTINCT thread_id FROM {table}").fetchall()
            assert [row["thread_id"] for row in found] == ["bob"], table


def test_deletes_in_batches(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is small, and it is halved while one takes too long."""
    sizes, genuine = list[int](), erase.Deletion._delete

    def delete(self: erase.Erasing, table: str, rows: Any, stop: Any) -> None:
        sizes.extend([len(rows)] if rows else [])
        genuine(self, table, rows, stop)

    monkeypatch.setattr(erase.Deletion, "_delete", delete)
    monkeypatch.setattr(erase, "MAX_LOCK_SECONDS", 0)
    monkeypatch.setattr(erase, "FIRST_ROWS", 8)
    agents.talk("alice", steps=12)
    assert erased(agents.database, "alice") == Exit.DONE
    assert sizes[:2] == [8, 4]
    assert max(sizes[2:]) <= 2
    assert sizes[-1] == 1
