"""The owner of partitioned tables changes partitions while commands run, as a superuser and as another role.

What a partition has on it is not called, and no answer is wrong. Expressions are the exception for a role
that is no superuser, as on plain tables: it has no rights that the owner lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.databases.postgres.tables import grants
from sealpoint.admin.results.exits import Exit
from tests.attacks.owners import (
    OWNER,
    Attack,
    Owner,
    owned_database,
    places,
)
from tests.attacks.test_owners import BLOBS, COMMANDS, ONE, THREADS, VALUES, Operator, attack
from tests.support.databases.partitions import partition
from tests.support.databases.postgres import K1, put_blobs, put_writes, set_up
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import server

pytestmark = pytest.mark.timeout(3600)

ROLE: Final = "sealpoint_maintenance"
RUNS: Final = by_extent(1, 4, 60)
# By the way of partitioning a partition of the values and what stands in its place in ATTACH.
PARTS: Final = {
    "hash of thread_id": ("checkpoint_blobs_p1", "FOR VALUES WITH (MODULUS 5, REMAINDER 1)"),
    "range of thread_id": ("checkpoint_blobs_high", "FOR VALUES FROM ('1f1') TO ('thread 2')"),
}
_ATTACH: Final = "ALTER TABLE checkpoint_blobs ATTACH PARTITION {part} {bounds}; "
_DETACH: Final = "ALTER TABLE checkpoint_blobs DETACH PARTITION {part}; "
_TRIGGER: Final = (
    "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON {part}"
    " FOR EACH ROW EXECUTE FUNCTION tools.fire(); "
)
_INDEX: Final = "CREATE INDEX i ON {part} ((tools.act('x'::text) || thread_id)); "
# What the owner does and undoes; what only a superuser is protected from has "expression" in its name.
STEPS: Final = {
    "a trigger": (_TRIGGER, "DROP TRIGGER t ON {part}"),
    "a trigger of the table": (
        "CREATE TRIGGER t BEFORE UPDATE ON checkpoint_blobs FOR EACH ROW EXECUTE FUNCTION tools.fire()",
        "DROP TRIGGER t ON checkpoint_blobs",
    ),
    "a rule": (
        "CREATE RULE r AS ON UPDATE TO {part} DO ALSO SELECT tools.record()",
        "DROP RULE r ON {part}",
    ),
    "a trigger while it is detached": (
        _DETACH + _TRIGGER + _ATTACH,
        _DETACH + "DROP TRIGGER t ON {part}; " + _ATTACH,
    ),
    "a view in its place": (
        _DETACH
        + "ALTER TABLE {part} RENAME TO b; "
        + _ATTACH.replace("{part}", "b")
        + "CREATE VIEW {part} AS"
        " SELECT tools.act(thread_id) AS thread_id, checkpoint_ns, channel, version, tools.act(type) AS type,"
        " tools.act(blob) AS blob FROM b LIMIT 1",
        "DROP VIEW {part}; ALTER TABLE b RENAME TO {part}",
    ),
    "a copy in its place": (
        _DETACH + "ALTER TABLE {part} RENAME TO b; CREATE TABLE {part} (LIKE b INCLUDING ALL);"
        " INSERT INTO {part} SELECT * FROM b; " + _TRIGGER + _ATTACH,
        _DETACH + "ALTER TABLE b ADD COLUMN n int; TRUNCATE b; INSERT INTO b SELECT * FROM {part};"
        " DROP TABLE {part}; ALTER TABLE b DROP COLUMN n; ALTER TABLE b RENAME TO {part}; " + _ATTACH,
    ),
    "it goes to another schema, and a table is in its place": (
        "ALTER TABLE {part} SET SCHEMA tools; CREATE TABLE {part} (LIKE tools.{part} INCLUDING ALL); "
        + _TRIGGER,
        "DROP TABLE {part}; ALTER TABLE tools.{part} SET SCHEMA agents",
    ),
    "it is detached and attached": (_DETACH + _ATTACH, "SELECT"),
    "an index over an expression": (_INDEX, "DROP INDEX i"),
    "statistics over an expression": (
        "CREATE STATISTICS s ON (tools.act(type)), version FROM {part}",
        "DROP STATISTICS s",
    ),
    "statistics over an expression of the table": (
        "CREATE STATISTICS s ON (tools.act(type)), version FROM checkpoint_blobs",
        "DROP STATISTICS s",
    ),
}


def attacks(name: str) -> dict[str, Attack]:
    part, bounds = PARTS[name]
    return {
        each: Attack((begin.format(part=part, bounds=bounds),), end.format(part=part, bounds=bounds))
        for each, (begin, end) in STEPS.items()
    }


@pytest.fixture(scope="module", params=PARTS)
def parted(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A database of the owner, the tables of which are partitioned, and in which way."""
    with owned_database(server(pytestconfig)) as url:
        owned = make_conninfo(url, user=OWNER)
        set_up(PostgresSaver, owned)
        partition(owned, request.param)
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
        with psycopg.connect(url, autocommit=True) as connection:
            names = [
                row[0] for row in connection.execute("SELECT relname FROM pg_class WHERE relispartition")
            ]
            made = (
                grants("agents")
                .replace("ROLE sealpoint", f"ROLE {ROLE}")
                .replace("TO sealpoint", f"TO {ROLE}")
            )
            more = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA agents TO"
            connection.execute(
                f"{made}; {more} {ROLE}; GRANT CREATE ON DATABASE sealpoint_owned TO {ROLE}".encode()
            )
            assert len(names) > 9
        try:
            yield url, request.param
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}".encode())


@pytest.fixture
def owner(parted: tuple[str, str]) -> Iterator[Owner]:
    with closing(Owner(parted[0])) as owner:
        yield owner
    assert not owner.failures


@pytest.fixture(params=["superuser", "role"])
def operator(
    parted: tuple[str, str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Operator]:
    with psycopg.connect(parted[0], autocommit=True) as connection:
        url = make_conninfo(parted[0], user=ROLE) if request.param == "role" else parted[0]
        yield Operator(url, tmp_path, capsys, connection)


@pytest.mark.claim("f8")
@pytest.mark.costly
@pytest.mark.parametrize("command", COMMANDS)
def test_no_answer_is_wrong(parted: tuple[str, str], owner: Owner, operator: Operator, command: str) -> None:
    """First without an attack; then whatever the owner does to a partition between two statements."""
    random, made, codes = Random(command), attacks(parted[1]), Counter[Exit]()
    is_role = ROLE in operator.url
    names = [name for name in made if not (is_role and "expression" in name)]
    assert attack(owner, operator, command, names[0], 10**6, 10**6, made) in (Exit.DONE, Exit.FOUND)
    for name in random.sample(names, min(RUNS, len(names))) * (1 + RUNS // len(names)):
        codes[attack(owner, operator, command, name, *places(random), made)] += 1
    assert owner.done
