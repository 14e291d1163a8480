"""SealedSaver beside a thread store: what is missing, put back or earlier is noticed, and nothing else is."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, Literal

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.errors import (
    ConfigError,
    RolledBackError,
    ThreadStoreDownError,
    UnknownKeyError,
)
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.seal.heads import UNBOUND_DIGEST, Kind, Special, contradiction, mac_of, standing_calls
from sealpoint.seal.keys import KeyedHash
from sealpoint.seal.places import Spot
from sealpoint.threads.sqlite import MemoryThreadStore
from tests.graphs.savers import SEALED

THREAD: Final = "t"
STEPS: Final = 6


def at(checkpoint_id: str | None = None, thread: str = THREAD, ns: str = "") -> Any:
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def put(saver: Any, number: int, config: Any = None, checkpoint_id: str | None = None) -> Any:
    """Store the next checkpoint; return its config."""
    checkpoint = empty_checkpoint()
    checkpoint["id"] = checkpoint_id or str(uuid6())
    checkpoint["channel_values"] = {"n": number, "parts": [number]}
    checkpoint["channel_versions"] = {"n": number + 1, "parts": number + 1}
    versions: Any = dict(checkpoint["channel_versions"])
    metadata: Any = {"step": number, "source": "loop", "run_id": f"run {number}"}
    return saver.put(config or at(), checkpoint, metadata, versions)


def fill(saver: Any, thread: str = THREAD, ns: str = "", count: int = STEPS) -> list[str]:
    """Store some checkpoints in a thread; return their ids."""
    config, ids = at(thread=thread, ns=ns), []
    for number in range(count):
        config = put(saver, number, config)
        ids.append(config["configurable"]["checkpoint_id"])
    return ids


def latest(saver: Any) -> int:
    found = saver.get_tuple(at())
    return -1 if found is None else int(found.checkpoint["channel_values"]["n"])


def numbers(saver: Any, config: Any = None, **options: Any) -> list[int]:
    return [found.checkpoint["channel_values"]["n"] for found in saver.list(config or at(), **options)]


class Killed(BaseException):
    """Stands for the end of the process."""


def die(*_: Any, **__: Any) -> None:
    raise Killed


class Scene:
    """A file, LangGraph's saver on it, and the same within SealedSaver beside a store."""

    def __init__(self, connection: sqlite3.Connection, kind: Any) -> None:
        self.connection = connection
        self.store = MemoryThreadStore()
        self.bare = kind(connection)
        self.bare.setup()
        self.saver = SealedSaver(self.bare, serde=SEALED, threads=self.store)

    def wrap(self, **options: Any) -> SealedSaver:
        return SealedSaver(self.bare, serde=SEALED, **{"threads": self.store, **options})

    def rows(self) -> list[tuple[Any, ...]]:
        return self.connection.execute("SELECT * FROM checkpoints").fetchall()

    def restore(self, rows: list[tuple[Any, ...]]) -> None:
        """Make these rows all that the database has."""
        self.connection.execute("DELETE FROM checkpoints")
        for row in rows:
            self.connection.execute(f"INSERT INTO checkpoints VALUES ({', '.join('?' * len(row))})", row)
        self.connection.commit()

    def then(self, name: str, act: Callable[..., object]) -> None:
        """Have the database do something more after it has done a call."""
        honest = getattr(self.saver.inner, name)

        def call(*arguments: Any, **options: Any) -> None:
            honest(*arguments, **options)
            act()

        setattr(self.saver.inner, name, call)

    def drop(self, *checkpoint_ids: str) -> None:
        for checkpoint_id in checkpoint_ids:
            self.connection.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", [checkpoint_id])
        self.connection.commit()


