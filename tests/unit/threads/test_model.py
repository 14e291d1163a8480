"""Each store beside a model: a list of events."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from sealpoint.threads import (
    Head,
    Kind,
    MemoryThreadStore,
    PostgresThreadStore,
    Spot,
    SqliteThreadStore,
    ThreadStore,
)
from tests.unit.threads.conftest import Make
from tests.unit.threads.events import FAR, mac

names = st.sampled_from(["", "a", "é", "\U0001f600", "\uffff"])
spots = st.builds(Spot, names, st.sampled_from(["", "n"]), names)
contents = st.sampled_from([mac(name) for name in "abc"])


@st.composite
def heads(draw: st.DrawFn) -> Head:
    kind = draw(st.sampled_from(Kind))
    return Head(draw(spots), kind, b"" if kind is Kind.DELETED else draw(contents))


class Model:
    """What a store must know."""

    def __init__(self) -> None:
        self.log: list[tuple[int, Head]] = []
        self.last = 0
        self.trimmed = 0
        self.identities: set[str] = set()

    def append(self, heads: list[Head]) -> None:
        for head in heads:
            self.last += 1
            self.log.append((self.last, head))

    def of(self, spot: Spot) -> list[Head]:
        return [head for _, head in self.log if head.spot == spot]

    def heads(self) -> list[Head]:
        found = {head.spot: head for _, head in self.log}
        return [found[spot] for spot in sorted(found, key=lambda spot: [part.encode() for part in spot])]

    def between(self, thread_id: str, ns: str | None, least: str | None, below: str | None) -> list[Head]:
        return [
            head
            for head in self.heads()
            if head.spot.thread_id == thread_id
            and head.kind is not Kind.DELETED
            and ns in (None, head.spot.checkpoint_ns)
            and (least is None or head.spot.checkpoint_id.encode() >= least.encode())
            and (below is None or head.spot.checkpoint_id.encode() < below.encode())
        ]

    def newest(self, thread_id: str, ns: str) -> list[Head]:
        return [head for head in self.between(thread_id, ns, None, None) if head.kind is Kind.PUT][-1:]

    def replaced(self, spot: Spot) -> list[bytes]:
        macs = [head.mac for head in reversed(self.of(spot))]
        return [*dict.fromkeys(mac for mac in macs[1:] if mac and mac != macs[0])]

    def trim(self) -> int:
        last = {head.spot: (seq, head.kind) for seq, head in self.log}
        gone = {spot for spot, (seq, kind) in last.items() if kind is Kind.DELETED and seq < self.last}
        self.log = [(seq, head) for seq, head in self.log if head.spot not in gone]
        self.trimmed += len(gone)
        return len(gone)


class Beside(RuleBasedStateMachine):
    """Runs the same on a store and on the model; answers are compared after each step."""

    make: Any

    def __init__(self) -> None:
        super().__init__()
        self.store: ThreadStore = self.make()
        self.model = Model()
        self.model.identities = {self.store.identity}
        self.clock = 0

    @rule(events=st.lists(heads(), max_size=4))
    def append(self, events: list[Head]) -> None:
        self.store.append(events)
        self.model.append(events)

    @rule(thread_id=names)
    def delete_thread(self, thread_id: str) -> None:
        self.store.delete_thread(thread_id)
        gone = self.model.between(thread_id, None, None, None)
        self.model.append([Head(head.spot, Kind.DELETED, b"") for head in gone])

    @rule(events=st.lists(heads(), max_size=3), clock=st.integers(0, 99), name=st.sampled_from("xy"))
    def adopt(self, events: list[Head], clock: int, name: str) -> None:
        self.store.adopt(events, frozenset([name]), clock, "because")
        self.model.append(events)
        self.model.identities.add(name)
        assert self.store.find([]).clock >= clock

    @rule()
    def trim(self) -> None:
        assert self.store.trim(FAR) == self.model.trim()

    @rule()
    def trim_nothing(self) -> None:
        assert self.store.trim(0) == 0

    @rule(wanted=st.lists(spots, max_size=3))
    def find(self, wanted: list[Spot]) -> None:
        found = self.store.find(wanted)
        assert sorted(found.heads) == sorted({head for spot in wanted for head in self.model.of(spot)[-1:]})

    @rule(
        thread_id=names, ns=st.sampled_from(["", "n", None]), least=st.none() | names, below=st.none() | names
    )
    def between(self, thread_id: str, ns: str | None, least: str | None, below: str | None) -> None:
        found = self.store.between(thread_id, ns, least, below)
        assert sorted(found.heads) == sorted(self.model.between(thread_id, ns, least, below))

    @rule(thread_id=names, ns=st.sampled_from(["", "n"]))
    def newest(self, thread_id: str, ns: str) -> None:
        assert [*self.store.newest(thread_id, ns).heads] == self.model.newest(thread_id, ns)

    @rule(spot=spots)
    def replaced(self, spot: Spot) -> None:
        assert [*self.store.replaced(spot)] == self.model.replaced(spot)

    @rule()
    def heads(self) -> None:
        assert [*self.store.heads()] == self.model.heads()
        assert self.store.identities == self.model.identities

    @rule()
    def events(self) -> None:
        found = [*self.store.events(self.store.end())]
        assert [(event.seq, event.head) for event in found] == self.model.log
        assert (self.store.end(), self.store.trimmed()) == (self.model.last, self.model.trimmed)

    @rule()
    def clocks(self) -> None:
        clock = self.store.find([]).clock
        assert clock >= max(self.clock, self.store.claim)
        self.clock = clock

    @precondition(lambda self: self.model.log)
    @rule()
    def close(self) -> None:
        self.store.close()

    def teardown(self) -> None:
        self.store.close()


def run(make: Make, examples: float = 1) -> None:
    class Machine(Beside):
        pass

    Machine.make = staticmethod(make)
    most = max(5, int(settings.default.max_examples * examples)) if settings.default else 50
    run_state_machine_as_test(Machine, settings=settings(max_examples=most, stateful_step_count=25))


def test_memory() -> None:
    run(MemoryThreadStore)


def test_sqlite(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def make() -> ThreadStore:
            folder = stack.enter_context(TemporaryDirectory(dir=tmp_path))
            return SqliteThreadStore(Path(folder) / "heads.db", create=True)

        run(make)


def test_postgres(dsn: str, schema: str) -> None:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:

        def make() -> ThreadStore:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            return PostgresThreadStore(dsn, schema=schema, create=True, timeout=30)

        run(make, 0.3)
