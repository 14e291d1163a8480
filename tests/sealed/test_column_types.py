"""What stands in a column has a type: any other is refused, and what a caller names is text of characters."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from sealpoint.errors import ConfigError, SealpointError
from sealpoint.langgraph import SealedSaver, SealedStore
from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SAVERS, SEALED
from tests.sealed.scene import ALICE, C2, C9, DELTA, PLACES, ROOT, at, put_one

VALUES: Final = {
    "NULL": "NULL",
    "zero": "0",
    "an integer": "9223372036854775807",
    "a real": "1.5",
    "an infinity": "9e999",
    "text": "'x'",
    "empty text": "''",
    "JSON": "'{}'",
    "a BLOB": "x'00ff'",
    "a BLOB of a name": "CAST('alice' AS BLOB)",
    "a BLOB of a megabyte": "zeroblob(1000000)",
    "text with a NUL": "CAST(x'6100' AS TEXT)",
    "text that is no UTF-8": "CAST(x'ff41' AS TEXT)",
}
KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")
COLUMNS: Final = {
    "checkpoints": (*KEY, "parent_checkpoint_id", "type", "checkpoint", "metadata"),
    "writes": (*KEY, "task_id", "task_path", "idx", "channel", "type", "value"),
    "store": ("prefix", "key", "value", "created_at", "updated_at", "expires_at", "ttl_minutes"),
}
OF_SQLITE: Final = ("Could not decode to UTF-8", "malformed JSON")
"""What SQLite itself refuses in a statement of LangGraph's; Python's sqlite3 raises OperationalError."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("types") / "x.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SealedSaver(Theirs(connection), serde=SEALED)
        for place in PLACES:
            put_one(saver, place, int(place.id[-4:]))
        connection.isolation_level = None
        store = SealedStore(SqliteStore(connection), serde=SEALED)
        store.setup()
        store.put(("a", "b"), "k", {"x": 1})
        store.put(("a",), "l", {"x": 2})
    return path.read_bytes()


async def attempt(read: Callable[[], Any]) -> None:
    """Read something: it is right, or refused by us or by SQLite."""
    with suppress(SealpointError):
        try:
            found = read()
            if hasattr(found, "__aiter__"):
                _ = [each async for each in found]
            elif hasattr(found, "__await__"):
                await found
            elif hasattr(found, "__next__"):
                _ = [*found]
        except sqlite3.OperationalError as error:
            if not str(error).startswith(OF_SQLITE):
                raise


async def read_threads(path: str, name: str) -> None:
    entry, listed = SAVERS[name], at(ALICE, None)
    for serde in (None, SEALED):
        async with entry.opener(path, serde) as inner:
            if serde is not None and type(inner).__module__.startswith("langgraph.checkpoint"):
                continue  # bare: what it raises is LangGraph's
            saver = inner if serde else SealedSaver(inner, serde=SEALED)
            of = {each: getattr(saver, f"{'a' * entry.awaited}{each}") for each in ("get_tuple", "list")}
            history = getattr(saver, f"{'a' * entry.awaited}get_delta_channel_history")
            for config in (at(ALICE, ROOT, C2), at(ALICE, ROOT)):
                await attempt(lambda: of["get_tuple"](config))  # noqa: B023
                await attempt(lambda: history(config=config, channels=DELTA))  # noqa: B023
            await attempt(lambda: of["list"](None))  # noqa: B023
            await attempt(lambda: of["list"](listed, filter={"step": 1}, before=at(ALICE, ROOT, C9)))  # noqa: B023


