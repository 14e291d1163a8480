"""Searches of SealedStore while others save and delete items between any two of its requests: laws."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.store.base import Op, PutOp, SearchOp

from sealpoint.langgraph import SealedStore
from sealpoint.seal.items import ItemName
from tests.sealed.stores import FORMS, STORES, Sync, beside, opened
from tests.sealed.test_store import serde
from tests.support.runs.extent import by_extent

COUNT: Final = 220
WANTED: Final = 5  # each fifth item
GONE: Final = 3  # each third may be deleted

numbers = st.integers(0, COUNT - 1)
acts = (
    st.tuples(st.just("save"), numbers)
    | st.tuples(st.just("delete"), numbers)
    | st.tuples(st.just("add"), numbers)
)
plans = st.lists(st.lists(acts, max_size=6), max_size=8)
"""What is done after each request of a search."""

spreads = st.sampled_from([None, 1, 2, 90, 10_000])
"""How many items have one time; ``None`` for that of now."""

runs = itertools.count()


class Meanwhile:
    """A wrapped store: after each request that searches it, others do something."""

    def __init__(self, inner: Any, act: Callable[[SearchOp], Any]) -> None:
        self.inner, self.act = inner, act

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def batch(self, ops: list[Op]) -> Any:
        found = self.inner.batch(ops)
        self.after(ops)
        return found

    async def abatch(self, ops: list[Op]) -> Any:
        found = await self.inner.abatch(ops)
        self.after(ops)
        return found

    def after(self, ops: list[Op]) -> None:
        for op in ops:
            if isinstance(op, SearchOp):
                self.act(op)


@contextmanager
def between(sealed: SealedStore, act: Callable[[SearchOp], Any]) -> Iterator[None]:
    inner = sealed.inner
    sealed.inner = Meanwhile(inner, act)
    try:
        yield
    finally:
        sealed.inner = inner


@contextmanager
def both(name: str, place: Any, **options: Any) -> Iterator[tuple[Sync, SealedStore, Any]]:
    """A sealed store that searches, another on the same database that writes, and SQL beside them."""
    kind, where = STORES[name].kind, place(STORES[name].kind)
    with ExitStack() as stack:
        (reader,) = stack.enter_context(opened(name, where))
        if kind == "memory":
            writer, execute = reader.store, None
        else:
            (own,) = stack.enter_context(opened({"sqlite": "SqliteStore"}.get(kind, "PostgresStore"), where))
            writer, execute = own.store, stack.enter_context(beside(where))
        yield reader.sealed(**options), SealedStore(writer, **{"serde": serde(), **options}), execute


def value_of(number: int, version: int = 0) -> dict[str, Any]:
    return {
        "kind": "wanted" if number % WANTED == 0 else "other",
        "n": number,
        "lang": "en",
        "version": version,
    }


class Others:
    """Others that do what is planned, and remember what may be asserted."""

    def __init__(self, writer: SealedStore, namespace: tuple[str, ...], plan: Any) -> None:
        self.writer, self.namespace, self.plan = writer, namespace, iter(plan)
        self.saved, self.deleted, self.versions = set[int](), set[int](), itertools.count(1)

    def act(self, _: object = None) -> None:
        for what, number in next(self.plan, ()):
            if what == "delete":
                if number % GONE == 0:
                    self.deleted.add(number)
                    self.writer.delete(self.namespace, f"k{number:04}")
            elif what == "add":
                self.writer.put(self.namespace, f"new{next(self.versions)}", value_of(number))
            elif number not in self.deleted:
                self.saved.add(number)
                self.writer.put(self.namespace, f"k{number:04}", value_of(number, next(self.versions)))


def fill(writer: SealedStore, execute: Any, namespace: tuple[str, ...], spread: int | None) -> None:
    """Store items; the one with the greatest number is the newest."""
    for begin in range(0, COUNT, 110):  # batches have one time each
        writer.batch([PutOp(namespace, f"k{n:04}", value_of(n)) for n in range(begin, begin + 110)])
    if execute is None or spread is None:
        return
    for n in range(COUNT):
        stored = writer._items.stored_name(ItemName(namespace, f"k{n:04}"))
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n // spread)
        execute(
            "UPDATE store SET updated_at = ? WHERE prefix = ? AND key = ?",
            f"{at:%Y-%m-%d %H:%M:%S}",
            ".".join(stored.namespace),
            stored.key,
        )


LAW: Final = settings(
    max_examples=by_extent(6, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.broad
@pytest.mark.parametrize("form", ["sealed", "all options", "unbound"])
@pytest.mark.parametrize("name", STORES)
def test_no_item_is_missed_or_given_twice(name: str, form: str, place: Any) -> None:
    options = (
        {"unbound": "allow", "serde": serde(plaintext="allow"), **FORMS["fields"]}
        if form == "unbound"
        else FORMS[form]
    )
    with both(name, place, **options) as (reader, writer, execute):
        # What is saved moves to the front, from behind the first page; what follows a deleted one moves up
        # before the second; at last both, so that the second page begins as if nothing had happened.
        @LAW
        @example(plan=[[("save", 0)]], spread=1, limit=1000, offset=0)
        @example(plan=[[("delete", COUNT - 4)]], spread=1, limit=1000, offset=0)
        @example(plan=[[("delete", 0), ("delete", 3)]], spread=None, limit=1000, offset=0)
        @example(plan=[[("delete", COUNT - 4), ("save", 0)]] * 3, spread=10_000, limit=5, offset=30)
        @given(
            plan=plans,
            spread=spreads,
            limit=st.sampled_from([1, 5, 40, 1000]),
            offset=st.sampled_from([0, 3, 30]),
        )
        def law(plan: Any, spread: Any, limit: int, offset: int) -> None:
            namespace = ("run", f"r{next(runs)}")
            fill(writer, execute, namespace, spread)
            others = Others(writer, namespace, plan)
            with between(reader.store, others.act):
                found = reader.search(namespace, filter={"kind": "wanted"}, limit=limit, offset=offset)
            names = [each.key for each in found]
            assert len({*names}) == len(names) <= limit
            assert all(each.value["kind"] == "wanted" for each in found)
            stays = {f"k{n:04}" for n in range(0, COUNT, WANTED) if n not in others.deleted}
            assert len(names) >= min(limit, len(stays) - offset)
            if limit == 1000 and not offset:
                assert stays <= {*names}
            if spread == 1 and STORES[name].kind != "memory":  # newest first, of those that nobody saved
                kept = [key for key in names if key in stays and int(key[1:]) not in others.saved]
                assert kept == sorted(kept, reverse=True)

        law()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by a second each time it is read."""
    monkeypatch.setattr("sealpoint.langgraph.store.monotonic", itertools.count().__next__)


