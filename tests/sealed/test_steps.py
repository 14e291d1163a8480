"""From each state of a deployment to each other, by the documented steps, with old and new agents at work.

A state is how the agents open a database. A move goes from one to another in phases: which agents are at
work, and which command runs. Each agent has a connection and a saver of its own. Every pair of moves that
follow each other is run. An agent at work never meets an error. One that was left behind reads what is true,
or fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import Adoption, HeadCheck
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Failure
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.threads import SqliteThreadStore
from tests.graphs.openers import CONNECTION
from tests.sealed.scene import at
from tests.support.databases.rebinding import rebound, visible
from tests.support.servers.postgres import schema, server

INDEX: Final = bytes(range(32, 64))
OLD: Final = Key("k1", bytes(range(32)), KeyState.ACTIVE)
BOTH: Final = KeyRing(
    [
        Key("k1", bytes(range(32)), KeyState.DECRYPT_ONLY),
        Key("k2", bytes(range(64, 96)), KeyState.ACTIVE),
    ],
    index=INDEX,
)
CIPHER: Final = RingCipher(KeyRing([OLD, Key("k2", bytes(range(64, 96)), KeyState.STAGED)], index=INDEX))

AGENTS: Final[dict[str, dict[str, Any]]] = {
    "moving": {"unbound": "allow"},
    "bound": {},
    "indexed": {"indexed_metadata": ("user",)},
    "moving beside": {"unbound": "allow", "threads": True},
    "beside": {"threads": True},
    "indexed beside": {"indexed_metadata": ("user",), "threads": True},
}
"""Options of `SealedSaver`; the agents "plain" and "sealed" have none."""


@dataclass
class Deployment:
    """A database, its thread store, and what the agents have put into it.

    Attributes:
        true: The ids and the values of each thread, the latest first.
    """

    place: str
    folder: Path
    stack: ExitStack
    cipher: RingCipher = CIPHER
    store_name: str = "threads.db"
    true: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    left_behind: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def store(self) -> SqliteThreadStore:
        path = self.folder / self.store_name
        return self.stack.enter_context(
            closing(SqliteThreadStore(str(path), create=not path.exists(), timeout=30))
        )

    def rows(self) -> Any:
        made = PostgresRows if "=" in self.place else SqliteRows
        return made(self.place, writable=True)

    def agent(self, kind: str) -> Any:
        """A saver as a new process opens it."""
        serde = EncryptedSerializer(self.cipher, plaintext="allow" if kind.startswith("moving") else "refuse")
        if "=" in self.place:
            connection: Any = self.stack.enter_context(psycopg.connect(self.place, **CONNECTION))
            inner: Any = PostgresSaver(connection, serde=serde if kind == "sealed" else None)
        else:
            connection = sqlite3.connect(self.place, check_same_thread=False, timeout=30)
            inner = SqliteSaver(self.stack.enter_context(closing(connection)))
            if kind == "sealed":
                inner.serde = serde
        if kind in ("plain", "sealed"):
            return inner
        options = {**AGENTS[kind]}
        if options.pop("threads", False):
            options["threads"] = self.store
        return SealedSaver(inner, serde=serde, **options)

    # --- agents at work -----------------------------------------------------------------------

    def work(self, agents: dict[str, Any]) -> None:
        """Let each agent read and go on with each thread, and begin one."""
        for kind, agent in agents.items():
            for thread in (*self.true, f"of {kind} {next(self.numbers)}"):
                self.require_true(agent, thread)
                self.put(agent, thread)
                self.require_true(agent, thread)
        for agent in agents.values():  # what the others have put meanwhile
            for thread in self.true:
                self.require_true(agent, thread)

    def put(self, agent: Any, thread: str) -> None:
        number = next(self.numbers)
        id_, before = f"{number:06}", self.true.setdefault(thread, [])
        values = {"text": f"value {number}", "list": [number]}
        versions: Any = dict.fromkeys(values, f"{number:032}.0")
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": id_,
            "channel_values": values,
            "channel_versions": versions,
        }
        parent = before[0][0] if before else None
        stored = agent.put(at(thread, "", parent), checkpoint, {"step": number, "user": thread}, versions)
        agent.put_writes(stored, [("list", [number])], "task", "path")
        before.insert(0, (id_, values))

    def read(self, agent: Any, thread: str) -> list[tuple[str, Any]]:
        latest = agent.get_tuple(at(thread))
        found = [
            (each.checkpoint["id"], each.checkpoint["channel_values"]) for each in agent.list(at(thread, ""))
        ]
        assert (latest and latest.checkpoint["id"]) == (found[0][0] if found else None)
        if latest is not None:
            assert [value for _, _, value in latest.pending_writes] == [found[0][1]["list"]]
        return found

    def require_true(self, agent: Any, thread: str) -> None:
        assert self.read(agent, thread) == self.true.get(thread, [])

    def require_loud(self, kind: str) -> None:
        """Check that an agent that was left behind reads what is true, or fails."""
        for thread in self.true:
            try:
                found = self.read(self.agent(kind), thread)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001, S112 -- of any saver
                continue
            assert found == self.true[thread], (kind, thread)

    # --- commands -----------------------------------------------------------------------------

    def verify(self, *, beside: bool = False) -> None:
        with closing(self.rows()) as rows:
            checkpoints = CheckpointRows(rows, self.cipher)
            check = HeadCheck(checkpoints, self.store) if beside else None
            run = Verification(rows, self.cipher, observer=check, require_bound=True)
            assert [event for event in run.events() if isinstance(event, Failure)] == []
            assert [*run.reasons()] == []
            assert check is None or ([*check.reasons()], check.not_recorded) == ([], 0)

    def adopt(self) -> None:
        with closing(self.rows()) as rows:
            adoption = Adoption(CheckpointRows(rows, self.cipher, allow_plaintext=True))
            run = Verification(
                rows, self.cipher, observer=adoption, columns=adoption.rows.columns, allow_plaintext=True
            )
            assert [event for event in run.events() if isinstance(event, Failure)] == []
            store = self.store
            adoption.compare(store)
            adoption.carry_out(store, "a step")

    def bind(self) -> None:
        rebound(self.place, self.cipher, allow_plaintext=True)
        self.verify()

    def index(self) -> None:
        rebound(self.place, self.cipher, visible=visible(indexed=("user",)))
        self.verify()

    def unbind(self) -> None:
        rebound(self.place, self.cipher, unbind=True, allow_thread_store=True)

    def rotate(self) -> None:
        with closing(self.rows()) as rows, rows.hold():
            assert [event for event in rotate(rows, self.cipher) if isinstance(event, Failure)] == []
        self.verify()

    def promote(self) -> None:
        self.cipher = RingCipher(BOTH)

    def replace_store(self) -> None:
        self.store_name = f"threads {next(self.numbers)}.db"
        self.adopt()


Command = Callable[[Deployment], None]
Phases = list[tuple[Command | None, tuple[str, ...]]]
"""What runs, while those agents are at work that were before, and which agents are at work from then on."""

MOVES: Final[dict[str, tuple[str, str, Phases]]] = {
    "bind plain": ("plain", "bound", [(None, ("moving",)), (Deployment.bind, ("moving", "bound"))]),
    "bind sealed": ("sealed", "bound", [(None, ("moving",)), (Deployment.bind, ("moving", "bound"))]),
    "bind plain, with a store": (
        "plain",
        "beside",
        [
            (None, ()),
            (Deployment.adopt, ("moving beside",)),
            (Deployment.bind, ("moving beside", "beside")),
            (Deployment.adopt, ("beside",)),
        ],
    ),
    "bind sealed, with a store": (
        "sealed",
        "beside",
        [
            (None, ()),
            (Deployment.adopt, ("moving beside",)),
            (Deployment.bind, ("moving beside", "beside")),
            (Deployment.adopt, ("beside",)),
        ],
    ),
    "add a store": (
        "bound",
        "beside",
        [(Deployment.adopt, ("bound", "beside")), (Deployment.adopt, ("beside",))],
    ),
    "remove the store": ("beside", "bound", [(None, ("beside", "bound")), (None, ("bound",))]),
    "unbind": (
        "bound",
        "sealed",
        [(None, ("bound", "moving")), (None, ("moving",)), (Deployment.unbind, ())],
    ),
    "remove the store and unbind": (
        "beside",
        "sealed",
        [(None, ("beside", "moving")), (None, ("moving",)), (Deployment.unbind, ())],
    ),
    "unbind beside the store, and bind again": (
        "beside",
        "beside",
        [
            (None, ("moving beside",)),
            (None, ()),
            (Deployment.unbind, ()),
            (Deployment.adopt, ("moving beside",)),
            (Deployment.bind, ("moving beside", "beside")),
            (Deployment.adopt, ("beside",)),
        ],
    ),
    "replace the store": ("beside", "beside", [(None, ()), (Deployment.replace_store, ("beside",))]),
    "index": ("bound", "bound", [(None, ("bound", "indexed")), (Deployment.index, ("indexed", "bound"))]),
    "index beside the store": (
        "beside",
        "beside",
        [(None, ("beside", "indexed beside")), (Deployment.index, ("indexed beside", "beside"))],
    ),
    "rotate": (
        "bound",
        "bound",
        [(Deployment.promote, ("bound",)), (Deployment.rotate, ("bound",))],
    ),
    "rotate beside the store": (
        "beside",
        "beside",
        [(Deployment.promote, ("beside",)), (Deployment.rotate, ("beside",))],
    ),
}


def pairs() -> Iterator[Any]:
    for first, (_, middle, _) in MOVES.items():
        for second, (begin, _, _) in MOVES.items():
            if begin == middle:
                yield pytest.param(first, second, id=f"{first}, then {second}")


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        place = str(tmp_path / "x.db")
        if request.param == "postgres":
            place = stack.enter_context(schema(server(request.config)))
            with psycopg.connect(place, **CONNECTION) as connection:
                PostgresSaver(connection).setup()
        yield Deployment(place, tmp_path, stack)


def move(deployment: Deployment, name: str, agents: dict[str, Any]) -> dict[str, Any]:
    """Make a move; return the agents that are at work at its end."""
    _, end, phases = MOVES[name]
    for command, kinds in [*phases, (None, (end,))]:
        if command is not None:
            command(deployment)
            deployment.work(agents if set(agents) & set(kinds) else {})  # those of before go on meanwhile
        deployment.left_behind |= agents.keys()
        agents = {kind: agents.get(kind) or deployment.agent(kind) for kind in kinds}
        deployment.work(agents)
    if end == "beside":
        deployment.adopt()
        deployment.verify(beside=True)
    for kind in deployment.left_behind - agents.keys():
        deployment.require_loud(kind)
    return agents


@pytest.mark.broad("first", "second")
@pytest.mark.parametrize("deployment", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("first", "second"), [*pairs()])
def test_each_two_moves(deployment: Deployment, first: str, second: str) -> None:
    begin = MOVES[first][0]
    agents = {begin: deployment.agent(begin)}
    deployment.work(agents)
    for name in (first, second):
        agents = move(deployment, name, agents)


@pytest.mark.costly
@pytest.mark.broad(every=48)
@pytest.mark.parametrize("deployment", ["postgres"], indirect=True)
@pytest.mark.parametrize(("first", "second"), [*pairs()])
def test_each_two_moves_on_postgres(deployment: Deployment, first: str, second: str) -> None:
    test_each_two_moves(deployment, first, second)
