"""Pending writes: what it costs SealedSaver to hold them, on a SQLite file, alone and beside a thread store.

For `make bench-pairs`, against a commit before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from time import process_time
from typing import Any, Final

from benchmarks import sealed
from benchmarks.chains import checkpoint, config
from benchmarks.harness import Case, Options
from benchmarks.heads import _sqlite
from benchmarks.payloads import payload
from benchmarks.peers import HEADS, KEY, WHOLE_XAES, Saver
from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver
from sealpoint.threads import SqliteThreadStore

DELTA: Final[Any] = {"source": "loop", "step": 0, "counters_since_delta_snapshot": {"log": (1, 1)}}
LOOPS: Final = 50
SIZES: Final = ("1 KB state", "50 messages")


def cases(options: Options) -> Iterator[Case]:
    """In seconds of the processor."""
    ring = KeyRing([Key(id="k1", material=KEY, state=KeyState.ACTIVE)], index=KEY[::-1])
    serde = EncryptedSerializer(
        RingCipher(ring, "xaes256gcm"), JsonPlusSerializer(allowed_msgpack_modules=True)
    )
    with ExitStack() as stack:
        alone, beside = (stack.enter_context(_sqlite(options, f"writes {name}")) for name in ("a", "b"))
        store = stack.enter_context(
            closing(SqliteThreadStore(options.folder / "heads.db", create=True, timeout=60))
        )
        savers: dict[str, Saver] = {
            WHOLE_XAES: SealedSaver(alone, serde=serde),
            HEADS: SealedSaver(beside, serde=serde, threads=store),
        }
        for bare in (alone, beside):
            bare.conn.execute("PRAGMA synchronous = OFF")
        for size in SIZES:
            values = payload(size)
            for name, act in (
                ("put", sealed.put(values)),
                ("put in a delta graph", _delta_put(values)),
                ("put_writes of 2", _writes([("plan", [1]), ("question", "why?")])),
                ("special write", _writes([("__interrupt__", ["pay 5?"])])),
                ("get_tuple", _get_tuple(values, latest=False)),
                ("get_tuple, latest", _get_tuple(values, latest=True)),
            ):
                if size == SIZES[0] or "write" not in name:
                    yield sealed.case(
                        f"{size}, {name}", savers, act, process_time, LOOPS, reference=WHOLE_XAES
                    )


def _parent(saver: Saver, values: dict[str, Any], thread: str) -> Any:
    """Store a checkpoint with a result upon it."""
    made = checkpoint(0, values)
    place = saver.put(config(thread), made, DELTA, made["channel_versions"])
    saver.put_writes(place, [("log", ["asked"]), ("branch:to:next", None)], "task")
    return place


def _delta_put(values: dict[str, Any]) -> Callable[[Saver], Callable[[], object]]:
    def prepare(saver: Saver) -> Callable[[], object]:
        place, numbers = _parent(saver, values, f"delta {len(values)}"), count(1)

        def store() -> None:
            made = checkpoint(next(numbers), values)
            saver.put(place, made, DELTA, made["channel_versions"])

        return store

    return prepare


def _writes(writes: list[tuple[str, Any]]) -> Callable[[Saver], Callable[[], object]]:
    def prepare(saver: Saver) -> Callable[[], object]:
        place, numbers = _parent(saver, {}, "writes"), count()
        return lambda: saver.put_writes(place, writes, f"task-{next(numbers)}")

    return prepare


def _get_tuple(values: dict[str, Any], *, latest: bool) -> Callable[[Saver], Callable[[], object]]:
    def prepare(saver: Saver) -> Callable[[], object]:
        place = _parent(saver, values, f"read {len(values)}")
        asked = config(f"read {len(values)}") if latest else place
        return lambda: saver.get_tuple(asked)

    return prepare