@pytest.mark.parametrize("name", ["InMemoryStore", "SqliteStore", "PostgresStore"])
@pytest.mark.parametrize("size", [20, pytest.param(60_000, marks=pytest.mark.soak)])  # minutes on SQLite
@pytest.mark.parametrize("what", ["add", "save", "delete"])
@pytest.mark.usefixtures("clock")
def test_a_search_ends_beside_others_that_never_stop(name: str, size: int, what: str, place: Any) -> None:
    """They save or delete as many items after each request as it asked for."""
    with both(name, place) as (reader, writer, _):
        value = {**value_of(1), "text": "x" * size}
        writer.batch([PutOp(("run",), f"k{n:04}", value) for n in range(COUNT)])
        writer.put(("run",), "stays", value_of(0))
        asked, keys = list[int](), itertools.count()

        def act(op: SearchOp) -> None:
            asked.append(op.limit)
            numbers = [next(keys) for _ in range(min(op.limit, 100))]
            names = [f"new{n}" if what == "add" else f"k{n % COUNT:04}" for n in numbers]
            writer.batch([PutOp(("run",), key, None if what == "delete" else value) for key in names])

        with between(reader.store, act):
            found = reader.search(("run",), filter={"kind": "wanted"}, limit=1000)
        assert [each.key for each in found] == ["stays"]
        assert len(asked) < 1000


@pytest.mark.usefixtures("clock")
def test_what_is_new_and_large_is_read_page_by_page(place: Any) -> None:
    """All items of a megabyte of text together have the time of now: they are read again, and not at once."""
    with both("SqliteStore", place) as (reader, writer, _):
        for begin in range(0, COUNT, 110):
            writer.batch(
                [PutOp(("run",), f"k{n}", {"n": n, "text": "x" * 80_000}) for n in range(begin, begin + 110)]
            )
        asked = list[tuple[int, int]]()
        with between(reader.store, lambda op: asked.append((op.limit, op.offset))):
            assert reader.search(("run",), filter={"n": -1}) == []
        assert max(limit for limit, _ in asked) <= 256
