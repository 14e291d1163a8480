"""The way back out of a Postgres database: a private schema that LangGraph's plain saver reads, or none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from sealpoint.admin.databases.postgres import connection as connection_module
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.schemacopy import decrypt_schema
from sealpoint.admin.results.events import Event, Failure, Progress
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import RingCipher
from sealpoint.errors import (
    AccessError,
    HeldError,
    IntegrityError,
    MaintenanceError,
    OutputError,
    PlaintextError,
    RowError,
    SchemaError,
    SealedValueError,
    StoppedError,
    UnknownKeyError,
)
from tests.postgres.test_schema import alter, schema_of
from tests.postgres.test_sealed_metadata import put_checkpoint, seal_metadata
from tests.support.databases.checkpoints import at as config_at
from tests.support.databases.postgres import (
    EMPTY,
    K1,
    K2,
    blobs,
    end_session,
    put_blobs,
    put_writes,
    saver_at,
    set_up,
)

SMALL: Final = Batch(rows=2)
TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")


def leading_to(url: str, schema: str) -> str:
    quoted = '"' + schema.replace('"', '""').replace("\\", "\\\\").replace(" ", "\\ ") + '"'
    return make_conninfo(url, options=f"-c search_path={quoted}")


def copy(url: str, out: str, cipher: RingCipher = K2, **options: Any) -> list[Event]:
    with closing(PostgresRows(url)) as store:
        return list(decrypt_schema(store, out, cipher, **options))


def failures(events: list[Event]) -> list[Failure]:
    return [event for event in events if isinstance(event, Failure)]


def opened(events: list[Event]) -> int:
    return max((event.changed for event in events if isinstance(event, Progress)), default=0)


def exists(url: str, schema: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return found is not None


def rows_of(url: str, schema: str) -> dict[str, list[Any]]:
    with psycopg.connect(url) as connection:
        return {
            table: connection.execute(
                SQL("SELECT * FROM {} AS t ORDER BY t::text").format(Identifier(schema, table))
            ).fetchall()
            for table in TABLES
        }


VALUES: Final[dict[str, Any]] = {
    "messages": ["häßlich \U0001f600", {"a": [1, 2.5, None]}],
    "text": "inline",
    "number": 2**70,
    "real": 0.1,
    "flag": True,
    "nothing": None,
}


def put_threads(url: str, saver: Any = PostgresSaver, count: int = 3) -> None:
    """Threads with values in blobs and inline, a channel without a value, writes and metadata."""
    values = VALUES if saver is PostgresSaver else VALUES | {"number": 7}  # whose numbers are serialized
    for thread in range(count):
        with saver_at(saver, url, (K1, K2)[thread % 2]) as sealing:
            config = config_at(f"thread {thread}")
            for step in range(2):
                versions = dict.fromkeys([*values, "unset"], f"{step:032}")
                checkpoint = {**empty_checkpoint(), "id": f"{step:06}", "channel_values": dict(values)}
                checkpoint["channel_versions"] = versions
                metadata = {"source": "loop", "step": step, "user": "häßlich", "exact": 2**70}
                config = sealing.put(config, checkpoint, metadata, versions)
                sealing.put_writes(config, [("out", {"step": step}), ("out", ["b"])], "task", "~path")


def states(url: str, cipher: RingCipher | None, saver: Any = PostgresSaver) -> list[Any]:
    with saver_at(saver, url, cipher) as reading:
        return [
            (each.config, each.checkpoint, each.metadata, each.parent_config, each.pending_writes)
            for each in sorted(reading.list(None), key=lambda each: json.dumps(each.config))
        ]


@pytest.mark.parametrize("batch", [Batch(), SMALL, Batch(size_bytes=1)])
def test_langgraphs_plain_saver_reads_the_copy(url: str, out: str, batch: Batch) -> None:
    put_threads(url)
    before, expected = rows_of(url, schema_of(url)), states(url, K2)
    assert len(expected) == 6
    events = copy(url, out, batch=batch)
    assert not failures(events)
    assert opened(events) == sum("@k" in row[-3] for row in before["checkpoint_writes"]) + sum(
        "@k" in row[-2] for row in before["checkpoint_blobs"]
    )
    assert states(leading_to(url, out), None) == expected
    assert rows_of(url, schema_of(url)) == before
    after = rows_of(url, out)
    assert "@k" not in str(after)
    # metadata, inline values and the rest of a checkpoint are as they were, and so is each row without value
    assert (after["checkpoints"], after["checkpoint_migrations"]) == (
        before["checkpoints"],
        before["checkpoint_migrations"],
    )
    assert {name: len(rows) for name, rows in after.items()} == {
        name: len(rows) for name, rows in before.items()
    }


def test_the_plain_saver_goes_on_with_the_copy(url: str, out: str) -> None:
    put_threads(url, count=1)
    copy(url, out)
    with saver_at(PostgresSaver, leading_to(url, out)) as saver:
        saver.setup()
        config = saver.get_tuple(config_at("thread 0")).config
        checkpoint = {**empty_checkpoint(), "id": "9", "channel_values": {"messages": ["more"]}}
        checkpoint["channel_versions"] = {"messages": "9"}
        saver.put(config, checkpoint, {}, {"messages": "9"})
        assert saver.get_tuple(config_at("thread 0")).checkpoint["channel_values"] == {"messages": ["more"]}


def test_the_shallow_saver_reads_its_copy(shallow_url: str, request: pytest.FixtureRequest) -> None:
    put_threads(shallow_url, ShallowPostgresSaver)
    name = f"{schema_of(shallow_url)}_out"
    expected = states(shallow_url, K2, ShallowPostgresSaver)
    assert len(expected) == 3
    try:
        copy(shallow_url, name)
        assert states(leading_to(shallow_url, name), None, ShallowPostgresSaver) == expected
        assert shape(shallow_url, name) == shape(shallow_url, schema_of(shallow_url))
    finally:
        alter(shallow_url, f"DROP SCHEMA IF EXISTS {name} CASCADE")


def shape(url: str, schema: str) -> Any:
    """The columns, indexes and migrations of a schema."""
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, 3",
            (schema,),
        ).fetchall()
        indexes = connection.execute(
            "SELECT tablename, indexname, replace(indexdef, quote_ident(%s), '') FROM pg_indexes"
            " WHERE schemaname = %s ORDER BY 1, 2",
            (schema, schema),
        ).fetchall()
        migrations = connection.execute(
            SQL("SELECT v FROM {} ORDER BY v").format(Identifier(schema, "checkpoint_migrations"))
        ).fetchall()
    return columns, indexes, migrations


def test_the_tables_are_what_the_saver_makes(url: str, out: str) -> None:
    copy(url, out)
    assert shape(url, out) == shape(url, schema_of(url))


def test_older_tables_get_the_column_that_they_lack(url: str, out: str) -> None:
    put_threads(url)
    expected = shape(url, schema_of(url))
    alter(url, "ALTER TABLE checkpoint_writes DROP COLUMN task_path")
    copy(url, out)
    assert shape(url, out) == expected
    assert {row[-1] for row in rows_of(url, out)["checkpoint_writes"]} == {""}


NAMES: Final = (
    'quote"s', "Upper Case", "a.b", "{}", "%s", "x; DROP SCHEMA public", "ünïcödé", "public ", "n" * 63,
    "select", "-c x=1", "a'b\\c",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_the_name_of_the_schema(url: str, name: str) -> None:
    put_threads(url, count=1)
    try:
        copy(url, name)
        assert exists(url, name)
        assert "@k" not in str(rows_of(url, name))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))


@pytest.mark.parametrize("name", ["", "pg_plain", "pg_catalog", "n" * 64, "ü" * 32, "a\0b"])
def test_a_name_that_no_schema_can_have_is_refused(url: str, name: str) -> None:
    with pytest.raises(OutputError) as caught:
        copy(url, name)
    assert "schema" in caught.value.hint


def test_text_in_another_encoding(url: str) -> None:
    """What the server can hold is copied; a name that it cannot hold is refused."""
    name = f"{schema_of(url)}_latin"
    alter(url, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        latin = make_conninfo(url, dbname=name, options="-c search_path=public")
        set_up(PostgresSaver, latin)
        put_blobs(latin, [("é", "", "ü", "1", *K1.seal("msgpack", b"\x01"))])
        with pytest.raises(OutputError, match="encoding"):
            copy(latin, "日本")
        assert not failures(copy(latin, "été"))
        assert rows_of(latin, "été")["checkpoint_blobs"] == [("é", "", "ü", "1", "msgpack", b"\x01")]
    finally:
        alter(url, f"DROP DATABASE {name}")


@pytest.mark.parametrize("has_tables", [True, False])
def test_what_is_there_already_is_not_touched(url: str, out: str, has_tables: bool) -> None:
    put_threads(url)
    alter(url, f"CREATE SCHEMA {out}")
    if has_tables:
        set_up(PostgresSaver, leading_to(url, out))
        put_threads(leading_to(url, out), count=1)
    before = rows_of(url, out) if has_tables else None
    with pytest.raises(OutputError) as caught:
        copy(url, out)
    assert "schema" in caught.value.hint
    assert (rows_of(url, out) if has_tables else None) == before
    for name in (schema_of(url), "public", "information_schema"):
        with pytest.raises(OutputError):
            copy(url, name)


def test_two_runs_do_not_make_one_schema(url: str, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first for a moment, and ends."""
    monkeypatch.setitem(connection_module._SETTINGS, "lock_timeout", "100ms")
    with psycopg.connect(url) as other:
        other.execute(SQL("CREATE SCHEMA {}").format(Identifier(out)))
        with pytest.raises(HeldError, match="another session"):
            copy(url, out)


