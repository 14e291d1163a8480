"""Every saver that SealedSaver wraps, and the forms in which each is tested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync

from sealpoint.langgraph import AsyncSqliteSaver, SqliteSaver
from tests.graphs.openers import (
    Entry,
    Opener,
    on_aiosqlite,
    on_async_pipeline,
    on_async_pool,
    on_async_psycopg,
    on_pipeline,
    on_pool,
    on_psycopg,
    on_sqlite3,
    our_memory,
    ours_by_path,
    their_memory,
)
from tests.graphs.savers import SEALED
from tests.support.databases.threads import thread_store

SAVERS: Final = {
    "LangGraph SqliteSaver": Entry("file", on_sqlite3(Theirs)),
    "LangGraph AsyncSqliteSaver": Entry("file", on_aiosqlite(TheirAsync), awaited=True),
    "LangGraph PostgresSaver": Entry("postgres", on_psycopg(PostgresSaver)),
    "LangGraph PostgresSaver, pool": Entry("postgres", on_pool(PostgresSaver)),
    "LangGraph PostgresSaver, pipeline": Entry("postgres", on_pipeline(PostgresSaver)),
    "LangGraph AsyncPostgresSaver": Entry("postgres", on_async_psycopg(AsyncPostgresSaver), awaited=True),
    "LangGraph AsyncPostgresSaver, pool": Entry("postgres", on_async_pool(AsyncPostgresSaver), awaited=True),
    "LangGraph AsyncPostgresSaver, pipeline": Entry(
        "postgres", on_async_pipeline(AsyncPostgresSaver), awaited=True
    ),
    "LangGraph InMemorySaver": Entry("memory", their_memory),
    "SqliteSaver": Entry("file", on_sqlite3(SqliteSaver)),
    "AsyncSqliteSaver": Entry("file", ours_by_path, awaited=True),
    "AsyncSqliteSaver, on aiosqlite": Entry("file", on_aiosqlite(AsyncSqliteSaver), awaited=True),
    "InMemorySaver": Entry("memory", our_memory),
}

BARE: Final = "bare"
HEADS: Final = "heads"
ALONE: Final = "serializer alone"
SEALED_FORMS: Final[dict[str, dict[str, Any]]] = {
    "sealed": {},
    "pseudonyms": {"pseudonyms": True},
    "plain metadata": {"plain_metadata": ("tenant",)},
    "indexed": {"indexed_metadata": ("user_id", "score")},
    "all options": {
        "plain_metadata": ("tenant",),
        "indexed_metadata": ("user_id", "score"),
        "pseudonyms": True,
    },
    HEADS: {},
}


def wrap(saver: Any, form: str, threads: Any = None) -> Any:
    """A saver in one of the forms, for `HEADS` with a thread store; the one that is given is not changed."""
    if form in (BARE, ALONE):
        return saver
    from sealpoint.langgraph import SealedSaver

    return SealedSaver(saver, serde=SEALED, threads=threads, allow_shared_role=True, **SEALED_FORMS[form])


@contextmanager
def opened(name: str, place: str, form: str) -> Iterator[tuple[Any, asyncio.Runner]]:
    """A saver of the table, and the loop that it belongs to, which runs only while something is awaited."""
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        opening = SAVERS[name].opener(place, SEALED if form == ALONE else None)
        saver = runner.run(stack.enter_async_context(opening))
        threads = stack.enter_context(thread_store(place)) if form == HEADS else None
        try:
            yield wrap(saver, form, threads), runner
        finally:
            runner.run(stack.aclose())


class Sync:
    """A saver whose methods are called without ``await``, also if it has only those that are awaited."""

    def __init__(self, saver: Any, runner: asyncio.Runner, *, awaited: bool) -> None:
        self.saver, self.runner, self.awaited = saver, runner, awaited

    def __getattr__(self, name: str) -> Any:
        if not self.awaited:
            return getattr(self.saver, name)
        method = getattr(self.saver, f"a{name}")
        if name == "list":
            return lambda *arguments, **named: self.runner.run(gathered(method(*arguments, **named)))
        return lambda *arguments, **named: self.runner.run(method(*arguments, **named))


async def gathered(found: Any) -> list[Any]:
    return [each async for each in found]


class Loop(Sync):
    """An async saver within SealedSaver, with a loop of its own, and called without ``await``."""

    def __init__(self, opener: Opener, place: str, threads: Any, **options: Any) -> None:
        from sealpoint.langgraph import SealedSaver

        runner, stack = asyncio.Runner(), AsyncExitStack()
        inner = runner.run(stack.enter_async_context(opener(place, None)))
        saver = SealedSaver(inner, serde=SEALED, threads=threads, allow_shared_role=True, **options)
        super().__init__(saver, runner, awaited=True)
        self.conn, self._stack = self, stack
        self._is_open = True

    @property
    def warnings(self) -> Any:
        """Those of the saver."""
        return self.saver.warnings

    def setup(self) -> None:
        """Do nothing: the opener has done it."""

    def close(self) -> None:
        """Close the saver's connection and the loop, if they are open."""
        if not self._is_open:
            return
        self._is_open = False
        self.runner.run(self._stack.aclose())
        self.runner.close()


Open = Callable[[str, str], Sync]
"""Opens a saver of the table in a form, on an empty database."""
