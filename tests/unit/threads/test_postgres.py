"""PostgresThreadStore: roles, locks, lost connections, and what messages name."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.errors import (
    MissingExtraError,
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreMissingError,
    ThreadStoreTimeoutError,
)
from sealpoint.threads import Kind, PostgresThreadStore, open_thread_store
from sealpoint.threads.postgres import FLUSHED_EVENTS, _connection_class
from tests.unit.threads.events import FAR, put
from tests.unit.threads.stalling import stalling

PASSWORD = "correct-horse"


@pytest.fixture
def store(dsn: str, schema: str) -> Iterator[PostgresThreadStore]:
    with closing(PostgresThreadStore(dsn, schema=schema, create=True, timeout=30)) as made:
        yield made


@pytest.fixture
def admin(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def run(admin: psycopg.Connection[Any], statement: str) -> None:
    admin.execute(statement.encode())


@pytest.fixture
def role(admin: psycopg.Connection[Any], dsn: str, schema: str, store: PostgresThreadStore) -> Iterator[str]:
    """DSN of a role that may read the tables."""
    run(admin, f"CREATE ROLE {schema} LOGIN")
    run(admin, f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
    run(admin, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    yield make_conninfo(dsn, user=schema)
    run(admin, f"DROP OWNED BY {schema}")
    run(admin, f"DROP ROLE {schema}")


def end_sessions(admin: psycopg.Connection[Any]) -> None:
    """End all sessions of stores, and wait until they are gone."""
    found = "FROM pg_stat_activity WHERE application_name = 'sealpoint'"
    admin.execute(f"SELECT pg_terminate_backend(pid, 10000) {found}".encode())


# --- creating and opening ----------------------------------------------------------------------


def test_missing_tables_are_not_created(dsn: str, schema: str, admin: psycopg.Connection[Any]) -> None:
    with pytest.raises(ThreadStoreMissingError, match="its tables do not exist") as caught:
        PostgresThreadStore(dsn, schema=schema)
    assert "create=True" in caught.value.hint
    assert admin.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,)).rowcount == 0
    with pytest.raises(ThreadStoreMissingError, match="tables do not exist"):
        open_thread_store(dsn)


def test_many_create_one_store(dsn: str, schema: str) -> None:
    begin = threading.Barrier(4)

    def create(_: int) -> str:
        begin.wait()
        with closing(PostgresThreadStore(dsn, schema=schema, create=True, timeout=30)) as store:
            return store.identity

    with ThreadPoolExecutor(4) as threads:
        assert len({*threads.map(create, range(4))}) == 1


def test_without_a_server_or_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ThreadStoreDownError, match="no connection") as caught:
        open_thread_store("service=missing")
    assert type(caught.value) is ThreadStoreDownError
    with pytest.raises(ThreadStoreDownError, match="host=localhost port=1 dbname=x"):
        open_thread_store("postgresql://user@localhost:1/x")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match="psycopg"):
        open_thread_store("postgresql://localhost/x")


@pytest.mark.parametrize("name", ["", "A", "a b", 'a"b', "a.b", "1", "ä", "a" * 64])
def test_schema_with_another_name(dsn: str, name: str) -> None:
    with pytest.raises(ThreadStoreError, match="the schema name of the thread store"):
        PostgresThreadStore(dsn, schema=name)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {}.heads RENAME TO others",
        "ALTER TABLE {}.heads ADD COLUMN more text",
        "ALTER TABLE {0}.heads RENAME TO others; CREATE VIEW {0}.heads AS SELECT * FROM {0}.others",
        "CREATE RULE more AS ON INSERT TO {}.heads DO NOTHING",
        "CREATE FUNCTION {0}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER x BEFORE INSERT ON {0}.heads FOR EACH ROW EXECUTE FUNCTION {0}.f()",
        "ALTER TABLE {}.heads ENABLE ROW LEVEL SECURITY",
        "UPDATE {}.store SET version = 3",
        "DROP TABLE {}.specials",
        "DELETE FROM {}.store",
    ],
)
def test_altered_tables_are_refused(
    admin: psycopg.Connection[Any], store: PostgresThreadStore, dsn: str, schema: str, statement: str
) -> None:
    run(admin, statement.format(schema))
    with pytest.raises(ThreadStoreDownError, match=r"tables are not those|no version|lost its only row"):
        PostgresThreadStore(dsn, schema=schema)


def test_rows_that_no_store_writes(
    admin: psycopg.Connection[Any], store: PostgresThreadStore, schema: str
) -> None:
    for change in ("kind = 7", "kind = 0, checkpoint_id = '\\xff'"):
        store.append([put("1")])
        run(admin, f"UPDATE {schema}.heads SET {change}")
        with pytest.raises(ThreadStoreDownError, match=r"has an unknown kind|is not UTF-8"):
            [*store.heads()]
    run(admin, f"DELETE FROM {schema}.store")
    calls: list[Callable[[], object]] = [
        lambda: store.newest("t", ""),
        lambda: store.find([]),
        lambda: store.append([put("2")]),
        lambda: store.append([put("2"), put("3")]),
    ]
    for call in calls:
        with pytest.raises(ThreadStoreDownError, match="lost its only row"):
            call()


# --- what messages name ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{PASSWORD}@localhost:1/x",
        f"host=localhost port=1 user=user password={PASSWORD}",
        f"postgresql://user:{PASSWORD}@host@localhost/x",
        f"postgresql://user:a@{PASSWORD}@localhost/x",
        f"postgresql://user:a/{PASSWORD}@localhost/x",
        f"postgresql://localhost/x?pasword={PASSWORD}",
        f"postgresql://localhost:{PASSWORD}/x",
        f"{PASSWORD} = ",
    ],
)
def test_message_has_no_password(url: str) -> None:
    with pytest.raises(ThreadStoreDownError) as caught:
        PostgresThreadStore(url)
    assert PASSWORD not in "".join([str(caught.value), caught.value.hint, repr(caught.value)])
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# --- roles -------------------------------------------------------------------------------------


def test_role_of_agents(
    role: str, schema: str, store: PostgresThreadStore, admin: psycopg.Connection[Any]
) -> None:
    """SELECT, INSERT and UPDATE of one column are enough for all that a saver calls."""
    run(admin, f"GRANT INSERT, UPDATE (gone) ON {schema}.heads TO {schema}")
    with closing(PostgresThreadStore(role, schema=schema)) as agent:
        agent.require_writable()
        agent.append([put("1")])
        assert agent.replaced(put("1").spot) == []
        agent.delete_thread("t")
        assert [*agent.between("t", None, None, None).heads] == []
        with pytest.raises(ThreadStoreError, match="lacks a permission"):
            agent.trim(FAR)
    for part in ("kind = 0", "mac = ''", "seq = DEFAULT"):
        with psycopg.connect(role) as agent, pytest.raises(psycopg.errors.InsufficientPrivilege):
            agent.execute(f"UPDATE {schema}.heads SET {part}")
    assert store.end() == 2


def test_role_without_any_right(role: str, schema: str, admin: psycopg.Connection[Any]) -> None:
    run(admin, f"REVOKE SELECT ON ALL TABLES IN SCHEMA {schema} FROM {schema}")
    with pytest.raises(ThreadStoreDownError, match="the role may not read it"):
        PostgresThreadStore(role, schema=schema)


# --- locks and time limits ---------------------------------------------------------------------


def test_end_waits_for_events_that_have_a_number(dsn: str, schema: str, store: PostgresThreadStore) -> None:
    store.append([put("1")])
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads, psycopg.connect(dsn) as look:
        columns = "(thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)"
        other.execute(f"INSERT INTO {schema}.heads {columns} VALUES ('t', '', '2', 0, '', 0)".encode())
        pid = other.info.backend_pid
        ending = threads.submit(store.end)
        waits = b"SELECT FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
        while not look.execute(waits, (pid,)).fetchall():
            pass
        other.commit()
        assert ending.result() == 2


@pytest.mark.costly
def test_server_that_stops_answering(dsn: str) -> None:
    """It accepts the connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x?sslmode=disable&gssencmode=disable"
        with pytest.raises(ThreadStoreTimeoutError, match="the server does not answer"):
            PostgresThreadStore(url, timeout=0.1)