async def read_items(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        store = SealedStore(SqliteStore(connection), serde=SEALED, plain_fields=["x"])
        await attempt(lambda: store.get(("a", "b"), "k"))
        await attempt(lambda: store.search(()))
        await attempt(lambda: store.search((), filter={"x": 1}))
        await attempt(store.list_namespaces)
        await attempt(lambda: store.list_namespaces(max_depth=1))
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        other = SealedStore(AsyncSqliteStore(connection), serde=SEALED)
        await attempt(lambda: other.aget(("a", "b"), "k"))
        await attempt(lambda: other.asearch(()))
        await attempt(other.alist_namespaces)


@pytest.mark.broad(every=3)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("table", "column"), [(table, each) for table in COLUMNS for each in COLUMNS[table]])
def test_no_type_in_a_column_ends_in_a_foreign_error(
    filled: bytes, tmp_path: Path, table: str, column: str, value: str
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(filled)
    named = "key = 'k'" if table == "store" else f"thread_id = 'alice' AND checkpoint_id = '{C2}'"
    if table == "writes":
        named += " AND task_id = 'task-2'"
    statement = f"UPDATE OR REPLACE {table} SET {column} = {VALUES[value]} WHERE {named}"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.execute(statement)
        except sqlite3.IntegrityError:
            pytest.skip("the table has no such value")

    async def read() -> None:
        if table == "store":
            await read_items(str(path))
            return
        for name, entry in SAVERS.items():
            if entry.kind == "file":
                await read_threads(str(path), name)

    asyncio.run(read())


@pytest.mark.parametrize("name", ["LangGraph SqliteSaver", "SqliteSaver", "LangGraph PostgresSaver"])
@pytest.mark.parametrize(
    ("channel", "task_id", "task_path"),
    [
        ("\ud800", "t", ""),
        ("a", "t\ud800", ""),
        ("a", "t", "\ud800"),
        (7, "t", ""),
        ("a", b"t", ""),
        ("a", "t", 7),
    ],
)
def test_a_name_is_text_of_characters(
    open_: Any, name: str, channel: Any, task_id: Any, task_path: Any
) -> None:
    for form in ("sealed", "bare") if name == "SqliteSaver" else ("sealed",):
        saver = open_(name, form)
        put_one(saver, PLACES[0], 1)
        with pytest.raises(ConfigError):
            saver.put_writes(PLACES[0].config, [("fine", 1), (channel, 2)], task_id, task_path)
        document = saver.get(PLACES[0].config)
        for id_ in (f"{C9}\ud800", 7):
            with pytest.raises(ConfigError):
                saver.put(PLACES[0].config, {**document, "id": id_}, {}, {})
        assert len(list(saver.list(at(ALICE)))) == 1


HOSTILE: Final = {
    "a number of over 4,300 digits": f'{{"step": {"1" * 100_001}}}',
    "a deep array": f'{{"step": {"[" * 3000}{"]" * 3000}}}',
    "an array of 65 levels": f'{{"step": {"[" * 65}{"]" * 65}}}',
    "a number that reads as zero": '{"step": 1e-400}',
    "a number beyond the doubles": '{"step": 1e400}',
    "a list": "[]",
    "a number": "7",
}


@pytest.mark.parametrize("column", ["metadata", "checkpoint"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_json_on_postgres_is_refused(place: Any, column: str, text: str) -> None:
    url = place("postgres")
    with psycopg.connect(url, **CONNECTION) as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        saver.setup()
        put_one(saver, PLACES[0], 1)
        merged = f"{column} || %s::jsonb" if HOSTILE[text].startswith("{") else "%s::jsonb"
        connection.execute(f"UPDATE checkpoints SET {column} = {merged}", [HOSTILE[text]])
        if column == "checkpoint" and text in ("an array of 65 levels", "a number beyond the doubles"):
            assert saver.get_tuple(PLACES[0].config)  # what is readable there and not sealed is ignored
            return
        with pytest.raises(SealpointError):
            saver.get_tuple(PLACES[0].config)
        with pytest.raises(SealpointError):
            [*saver.list(None)]

    async def read() -> None:
        async with await psycopg.AsyncConnection.connect(url, **CONNECTION) as connection:
            with pytest.raises(SealpointError):
                await SealedSaver(AsyncPostgresSaver(connection), serde=SEALED).aget_tuple(PLACES[0].config)

    asyncio.run(read())


TIMES: Final = ["'infinity'", "'-infinity'", "'0044-03-15 BC'", "'12000-01-01'"]


@pytest.mark.parametrize(
    "edit",
    [
        *(f"{column} = {time}" for column in ("created_at", "updated_at") for time in TIMES),
        *(
            f"""value = value || '{text.replace("step", "n")}'"""
            for text in HOSTILE.values()
            if text[0] == "{"
        ),
        "value = '[]'",
    ],
    ids=lambda edit: edit[:40],
)
def test_hostile_items_on_postgres_are_refused(place: Any, edit: str) -> None:
    url = place("postgres")
    with psycopg.connect(url, **CONNECTION) as connection:
        store = SealedStore(PostgresStore(connection), serde=SEALED, plain_fields=["n"])
        store.setup()
        store.put(("a",), "k", {"n": 0.0})
        connection.execute(f"UPDATE store SET {edit}".encode())
        for read in (lambda: store.get(("a",), "k"), lambda: store.search(())):
            with pytest.raises(SealpointError):
                read()

    async def read_() -> None:
        async with await psycopg.AsyncConnection.connect(url, **CONNECTION) as connection:
            other = SealedStore(AsyncPostgresStore(connection), serde=SEALED)
            with pytest.raises(SealpointError):
                await other.aget(("a",), "k")

    asyncio.run(read_())
