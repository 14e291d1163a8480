"""What other processes do in these tests: write through LangGraph's savers, and rotate.

They are forked from one that has imported all this already.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind, sealing_sentinels
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.results.events import Progress
from sealpoint.base import empty_checkpoint
from sealpoint.errors import LockedError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SealedStore
from tests.support.databases.checkpoints import at
from tests.support.databases.postgres import K2
from tests.support.databases.sealed import make_cipher

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])

WRITES_OF_A_STEP: Final = 3
FIXED: Final = "000000"
"""The checkpoint whose one write is overwritten in every step."""

WRITER: Final = EncryptedSerializer(make_cipher("k1", "k2"))
"""It has heard of the new key, and still seals under the old one."""


@asynccontextmanager
async def saver_at(url: str, *, awaited: bool) -> AsyncIterator[Any]:
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    if awaited:
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            yield AsyncPostgresSaver(connection, serde=WRITER)
    else:
        with psycopg.connect(url, **options) as connection:
            yield PostgresSaver(connection, serde=WRITER)


def write(url: str, name: str, steps: int, awaited: bool) -> int:
    """Put checkpoints into a thread without a pause; return how often a write was not found again."""
    return asyncio.run(_write(url, name, steps, awaited))


def write_while_rebound(url: str, name: str, steps: int, awaited: bool, wrapped: bool) -> int:
    """The same, wrapped; or not, and without looking: a bare saver reads no bound rows."""
    return asyncio.run(_write(url, name, steps, awaited, wrapped=wrapped, looks=wrapped))


async def _write(
    url: str, name: str, steps: int, awaited: bool, *, wrapped: bool = False, looks: bool = True
) -> int:
    lost = 0
    async with saver_at(url, awaited=awaited) as bare:
        saver = SealedSaver(bare, serde=WRITER, unbound="allow") if wrapped else bare

        async def call(method: str, *arguments: Any) -> Any:
            if awaited:
                return await getattr(saver, f"a{method}")(*arguments)
            return getattr(saver, method)(*arguments)

        for step in range(steps):
            parent = at(name, f"{step - 1:06}" if step else None)
            checkpoint: Any = checkpoint_of(step)
            config = await call("put", parent, checkpoint, {"step": step}, checkpoint["channel_versions"])
            await call("put_writes", config, [("out", {"step": step})], "task")
            # LangGraph overwrites an error where it leaves every other write as it is.
            await call("put_writes", at(name, FIXED), [("__error__", {"step": step})], "other task")
            if not looks:
                continue
            found = await call("get_tuple", at(name, FIXED))
            lost += ("other task", "__error__", {"step": step}) not in found.pending_writes
    return lost


def checkpoint_of(step: int) -> dict[str, Any]:
    version = f"{step:032}.0.5"
    values = {"state": {"step": step, "text": "x" * 300}}
    channels = {"channel_values": values, "channel_versions": {"state": version}}
    return {**empty_checkpoint(), "id": f"{step:06}", **channels}


def lost_at_the_end(saver: Any, name: str, steps: int) -> int:
    """How many of the writes of a thread are not there, or not as they were last written."""
    found = {each.checkpoint["id"]: each for each in saver.list(at(name))}
    lost = 0
    for step in range(steps):
        wanted = checkpoint_of(step)
        each = found.get(wanted["id"])
        lost += each is None or each.checkpoint["channel_values"] != wanted["channel_values"]
        lost += each is None or ("task", "out", {"step": step}) not in each.pending_writes
    last = ("other task", "__error__", {"step": steps - 1})
    return lost + (last not in found[FIXED].pending_writes)


def rotate_until(url: str, end: Path, rows: int) -> tuple[int, int]:
    """Rotate again and again until the file ``end`` is there; return what was moved and what raced."""
    moved = raced = 0
    with closing(PostgresRows(url, writable=True)) as store:
        while not end.exists():
            last = None
            with suppress(LockedError):  # others of us have the rest
                for event in rotate(store, K2, batch=Batch(rows=rows)):
                    last = event if isinstance(event, Progress) else last
            moved, raced = moved + (last.changed if last else 0), raced + (last.raced if last else 0)
    return moved, raced


def rotate_and_rebind_until(url: str, end: Path, rows: int, allow_plaintext: bool = False) -> int:
    """Rotate and bind in turns until the file ``end`` is there; return how many rows were bound."""
    bound, options = 0, RebindOptions(batch=Batch(rows=rows), allow_plaintext=allow_plaintext)
    with (
        closing(PostgresRows(url, writable=True)) as store,
        closing(PostgresWholeRows(url, writable=True, sentinel=sealing_sentinels(K2))) as whole,
    ):
        while not end.exists():
            last = None
            with suppress(LockedError):  # others of us have the rest
                list(rotate(store, K2, batch=Batch(rows=rows)))
            with suppress(LockedError):
                for event in rebind(whole, K2, options):
                    last = event if isinstance(event, Progress) else last
            bound += last.changed if last else 0
    return bound


def rotate_when_told(url: str, talk: Connection, rows: int) -> None:
    """Rotate once, and begin each batch when told to."""
    with closing(PostgresRows(url, writable=True)) as store:
        talk.recv()
        for _ in rotate(store, K2, batch=Batch(rows=rows)):
            talk.send("done")
            talk.recv()


def put_items_again(url: str, name: str, puts: int, plain: bool) -> int:
    """Put ten items of a namespace in turn, without a pause; return how often one was not found again.

    With ``plain`` as processes do it at the beginning of a migration: it reads both, and writes as it did.
    """
    lost = 0
    serde = EncryptedSerializer(make_cipher("k1", "k2"), plaintext="allow" if plain else "refuse")
    options: Any = {"unbound": "allow", "allow_write_plain": True} if plain else {}
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        store = SealedStore(PostgresStore(connection), serde=serde, **options)
        for number in range(puts):
            store.put((name,), f"{number % 10}", {"n": number, "text": "x" * 300})
            found = store.get((name,), f"{number % 10}")
            lost += found is None or found.value["n"] != number
    return lost


def write_until(url: str, name: str, end: Path) -> int:
    """Put checkpoints under the new key, and one write again and again; return how many steps that were."""
    step = 0
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        saver = PostgresSaver(connection, serde=EncryptedSerializer(K2))
        while step < 3 or not end.exists():
            checkpoint: Any = checkpoint_of(step)
            before = at(name, f"{step - 1:06}" if step else None)
            config = saver.put(before, checkpoint, {"step": step}, checkpoint["channel_versions"])
            saver.put_writes(config, [("out", {"step": step})], "task")
            saver.put_writes(at(name, FIXED), [("__error__", {"step": step})], "other task")
            step += 1
            time.sleep(0.02)  # a crowd of writes is not what it is about
    return step


def rotate_range(url: str, keys: str, options: list[str], out: Path) -> None:
    """Run the command for a range, with what it prints in a file."""
    sys.stdout, sys.stderr = out.open("w"), Path(os.devnull).open("w")  # noqa: SIM115 -- of the process
    os.environ["DB"] = url
    words = ["rotate", "--db-env", "DB", "--apply", "--batch", "8", "--keys", keys, "--json", *options]
    code = run(words)
    sys.stdout.flush()
    os._exit(code)
