"""A saver's session that could write its thread store on the same server is refused."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sealpoint.errors import SharedRoleError, ThreadStoreDownError
from sealpoint.langgraph import SealedSaver
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore
from tests.graphs.openers import CONNECTION, Opener, on_async_pipeline, on_async_pool, on_pipeline, on_pool
from tests.graphs.savers import SEALED
from tests.postgres.test_schema import alter, schema_of
from tests.sealed.scene import ALICE, C1, C2, C3, PLACES, at, put_one
from tests.support.servers.postgres import schema, server

DOCS: Final = Path(__file__).parents[2] / "docs"


@dataclass
class Roles:
    """A database with two roles: `agent` has the saver's tables, `keeper` the thread store.

    Attributes:
        root: URL of a superuser.
        agent: URL of the saver's role.
        keeper: URL of the store's role.
        store: Schema of the store.
        names: What stands for the names in a statement.
    """

    root: str
    agent: str
    keeper: str
    store: str
    names: dict[str, str]

    def run(self, statements: str) -> None:
        """Run statements as a superuser, with ``{agent}``, ``{keeper}``, ``{other}`` and ``{store}``."""
        alter(self.root, statements.format(**self.names))

    def connect(self, url: str | None = None) -> psycopg.Connection[Any]:
        return psycopg.connect(url or self.agent, **CONNECTION)

    def open_store(self, **options: Any) -> PostgresThreadStore:
        return PostgresThreadStore(
            make_conninfo(self.keeper, options=""), schema=self.store, timeout=30, **options
        )


@pytest.fixture
def roles(pytestconfig: pytest.Config) -> Iterator[Roles]:
    with schema(server(pytestconfig)) as root:
        own = schema_of(root)
        names = {name: f"{own}_{name}" for name in ("agent", "keeper", "other")}
        names |= {"own": own, "store": f"{own}_threads"}
        agent, keeper = (make_conninfo(root, user=names[name]) for name in ("agent", "keeper"))
        made = Roles(root, agent, keeper, names["store"], names)
        made.run(
            "CREATE ROLE {agent} LOGIN; CREATE ROLE {keeper} LOGIN; CREATE ROLE {other};"
            " GRANT USAGE, CREATE ON SCHEMA {own} TO {agent}; CREATE SCHEMA {store} AUTHORIZATION {keeper}"
        )
        with made.connect() as connection:
            PostgresSaver(connection).setup()
        made.open_store(create=True).close()
        try:
            yield made
        finally:
            made.run("RESET ROLE; DROP OWNED BY {agent}, {keeper}, {other} CASCADE")
            made.run("DROP ROLE {agent}, {keeper}, {other}")


def blocks(page: str, names: dict[str, str]) -> list[str]:
    """The SQL of a page, with other names."""
    found = re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    meant = {r"\bagents\b": "agent", r"\bthreads\b": "keeper", "sealpoint_threads": "store", "public": "own"}
    for pattern, name in meant.items():
        found = [re.sub(pattern, names[name], block) for block in found]
    return found


@pytest.fixture
def threads(roles: Roles) -> Iterator[PostgresThreadStore]:
    with closing(roles.open_store()) as store:
        yield store


def fill(saver: Any) -> None:
    for step in (1, 2, 3):
        put_one(saver, PLACES[step - 1], step)


@pytest.mark.parametrize(("page", "number"), [("threads.md", 1), ("deploy.md", 2)])
def test_the_roles_of_the_pages_are_enough(roles: Roles, page: str, number: int) -> None:
    roles.run("DROP OWNED BY {agent}, {keeper} CASCADE; DROP ROLE {agent}, {keeper}")
    before, _, after = "".join(blocks(page, roles.names)[:number]).partition("-- python tables.py")
    alter(roles.root, before)
    with roles.connect() as connection:
        PostgresSaver(connection).setup()
    alter(roles.root, after)
    with closing(roles.open_store(create=True)) as store, roles.connect() as connection:
        inner: Any = PostgresSaver(connection)
        saver = SealedSaver(inner, serde=SEALED, threads=store)
        fill(saver)
        saver.delete_thread(ALICE)
        assert store.trim(2**40) >= 0


def test_a_store_of_the_savers_role_is_moved(roles: Roles) -> None:
    """By the statements of the page, each of which is needed, and keeps what it has recorded."""
    alter(
        roles.root,
        "DROP SCHEMA {store} CASCADE; GRANT CREATE ON DATABASE {db} TO {agent}".format(
            db=conninfo_to_dict(roles.root)["dbname"], **roles.names
        ),
    )
    url = make_conninfo(roles.agent, options="")
    opened = closing(PostgresThreadStore(url, schema=roles.store, create=True))
    with opened as old, roles.connect() as connection:
        inner: Any = PostgresSaver(connection)
        with pytest.raises(SharedRoleError, match="owns its schema"):
            fill(SealedSaver(inner, serde=SEALED, threads=old))
        fill(SealedSaver(inner, serde=SEALED, threads=old, allow_shared_role=True))
        before = list(old.heads())
        alter(roles.root, blocks("threads.md", roles.names)[1])
        with closing(roles.open_store()) as store:
            saver = SealedSaver(inner, serde=SEALED, threads=store)
            fill(saver)
            assert [head.spot for head in store.heads()] == [head.spot for head in before]


def test_the_hint_cures_a_store_that_the_savers_role_created(roles: Roles) -> None:
    """As it is pasted, before anything was stored; only the name of the new role is another one here."""
    database = conninfo_to_dict(roles.root)["dbname"]
    roles.run(f"DROP SCHEMA {{store}} CASCADE; GRANT CREATE ON DATABASE {database} TO {{agent}}")
    url = make_conninfo(roles.agent, options="")
    opened = closing(PostgresThreadStore(url, schema=roles.store, create=True))
    with opened as old, roles.connect() as connection, pytest.raises(SharedRoleError) as caught:
        fill(SealedSaver(PostgresSaver(connection), serde=SEALED, threads=old))
    made, *statements = re.findall(r"(?:CREATE|ALTER) [^;]*;", caught.value.hint)
    assert made == "CREATE ROLE threads LOGIN;"
    alter(roles.root, re.sub(r"\bthreads;", f"{roles.names['keeper']};", " ".join(statements)))
    with closing(roles.open_store(create=True)) as store, roles.connect() as connection:
        fill(SealedSaver(PostgresSaver(connection), serde=SEALED, threads=store))
        assert len(list(store.heads())) == 3


def test_two_roles_pass(roles: Roles, threads: PostgresThreadStore) -> None:
    with roles.connect() as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads)
        fill(saver)
        assert saver.get_tuple(at(ALICE)) is not None


SHARED: Final = {
    "a right on the table": ("GRANT INSERT ON {store}.heads TO {agent}", "may write heads"),
    "a right on a column": ("GRANT UPDATE (mac) ON {store}.heads TO {agent}", "may write heads"),
    "another table": ("GRANT DELETE ON {store}.store TO {agent}", "may write store"),
    "triggers": ("GRANT TRIGGER ON {store}.heads TO {agent}", "may write heads"),
    "the sequence": ("GRANT UPDATE ON SEQUENCE {store}.heads_seq_seq TO {agent}", "may write heads_seq_seq"),
    "everyone": ("GRANT INSERT ON {store}.heads TO PUBLIC", "may write heads"),
    "the owner of a table": ("ALTER TABLE {store}.identities OWNER TO {agent}", "owns identities"),
    "an owner without rights": (
        "ALTER TABLE {store}.heads OWNER TO {agent}; REVOKE ALL ON {store}.heads FROM {agent};"
        " GRANT ALL ON {store}.heads TO {keeper}",
        "owns heads",
    ),
    "the owner of the schema": (
        "ALTER SCHEMA {store} OWNER TO {agent}; GRANT USAGE ON SCHEMA {store} TO {keeper}",
        "owns its schema",
    ),
    "a member": ("GRANT {keeper} TO {agent}", "may write"),
    "a member by two steps": ("GRANT {keeper} TO {other}; GRANT {other} TO {agent}", "may write"),
    "a member that must change its role": (
        "ALTER ROLE {agent} NOINHERIT; GRANT INSERT ON {store}.heads TO {other}; GRANT {other} TO {agent}",
        "may write heads",
    ),
    "all data": ("GRANT pg_write_all_data TO {agent}", "may write"),
    "the files of the server": ("GRANT pg_write_server_files TO {agent}", "may write the files"),
    "programs on the server": ("GRANT pg_execute_server_program TO {agent}", "may write the files"),
    "a superuser": ("ALTER ROLE {agent} SUPERUSER", "is a superuser"),
    "a member of a superuser": ("ALTER ROLE {other} SUPERUSER; GRANT {other} TO {agent}", "is a superuser"),
}
SINCE_16: Final = {
    "a member that must change its role, by the grant": (
        "GRANT {keeper} TO {agent} WITH INHERIT FALSE, SET TRUE",
        "owns its schema",
    ),
    "a member that may only let others in": (
        "GRANT {keeper} TO {agent} WITH ADMIN TRUE, INHERIT FALSE, SET FALSE",
        "owns its schema",
    ),
}
BEFORE_16: Final = {"a role that makes others": ("ALTER ROLE {agent} CREATEROLE", "CREATEROLE")}


@pytest.mark.claim("h14")
@pytest.mark.parametrize("right", SHARED | SINCE_16 | BEFORE_16)
def test_a_right_to_write_the_store_is_refused(
    roles: Roles, threads: PostgresThreadStore, right: str
) -> None:
    statement, words = (SHARED | SINCE_16 | BEFORE_16)[right]
    with roles.connect(roles.root) as root:
        is_16 = root.info.server_version >= 160000
    if right in (BEFORE_16 if is_16 else SINCE_16):
        pytest.skip("another version of Postgres")
    roles.run(statement)
    with roles.connect() as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads)
        for call in (
            fill,
            lambda saver: saver.get_tuple(at(ALICE)),
            lambda saver: saver.delete_thread(ALICE),
        ):
            with pytest.raises(SharedRoleError) as caught:
                call(saver)
            assert words in caught.value.right
            assert f"ALTER SCHEMA {roles.store} OWNER TO threads" in caught.value.hint
            assert "allow_shared_role=True" in caught.value.hint
        assert not list(threads.heads())
        warned = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads, heads="warn")
        fill(warned)
        assert warned.warnings == {"SharedRoleError": 1}
        allowed = SealedSaver(
            PostgresSaver(connection), serde=SEALED, threads=threads, allow_shared_role=True
        )
        assert allowed.get_tuple(at(ALICE)) is not None


OPENERS: Final[dict[str, Opener]] = {
    "pool": on_pool(PostgresSaver),
    "pipeline": on_pipeline(PostgresSaver),
    "async pool": on_async_pool(AsyncPostgresSaver),
    "async pipeline": on_async_pipeline(AsyncPostgresSaver),
}


@pytest.mark.parametrize("kind", OPENERS)
def test_every_way_to_connect_is_asked(roles: Roles, threads: PostgresThreadStore, kind: str) -> None:
    roles.run("GRANT INSERT ON {store}.heads TO {agent}")

    async def read(**options: Any) -> object:
        async with OPENERS[kind](roles.agent, None) as inner:
            saver = SealedSaver(inner, serde=SEALED, threads=threads, **options)
            return await saver.aget_tuple(at(ALICE)) if "async" in kind else saver.get_tuple(at(ALICE))

    with pytest.raises(SharedRoleError):
        asyncio.run(read())
    assert asyncio.run(read(allow_shared_role=True)) is None
    roles.run("REVOKE INSERT ON {store}.heads FROM {agent}")
    assert asyncio.run(read()) is None


@pytest.mark.claim("h14")
@pytest.mark.parametrize(
    "statement",
    ["SET ROLE {agent}", "SET SESSION AUTHORIZATION {agent}", "SET ROLE {agent}; SET ROLE {other}"],
)
def test_a_session_that_can_return_to_a_role_that_may(
    roles: Roles, threads: PostgresThreadStore, statement: str
) -> None:
    roles.run("GRANT USAGE ON SCHEMA {own} TO {other}")
    with roles.connect(roles.root) as connection:
        for each in statement.format(**roles.names).split(";"):
            connection.execute(each.encode())
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads, allow_schema=True)
        with pytest.raises(SharedRoleError, match="is a superuser"):
            saver.get_tuple(at(ALICE))


def test_a_store_in_another_database_of_the_server(roles: Roles) -> None:
    """Roles are those of the whole server."""
    name = f"{roles.store}_db"
    roles.run(f"CREATE DATABASE {name} OWNER {{keeper}}")
    try:
        url = make_conninfo(roles.keeper, dbname=name, options="")
        with closing(PostgresThreadStore(url, create=True)) as store, roles.connect() as connection:
            inner: Any = PostgresSaver(connection)
            fill(SealedSaver(inner, serde=SEALED, threads=store))
            alter(
                make_conninfo(roles.root, dbname=name, options=""),
                f"GRANT INSERT ON sealpoint_threads.heads TO {roles.names['agent']}",
            )
            with pytest.raises(SharedRoleError, match="may write heads"):
                SealedSaver(inner, serde=SEALED, threads=store).get_tuple(at(ALICE))
    finally:
        roles.run(f"DROP DATABASE {name} WITH (FORCE)")


def test_roles_of_another_server_do_not_matter(roles: Roles, threads: PostgresThreadStore) -> None:
    """Only a session of the same server can hold a lock that the store sees."""
    agent = roles.names["keeper"]
    threads.require_apart(1 << 40 | 7, [agent])
    with roles.connect(roles.root) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (1 << 40 | 7,))
        with pytest.raises(SharedRoleError):
            threads.require_apart(1 << 40 | 7, [agent])


def test_other_pairs_of_databases_have_nothing_to_ask(
    roles: Roles, threads: PostgresThreadStore, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as connection:
        fill(SealedSaver(SqliteSaver(connection), serde=SEALED, threads=threads))
    store = SqliteThreadStore(tmp_path / "threads.db", create=True, timeout=30)
    with closing(store), roles.connect(roles.root) as root:
        root.execute(f"SET search_path = {roles.names['own']}".encode())
        fill(SealedSaver(PostgresSaver(root), serde=SEALED, threads=store))


def test_a_store_that_cannot_be_asked(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again by the next call."""
    with closing(roles.open_store()) as store, roles.connect() as connection:
        is_down = True
        ask = store.require_apart

        def require_apart(*arguments: Any) -> None:
            if is_down:
                raise ThreadStoreDownError("down")
            ask(*arguments)

        monkeypatch.setattr(store, "require_apart", require_apart)
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=store)
        with pytest.raises(ThreadStoreDownError):
            saver.get_tuple(at(ALICE))
        warned = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=store, heads="warn")
        fill(warned)
        assert warned.warnings["ThreadStoreDownError"]
        is_down = False
        roles.run("GRANT INSERT ON {store}.heads TO {agent}")
        with pytest.raises(SharedRoleError):
            saver.get_tuple(at(ALICE))