@pytest.fixture(params=[Theirs, SqliteSaver], ids=["LangGraph's", "ours"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield Scene(connection, request.param)


@pytest.fixture
def ours() -> Iterator[Scene]:
    """Around the saver that prunes, and deletes runs."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield Scene(connection, SqliteSaver)


# --- nothing is missing --------------------------------------------------------------------------------


@pytest.mark.claim("h15")
def test_a_row_without_a_head_is_accepted(scene: Scene) -> None:
    """As after a crash between the two; the next put is recorded as always."""
    put(scene.saver, 0)
    put(scene.wrap(threads=None), 1)
    assert numbers(scene.saver) == [1, 0]
    assert latest(scene.saver) == 1
    put(scene.saver, 2)
    assert numbers(scene.saver) == [2, 1, 0]


@pytest.mark.claim("h5")
def test_a_checkpoint_may_be_stored_again(scene: Scene) -> None:
    """With other content, before its head is recorded and afterwards; the first content is put back then."""
    checkpoint_id = put(scene.saver, 0)["configurable"]["checkpoint_id"]
    first = scene.rows()
    put(scene.wrap(threads=None), 1, checkpoint_id=checkpoint_id)
    assert numbers(scene.saver) == [1]
    put(scene.saver, 2, checkpoint_id=checkpoint_id)
    assert numbers(scene.saver) == [2]
    scene.restore(first)
    for read in (lambda: scene.saver.get_tuple(at()), lambda: numbers(scene.saver)):
        with pytest.raises(RolledBackError, match="earlier state") as caught:
            read()
        assert (caught.value.have, caught.value.want) == (checkpoint_id, checkpoint_id)


# --- what is missing ------------------------------------------------------------------------------------


def test_many_pages_with_one_row_gone(scene: Scene) -> None:
    ids = fill(scene.saver, count=200)
    assert numbers(scene.saver) == [*reversed(range(200))]
    scene.drop(ids[100])
    listing = scene.saver.list(at())
    seen = [next(listing).checkpoint["channel_values"]["n"] for _ in range(30)]
    assert seen == [*range(199, 169, -1)]
    with pytest.raises(RolledBackError):
        list(listing)


# --- deleting ------------------------------------------------------------------------------------------


def test_newest_row_deleted_and_put_back(ours: Scene) -> None:
    """The latest is then the one before it."""
    fill(ours.saver)
    rows = ours.rows()
    ours.saver.delete_for_runs([f"run {STEPS - 1}", f"run {STEPS - 2}"])
    assert numbers(ours.saver) == [*reversed(range(STEPS - 2))]
    ours.restore(rows)
    assert latest(ours.saver) == STEPS - 3
    assert numbers(ours.saver) == [*reversed(range(STEPS - 2))]
    assert numbers(ours.saver, limit=1) == [STEPS - 3]


def test_prune(ours: Scene) -> None:
    ids = fill(ours.saver)
    rows = ours.rows()
    ours.saver.prune([THREAD])
    assert numbers(ours.saver) == [STEPS - 1]
    kinds = {head.spot.checkpoint_id: head.kind for head in ours.store.heads()}
    assert kinds == {**dict.fromkeys(ids, Kind.DELETED), ids[-1]: Kind.PUT}
    ours.restore(rows)
    assert numbers(ours.saver) == [STEPS - 1]
    assert ours.saver.get_tuple(at(ids[0])) is None
    ours.drop(*ids)
    with pytest.raises(RolledBackError):
        ours.saver.get_tuple(at())


def test_prune_does_not_hide_what_was_missing(ours: Scene) -> None:
    ids = fill(ours.saver)
    ours.drop(ids[-1])
    with pytest.raises(RolledBackError):
        ours.saver.prune([THREAD])
    assert len(ours.rows()) == STEPS - 1


def test_an_interrupted_deletion_is_read_as_it_was_or_will_be(ours: Scene) -> None:
    fill(ours.saver)
    ours.saver.inner.prune = die
    with pytest.raises(Killed):
        ours.saver.prune([THREAD])
    assert numbers(ours.saver) == [*reversed(range(STEPS))]
    ours.bare.prune([THREAD])
    again = ours.wrap()
    assert numbers(again) == [STEPS - 1]
    again.prune([THREAD])
    assert {head.kind for head in ours.store.heads()} == {Kind.PUT, Kind.DELETED}


# --- the store -----------------------------------------------------------------------------------------


@pytest.mark.claim("h12")
def test_warn_goes_on_and_counts(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    saver = scene.wrap(heads="warn")
    ids = fill(saver)
    scene.drop(ids[2], ids[3])
    assert len(numbers(saver)) == STEPS - 2
    assert saver.warnings == {"RolledBackError": 1}
    assert "RolledBackError: continuing because of heads='warn'" in caplog.text


@pytest.mark.parametrize("policy", ["require", "warn"])
def test_names_of_a_store_that_is_down(scene: Scene, policy: Literal["require", "warn"]) -> None:
    """A checkpoint names another store, and whether this one has taken its place cannot be read."""
    put(scene.saver, 0)

    class Nameless(MemoryThreadStore):
        @property
        def identities(self) -> frozenset[str]:
            raise ThreadStoreDownError("the store is down")

    saver = scene.wrap(threads=Nameless(), heads=policy)
    if policy == "require":
        with pytest.raises(ThreadStoreDownError):
            saver.get_tuple(at())
    else:
        assert latest(saver) == 0
        assert saver.warnings == {"ThreadStoreDownError": 1}


def test_a_store_needs_an_index_key(scene: Scene) -> None:
    serde = EncryptedSerializer.from_key(bytes(32))
    with pytest.raises(UnknownKeyError):
        SealedSaver(scene.bare, serde=serde, threads=scene.store)
    wrong: Any = "maybe"
    with pytest.raises(ConfigError, match="heads must be 'require' or 'warn'"):
        scene.wrap(heads=wrong)


# --- pseudonyms, and what is remembered ------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [True, False])
def test_pseudonyms(scene: Scene, is_new: bool) -> None:
    """A thread under a pseudonym, and one from before: both are missed as a whole."""
    fill(scene.wrap(pseudonyms=is_new))
    saver = scene.wrap(pseudonyms=True)
    assert numbers(saver) == [*reversed(range(STEPS))]
    scene.restore([])
    with pytest.raises(RolledBackError) as caught:
        saver.get_tuple(at())
    assert caught.value.thread_id == THREAD
    saver.delete_thread(THREAD)
    assert numbers(saver) == []
    put(saver, 1)
    assert numbers(scene.wrap(pseudonyms=True)) == [1]


@pytest.mark.parametrize(
    "spot", [Spot("t", "", "1"), Spot("t", "1", ""), Spot("\u00fc\ud800", "n" * 300, "1|2")]
)
def test_the_mac_names_row_and_content(spot: Spot) -> None:
    """Stores keep MACs for years, so that they stay the same: each name with its length, then the digest."""
    key, digest = b"k" * 32, b"d" * 32
    names = [part.encode("utf-8", "surrogatepass") for part in spot]
    packed = b"".join(len(name).to_bytes(4, "big") + name for name in names)
    assert mac_of(KeyedHash(key), spot, digest) == hmac.digest(key, packed + digest, "sha256")[:16]
    assert bytes(32) == UNBOUND_DIGEST  # of a row that was adopted unbound


def test_a_call_that_was_recorded_late_does_not_bring_back_what_another_has_replaced() -> None:
    """It began before the other one: each replaces the events up to its own beginning."""
    events = [
        Special(4, "task", -4, b"replaced", 0),
        Special(6, "task", -4, b"later", 5),
        Special(7, "task", -4, b"late", 3),
        Special(8, "other", -4, b"another", -1),
    ]
    assert standing_calls(events) == {("task", -4): {b"later", b"late"}, ("other", -4): {b"another"}}


def test_a_write_that_is_not_the_last_one_is_named_by_its_task() -> None:
    events = [Special(1, "task", -4, b"first", -1), Special(2, "task", -4, b"second", 1)]
    assert contradiction(events, {("task", -4): b"second"}) is None
    assert contradiction(events, {("task", -4): b"newer"}) is None
    assert contradiction(events, {("task", -4): b"first"}) == ("task", False)
    assert contradiction(events, {}) == ("task", True)
