"""Values apart from their checkpoint: which are stored, and on which thread async methods open them."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver, SealedStore
from sealpoint.sealed.steps import LARGE_BYTES

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Noting(RingCipher):
    """Notes on which threads it opens values."""

    def open(self, *arguments: Any, **options: Any) -> Any:
        self.threads = {*getattr(self, "threads", ()), threading.get_ident()}
        return super().open(*arguments, **options)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("text", ["small", "x" * LARGE_BYTES])
def test_large_values_do_not_block_the_event_loop(in_memory: bool, text: str) -> None:
    cipher = Noting(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)]), "xaes256gcm")

    async def read(inner: Any) -> set[int]:
        saver = SealedSaver(inner, serde=EncryptedSerializer(cipher))
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"], versions = {"text": text}, {"text": 1}
        checkpoint["channel_versions"] = {**versions}
        metadata: Any = {"step": 1, "note": text}
        await saver.aput(CONFIG, checkpoint, metadata, {**versions})
        cipher.threads = set[int]()
        listed = [item async for item in saver.alist(CONFIG)]
        assert [await saver.aget_tuple(CONFIG)] == listed
        assert listed[0].checkpoint["channel_values"] == {"text": text}
        return cipher.threads

    async def run() -> set[int]:
        if in_memory:
            return await read(InMemorySaver())
        async with AsyncSqliteSaver.from_conn_string(":memory:") as inner:
            return await read(inner)

    is_on_loop = threading.get_ident() in asyncio.run(run())
    assert is_on_loop is (text == "small")


class NotingSerializer(JsonPlusSerializer):
    """Notes on which threads it decodes values, and the most bytes that it decoded on each."""

    def loads_sealed(self, type_: str, data: bytes) -> Any:
        most = self.__dict__.setdefault("most", {})
        most[threading.get_ident()] = max(most.get(threading.get_ident(), 0), len(data))
        return super().loads_sealed(type_, data)


DECODED = 10 * LARGE_BYTES


@pytest.mark.parametrize("what", ["value", "writes", "many writes"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_is_large_when_it_is_decompressed_does_not_block_the_event_loop(kind: str, what: str) -> None:
    """It is stored in a few hundred bytes, and only its frame says how large it is."""
    pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    serde = NotingSerializer()
    cipher = RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)]))
    text, part = " " * DECODED, " " * (LARGE_BYTES // 2)

    async def read(inner: Any) -> None:
        saver: Any = SealedSaver(inner, serde=EncryptedSerializer(cipher, serde, compress="zstd"))
        config = CONFIG
        for step in range(3):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"text": text if what == "value" else "small"}
            checkpoint["channel_versions"] = {"text": step + 1}
            metadata: Any = {"step": step}
            config = await saver.aput(config, checkpoint, metadata, {"text": step + 1})
            writes = {"writes": [text], "many writes": [part] * 20}.get(what, [])
            await saver.aput_writes(config, [("text", each) for each in writes], "task")
        serde.__dict__["most"] = {}
        listed = [item async for item in saver.alist(CONFIG)]
        assert await saver.aget_tuple(config) == listed[0]
        await saver.aget_delta_channel_history(config=config, channels=["text"])

    async def run() -> None:
        if kind == "memory":
            return await read(InMemorySaver())
        async with AsyncSqliteSaver.from_conn_string(":memory:") as inner:
            return await read(inner)

    asyncio.run(run())
    most = serde.__dict__["most"]
    assert most.get(threading.get_ident(), 0) < LARGE_BYTES
    assert {*most} - {threading.get_ident()}


@pytest.mark.parametrize(("size", "count"), [(DECODED, 1), (LARGE_BYTES // 2, 20)])
def test_an_item_that_is_large_when_it_is_decompressed_does_not_block_the_event_loop(
    size: int, count: int
) -> None:
    pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    serde = NotingSerializer()
    cipher = RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)]))

    async def read() -> None:
        store = SealedStore(InMemoryStore(), serde=EncryptedSerializer(cipher, serde, compress="zstd"))
        await store.abatch([PutOp(("a",), f"k{n}", {"n": n, "text": " " * size}) for n in range(count)])
        for filter_ in (None, {"n": 0}, {"n": -1}):
            serde.__dict__["most"] = {}
            await store.asearch(("a",), filter=filter_, limit=count)
            most = serde.__dict__["most"]
            assert {*most} - {threading.get_ident()}
            assert most.get(threading.get_ident(), 0) < LARGE_BYTES

    asyncio.run(read())