@pytest.mark.claim("h10")
def test_the_owner_of_the_tables_cannot_record_a_deletion(roles: Roles, threads: PostgresThreadStore) -> None:
    """A trigger of another role, which has no right to the store, ran in the agent's session, which had.

    The trigger would be refused by itself: here it is about the rights.
    """
    roles.run("GRANT USAGE ON SCHEMA {own} TO {other}; GRANT USAGE ON SCHEMA {store} TO {agent};")
    with roles.connect() as connection:
        fill(SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads))
    roles.run("GRANT SELECT, INSERT ON {store}.heads TO {agent}")  # the set-up with one role
    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    for table in tables:
        roles.run(f"ALTER TABLE {table} OWNER TO {{other}}; GRANT ALL ON {table} TO {{agent}}")
    roles.run("GRANT CREATE ON SCHEMA {own} TO {other}; SET ROLE {other};" + DELETING)
    with roles.connect() as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, threads=threads, allow_schema=True)
        with pytest.raises(SharedRoleError):
            saver.put_writes(at(ALICE, "", C1), [("note", "any")], "task-9")
    assert {head.spot.checkpoint_id for head in threads.heads() if head.kind == 0} == {C1, C2, C3}


DELETING: Final = """
    CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {store}.heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)
        SELECT DISTINCT thread_id, checkpoint_ns, checkpoint_id, 2, ''::bytea, 0 FROM {store}.heads
        WHERE checkpoint_id > (SELECT min(checkpoint_id) FROM {store}.heads);
        RETURN new; END $$;
    CREATE TRIGGER record AFTER INSERT ON checkpoint_writes FOR EACH ROW EXECUTE FUNCTION record()"""