def damage(url: str, statement: str) -> None:
    put_blobs(url, blobs(9))
    put_writes(url, [("task", place, "n", *K1.seal("msgpack", b"\x01")) for place in range(3)])
    alter(url, statement)


ONE: Final = "WHERE version = '00000004'"
HARM: Final[dict[str, tuple[str, type[Exception]]]] = {
    "changed": (f"UPDATE checkpoint_blobs SET blob = blob || '\\x00' {ONE}", IntegrityError),
    "empty": (f"UPDATE checkpoint_blobs SET blob = '' {ONE}", SealedValueError),
    "no bytes": (f"UPDATE checkpoint_blobs SET blob = NULL {ONE}", SealedValueError),
    "plain": (f"UPDATE checkpoint_blobs SET type = 'msgpack' {ONE}", PlaintextError),
    "pickle": (f"UPDATE checkpoint_blobs SET type = 'pickle' {ONE}", PlaintextError),
    "typed as none": (f"UPDATE checkpoint_blobs SET type = 'empty' {ONE}", PlaintextError),
    "no such key": (
        f"UPDATE checkpoint_blobs SET type = replace(type, '@k1', '@k9') {ONE}",
        UnknownKeyError,
    ),
    "no channel": (
        "ALTER TABLE checkpoint_writes ALTER channel DROP NOT NULL;"
        " UPDATE checkpoint_writes SET channel = NULL WHERE idx = 1",
        RowError,
    ),
    "no task path": (
        "ALTER TABLE checkpoint_writes ALTER task_path DROP NOT NULL;"
        " UPDATE checkpoint_writes SET task_path = NULL WHERE idx = 1",
        RowError,
    ),
}


