"""The owner of the tables changes them while a superuser works.

Nothing of the owner's runs, and no answer is wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.columns import BLOBS as BLOBS_TABLE
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import SchemaError
from tests.attacks.owners import (
    ATTACKS,
    OPERATOR,
    OWNER,
    Attack,
    Owner,
    attacking,
    between_statements,
    owned_database,
    places,
    record_calls,
)
from tests.postgres.test_commands import at
from tests.support.databases.postgres import K1, K2, opened, put_blobs, put_writes, set_up
from tests.support.keys.rings import states_text, write
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import server

pytestmark = pytest.mark.timeout(3600)

# Each command runs 4 times every day, 10 times with SEALPOINT_TESTS=all, and 200 times in `make attacks`.
RUNS: Final = by_extent(4, 10, 200)
FIRST: Final = by_extent(2, 6)
VIEW: Final = "a view in place of the table"
STATISTICS: Final = "statistics over an expression"
THREADS: Final = 3
BLOBS: Final = 27
VALUES: Final = 36
COPY: Final = "sealpoint_copy"
ONE: Final = b"\x01"
"""The number 1 as msgpack."""
ANSWERS: Final = {Exit.DONE, Exit.USAGE, Exit.FOUND, Exit.UNOPENED, Exit.STOPPED}


@pytest.fixture(scope="module")
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with owned_database(server(pytestconfig)) as url:
        set_up(PostgresSaver, make_conninfo(url, user=OWNER))
        put_blobs(
            url,
            [
                (f"thread {place % THREADS}", "", "n", f"{place:08}", *K1.seal("msgpack", ONE))
                for place in range(BLOBS)
            ],
        )
        put_writes(
            url, [(f"task {place}", place, "n", *K1.seal("msgpack", ONE)) for place in range(VALUES - BLOBS)]
        )
        yield url


@pytest.fixture
def owner(url: str) -> Iterator[Owner]:
    with closing(Owner(url)) as owner:
        yield owner
    assert not owner.failures


@dataclass(frozen=True)
class Operator:
    """Runs commands as a superuser, and knows what the tables hold."""

    url: str
    folder: Path
    capture: pytest.CaptureFixture[str]
    connection: psycopg.Connection[Any]

    def ring(self, **states: str) -> str:
        return str(write(self.folder / "keys.toml", states_text(**states)))

    def run(self, *words: str) -> tuple[Exit, dict[str, Any]]:
        """Run a command, and return its code and what it printed as JSON."""
        self.capture.readouterr()
        code = Exit(run([*words, "--json"]))
        told = self.capture.readouterr()
        assert code in ANSWERS, told.err
        document = json.loads(told.out) if told.out.strip() else {}
        return code, {} if "error" in document else document

    def values(self) -> dict[Any, Any]:
        return opened(self.url, K2)

    def tags(self) -> Counter[str]:
        tags = self.connection.execute(
            "SELECT type FROM checkpoint_blobs UNION ALL SELECT type FROM checkpoint_writes"
        ).fetchall()
        return Counter(tag.rpartition("@")[2] for (tag,) in tags)


@pytest.fixture
def operator(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Operator(url, tmp_path, capsys, connection)


# Each runs its command, and returns its code and whether what it said is true of what the tables held before.
def status(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, told = operator.run("status", at(operator.url), "--keys", ring)
    found = Counter[str]()
    for share in told["databases"][0]["shares"] if told else ():
        found[share["key_id"]] += share["rows"]
    return code, found == tags


def status_only(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, _ = operator.run("status", at(operator.url), "--only", "k2", "--keys", ring)
    return code, set(tags) == {"k2"}


def verify(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, told = operator.run("verify", at(operator.url), "--keys", ring)
    return code, told.get("rows") == VALUES


def audit(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, told = operator.run("audit", at(operator.url), "--keys", ring)
    return code, told.get("rows") == VALUES


def types(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, told = operator.run("types", at(operator.url), "--keys", ring)
    return code, told.get("values") == VALUES


def inspect(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    words = ("inspect", at(operator.url), "--thread", "thread 0", "--keys", ring)
    code, told = operator.run(*words)
    return code, len(told.get("values", ())) == BLOBS // THREADS


def list_threads(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    code, told = operator.run("inspect", at(operator.url))
    return code, {*told.get("threads", ())} == {"t", *(f"thread {number}" for number in range(THREADS))}


def rotate(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    """To the key that fewer values are under; nothing is lost, whatever the code."""
    new, old = ("k1", "k2") if tags["k2"] > tags["k1"] else ("k2", "k1")
    path = operator.ring(**{new: "active", old: "decrypt-only"})
    code, _ = operator.run("rotate", at(operator.url), "--apply", "--batch", "10", "--keys", path)
    return code, True


def destroy(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    used = max(tags, key=lambda key: tags[key])
    path = operator.ring(**{used: "disabled", "k1" if used == "k2" else "k2": "active"})
    code, _ = operator.run("keys", "destroy", used, "--db", at(operator.url), "--yes", "--keys", path)
    return code, False  # values are under it


def decrypt(operator: Operator, ring: str, tags: Counter[str]) -> tuple[Exit, bool]:
    """A copy has every value, or there is none."""
    code, told = operator.run("decrypt", at(operator.url), "--out-schema", COPY, "--keys", ring)
    found = list[Any]()
    if operator.connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (COPY,)).fetchone():
        for table in ("checkpoint_blobs", "checkpoint_writes"):
            found += operator.connection.execute(f"SELECT type, blob FROM {COPY}.{table}".encode()).fetchall()
        operator.connection.execute(f"DROP SCHEMA {COPY} CASCADE".encode())
        assert code is Exit.DONE
        assert found == [("msgpack", ONE)] * VALUES
    return code, told.get("rows") == len(found) == VALUES


COMMANDS: Final[dict[str, Callable[[Operator, str, Counter[str]], tuple[Exit, bool]]]] = {
    act.__name__: act
    for act in (status, status_only, verify, audit, types, inspect, list_threads, rotate, destroy, decrypt)
}


def attack(
    owner: Owner,
    operator: Operator,
    command: str,
    name: str,
    begin: int,
    end: int,
    attacks: Mapping[str, Attack] = ATTACKS,
) -> Exit:
    """Run a command that calls nothing, loses nothing and says nothing wrong; return its code."""
    tags = operator.tags()
    ring = operator.ring(k2="active", k1="decrypt-only")
    with between_statements(attacking(owner, attacks[name], begin, end)) as calls:
        code, true = COMMANDS[command](operator, ring, tags)
    owner.settle()
    told = f"{command}: {name}, from statement {begin} to {end}: ended with {code}"
    assert not calls, told
    assert code is not Exit.DONE or true, told
    assert Counter(operator.values().values()) == {("msgpack", ONE): VALUES}, told
    if command == "rotate" and code is Exit.DONE:
        assert len(operator.tags()) == 1, told
    return code


@pytest.mark.claim("f8")
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_owner_runs_and_no_answer_is_wrong(
    url: str, owner: Owner, operator: Operator, command: str
) -> None:
    """First a view is made before each of the first statements, then any attack before any statement."""
    random, codes = Random(command), Counter[Exit]()
    attacks = random.sample(list(ATTACKS), len(ATTACKS))
    for number in range(RUNS):
        name, (begin, end) = attacks[number % len(attacks)], places(random)
        if number < FIRST:
            name, begin, end = VIEW, number, number + 60
        codes[attack(owner, operator, command, name, begin, end)] += 1
    assert owner.done > RUNS / 4
    assert codes[Exit.DONE] or RUNS < 20 or command in ("status_only", "destroy"), codes


@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_between_the_first_statements(
    url: str, owner: Owner, operator: Operator, name: str
) -> None:
    turn = list(ATTACKS).index(name)  # so that each place and command has its turn, where not all are tried
    places_tried = [(turn + number) % 4 for number in range(by_extent(1, 4))]
    commands = [("status", "rotate", "decrypt")[(turn + number) % 3] for number in range(by_extent(1, 3))]
    for begin, command in product(places_tried, commands):
        attack(owner, operator, command, name, begin, 60)


def read_snapshot(store: PostgresRows) -> None:
    with store.snapshot() as snapshot:
        for column in store.columns:
            for _ in snapshot.pages(column.table, Batch(rows=5)):
                pass


STEPS: Final[dict[str, Callable[[PostgresRows], object]]] = {
    "read": lambda store: store.read(BLOBS_TABLE, None),
    "rewrite": lambda store: store.rewrite(BLOBS_TABLE, None, lambda value: (str(value.tag), value.value)),
    "snapshot": read_snapshot,
}


@pytest.mark.broad
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("begin", range(16))
def test_statistics_before_each_statement_of_a_batch(url: str, owner: Owner, step: str, begin: int) -> None:
    """No lock of a reader or a writer excludes them: between the statements only the guard does."""
    stepping = attacking(owner, ATTACKS[STATISTICS], begin, begin + 60)
    with (
        closing(PostgresRows(url, writable=True)) as store,
        between_statements(stepping) as calls,
        suppress(SchemaError),
    ):
        STEPS[step](store)
    owner.settle()
    assert not calls


# --- the recorder records ---------------------------------------------------------------------------

NAIVE: Final = (
    "SELECT thread_id, type, blob FROM agents.checkpoint_blobs",
    "SELECT count(*) FROM agents.checkpoints",
    "UPDATE agents.checkpoint_blobs SET type = type || '', blob = blob || ''",
    "UPDATE agents.checkpoint_writes SET type = type || ''",
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
def test_every_attack_is_made_and_undone(url: str, owner: Owner, operator: Operator, name: str) -> None:
    values = operator.values()
    owner.begin_now(ATTACKS[name])
    owner.settle()
    assert operator.values() == values
    assert not owner.failures
