"""Texts that a tenant chooses, such as names, stay in no cache if they are long."""

from __future__ import annotations

import gc
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.sqlite import SqliteStore

from sealpoint.langgraph import InMemorySaver, SealedSaver, SealedStore
from sealpoint.seal.tokens import MAX_CACHED_CHARS, Tokens, cached
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.graphs.savers import RING, SEALED

LONG: Final = 100_000
COUNT: Final = 10


def kept(call: Callable[[str], Any]) -> int:
    """How many bytes stay after a call with each of many long names."""
    call("x" * LONG)
    gc.collect()
    tracemalloc.start()
    for n in range(COUNT):
        call(f"{n:04}{'y' * LONG}")
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


@contextmanager
def a_store(**options: Any) -> Iterator[SealedStore]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)) as connection:
        yield SealedStore(SqliteStore(connection), serde=SEALED, **options)


def saver_call(saver: Any) -> Callable[[str], Any]:
    def call(name: str) -> None:
        config = saver.put(
            {"configurable": {"thread_id": name, "checkpoint_ns": ""}},
            empty_checkpoint(),
            {"step": 1, "user": name},
            {},
        )
        saver.get_tuple(config)
        saver.get_tuple({"configurable": {"thread_id": f"none{name}"}})
        saver.delete_thread(name)

    return call


def test_tokens_and_pseudonyms() -> None:
    tokens = Tokens(lambda: RING)
    assert kept(lambda name: tokens.token("key", name)) < LONG
    assert kept(lambda name: tokens.token(name, 1)) < LONG
    assert kept(tokens.pseudonym) < LONG
    assert tokens.pseudonym("a" * LONG) == tokens.pseudonym("a" * LONG) != tokens.pseudonym("b" * LONG)


@pytest.mark.parametrize("options", [{}, {"indexed_metadata": ["user"]}, {"pseudonyms": True}])
@pytest.mark.parametrize("has_threads", [False, True])
def test_a_sealed_saver(options: Any, has_threads: bool, tmp_path: Any) -> None:
    with closing(SqliteThreadStore(str(tmp_path / "threads.db"), create=True)) as threads:
        more: Any = {"threads": threads} if has_threads else {}
        saver = SealedSaver(InMemorySaver(), serde=SEALED, **options, **more)
        assert kept(saver_call(saver)) < 4 * LONG


def test_a_sealed_store() -> None:
    with a_store(indexed_fields=["user"], pseudonyms=True) as store:

        def call(name: str) -> None:
            store.put((name,), name, {"user": name})
            assert store.get((name,), name) is not None
            store.search((name,), filter={"user": name})
            store.delete((name,), name)

        assert kept(call) < 4 * LONG


def test_short_texts_are_remembered() -> None:
    calls = list[tuple[str, ...]]()
    function = cached(2, lambda *texts: calls.append(texts))
    for texts in [("a", "b"), ("a", "b"), ("a" * MAX_CACHED_CHARS,), ("a" * MAX_CACHED_CHARS,)]:
        function(*texts)
    assert len(calls) == 2
    function("a" * MAX_CACHED_CHARS, "b")
    function("a" * MAX_CACHED_CHARS, "b")
    assert len(calls) == 4
