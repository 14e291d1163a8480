"""Every error that a saver of this package raises is counted once, by class, in its cipher's statistics."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.base import empty_checkpoint
from sealpoint.crypto import RingCipher
from sealpoint.errors import ConfigError, RolledBackError, SchemaError, SealpointError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.sqlite import SqliteSaver
from sealpoint.threads.sqlite import MemoryThreadStore
from tests.graphs.savers import SEALED
from tests.sealed.moves import found, of
from tests.sealed.reading import ASKED, delta, read_everything
from tests.sealed.savers import HEADS, opened
from tests.sealed.savers import Sync as Called
from tests.sealed.scene import ALICE, C2, C3, PLACES, ROOT, at
from tests.sealed.scenes import sqlite_scene
from tests.sealed.test_tampering import SOME, every, kinds
from tests.unit.sealed.test_heads import fill

STEP: Final = 6 * SOME["sqlite"]


def refused() -> Counter[str]:
    cipher = SEALED.cipher
    assert isinstance(cipher, RingCipher)
    return Counter(cipher.stats().refused)


@pytest.mark.parametrize("form", ["sealed", "all options", HEADS])
def test_every_tampered_database(scenes: Any, form: str) -> None:
    scene = scenes("sqlite", form)
    for name, act in every(STEP, kinds("sqlite", form)).items():
        before = refused()
        with scene.raw.undone():
            act(scene.raw)
            reading = read_everything(scene.saver(), scene.truth)
        met = Counter(text.rpartition(": ")[2] for text in reading.refused)
        met = Counter({kind: n for kind, n in met.items() if kind not in ("ConfigError", "ConfigKeyError")})
        assert refused() - before == met, name


def raised(saver: Any) -> Counter[str]:
    """Classes of the errors of reading each place, all of a thread, and a history."""
    met = Counter[str]()
    reads: list[Callable[[], Any]] = [
        *(partial(saver.get_tuple, place.config) for place in ASKED),
        *(partial(delta, saver, place) for place in PLACES),
        lambda: list(saver.list(at(ALICE, None))),
        lambda: saver.copy_thread(ALICE, "copy"),
    ]
    for read in reads:
        try:
            read()
        except SealpointError as error:
            met[type(error).__name__] += 1
    return met


@pytest.mark.parametrize("name", ["SqliteSaver", "AsyncSqliteSaver", "LangGraph AsyncSqliteSaver"])
@pytest.mark.parametrize("damage", ["bytes", "rows"])
def test_sync_and_async(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / "x.db"
    with sqlite_scene(path, "sealed") as scene:
        for step in (C2, C3):
            (row,) = found(scene.raw, "checkpoints", of(ALICE, ROOT, step))
            other = {"checkpoint": bytes(200)} if damage == "bytes" else {"metadata": {"step": 77}}
            scene.raw.put("checkpoints", {**row, **other})
    with opened(name, str(path), "sealed") as (saver, runner):
        before = refused()
        met = raised(Called(saver, runner, awaited="Async" in name))
        assert met
        assert refused() - before == met


CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "setup": lambda saver: saver.setup(),
    "cursor": lambda saver: saver.cursor().__enter__(),
    "cursor without a transaction": lambda saver: saver.cursor(transaction=False).__enter__(),
    "get_tuple": lambda saver: saver.get_tuple(at("t")),
    "list": lambda saver: list(saver.list(at("t"))),
    "put": lambda saver: saver.put(at("t"), empty_checkpoint(), {}, {}),
    "put_writes": lambda saver: saver.put_writes(at("t", ROOT, "1"), [("a", 1)], "task"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "prune": lambda saver: saver.prune(["t"]),
    "history": lambda saver: saver.get_delta_channel_history(config=at("t"), channels=["a"]),
    "aget_tuple": lambda saver: asyncio.run(saver.aget_tuple(at("t"))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_sqlite_saver_without_sealed_saver(tmp_path: Path, call: Callable[[Any], Any]) -> None:
    """The same rule: what the saver itself raises is counted."""
    cipher = RingCipher(SEALED.cipher.ring)  # type: ignore[attr-defined]
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as connection:
        connection.execute("CREATE TABLE checkpoints (x)")
        saver = SqliteSaver(connection, serde=EncryptedSerializer(cipher))
        with pytest.raises(SchemaError):
            call(saver)
        assert cipher.stats().refused == {"SchemaError": 1}
        plain = SqliteSaver(connection)
        with pytest.raises(SchemaError):
            call(plain)


def test_heads_that_are_required_and_tolerated() -> None:
    """What a thread store misses is a refusal, or is counted as tolerated under ``heads="warn"``."""
    from langgraph.checkpoint.memory import InMemorySaver

    inner, store = InMemorySaver(), MemoryThreadStore()
    cipher = RingCipher(SEALED.cipher.ring)  # type: ignore[attr-defined]
    serde = EncryptedSerializer(cipher)
    saver = SealedSaver(inner, serde=serde, threads=store)
    fill(saver)
    inner.storage.clear()
    for _ in range(2):
        with pytest.raises(RolledBackError):
            saver.get_tuple(at("t"))
    assert cipher.stats().refused == {"RolledBackError": 2}
    assert cipher.stats().tolerated == {}
    lenient = SealedSaver(inner, serde=serde, threads=store, heads="warn")
    assert lenient.get_tuple(at("t")) is None
    assert cipher.stats().refused == {"RolledBackError": 2}
    assert cipher.stats().tolerated == lenient.warnings == {"RolledBackError": 1}


def test_a_config_without_a_thread_is_no_refusal() -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    cipher = RingCipher(SEALED.cipher.ring)  # type: ignore[attr-defined]
    saver = SealedSaver(InMemorySaver(), serde=EncryptedSerializer(cipher))
    with pytest.raises(ConfigError):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(ConfigError):
        saver.put_writes(at("t"), [("a", 1)], "task")
    assert cipher.stats().refused == {}
