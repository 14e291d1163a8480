"""The owner of a Store's tables changes them while a superuser works: nothing of the owner's runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.results.exits import Exit
from tests.attacks.owners import (
    OPERATOR,
    OWNER,
    Attack,
    Owner,
    attacking,
    between_statements,
    owned_database,
    record_calls,
)
from tests.postgres.test_commands import at
from tests.postgres.test_items import sealed
from tests.support.databases.postgres import items, make_store, put_items
from tests.support.keys.rings import states_text, write
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import server

pytestmark = pytest.mark.timeout(3600)

ITEMS: Final = 12
COPY: Final = "sealpoint_copy"
BACK: Final = "DROP TABLE IF EXISTS store_vectors"
REFERS: Final = (
    "CREATE TABLE store_vectors (prefix text, key text, FOREIGN KEY (prefix, key) REFERENCES store {})"
)
EXPIRY: Final = "DROP INDEX idx_store_expires_at; CREATE INDEX idx_store_expires_at ON store"
RESTORED: Final = f"{EXPIRY} (expires_at) WHERE expires_at IS NOT NULL"

ATTACKS: Final = {
    "a view in place of the items": Attack(
        (
            "ALTER TABLE store RENAME TO s; CREATE VIEW agents.store AS"
            " SELECT tools.act(prefix) AS prefix, key, value, created_at, updated_at, expires_at, ttl_minutes"
            " FROM s",
        ),
        "DROP VIEW store; ALTER TABLE s RENAME TO store",
        runs=True,
    ),
    "a view of other columns in place of the items": Attack(
        ("ALTER TABLE store RENAME TO s; CREATE VIEW agents.store AS SELECT tools.act(prefix) AS x FROM s",),
        "DROP VIEW store; ALTER TABLE s RENAME TO store",
    ),
    "a trigger on items": Attack(
        ("CREATE TRIGGER t BEFORE UPDATE ON store FOR EACH ROW EXECUTE FUNCTION tools.fire()",),
        "DROP TRIGGER t ON store",
        runs=True,
    ),
    "a rule on items": Attack(
        ("CREATE RULE r AS ON UPDATE TO store DO ALSO SELECT tools.act(old.key)",),
        "DROP RULE r ON store",
        runs=True,
    ),
    "a partial index under the name of LangGraph's": Attack(
        (f"{EXPIRY} (expires_at) WHERE tools.act('x'::text) = key",), RESTORED, runs=True
    ),
    "an index over an expression under that name": Attack(
        (f"{EXPIRY} ((tools.act('x'::text) || key)) WHERE expires_at IS NOT NULL",), RESTORED
    ),
    "an index over an expression beside it": Attack(
        ("CREATE INDEX i ON store ((tools.act('x'::text) || key))",), "DROP INDEX i", runs=True
    ),
    "statistics of items": Attack(
        ("CREATE STATISTICS s ON (tools.act('x'::text) || key), prefix FROM store",),
        "DROP STATISTICS s",
        runs=True,
    ),
    "a default of a time": Attack(
        ("ALTER TABLE store ALTER updated_at SET DEFAULT tools.act('now'::text)::timestamptz",),
        "ALTER TABLE store ALTER updated_at SET DEFAULT CURRENT_TIMESTAMP",
    ),
    "a foreign key of embeddings that writes": Attack(
        (REFERS.format("ON UPDATE CASCADE ON DELETE CASCADE"),), BACK
    ),
    "a foreign key of embeddings, with a trigger on them": Attack(
        (
            REFERS.format("ON DELETE CASCADE")
            + "; CREATE TRIGGER t BEFORE UPDATE OR DELETE ON store_vectors FOR EACH ROW"
            " EXECUTE FUNCTION tools.fire()",
        ),
        BACK,
    ),
    "a domain of names": Attack(
        ("ALTER TABLE store ALTER key TYPE tools.word",), "ALTER TABLE store ALTER key TYPE text", runs=True
    ),
    "a table that inherits": Attack(
        (
            "CREATE TABLE child (LIKE store); CREATE TRIGGER t BEFORE UPDATE ON child FOR EACH ROW"
            " EXECUTE FUNCTION tools.fire(); INSERT INTO child SELECT * FROM store;"
            " ALTER TABLE child INHERIT store",
        ),
        "ALTER TABLE child NO INHERIT store; DROP TABLE child",
        runs=True,
    ),
}


@pytest.fixture(scope="module")
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with owned_database(server(pytestconfig)) as url:
        make_store(make_conninfo(url, user=OWNER))
        put_items(url, [*map(sealed, range(ITEMS))])
        yield url


@pytest.fixture
def owner(url: str) -> Iterator[Owner]:
    with closing(Owner(url)) as owner:
        yield owner
    assert not owner.failures


@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_between_the_first_statements(
    url: str, owner: Owner, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A run ends with its code for the refusal, or has done all, and no item is lost."""
    turn = list(ATTACKS).index(name)
    for number in range(by_extent(2, 6)):
        begin = (turn + number) % 4
        command = ("rotate", "decrypt", "status", "verify")[(turn + number) % 4]
        active = ("k2", "k1")[number % 2]
        states = {active: "active", {"k1": "k2", "k2": "k1"}[active]: "decrypt-only"}
        ring = write(tmp_path / "keys.toml", states_text(**states))
        more = {"rotate": ["--apply", "--batch", "10"], "decrypt": ["--out-schema", COPY]}.get(command, [])
        before = items(url)
        with between_statements(attacking(owner, ATTACKS[name], begin, 60)) as calls:
            code = Exit(run([command, at(url), "--keys", str(ring), "--json", *more]))
        owner.settle()
        told = f"{command}: {name}, from statement {begin}: ended with {code}: {capsys.readouterr().out}"
        assert not calls, told
        assert code in {Exit.DONE, Exit.USAGE, Exit.FOUND, Exit.STOPPED}, told
        after = items(url)
        assert after.keys() == before.keys(), told
        if command == "rotate" and code is Exit.DONE:
            assert all(active in json.dumps(value) for value, _ in after.values()), told
        with psycopg.connect(url, autocommit=True) as connection:
            copied = connection.execute("SELECT to_regclass(%s)", (f"{COPY}.store",)).fetchone()
            if copied != (None,):
                (rows,) = connection.execute(f"SELECT count(*) FROM {COPY}.store".encode()).fetchone() or (0,)
                assert (code, rows) == (Exit.DONE, ITEMS), told
                connection.execute(f"DROP SCHEMA {COPY} CASCADE".encode())
            else:
                assert command != "decrypt" or code is not Exit.DONE, told
    assert owner.done


NAIVE: Final = (
    "SELECT prefix, key, value FROM agents.store WHERE key > ''",
    "UPDATE agents.store SET key = key || '', value = value || '{}'",
)


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.runs])
def test_a_superuser_that_trusts_the_names_calls_what_the_owner_made(
    url: str, owner: Owner, name: str
) -> None:
    calls = list[str]()
    owner.begin_now(ATTACKS[name])
    with psycopg.connect(make_conninfo(url, application_name=OPERATOR), autocommit=True) as connection:
        record_calls(connection, calls)
        for statement in NAIVE:
            with suppress(psycopg.Error), connection.transaction():
                connection.execute(statement.encode())
    assert calls


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_made_and_undone(url: str, owner: Owner, name: str) -> None:
    before = items(url)
    owner.begin_now(ATTACKS[name])
    owner.settle()
    assert items(url) == before
    assert not owner.failures
