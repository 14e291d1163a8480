"""Values apart from their checkpoint: which are stored, and on which thread async methods open them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
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
