"""Partitioned tables: commands answer as on plain ones with the same rows; what is not allowed is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.cells import Selection
from sealpoint.admin.databases.postgres.columns import BLOBS, CHECKPOINTS
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rebind import sealing_sentinels
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.shards import Shard, new_run
from sealpoint.errors import LockedError, MaintenanceError, SchemaError, SealpointError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.attacks.owners import CALLED, between_statements
from tests.postgres.harm import OUT_OF_ROW, lose_values
from tests.postgres.test_commands import at
from tests.postgres.test_rebind import place_of, put, sentinels, wrapped
from tests.postgres.test_schema import FUNCTION, alter, schema_of
from tests.support.databases.partitions import PARTITIONINGS, TABLES, partition
from tests.support.databases.postgres import (
    K1,
    K2,
    blobs,
    contents,
    opened,
    put_blobs,
    read_all,
    reseal,
    rewrite_all,
    saver_at,
    set_up,
)
from tests.support.databases.rebinding import rebound
from tests.support.keys.rings import states_text, write
from tests.support.servers.postgres import schema, server

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
    made += "\nGRANT INSERT, DELETE ON checkpoint_blobs TO sealpoint;"
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


@pytest.mark.costly
@pytest.mark.broad(every=5)
@pytest.mark.parametrize("name", PARTITIONINGS)
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


# --- rows, one by one ---------------------------------------------------------------------------


@pytest.mark.broad
@pytest.mark.parametrize("name", PARTITIONINGS)
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_each_row_is_read_and_worked_on_once(url: str, name: str, rows: int) -> None:
    put_blobs(url, blobs(25))
    partition(url, name)
    batch = Batch(rows=rows)
    with closing(PostgresRows(url, writable=True)) as store:
        read = [cell.where.key for page in read_all(store, BLOBS, batch=batch) for cell in page]
        assert len(read) == len({*read}) == 25
        assert all(read_all(store, BLOBS, batch=batch)[:-1])  # only the last page may be empty
        assert rewrite_all(store, reseal, Selection(without_key="k2"), batch) == [25, 0, 25]
        assert rewrite_all(store, reseal, Selection(without_key="k2"), batch) == [0, 0, 0]
        with store.snapshot() as snapshot:
            copied = [row["version"] for page in snapshot.pages(BLOBS.table, batch) for row in page]
    assert len(opened(url)) == 25
    assert sorted(copied) == sorted(key[3] for key in read)


def test_locked_rows_of_a_partition_are_left_and_named(url: str) -> None:
    put_blobs(url, blobs(9))
    partition(url, "hash of thread_id")
    with closing(PostgresRows(url, writable=True)) as store, psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version = '00000004' FOR UPDATE")
        selection = Selection(without_key="k2")
        assert rewrite_all(store, reseal, selection, Batch(rows=2))[0] == 8
        with pytest.raises(LockedError, match="1 rows are locked by other sessions"):
            rewrite_all(store, reseal, selection, Batch(rows=2))


@pytest.mark.costly
def test_values_that_a_partition_has_lost_are_named(url: str) -> None:
    put_blobs(url, blobs(9, size=OUT_OF_ROW))
    partition(url, "hash of thread_id")
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT DISTINCT tableoid::regclass::text FROM checkpoint_blobs").fetchall()
    for (part,) in rows:
        lose_values(url, f"version IN (SELECT min(version) FROM {part})", table=part)
    with closing(PostgresRows(url, writable=True)) as store:
        for events in (verify(store, K1), rotate(store, K2)):
            failed = [event.place["version"] for event in events if isinstance(event, Failure)]
            assert len(failed) == len({*failed}) == len(rows) > 1
        assert Counter(count.tag[-2:] for count in store.count()) == {"k1": 1, "k2": 1}


def test_rows_that_are_in_the_wrong_partition_are_read(url: str) -> None:
    """By a superuser who has edited catalogs: queries for their threads do not look there."""
    put_blobs(url, blobs(9))
    partition(url, "range of thread_id")
    alter(
        url,
        """ALTER TABLE checkpoint_blobs DETACH PARTITION checkpoint_blobs_low;
        INSERT INTO checkpoint_blobs_low
            SELECT 'zzz', '', channel, version, type, blob FROM checkpoint_blobs WHERE version = '00000004';
        ALTER TABLE checkpoint_blobs_low ADD CONSTRAINT c CHECK (thread_id < '1f1') NOT VALID;
        UPDATE pg_constraint SET convalidated = true WHERE conrelid = 'checkpoint_blobs_low'::regclass;
        ALTER TABLE checkpoint_blobs ATTACH PARTITION checkpoint_blobs_low
            FOR VALUES FROM (MINVALUE) TO ('1f1');
        ALTER TABLE checkpoint_blobs_low DROP CONSTRAINT c""",
    )
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM checkpoint_blobs WHERE thread_id = 'zzz'").fetchone()
    assert found == (0,)
    excluding = make_conninfo(url, options=f"-csearch_path={schema_of(url)} -cconstraint_exclusion=on")
    with closing(PostgresRows(excluding, shard=Shard(new_run(), "status", "zz", None))) as store:
        assert sum(count.rows for count in store.count()) == 1
    with closing(PostgresRows(url, writable=True)) as store:
        assert sum(count.rows for count in store.count()) == 10
        for rows in (1, 4, 1000):
            pages = read_all(store, BLOBS, batch=Batch(rows=rows))
            assert len({cell.where.key for page in pages for cell in page}) == 10
        assert [row.key[0] for row in store.owned("checkpoint_blobs", ["zzz"])] == ["zzz"]
        with pytest.raises(MaintenanceError, match="CheckViolation"):  # the server does not store it again
            rewrite_all(store, reseal, batch=Batch(rows=2))


def test_rows_are_bound_and_unbound_by_a_superuser_too(url: str) -> None:
    for number in range(4):
        put(url, f"thread {number}")
    before = wrapped(url, unbound="allow")
    partition(url, NESTED)
    rebound(url, K1)
    assert wrapped(url) == before
    assert len(sentinels(url)) == 4
    rebound(url, K1, unbind=True)
    assert (wrapped(url, unbound="allow"), sentinels(url)) == (before, set())


def test_partitions_may_have_their_columns_in_another_order(url: str) -> None:
    """As those have that were made apart, or before a column was dropped."""
    put_blobs(url, blobs(9))
    partition(url, "hash of thread_id")
    alter(
        url,
        """ALTER TABLE checkpoint_blobs DETACH PARTITION checkpoint_blobs_p1;
        CREATE TABLE another (blob bytea, gone int, type text NOT NULL, version text NOT NULL,
            channel text NOT NULL, checkpoint_ns text NOT NULL DEFAULT '', thread_id text NOT NULL,
            PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
        ALTER TABLE another DROP gone;
        INSERT INTO another (thread_id, checkpoint_ns, channel, version, type, blob)
            SELECT thread_id, checkpoint_ns, channel, version, type, blob FROM checkpoint_blobs_p1;
        ALTER TABLE checkpoint_blobs ATTACH PARTITION another FOR VALUES WITH (MODULUS 5, REMAINDER 1)""",
    )
    with closing(PostgresRows(url, writable=True)) as store:
        assert rewrite_all(store, reseal, batch=Batch(rows=2)) == [9, 0, 9]
        with store.snapshot() as snapshot:
            assert sum(map(len, snapshot.pages(BLOBS.table))) == snapshot.count() == 9
    assert len(opened(url)) == 9


def test_a_table_that_has_no_partition_yet_is_empty(url: str) -> None:
    for table in TABLES:
        alter(
            url,
            f"ALTER TABLE {table} RENAME TO old; CREATE TABLE {table} (LIKE old INCLUDING ALL)"
            " PARTITION BY HASH (thread_id); DROP TABLE old",
        )
    with closing(PostgresRows(url, writable=True)) as store:
        assert (store.count(), [*store.records()], rewrite_all(store, reseal)) == ([], [], [0, 0, 0])


def test_a_copy_of_partitioned_tables_is_not_partitioned(url: str, out: str, rings: dict[str, str]) -> None:
    put(url, wrapped=True)
    before = wrapped(url)
    partition(url, NESTED)
    assert run(["decrypt", at(url), "--out-schema", out, "--keys", rings["k1"]]) == Exit.DONE
    copy = make_conninfo(url, options=f"-c search_path={out}")
    with saver_at(PostgresSaver, copy) as saver:
        assert sorted(saver.list(None), key=place_of) == before
    with psycopg.connect(copy) as connection:
        kinds = connection.execute(
            "SELECT DISTINCT relkind FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind <> 'i'",
            (out,),
        ).fetchall()
    assert kinds == [("r",)]


# --- savers -------------------------------------------------------------------------------------

BUILDER: Final = StateGraph(MessagesState).add_node("reply", lambda state: {"messages": [("ai", "I see.")]})
BUILDER.add_edge(START, "reply")
THREADS: Final = 6


def thread(number: int) -> Any:
    return {"configurable": {"thread_id": f"thread {number}"}}


@pytest.mark.parametrize("name", PARTITIONINGS)
def test_sealed_savers_work_on_partitioned_tables(url: str, name: str) -> None:
    partition(url, name)
    said: Any = {"messages": [("human", "My knee hurts.")]}
    with saver_at(PostgresSaver, url) as bare_saver:
        saver = SealedSaver(bare_saver, serde=EncryptedSerializer(K1))
        saver.setup()  # which finds that nothing is left to do
        graph = BUILDER.compile(checkpointer=saver)
        for number in range(THREADS):
            graph.invoke(said, thread(number))

    async def again() -> list[int]:
        async with await AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as connection:
            saver = SealedSaver(AsyncPostgresSaver(connection), serde=EncryptedSerializer(K2))
            graph = BUILDER.compile(checkpointer=saver)
            return [len((await graph.ainvoke(said, thread(number)))["messages"]) for number in range(THREADS)]

    assert asyncio.run(again()) == [4] * THREADS
    with psycopg.connect(url) as connection:
        spread = connection.execute("SELECT count(DISTINCT tableoid) FROM checkpoints").fetchone()
    assert spread is not None
    assert spread[0] > 1 or name == "range of checkpoint_id"  # all ids of now are in one range


def test_the_statements_of_the_page(url: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text(encoding="utf-8")
    (made,) = re.findall(r"```sql\n(ALTER.*?)```", page, re.DOTALL)
    put(url, wrapped=True)
    before = wrapped(url)
    for table in TABLES:
        alter(url, made.replace("checkpoints", table))
    assert wrapped(url) == before
    with closing(PostgresRows(url)) as store:
        assert {table.name: table.root for table in store.tables() if table.root} == {
            f"{table}_p{number}": table for table in TABLES for number in range(2)
        }


@pytest.mark.parametrize(
    "part", ['a"; DROP TABLE checkpoints; --', "a\nDROP TABLE checkpoints; --", "Part 1"]
)
def test_grants_quote_the_names_of_partitions(
    url: str, rings: dict[str, str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are text of the database, and are pasted into psql; in one with line breaks a line could run."""
    put_blobs(url, blobs(9))
    partition(url, "hash of thread_id")
    quoted = '"{}"'.format(part.replace('"', '""'))
    alter(url, f"ALTER TABLE checkpoint_blobs_p1 RENAME TO {quoted}")
    run(["init", at(url), "--keys", rings["k1"], "--json"])
    granted = json.loads(capsys.readouterr().out)["grants"]
    if "\n" in part:
        assert granted == []
        return
    with maintenance(url, granted) as role, closing(PostgresRows(role, writable=True)) as store:
        assert rewrite_all(store, reseal)[0] == 9


# --- what is refused ----------------------------------------------------------------------------

APART: Final = "ALTER TABLE checkpoint_blobs DETACH PARTITION checkpoint_blobs_p1; "
BACK: Final = (
    "ALTER TABLE checkpoint_blobs ATTACH PARTITION checkpoint_blobs_p1"
    " FOR VALUES WITH (MODULUS 5, REMAINDER 1)"
)
ANEW: Final = (
    "ALTER TABLE checkpoint_writes RENAME TO old; CREATE TABLE checkpoint_writes (LIKE old INCLUDING ALL)"
    " PARTITION BY {}"
)
REFUSED: Final = {
    "'checkpoint_blobs_p1' has a trigger 't'": (
        "CREATE TRIGGER t BEFORE UPDATE ON checkpoint_blobs_p1 FOR EACH ROW EXECUTE FUNCTION act()"
    ),
    "'checkpoint_blobs(_p.)?' has a trigger 't'": (
        "CREATE TRIGGER t BEFORE INSERT ON checkpoint_blobs FOR EACH ROW EXECUTE FUNCTION act()"
    ),
    "'checkpoints_p2' has a rule 'r'": "CREATE RULE r AS ON UPDATE TO checkpoints_p2 DO ALSO NOTIFY x",
    "'checkpoint_writes_p0' has a check": "ALTER TABLE checkpoint_writes_p0 ADD CHECK (same(blob) IS NULL)",
    "'checkpoint_blobs_p1' has an index over": "CREATE INDEX ON checkpoint_blobs_p1 (same(blob))",
    "'checkpoint_blobs_p1' has statistics over": (
        "CREATE STATISTICS s ON (same(blob)), type FROM checkpoint_blobs_p1"
    ),
    "'checkpoint_blobs_p1' has a default .* for 'type'": (
        "ALTER TABLE checkpoint_blobs_p1 ALTER type SET DEFAULT convert_from(same('x'), 'utf8')"
    ),
    "'checkpoint_blobs_p1' has a foreign key": (
        "CREATE TABLE c (a text PRIMARY KEY);"
        " ALTER TABLE checkpoint_blobs_p1 ADD FOREIGN KEY (channel) REFERENCES c NOT VALID"
    ),
    "'checkpoint_blobs_p1' is in another schema, or of another owner, than 'checkpoint_blobs'": (
        "CREATE ROLE {schema}_other; ALTER TABLE checkpoint_blobs_p1 OWNER TO {schema}_other"
    ),
    "'p1' is in another schema": (
        "CREATE SCHEMA {schema}_other; ALTER TABLE checkpoint_blobs_p1 RENAME TO p1;"
        " ALTER TABLE p1 SET SCHEMA {schema}_other"
    ),
    "'checkpoint_blobs_p0' is in another schema": (  # behind the name of one that is not
        "CREATE SCHEMA a_{schema}; ALTER TABLE checkpoint_blobs_p1 SET SCHEMA a_{schema};"
        " ALTER TABLE a_{schema}.checkpoint_blobs_p1 RENAME TO checkpoint_blobs_p0"
    ),
    "'checkpoint_writes' is not partitioned by hash or range of thread_id": ANEW.format("LIST (thread_id)"),
    "'checkpoint_writes' is not partitioned by .* or checkpoint_id": ANEW.format("HASH (task_id)"),
    "'checkpoint_writes' is not partitioned": ANEW.format("HASH (thread_id mine)"),
    "'checkpoint_writes_p' is not partitioned": ANEW.format("HASH (thread_id)")
    + "; CREATE TABLE checkpoint_writes_p PARTITION OF checkpoint_writes FOR VALUES WITH (MODULUS 1,"
    " REMAINDER 0) PARTITION BY RANGE (idx)",
    "'checkpoint_writes' does not have the columns and the primary key": (
        "DROP TABLE checkpoint_writes; CREATE TABLE checkpoint_writes (LIKE checkpoints) PARTITION BY RANGE"
        " (thread_id)"
    ),
    "the primary key": (  # the index of the table exists, and is not valid
        "CREATE TABLE old (LIKE checkpoint_writes); DROP TABLE checkpoint_writes;"
        " CREATE TABLE checkpoint_writes (LIKE old) PARTITION BY RANGE (thread_id);"
        " CREATE TABLE w PARTITION OF checkpoint_writes DEFAULT; ALTER TABLE ONLY checkpoint_writes"
        " ADD PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)"
    ),
    "'checkpoint_migrations' is not a real table": (
        "DROP TABLE checkpoint_migrations; CREATE TABLE checkpoint_migrations (v int PRIMARY KEY)"
        " PARTITION BY RANGE (v)"
    ),
}
OPERATORS: Final = """
    CREATE FUNCTION my_hash(text, bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $2';
    CREATE OPERATOR CLASS mine FOR TYPE text USING hash AS OPERATOR 1 =, FUNCTION 2 my_hash(text, bigint)"""


@pytest.fixture
def hashed(url: str) -> Iterator[str]:
    """Tables that are partitioned by hash."""
    put_blobs(url, blobs(9))
    partition(url, "hash of thread_id")
    name = schema_of(url)
    try:
        yield url
    finally:
        alter(url, f"DROP SCHEMA IF EXISTS {name}_other, a_{name} CASCADE")
        with suppress(psycopg.errors.UndefinedObject):
            alter(url, f"DROP OWNED BY {name}_other CASCADE; DROP ROLE {name}_other")


def refuse(url: str, words: str) -> None:
    """A command and a saver refuse the tables with the same words."""
    if "migrations" not in words:
        with pytest.raises(SchemaError, match=words):
            PostgresRows(url).close()
    with saver_at(PostgresSaver, url) as saver, pytest.raises(SchemaError, match=words) as caught:
        SealedSaver(saver, serde=EncryptedSerializer(K1)).get_tuple(thread(0))
    assert "allow_schema=True" in caught.value.hint


@pytest.mark.parametrize("words", REFUSED)
def test_altered_partitions_are_refused(hashed: str, words: str) -> None:
    alter(hashed, FUNCTION + OPERATORS)
    alter(hashed, REFUSED[words].replace("{schema}", schema_of(hashed)))
    refuse(hashed, words)


def test_a_policy_of_a_partition_is_refused_by_savers(hashed: str) -> None:
    alter(hashed, "CREATE POLICY mine ON checkpoints_p1 USING (true)")
    with saver_at(PostgresSaver, hashed) as saver, pytest.raises(SchemaError, match="'checkpoints_p1' has a"):
        SealedSaver(saver, serde=EncryptedSerializer(K1)).get_tuple(thread(0))


def test_a_partition_that_is_being_detached_is_refused(hashed: str) -> None:
    """Its detachment was begun, and waits for older transactions."""
    detaching = b"ALTER TABLE checkpoint_blobs DETACH PARTITION checkpoint_blobs_p1 CONCURRENTLY"
    with psycopg.connect(hashed) as reader, psycopg.connect(hashed, autocommit=True) as owner:
        reader.execute("SELECT FROM checkpoint_blobs LIMIT 1")
        owner.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            owner.execute(detaching)
    refuse(hashed, "'checkpoint_blobs_p1' is being detached from 'checkpoint_blobs'")


# --- while a command runs -----------------------------------------------------------------------

CHANGED: Final = {
    "detached": APART,
    "detached and attached": APART + BACK,
    "another": (
        APART + "CREATE TABLE another (LIKE checkpoint_blobs INCLUDING ALL);"
        " ALTER TABLE checkpoint_blobs ATTACH PARTITION another FOR VALUES WITH (MODULUS 5, REMAINDER 1)"
    ),
    "another of its name": (
        APART + "ALTER TABLE checkpoint_blobs_p1 RENAME TO old; CREATE TABLE checkpoint_blobs_p1"
        " (LIKE old INCLUDING ALL); " + BACK
    ),
}


@pytest.mark.parametrize("statements", CHANGED.values(), ids=CHANGED)
def test_partitions_that_are_exchanged_during_a_run_end_it(hashed: str, statements: str) -> None:
    """Whichever partition is worked on: none of its rows may be passed by."""
    with closing(PostgresRows(hashed, writable=True)) as store:
        done = store.rewrite(BLOBS, None, reseal, batch=Batch(rows=1))
        alter(hashed, statements)
        with pytest.raises(SchemaError):
            store.rewrite(BLOBS, done.last, reseal, batch=Batch(rows=1))
        with pytest.raises(SchemaError):
            store.count()
        with pytest.raises(SchemaError), store.one_state():
            pass
        with pytest.raises(SchemaError), store.snapshot():
            pass


def test_the_hint_says_to_run_it_again(hashed: str) -> None:
    with closing(PostgresRows(hashed)) as store:
        alter(hashed, APART + BACK)
        with pytest.raises(SchemaError, match="'checkpoint_blobs' were attached or detached") as caught:
            store.count()
    assert "run the same command again" in caught.value.hint


def test_a_partition_is_not_changed_between_check_and_statement(hashed: str) -> None:
    def alter_too(value: Any) -> tuple[str, bytes]:
        for statements in (REFUSED["'checkpoint_blobs_p1' has a trigger 't'"], APART):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                alter(
                    hashed, f"SET lock_timeout = 50; {statements.replace('p1', of(hashed, value.where.key))}"
                )
        return reseal(value)

    alter(hashed, FUNCTION)
    with closing(PostgresRows(hashed, writable=True)) as store:
        assert rewrite_all(store, alter_too, Selection(thread_id="thread 0"))[0] == 3


def of(url: str, key: tuple[Any, ...]) -> str:
    """The end of the name of the partition that has a row."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT tableoid::regclass::text FROM checkpoint_blobs"
            " WHERE (thread_id, checkpoint_ns, channel, version) = (%s, %s, %s, %s)",
            key,
        ).fetchone()
    assert row is not None
    return str(row[0])[-2:]


ROUTED: Final = {
    "another partition": (
        "ALTER TABLE checkpoint_blobs_low ATTACH PARTITION checkpoint_blobs_odd"
        " FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "ALTER TABLE checkpoint_blobs_low DETACH PARTITION checkpoint_blobs_odd",
    ),
    "a trigger": (
        "CREATE TRIGGER t BEFORE INSERT ON checkpoint_blobs_even FOR EACH ROW EXECUTE FUNCTION note()",
        "DROP TRIGGER t ON checkpoint_blobs_even",
    ),
}
NOTED: Final = f"""
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE WARNING '{CALLED}'; RETURN NEW; END $$;
    CREATE TRIGGER t BEFORE INSERT ON checkpoint_blobs_odd FOR EACH ROW EXECUTE FUNCTION note();"""


@pytest.mark.costly
@pytest.mark.parametrize("name", ROUTED)
@pytest.mark.parametrize("is_role", [True, False])
def test_new_rows_go_to_no_partition_that_was_not_checked(
    url: str, rings: dict[str, str], is_role: bool, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rebinding adds rows, and the server chooses their partition: it is changed before each statement."""
    begin, end = (statement.encode() for statement in ROUTED[name])
    for number in range(8):
        put(url, f"a {number}")
    alter(url, "DELETE FROM checkpoint_blobs; DELETE FROM checkpoint_writes")
    partition(url, NESTED, ["checkpoint_blobs"])
    run(["init", at(url), "--keys", rings["k1"], "--json"])
    granted = json.loads(capsys.readouterr().out)["grants"]
    alter(url, NOTED + ROUTED["another partition"][1])
    outcomes, new = Counter[str](), sealing_sentinels(K1)
    with maintenance(url, granted) as role, psycopg.connect(url, autocommit=True) as owner:
        owner.execute("SET lock_timeout = '200ms'")

        def change(place: int, sent: Iterator[int]) -> None:
            if next(sent) == place:
                try:
                    owner.execute(begin)
                    outcomes["made"] += 1
                except psycopg.errors.LockNotAvailable:
                    outcomes["excluded"] += 1

        for place in range(25):
            with (
                closing(PostgresWholeRows(role if is_role else url, writable=True, sentinel=new)) as store,
                between_statements(partial(change, place, itertools.count())) as calls,
                pytest.raises(SealpointError),  # one of the threads has no partition
            ):
                store.rewrite(CHECKPOINTS, None, lambda cell: None)
            assert not calls, place
            with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedObject):
                owner.execute(end)
    assert outcomes.keys() == {"made", "excluded"}