@pytest.mark.broad
@pytest.mark.parametrize(("statement", "error"), HARM.values(), ids=HARM)
@pytest.mark.parametrize("batch", [Batch(), SMALL])
def test_a_value_that_does_not_open_leaves_no_copy(
    url: str, out: str, statement: str, error: type[Exception], batch: Batch
) -> None:
    damage(url, statement)
    before = rows_of(url, schema_of(url))
    events = copy(url, out, batch=batch)
    (failed,) = failures(events)
    assert isinstance(failed.error, error)
    last = events[-1]
    assert isinstance(last, Progress)
    assert (last.rows, last.total) == (12, 12)  # all values are tried nevertheless
    assert not exists(url, out)
    assert rows_of(url, schema_of(url)) == before


def test_a_key_that_is_missing_leaves_no_copy(url: str, out: str) -> None:
    put_blobs(url, blobs(9, K2))
    assert {type(each.error) for each in failures(copy(url, out, K1))} == {UnknownKeyError}
    assert not exists(url, out)


def test_plain_values_are_copied_if_they_are_allowed(url: str, out: str) -> None:
    put_blobs(url, [*blobs(3), ("t", "", "plain", "1", "msgpack", b"\x01"), EMPTY])
    events = copy(url, out, allow_plaintext=True)
    assert not failures(events)
    assert opened(events) == 3
    copied = rows_of(url, out)["checkpoint_blobs"]
    assert ("t", "", "plain", "1", "msgpack", b"\x01") in copied
    assert EMPTY in copied


