"""Instances have the public attributes of LangGraph's; `DIFFERENCES` holds all that differs, and why."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver as TheirBase
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint import JsonPlusSerializer, RingCipher, base, langgraph, memory, replay, serde, sqlite
from sealpoint.errors import OmittedAttributeError
from sealpoint.sqlite import aio
from tests.compat import test_bridge_signatures as bridge
from tests.compat.versions import IS_NEW
from tests.support.keys.rings import make_cipher

PAIRS: Final[dict[str, tuple[Any, Any]]] = {
    "base": (TheirBase, base.BaseCheckpointSaver),
    "jsonplus": (TheirSerializer, serde.JsonPlusSerializer),
    "encrypted": (TheirEncrypted, serde.EncryptedSerializer),
    "sqlite": (Theirs, sqlite.SqliteSaver),
    **bridge.PAIRS,
}
if IS_NEW:
    from langgraph._internal._replay import ReplayState

    PAIRS["replay"] = (ReplayState, replay.ReplayState)

_LOCK: Final = "a statement may run inside a transaction of the same thread"
_SQLITE: Final = {"lock is RLock instead of lock": _LOCK}
_ASYNC: Final = {"lock is _Lock instead of Lock": "it serves threads as well as the loop"}
_MEMORY: Final = dict.fromkeys(
    ("no blobs", "no storage", "no writes", "no stack"), "values lie in a SQLite database in memory"
)
_CIPHER: Final = {"no from_pycryptodome_aes": "its rows are bound to nothing; a ring reads them"}
DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "sqlite": _SQLITE,
    "langgraph sqlite": _SQLITE,
    "sqlite.aio": _ASYNC,
    "langgraph sqlite.aio": _ASYNC,
    "memory": _MEMORY,
    "langgraph memory": _MEMORY,
    "encrypted": _CIPHER,
    "langgraph encrypted": _CIPHER,
}
OMITTED: Final = [
    (pair, difference.removeprefix("no "))
    for pair, table in DIFFERENCES.items()
    for difference in table
    if difference.startswith("no ")
]


async def make(kind: Any, stack: AsyncExitStack) -> Any:
    """An instance with nothing in it."""
    match kind.__name__:
        case "SqliteSaver":
            return kind(stack.enter_context(closing(sqlite3.connect(":memory:", check_same_thread=False))))
        case "AsyncSqliteSaver":
            return kind(await stack.enter_async_context(aiosqlite.connect(":memory:")))
        case "InMemorySaver":
            return stack.enter_context(kind())
        case "EncryptedSerializer":
            return kind(RingCipher(make_cipher().ring))
        case "ReplayState":
            return kind("1")
    return kind()


def differences(theirs: Any, ours: Any) -> set[str]:
    """Name the public attributes that ours lacks, or that are something else."""
    found = set()
    for name in (each for each in dir(theirs) if not each.startswith("_")):
        wanted = getattr(theirs, name)
        if not hasattr(ours, name):
            found.add(f"no {name}")
        elif callable(wanted):
            if not callable(getattr(ours, name)):
                found.add(f"{name} is no function")
        elif (other := type(getattr(ours, name)).__name__) != type(wanted).__name__:
            found.add(f"{name} is {other} instead of {type(wanted).__name__}")
        elif isinstance(wanted, bool | str | list) and getattr(ours, name) != wanted:
            found.add(f"{name} is {getattr(ours, name)!r} instead of {wanted!r}")
    return found


@pytest.mark.parametrize("pair", PAIRS)
def test_attributes_are_langgraphs(pair: str) -> None:
    async def compare() -> set[str]:
        async with AsyncExitStack() as stack:
            theirs, ours = [await make(kind, stack) for kind in PAIRS[pair]]
            return differences(theirs, ours)

    assert asyncio.run(compare()) == set(DIFFERENCES.get(pair, {}))


def test_a_class_without_attributes_would_be_found_out() -> None:
    assert {"no dumps_typed", "no loads_typed"} <= differences(TheirSerializer(), object())


@pytest.mark.parametrize(("pair", "name"), OMITTED)
def test_what_is_omitted_says_what_to_use_instead(pair: str, name: str) -> None:
    """And looks absent to code that asks first, as `hasattr` and mocks with a specification do."""

    async def ask() -> None:
        async with AsyncExitStack() as stack:
            for each in (PAIRS[pair][1], await make(PAIRS[pair][1], stack)):
                with pytest.raises(OmittedAttributeError, match=name) as caught:
                    getattr(each, name)
                assert caught.value.hint
                assert isinstance(caught.value, AttributeError)
                assert not hasattr(each, name)
                assert getattr(each, name, None) is None

    asyncio.run(ask())


@pytest.mark.parametrize("kind", [sqlite.SqliteSaver, aio.AsyncSqliteSaver, memory.InMemorySaver])
def test_a_saver_has_one_serializer_for_plain_values(kind: Any) -> None:
    """`jsonplus_serde` is the same object each time, another one than `serde`, and may be replaced."""

    async def ask() -> None:
        async with AsyncExitStack() as stack:
            saver = await make(kind, stack)
            assert type(saver.jsonplus_serde) is JsonPlusSerializer
            assert saver.jsonplus_serde is saver.jsonplus_serde is not saver.serde
            saver.jsonplus_serde = replaced = JsonPlusSerializer()
            assert saver.jsonplus_serde is replaced

    asyncio.run(ask())


def test_the_loop_is_the_one_that_it_was_made_on() -> None:
    async def ask() -> None:
        async with aio.AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            assert saver.loop is asyncio.get_running_loop()

    asyncio.run(ask())
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        assert langgraph.AsyncSqliteSaver(connection).loop is None