@pytest.mark.costly
def test_server_that_stops_answering_in_a_session(dsn: str, schema: str, store: PostgresThreadStore) -> None:
    """The time limit of a session is the server's; this process has one of its own."""
    with (
        stalling(dsn) as way,
        closing(PostgresThreadStore(way.dsn, schema=schema, timeout=0.3)) as far,
    ):
        far.append([put("1")])
        way.is_stalled.set()
        for call in (lambda: far.newest("t", ""), lambda: far.append([put("2")])):
            with pytest.raises(ThreadStoreTimeoutError, match="does not answer"):
                call()
        way.is_stalled.clear()
        assert [*far.newest("t", "").heads] == [put("1")]
    assert [*store.heads()] == [put("1")]


# --- connections -------------------------------------------------------------------------------


def test_lost_connections_are_replaced(store: PostgresThreadStore, admin: psycopg.Connection[Any]) -> None:
    """The server ended them between two calls; an append notices it before it is sent."""
    store.append([put("1")])
    end_sessions(admin)
    assert [*store.newest("t", "").heads] == [put("1")]
    end_sessions(admin)
    store.append([put("2")])
    assert [*store.heads()] == [put("1"), put("2")]


def test_connection_that_is_lost_in_a_call(
    store: PostgresThreadStore, dsn: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    """What only reads is sent again; an append is not, which might be there twice."""
    for call, is_read in ((store.end, False), (lambda: store.newest("t", ""), True)):
        with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as threads:
            other.execute(f"LOCK TABLE {schema}.heads IN ACCESS EXCLUSIVE MODE".encode())
            calling = threads.submit(call)
            waits = f"FROM pg_stat_activity WHERE {other.info.backend_pid} = ANY(pg_blocking_pids(pid))"
            while not admin.execute(f"SELECT pg_terminate_backend(pid) {waits}".encode()).rowcount:
                pass
            other.rollback()
            error = calling.exception()
        assert (error is None) if is_read else isinstance(error, ThreadStoreDownError)


def test_calls_of_savers_are_one_round_trip(
    store: PostgresThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.newest("t", ""),
        lambda: store.newest("x", ""),
        lambda: store.find([put("1").spot, put("2").spot]),
        lambda: store.between("t", "", "1", "3"),
        lambda: store.append([put("1")]),
        lambda: store.append([put("1"), put("2")]),
        store.require_writable,
    ]
    for _ in range(10):  # psycopg prepares a statement that is repeated, which is a round trip once
        for call in calls:
            call()
    waits, kind = list[object](), _connection_class()
    wait = kind.wait

    def counted(*arguments: Any, **options: Any) -> Any:
        waits.append(arguments)
        return wait(*arguments, **options)

    monkeypatch.setattr(kind, "wait", counted)
    for place, call in enumerate(calls, 1):
        call()
        assert len(waits) == place


def test_child_of_a_fork(store: PostgresThreadStore) -> None:
    store.append([put("1")])
    parent = [*store._pool._idle]
    with store._pool._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.append([put("2")])
                code = 0 if [*store.heads()] == [put("1"), put("2")] and parent != store._pool._idle else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.append([put("3")])
    assert store._pool._idle == parent
    assert [*store.heads()] == [put("1"), put("2"), put("3")]


def test_other_store_in_its_place(
    store: PostgresThreadStore, dsn: str, schema: str, admin: psycopg.Connection[Any]
) -> None:
    run(admin, f"UPDATE {schema}.store SET identity = 'other'")
    end_sessions(admin)
    with pytest.raises(ThreadStoreDownError, match="another thread store has taken its place"):
        store.newest("t", "")


def test_claim_is_what_was_flushed(dsn: str, schema: str, store: PostgresThreadStore) -> None:
    """Heads are not more durable than checkpoints: they wait for the disk now and then, deletions always."""
    store.require_writable()
    assert store.claim == 0
    store.append([put("1")])
    with closing(PostgresThreadStore(dsn, schema=schema)) as again:
        assert again.claim == 0
        again.require_writable()
        assert again.claim == 1
        again.append([put("2")])
        assert again.claim == 1
        again.append([put("2")._replace(kind=Kind.LEAVING)])
        assert again.claim == 3
        for number in range(FLUSHED_EVENTS):
            again.append([put(str(number))])
        assert again.claim > 3