def test_sealed_metadata_leaves_no_copy(url: str, out: str) -> None:
    put_blobs(url, blobs(1))
    put_checkpoint(url, "0", '{"source": "loop"}')
    seal_metadata(url, "1")
    (failed,) = failures(copy(url, out))
    assert (type(failed.error), failed.place["checkpoint_id"]) == (RowError, "1")
    assert failed.table == "checkpoints.metadata"
    assert "saver that sealed it" in getattr(failed.error, "hint", "")
    assert not exists(url, out)


def test_the_copy_is_of_one_moment(url: str, out: str) -> None:
    """What agents write meanwhile is not in it: they write, also to tables that are not yet read."""
    put_threads(url)
    expected = states(url, K2)
    with closing(PostgresRows(url)) as store:
        for _ in decrypt_schema(store, out, K2, batch=SMALL):
            put_threads(url, count=4)
            alter(url, "DELETE FROM checkpoint_writes WHERE idx = 1")
    assert states(leading_to(url, out), None) == expected
    assert states(url, K2) != expected


def test_a_run_that_is_not_finished_leaves_no_copy(url: str, out: str) -> None:
    put_threads(url)
    with closing(PostgresRows(url)) as store:
        run = decrypt_schema(store, out, K2, batch=SMALL)
        assert isinstance(next(run), Progress)
        assert not exists(url, out)
        run.close()
    assert not exists(url, out)
    assert not failures(copy(url, out))


def test_a_server_that_ends_the_session_leaves_no_copy(url: str, out: str) -> None:
    put_threads(url)
    with closing(PostgresRows(url)) as store:
        run = decrypt_schema(store, out, K2, batch=SMALL)
        next(run)
        with psycopg.connect(url) as connection:
            (pid,) = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'sealpoint'"
                " AND pid <> %s AND backend_xid IS NOT NULL",
                (store.connection.info.backend_pid,),
            ).fetchone() or (0,)
        end_session(url, pid)
        with pytest.raises(StoppedError):
            list(run)
    assert not exists(url, out)


KILLED: Final = """
import os, sys
from contextlib import closing
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.schemacopy import decrypt_schema
from tests.support.databases.postgres import K2
with closing(PostgresRows(sys.argv[1])) as store:
    for _ in decrypt_schema(store, sys.argv[2], K2, batch=Batch(rows=2)):
        os.write(int(sys.argv[3]), b".")
        os.read(int(sys.argv[4]), int(sys.argv[5]))
"""


@contextmanager
def met_after(batches: int, url: str, out: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run in another process, met after so many batches."""
    told, tell = os.pipe()
    wait, go = os.pipe()
    command = [sys.executable, "-c", KILLED, url, out, str(tell), str(wait), "1"]
    with subprocess.Popen(command, pass_fds=(tell, wait), cwd=Path(__file__).parents[2]) as process:
        os.close(tell)
        os.close(wait)
        for batch in range(batches):
            assert os.read(told, 1) == b"."
            if batch < batches - 1:
                os.write(go, b".")
        yield process
        os.close(go)
    os.close(told)


@pytest.mark.parametrize("batches", [1, 5])
def test_a_killed_run_leaves_nothing(url: str, out: str, batches: int) -> None:
    put_threads(url)
    before = rows_of(url, schema_of(url))
    with met_after(batches, url, out) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not exists(url, out)
    # The server notices that its client is gone when it next reads from it.
    assert not failures(copy(url, out))
    assert rows_of(url, schema_of(url)) == before


def rights(url: str, schema: str) -> set[tuple[str, ...]]:
    """Who has which right to a schema or a table in it; not its owner."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT acl.grantee::text, acl.privilege_type FROM pg_namespace AS n"
            " CROSS JOIN LATERAL (SELECT * FROM aclexplode(n.nspacl) UNION ALL"
            " SELECT acl.* FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS acl"
            " WHERE c.relnamespace = n.oid) AS acl WHERE n.nspname = %s AND acl.grantee <> n.nspowner",
            (schema,),
        ).fetchall()
    return set(found)


@pytest.fixture
def role(url: str) -> Iterator[str]:
    """URL of a role that may only read the tables."""
    schema = schema_of(url)
    name = f"{schema}_role"
    alter(
        url,
        f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {name};"
        f" GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}",
    )
    try:
        yield make_conninfo(url, user=name)
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name}")


