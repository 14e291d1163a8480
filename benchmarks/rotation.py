"""Rotation of a database that LangGraph wrote: against a script over the savers, and against cp."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphs
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.harness import Case, Options
from benchmarks.peers import COPY, KEY, ROTATE, ROTATE_XAES, SCRIPT, VERIFY, WRITE_BACK
from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.admin.databases.sqlite.checked import CACHE_KIB, CHECKPOINTS, WRITES
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure
from sealpoint.admin.results.jobs import BATCH
from sealpoint.langgraph import EncryptedSerializer

ROWS: Final = 100_000
SCRIPT_CHECKPOINTS: Final = 500
ROWS_A_CHECKPOINT: Final = 4
CHECKPOINTS_A_THREAD: Final = 50
VALUE_CHARS: Final = 11_000
WRITE_CHARS: Final = 2_900

_TAG: Final = "msgpack+cobblestone256@k2"
_OLD: Final = Key(id="k1", material=KEY, state=KeyState.ACTIVE)
_RING: Final = KeyRing(
    [
        Key(id="k2", material=bytes(reversed(KEY)), state=KeyState.ACTIVE),
        Key(id="k1", material=KEY, state=KeyState.DECRYPT_ONLY),
    ]
)


def cases(options: Options) -> Iterator[Case]:
    """Seconds for one row: the script has a smaller file, all others one of 100,000 rows and 500 MB."""
    rows = ROWS // 10 if options.quick else ROWS
    large, small = options.folder / "large.db", options.folder / "small.db"
    large_xaes = options.folder / "large-xaes.db"
    _fill(large, rows, _serializer(KeyRing([_OLD])))
    _fill(large_xaes, rows, EncryptedSerializer(RingCipher(KeyRing([_OLD]), "xaes256gcm")))
    _fill(small, SCRIPT_CHECKPOINTS * ROWS_A_CHECKPOINT, LangGraphs.from_pycryptodome_aes(key=KEY))
    moved = options.folder / "moved.db"
    rotation = _on_copy(large, moved, rows, _rotate("cobblestone256"))
    yield Case(
        "rotation, a row",
        {SCRIPT: _on_copy(small, moved, SCRIPT_CHECKPOINTS, _script), ROTATE: rotation},
        SCRIPT,
        rounds=3,
    )
    yield Case(
        "rotation, against cp and fsync",
        {
            COPY: lambda: _copy(large, moved) / rows,
            ROTATE: rotation,
            ROTATE_XAES: _on_copy(large_xaes, moved, rows, _rotate("xaes256gcm")),
            VERIFY: _on_copy(large, moved, rows, _verify),
            WRITE_BACK: _on_copy(large, moved, rows, _write_back),
        },
        COPY,
        rounds=5,
    )


def _fill(path: Path, rows: int, serde: Any) -> None:
    """Write threads of checkpoints with three writes each, under the old key, by LangGraph's saver."""
    source = random.Random(1)
    text = "".join(source.choices("abcdefghij klmnop", k=2 * VALUE_CHARS))
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:
        saver = SqliteSaver(connection, serde=serde)
        saver.setup()
        connection.execute("PRAGMA synchronous = OFF")
        for number in range(rows // ROWS_A_CHECKPOINT):
            start = source.randrange(VALUE_CHARS)
            config = saver.put(
                _config(number), _checkpoint(number, text[start : start + VALUE_CHARS]), _metadata(number), {}
            )
            write = "text", text[start : start + WRITE_CHARS]
            saver.put_writes(config, [write] * (ROWS_A_CHECKPOINT - 1), f"task-{number}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _serializer(ring: KeyRing) -> Any:
    return EncryptedSerializer(RingCipher(ring))


def _config(number: int) -> Any:
    return {"configurable": {"thread_id": f"thread-{number // CHECKPOINTS_A_THREAD}", "checkpoint_ns": ""}}


def _metadata(number: int) -> Any:
    return {"source": "loop", "step": number % CHECKPOINTS_A_THREAD, "parents": {}}


def _checkpoint(number: int, text: str) -> Any:
    return {
        "v": 2,
        "id": f"1f000000-0000-6000-8000-{number:012x}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"text": text},
        "channel_versions": {"text": f"{number:032}.0"},
        "versions_seen": {},
        "updated_channels": None,
    }


def _on_copy(source: Path, copy: Path, rows: int, act: Callable[[Path], None]) -> Callable[[], float]:
    """Return a sampler of ``act`` on a fresh copy of the file; making the copy is not counted."""

    def sample() -> float:
        _copy(source, copy)
        start = perf_counter()
        act(copy)
        return (perf_counter() - start) / rows

    return sample


def _copy(source: Path, copy: Path) -> float:
    """Return the seconds of a copy that the disk has taken."""
    for suffix in ("", "-wal", "-shm"):
        copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    start = perf_counter()
    shutil.copyfile(source, copy)
    descriptor = os.open(copy, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    return perf_counter() - start


def _rotate(suite: str) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with closing(SqliteRows(path, writable=True)) as store, store.hold():
            for event in rotate(store, RingCipher(_RING, suite)):
                if isinstance(event, Failure):
                    raise SystemExit("error: a row does not open")

    return act


def _verify(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        for event in verify(store, RingCipher(_RING)):
            if isinstance(event, Failure):
                raise SystemExit("error: a row does not open")


def _write_back(path: Path) -> None:
    """Give each value other bytes and another tag of the same length, in batches of a rotation's size."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        for table in (CHECKPOINTS, WRITES):
            read = f"SELECT {table.name}, rowid FROM {table.table} WHERE rowid > ? ORDER BY rowid LIMIT ?"
            write = f"UPDATE {table.table} SET {table.name} = ?, type = ? WHERE rowid = ?"
            last = 0
            while rows := connection.execute(read, (last, BATCH.rows)).fetchall():
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(write, [(blob[::-1], _TAG, row_id) for blob, row_id in rows])
                connection.execute("COMMIT")
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                last = rows[-1][1]


def _script(path: Path) -> None:
    """What one writes who has LangGraph alone: read all, and put each checkpoint again under the new key.

    Writes are put again too, and stay what they were: a saver never replaces one that is there. So the
    rows that count are the checkpoints.
    """
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        old = SqliteSaver(connection, serde=LangGraphs.from_pycryptodome_aes(key=KEY))
        new = SqliteSaver(connection, serde=LangGraphs.from_pycryptodome_aes(key=KEY[::-1]))
        for item in list(old.list(None)):
            thread = {key: item.config["configurable"][key] for key in ("thread_id", "checkpoint_ns")}
            before: Any = item.parent_config or {"configurable": thread}
            new.put(before, item.checkpoint, item.metadata, {})
            for task, writes in groupby(item.pending_writes or (), key=lambda write: write[0]):
                new.put_writes(item.config, [write[1:] for write in writes], task)
