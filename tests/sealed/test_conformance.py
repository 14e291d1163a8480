"""LangGraph's conformance suite: a wrapped saver passes what the bare one passes, and copies threads too."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import asdict
from functools import cache, partial
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync
from psycopg.rows import dict_row

from sealpoint.langgraph import AsyncSqliteSaver, SqliteSaver
from sealpoint.threads import MemoryThreadStore
from tests.graphs.openers import (
    Opener,
    on_aiosqlite,
    on_async_pool,
    on_async_psycopg,
    our_memory,
    ours_by_path,
    their_memory,
)
from tests.sealed.savers import BARE, HEADS, wrap
from tests.support.databases.threads import thread_store
from tests.support.servers.postgres import schema, server

Report = dict[str, dict[str, Any]]


class Awaited:
    """Gives LangGraph's sync savers the methods that the suite awaits."""

    async def aget_tuple(self: Any, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self: Any, config: Any, **named: Any) -> AsyncIterator[Any]:
        for found in self.list(config, **named):
            yield found

    async def aput(self: Any, *arguments: Any) -> Any:
        return self.put(*arguments)

    async def aput_writes(self: Any, *arguments: Any, **named: Any) -> None:
        self.put_writes(*arguments, **named)

    async def adelete_thread(self: Any, thread_id: str) -> None:
        self.delete_thread(thread_id)


class AwaitedSqlite(Awaited, Theirs):
    pass


class AwaitedPostgres(Awaited, PostgresSaver):
    async def aprune(self, *arguments: Any, **named: Any) -> None:
        self.prune(*arguments, **named)


@asynccontextmanager
async def in_memory(saver: Any, place: str, serde: Any) -> AsyncIterator[Any]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield saver(connection, serde=serde)


@asynccontextmanager
async def sync_postgres(place: str, serde: Any) -> AsyncIterator[Any]:
    with psycopg.connect(place, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        saver = AwaitedPostgres(connection, serde=serde)
        saver.setup()
        yield saver


ON_POSTGRES: Final[dict[str, Opener]] = {
    "LangGraph PostgresSaver": sync_postgres,
    "LangGraph AsyncPostgresSaver": on_async_psycopg(AsyncPostgresSaver),
    "LangGraph AsyncPostgresSaver, pool": on_async_pool(AsyncPostgresSaver),
}
ELSEWHERE: Final[dict[str, Opener]] = {
    "LangGraph SqliteSaver": partial(in_memory, AwaitedSqlite),
    "LangGraph AsyncSqliteSaver": on_aiosqlite(TheirAsync),
    "LangGraph InMemorySaver": their_memory,
    "SqliteSaver": partial(in_memory, SqliteSaver),
    "AsyncSqliteSaver": ours_by_path,
    "AsyncSqliteSaver, on aiosqlite": on_aiosqlite(AsyncSqliteSaver),
    "InMemorySaver": our_memory,
}
ALL: Final = ELSEWHERE | ON_POSTGRES
SAVERS: Final = [pytest.param(name, marks=[pytest.mark.soak] if "pool" in name else []) for name in ALL]
FORMS: Final = ("sealed", "all options")
BESIDE_A_STORE: Final = [
    pytest.param(name, HEADS, marks=[pytest.mark.soak] if name in ON_POSTGRES else []) for name in ALL
]


@pytest.fixture(scope="module")
def report(pytestconfig: pytest.Config) -> Callable[[str, str], Report]:
    """What the suite finds, by capability; each is tried on a new saver."""

    @cache
    def report(name: str, form: str) -> Report:
        async def savers() -> AsyncIterator[Any]:
            if name in ON_POSTGRES:
                with schema(server(pytestconfig)) as place, thread_store(place) as threads:
                    async with ALL[name](place, None) as saver:
                        yield wrap(saver, form, threads if form == HEADS else None)
            else:
                async with ALL[name](":memory:", None) as saver:
                    yield wrap(saver, form, MemoryThreadStore() if form == HEADS else None)

        found = asyncio.run(validate(checkpointer_test(name="saver")(savers)))
        return {capability: asdict(result) for capability, result in found.results.items()}

    return report


@pytest.mark.parametrize("saver", SAVERS)
def test_a_bare_saver_passes(report: Any, saver: str) -> None:
    """So that the comparison has something to compare with."""
    results = report(saver, BARE)
    assert all(result["tests_passed"] for result in results.values() if result["detected"])
    assert sum(result["tests_passed"] for result in results.values()) >= 50


@pytest.mark.broad
@pytest.mark.parametrize(
    ("saver", "form"),
    [
        *(pytest.param(*each.values, form, marks=each.marks) for each in SAVERS for form in FORMS),
        *BESIDE_A_STORE,
    ],
)
def test_a_wrapped_saver_passes_what_the_bare_one_passes(report: Any, saver: str, form: str) -> None:
    """As many tests of each capability; and threads can be copied, whether the bare saver can or not."""
    bare, wrapped = report(saver, BARE), report(saver, form)
    copying = wrapped.pop("copy_thread")
    assert wrapped == {name: result for name, result in bare.items() if name != "copy_thread"}
    assert copying["detected"]
    assert copying["passed"]
    assert copying["tests_failed"] == copying["tests_skipped"] == 0
    assert copying["tests_passed"] >= 4
