"""Stores beside a model in plain Python: after the same calls they know the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from sealpoint.threads import (
    Answer,
    Head,
    Kind,
    MemoryThreadStore,
    PostgresThreadStore,
    Special,
    Spot,
    SqliteThreadStore,
    ThreadStore,
    database,
)
from tests.unit.threads.events import FAR, mac
from tests.unit.threads.model import Model

# Their order is that of their bytes, which is neither that of UTF-16 nor that of a dictionary.
names = st.sampled_from(["", "B", "_", "a", "a\0", "é", "\U0001f600", "\uffff"])
namespaces = st.sampled_from(["", "n"])
spots = st.builds(Spot, st.sampled_from(["", "t", "t\0", "é"]), namespaces, names)
threads = st.sampled_from(["", "t", "t\0", "é", "x"])
contents = st.sampled_from([mac(name) for name in "abc"])
specials = st.lists(
    st.builds(
        Special,
        st.just(0),
        st.sampled_from(["task", "täsk, \0 2"]),
        st.sampled_from([-4, -1, 70_000]),
        st.sampled_from([b"", b"a" * 8]),
        st.integers(-1, 9),
    ),
    max_size=2,
)


@st.composite
def heads(draw: st.DrawFn) -> Head:
    kind = draw(st.sampled_from(Kind))
    return Head(draw(spots), kind, b"" if kind is Kind.DELETED else draw(contents))


def plain(found: Any) -> Any:
    """What a call returns, without the order of answers and without the numbers of special writes."""
    if isinstance(found, Answer):
        return sorted(found.heads), found.clock, plain(found.specials)
    return sorted((spot, sorted(event[1:] for event in events)) for spot, events in found)


class Beside(RuleBasedStateMachine):
    """Calls the same methods of a store and of the model."""

    make: Any

    def __init__(self) -> None:
        super().__init__()
        self.store: ThreadStore = self.make()
        self.model = Model()

    def both(self, call: Callable[[ThreadStore], Any]) -> None:
        assert call(self.store) == call(self.model)

    @rule(events=st.lists(heads(), max_size=4))
    def append(self, events: list[Head]) -> None:
        self.both(lambda store: store.append(events))

    @rule(spot=spots, events=specials)
    def append_specials(self, spot: Spot, events: list[Special]) -> None:
        self.both(lambda store: store.append_specials(spot, events))

    @rule(thread_id=threads)
    def delete_thread(self, thread_id: str) -> None:
        """A page at a time: which page comes first is not promised."""
        before = self.model.end()
        live = {head.spot for head in self.model.between(thread_id, None, None, None).heads}
        live |= {spot for spot, _ in self.model.specials() if spot.thread_id == thread_id}
        self.store.delete_thread(thread_id)
        gone = [event.head for event in self.store.events(FAR) if event.seq > before]
        assert sorted(gone) == [Head(spot, Kind.DELETED, b"") for spot in sorted(live)]
        self.model.append(gone)

    @rule(
        events=st.lists(heads(), max_size=3),
        clock=st.integers(0, 99),
        name=st.sampled_from("xy"),
        writes=st.dictionaries(spots, specials, max_size=2),
    )
    def adopt(self, events: list[Head], clock: int, name: str, writes: dict[Spot, Sequence[Special]]) -> None:
        self.both(
            lambda store: store.adopt(iter(events), frozenset([name]), clock, "because", [*writes.items()])
        )
        self.both(lambda store: store.identities - {store.identity})

    @rule(before=st.sampled_from([0, FAR]))
    def trim(self, before: int) -> None:
        self.both(lambda store: store.trim(before))

    @rule(wanted=st.lists(spots, max_size=3))
    def find(self, wanted: list[Spot]) -> None:
        self.both(lambda store: plain(store.find(wanted)))
        self.both(lambda store: [[*store.replaced(spot)] for spot in wanted])

    @rule(thread_id=threads, ns=st.none() | namespaces, least=st.none() | names, below=st.none() | names)
    def between(self, thread_id: str, ns: str | None, least: str | None, below: str | None) -> None:
        self.both(lambda store: plain(store.between(thread_id, ns, least, below)))
        self.both(lambda store: store.has_live(thread_id))

    @rule(thread_id=threads, ns=namespaces)
    def newest(self, thread_id: str, ns: str) -> None:
        self.both(lambda store: plain(store.newest(thread_id, ns)))

    @rule()
    def everything(self) -> None:
        self.both(lambda store: [*store.heads()])
        self.both(lambda store: [(event.seq, event.head) for event in store.events(store.end())])
        self.both(lambda store: plain(store.specials()))
        self.both(lambda store: store.trimmed())
        assert self.store.find([]).clock >= self.store.claim

    @rule()
    def close(self) -> None:
        self.store.close()

    def teardown(self) -> None:
        self.everything()
        self.store.close()


def run(make: Callable[[], ThreadStore], monkeypatch: pytest.MonkeyPatch, examples: float = 1) -> None:
    """Run with pages of two rows, so that most lists are longer than a page."""
    monkeypatch.setattr(database, "PAGE_ROWS", 2)

    class Machine(Beside):
        pass

    Machine.make = staticmethod(make)
    most = max(5, int(settings.default.max_examples * examples)) if settings.default else 50
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=most, stateful_step_count=25, phases=[Phase.generate])
    )


def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:

        def make() -> ThreadStore:
            folder = stack.enter_context(TemporaryDirectory(dir=tmp_path))
            return SqliteThreadStore(Path(folder) / "heads.db", create=True)

        run(make, monkeypatch)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    run(MemoryThreadStore, monkeypatch, 0.5)


def test_postgres(dsn: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:

        def make() -> ThreadStore:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            return PostgresThreadStore(dsn, schema=schema, create=True, timeout=30)

        run(make, monkeypatch, 0.5)