def allow_creation(url: str, role: str) -> str:
    """Grant what decrypt needs; return the name of the role."""
    parts = conninfo_to_dict(role)
    statement = SQL("GRANT CREATE ON DATABASE {} TO {}").format(
        Identifier(str(parts["dbname"])), Identifier(str(parts["user"]))
    )
    alter(url, statement.as_string())
    return str(parts["user"])


def test_a_role_needs_the_right_to_create(url: str, role: str, out: str) -> None:
    put_threads(url)
    with pytest.raises(AccessError, match="no right to create a schema") as caught:
        copy(role, out)
    assert "CREATE on the database" in caught.value.hint
    allow_creation(url, role)
    assert not failures(copy(role, out))
    assert states(leading_to(role, out), None) == states(url, K2)


def test_only_the_owner_has_rights_to_the_copy(url: str, role: str, out: str) -> None:
    """Also if default privileges of the role would let every account read what it makes."""
    put_threads(url, count=1)
    name = allow_creation(url, role)
    other = f'{name}"s other'
    alter(url, SQL("CREATE ROLE {}").format(Identifier(other)).as_string())
    try:
        for grantee in (SQL("PUBLIC"), Identifier(other)):
            for kind in ("SCHEMAS", "TABLES"):
                granting = SQL(f"ALTER DEFAULT PRIVILEGES FOR ROLE {{}} GRANT ALL ON {kind} TO {{}}")
                alter(url, granting.format(Identifier(name), grantee).as_string())
        copy(role, out)
        assert rights(url, out) == set()
        alter(url, f"ALTER DEFAULT PRIVILEGES FOR ROLE {name} REVOKE ALL ON SCHEMAS FROM PUBLIC")
    finally:
        alter(url, SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(Identifier(other)).as_string())


@pytest.fixture
def refuse(url: str, out: str) -> Iterator[Callable[[str, str], None]]:
    """Lets the server refuse one kind of statement in the new schema, with a SQLSTATE."""
    name = f"{out}_refuse"

    def refuse(kind: str, code: str) -> None:
        alter(
            url,
            f"CREATE FUNCTION {name}() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE schema_name = '{out}')"
            f" THEN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END IF; END $$;"
            f" CREATE EVENT TRIGGER {name} ON ddl_command_end WHEN TAG IN ('{kind}')"
            f" EXECUTE FUNCTION {name}()",
        )

    yield refuse
    alter(url, f"DROP EVENT TRIGGER IF EXISTS {name}; DROP FUNCTION IF EXISTS {name}")


@pytest.mark.broad
@pytest.mark.parametrize("kind", ["CREATE TABLE", "CREATE INDEX"])
@pytest.mark.parametrize(
    ("code", "error"), [("53100", StoppedError), ("25006", AccessError), ("42501", MaintenanceError)]
)
def test_a_refusal_of_the_server_leaves_no_copy(
    url: str,
    out: str,
    refuse: Callable[[str, str], None],
    kind: str,
    code: str,
    error: type[Exception],
) -> None:
    """A full disk, a server that becomes a standby, and a right that is missing; early and late."""
    put_threads(url)
    refuse(kind, code)
    with pytest.raises(error):
        copy(url, out)
    assert not exists(url, out)


def test_a_schema_without_all_tables_is_refused(url: str, out: str) -> None:
    alter(url, "DROP TABLE checkpoints")
    with pytest.raises(SchemaError, match="lacks table 'checkpoints'") as caught:
        copy(url, out)
    assert "setup()" in caught.value.hint


CHANGES: Final = {
    "rule": "CREATE RULE r AS ON INSERT TO checkpoint_writes DO ALSO NOTHING",
    "trigger": "CREATE TRIGGER t BEFORE UPDATE ON checkpoints FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "index": "CREATE INDEX expression ON checkpoint_blobs (lower(channel))",
    "statistics": "CREATE STATISTICS s ON lower(channel), lower(version) FROM checkpoint_blobs",
    "other table": "ALTER TABLE checkpoint_writes RENAME TO away;"
    " CREATE TABLE checkpoint_writes (LIKE away INCLUDING ALL);"
    " GRANT SELECT ON checkpoint_writes TO PUBLIC",
    "child": "CREATE TABLE child () INHERITS (checkpoint_blobs)",
}


