"""BaseCheckpointSaver: what a saver gets without writing it, and what it must write itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sealpoint import JsonPlusSerializer
from sealpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint

CONFIG: Any = {"configurable": {"thread_id": "t"}}
MUST: dict[str, tuple[Any, ...]] = {
    "get_tuple": (CONFIG,),
    "put": (CONFIG, empty_checkpoint(), {}, {}),
    "put_writes": (CONFIG, [], "task"),
    "delete_thread": ("t",),
    "delete_for_runs": (["r"],),
    "copy_thread": ("t", "u"),
    "prune": (["t"],),
}


class Bare(BaseCheckpointSaver[int]): ...


class One(Bare):
    """Has one checkpoint, whatever it is asked for."""

    stored: Any = CheckpointTuple(CONFIG, empty_checkpoint(), {})

    def get_tuple(self, config: Any) -> Any:
        return self.stored

    async def aget_tuple(self, config: Any) -> Any:
        return self.stored


@pytest.mark.parametrize("method", MUST)
def test_a_saver_writes_these_itself(method: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(Bare(), method)(*MUST[method])
    with pytest.raises(NotImplementedError):
        asyncio.run(getattr(Bare(), f"a{method}")(*MUST[method]))


def test_a_saver_lists_by_itself() -> None:
    with pytest.raises(NotImplementedError):
        list(Bare().list(CONFIG))
    with pytest.raises(NotImplementedError):
        asyncio.run(anext(Bare().alist(CONFIG)))  # type: ignore[arg-type]


def test_get_gives_the_checkpoint_of_the_tuple() -> None:
    saver = One()
    assert saver.get(CONFIG) is asyncio.run(saver.aget(CONFIG)) is One.stored.checkpoint
    saver.stored = None
    assert saver.get(CONFIG) is asyncio.run(saver.aget(CONFIG)) is None


def test_the_serializer_is_made_at_first_use() -> None:
    """A subclass need not call our ``__init__``; one object serves for good."""

    class Careless(Bare):
        def __init__(self) -> None:
            pass

    saver = Careless()
    assert isinstance(saver.serde, JsonPlusSerializer)
    assert saver.serde is saver.serde


def test_an_untyped_serializer_gets_the_typed_methods() -> None:
    class Reprs:
        def dumps(self, obj: Any) -> bytes:
            return repr(obj).encode()

        def loads(self, data: bytes) -> Any:
            return data.decode()

    saver = Bare(serde=Reprs())  # type: ignore[arg-type]
    assert saver.serde.loads_typed(saver.serde.dumps_typed([1])) == "[1]"
