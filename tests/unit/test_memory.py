"""InMemorySaver: a SqliteSaver on a database that nobody else has."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from sealpoint.memory import InMemorySaver
from tests.support.databases.checkpoints import at, ids_in, make, put_chain


def test_it_is_closed_at_the_end_of_its_block_and_knows_no_other() -> None:
    with InMemorySaver() as saver, InMemorySaver() as other:
        put_chain(saver, "1", "2")
        assert (ids_in(saver), ids_in(other)) == (["2", "1"], [])
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        saver.get_tuple(at())


def test_it_is_closed_at_the_end_of_an_asynchronous_block() -> None:
    async def run() -> InMemorySaver:
        async with InMemorySaver() as saver:
            await saver.aput(at(), make("1"), {}, {})
            assert await saver.aget_tuple(at()) == saver.get_tuple(at())
        return saver

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        asyncio.run(run()).get_tuple(at())


def test_it_works_without_a_block_and_from_other_threads() -> None:
    saver = InMemorySaver()
    threads = [threading.Thread(target=put_chain, args=(saver, f"{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids_in(saver)) == [f"{n}" for n in range(8)]
    saver.conn.close()


UNCLOSED = """
import gc, warnings
warnings.simplefilter("error")
from sealpoint.memory import InMemorySaver
saver = InMemorySaver()
saver.setup()  # with an allowlist of its own, a compiled graph uses a copy
clone = saver.with_allowlist([("some", "Type")])
del saver
gc.collect()
assert [*clone.list(None)] == []
del clone
gc.collect()
"""


def test_one_that_nobody_closes_goes_without_a_warning() -> None:
    """LangGraph's has nothing to close, and nobody does; what a copy still uses stays open."""
    strict = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    command = [sys.executable, "-W", "error", "-c", UNCLOSED]
    done = subprocess.run(command, env=strict, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