@pytest.mark.broad
@pytest.mark.parametrize("as_superuser", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tables_that_were_changed_are_refused(
    url: str, role: str, out: str, change: str, as_superuser: bool
) -> None:
    put_threads(url)
    allow_creation(url, role)
    with closing(PostgresRows(url if as_superuser else role)) as store:
        alter(url, change)
        with pytest.raises(SchemaError):
            list(decrypt_schema(store, out, K2))
    assert not exists(url, out)


def test_a_schema_that_was_renamed_is_refused(
    url: str, role: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it has its name again: statements name it, and may have met another one meanwhile."""
    allow_creation(url, role)
    put_threads(url)
    schema = schema_of(url)
    with closing(PostgresRows(role)) as store:
        begin = store._begin

        def begin_and_rename(*arguments: Any, **options: Any) -> None:
            begin(*arguments, **options)
            alter(url, f"ALTER SCHEMA {schema} RENAME TO away; ALTER SCHEMA away RENAME TO {schema}")

        monkeypatch.setattr(store, "_begin", begin_and_rename)
        with pytest.raises(SchemaError, match="schema was changed"):
            list(decrypt_schema(store, out, K2))
    assert not exists(url, out)


@pytest.mark.parametrize("as_superuser", [True, False])
def test_tables_may_change_once_the_run_has_begun(url: str, role: str, out: str, as_superuser: bool) -> None:
    """All statements are planned then: what the owner adds to a table has no effect on them."""
    put_threads(url)
    allow_creation(url, role)
    expected = states(url, K2)
    with closing(PostgresRows(url if as_superuser else role)) as store:
        run = decrypt_schema(store, out, K2, batch=SMALL)
        next(run)
        alter(url, CHANGES["statistics"])
        alter(url, CHANGES["index"])
        assert not failures(list(run))
    assert states(leading_to(url, out), None) == expected


def test_nothing_of_the_source_but_its_rows_reaches_the_copy(url: str, out: str) -> None:
    put_threads(url)
    schema = schema_of(url)
    plain = shape(url, schema)
    alter(
        url,
        "GRANT SELECT ON checkpoints TO PUBLIC; CREATE INDEX more ON checkpoint_blobs (channel);"
        " CREATE TABLE other (); ALTER TABLE checkpoint_blobs SET (autovacuum_enabled = off);"
        " COMMENT ON TABLE checkpoints IS 'of another program';"
        " CREATE FUNCTION text(integer) RETURNS text LANGUAGE sql AS $$ SELECT 'forged' $$;"
        " CREATE DOMAIN jsonb AS text CHECK (false); CREATE DOMAIN bytea AS text CHECK (false)",
    )
    hostile = make_conninfo(url, options=f"-c search_path={schema},pg_catalog")
    assert not failures(copy(hostile, out))
    assert shape(url, out) == plain
    assert rights(url, out) == set()
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (out,))
        assert {name for (name,) in tables} == set(TABLES)
        assert connection.execute("SELECT obj_description(%s::regclass)", (f"{out}.checkpoints",)).fetchone()


def test_sessions_wait_for_each_other(store: PostgresRows, out: str) -> None:
    """Counting a large table takes longer than other transactions may be idle, and so does an index."""
    asking = "SHOW idle_in_transaction_session_timeout"
    with closing(store.new_schema(out)) as target, store.snapshot():
        for connection in (target._connection, store.connection):
            assert connection.execute(asking).fetchone() == ("1h",)
    assert store.connection.execute(asking).fetchone() == ("1min",)


@pytest.mark.parametrize("size", [0, 1, 50, 10_000])
def test_a_page_is_as_large_as_its_batch(url: str, size: int) -> None:
    """And as one row, if that is larger."""
    put_blobs(url, [(f"t{place}", "", "c", "1", "msgpack", b"x" * 40) for place in range(20)])
    with closing(PostgresRows(url)) as store, store.snapshot() as snapshot:
        pages = list(snapshot.pages("checkpoint_blobs", Batch(rows=7, size_bytes=size)))
        assert snapshot.count() == 20
    assert [len(page) for page in pages] == ([7, 7, 6] if size == 10_000 else [1] * 20)
    assert sorted(row["thread_id"] for page in pages for row in page) == sorted(
        f"t{place}" for place in range(20)
    )
