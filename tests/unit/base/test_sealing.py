"""`require_sealing`: savers that pass their values to their serializer, and savers that do not."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sealpoint import EncryptedSerializer, JsonPlusSerializer
from sealpoint.base import BaseCheckpointSaver, CheckpointTuple, arequire_sealing, require_sealing
from sealpoint.errors import SealingCheckError
from sealpoint.sealed import SealedSaver

KEY = bytes(range(32))
WATCHED = {"dumps_typed", "loads_typed", "seal"}
"""What a check has on the serializer meanwhile."""


def sealing() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY)


class Good(BaseCheckpointSaver[int]):
    """Stores what its serializer returns, in dicts: a third party's saver in 30 lines."""

    def __init__(self, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.checkpoints: dict[tuple[str, str], Any] = {}
        self.rows: list[tuple[str, str, str, Any]] = []

    def dump(self, value: Any) -> Any:
        return self.serde.dumps_typed(value)

    def load(self, stored: Any) -> Any:
        return self.serde.loads_typed(stored)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        thread_id, checkpoint_id = config["configurable"]["thread_id"], checkpoint["id"]
        self.checkpoints[thread_id, checkpoint_id] = self.dump(checkpoint), metadata
        place = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        return {"configurable": place}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        thread_id = config["configurable"]["thread_id"]
        self.rows += [(thread_id, task_id, channel, self.dump(value)) for channel, value in writes]

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        thread_id, checkpoint_id = (config["configurable"].get(key) for key in ("thread_id", "checkpoint_id"))
        found = self.checkpoints.get((thread_id, checkpoint_id))
        writes = [(row[1], row[2], self.load(row[3])) for row in self.rows if row[0] == thread_id]
        return found and CheckpointTuple(config, self.load(found[0]), found[1], None, writes)

    def delete_thread(self, thread_id: str) -> None:
        self.checkpoints = {place: kept for place, kept in self.checkpoints.items() if place[0] != thread_id}
        self.rows = [row for row in self.rows if row[0] != thread_id]

    def __bool__(self) -> bool:
        """Whether anything is stored."""
        return bool(self.checkpoints or self.rows)


class Copies(Good):
    """Has taken a reference to its serializer when it was made, as AWS's DynamoDBSaver does."""

    def __init__(self, serde: Any = None) -> None:
        super().__init__(serde)
        self.own = self.serde

    def dump(self, value: Any) -> Any:
        return self.own.dumps_typed(value)


class Beside(Good):
    """Keeps the checkpoint as it is, and passes only writes to its serializer."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        stored = super().put(config, {**checkpoint, "channel_values": {}}, metadata, new_versions)
        self.values = checkpoint["channel_values"]
        return stored


class WritesBeside(Good):
    """Passes only checkpoints to its serializer."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        thread_id = config["configurable"]["thread_id"]
        self.rows += [(thread_id, task_id, channel, value) for channel, value in writes]


class Indexes(Good):
    """Passes values to its serializer, and a second copy to an index."""

    def __init__(self, index: Callable[[Any], object]) -> None:
        super().__init__(sealing())
        self.index = index

    def dump(self, value: Any) -> Any:
        self.index(value)
        return super().dump(value)


def but(**methods: Any) -> Good:
    """A good saver but for some methods."""
    made: Good = type("But", (Good,), methods)(sealing())
    return made


def some_writes(self: Good, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
    """Pass all but special writes to the serializer."""
    Good.put_writes(self, config, [each for each in writes if not each[0].startswith("__")], task_id)


def same_writes(self: Good, config: Any) -> CheckpointTuple | None:
    found = Good.get_tuple(self, config)
    return found and found._replace(pending_writes=[("t", "canary", ""), ("t", "__interrupt__", "")])


def as_text(self: Good, value: Any) -> Any:
    kind, data = self.serde.dumps_typed(value)
    return kind, data.decode("utf-8", "replace").encode()


def there_and_back(self: Good, value: Any) -> Any:
    """Serialize, and store what is deserialized from that: RedisSaver makes its JSON so."""
    return self.serde.loads_typed(self.serde.dumps_typed(value))


class Awaited(Good):
    """Async only."""

    put = BaseCheckpointSaver.put
    put_writes = BaseCheckpointSaver.put_writes
    get_tuple = BaseCheckpointSaver.get_tuple
    delete_thread = BaseCheckpointSaver.delete_thread

    async def aput(self, *arguments: Any) -> Any:
        return Good.put(self, *arguments)

    async def aput_writes(self, *arguments: Any) -> None:
        Good.put_writes(self, *arguments)

    async def aget_tuple(self, config: Any) -> Any:
        return Good.get_tuple(self, config)

    async def adelete_thread(self, thread_id: str) -> None:
        Good.delete_thread(self, thread_id)


class AwaitedBeside(Awaited):
    async def aput_writes(self, *arguments: Any) -> None:
        WritesBeside.put_writes(self, *arguments)  # type: ignore[arg-type]


def late(saver: Good) -> Good:
    """Made without a serializer, which is assigned afterwards."""
    saver.serde = sealing()
    return saver


GOOD: dict[str, Callable[[], Any]] = {
    "good": lambda: Good(sealing()),
    "good, assigned": lambda: late(Good()),
    "keeps a reference to the sealing serializer": lambda: Copies(sealing()),
    "SealedSaver": lambda: SealedSaver(Good(), serde=sealing(), layout="whole"),
}

BAD: dict[str, tuple[Callable[[], Good], str]] = {
    "copied its serializer": (lambda: late(Copies()), "channel value"),
    "checkpoint beside": (lambda: Beside(sealing()), "channel value was not passed to saver.serde"),
    "writes beside": (lambda: WritesBeside(sealing()), "write was not passed to saver.serde"),
    "interrupts beside": (lambda: but(put_writes=some_writes), "interrupt was not passed to saver.serde"),
    "a second copy": (lambda: Indexes(json.dumps), "channel value"),
    "a second copy, pickled": (lambda: Indexes(pickle.dumps), "was pickled"),
    "a second copy, as text": (
        lambda: Indexes(partial(json.dumps, default=str)),
        "channel value was converted to text",
    ),
    "a second copy, as a mapping": (
        lambda: Indexes(partial(json.dumps, default=vars)),
        "channel value was not passed",
    ),
    "other values come back": (lambda: but(get_tuple=same_writes), "did not return the write"),
    "opened again": (lambda: but(dump=there_and_back, load=lambda _, stored: stored), "deserialized"),
    "bytes as text": (lambda: but(dump=as_text), "IntegrityError"),
    "nothing comes back": (lambda: but(get_tuple=lambda *_: None), "returned no checkpoint"),
    "no delete_thread": (lambda: but(delete_thread=BaseCheckpointSaver.delete_thread), "delete_thread"),
    "plain serializer": (lambda: Good(JsonPlusSerializer()), "JsonPlusSerializer does not seal"),
    "sync methods missing": (lambda: Awaited(sealing()), "arequire_sealing"),
}


@pytest.mark.parametrize("name", GOOD)
def test_savers_that_pass_their_values_to_the_serializer_pass(name: str) -> None:
    require_sealing(GOOD[name]())


@pytest.mark.parametrize("name", BAD)
def test_savers_that_do_not_are_refused_with_the_reason(name: str) -> None:
    """And nothing is left in them, nor on their serializer."""
    make, reason = BAD[name]
    saver = make()
    with pytest.raises(SealingCheckError) as caught:
        require_sealing(saver)
    assert reason in "\n".join([str(caught.value), *caught.value.__notes__])
    assert type(saver).__name__ in str(caught.value)
    assert caught.value.saver is type(saver)
    assert caught.value.reason
    assert caught.value.hint
    assert not saver
    assert not WATCHED & vars(saver.serde).keys()


def test_async_savers() -> None:
    asyncio.run(arequire_sealing(Awaited(sealing())))
    with pytest.raises(SealingCheckError, match="write was not passed"):
        asyncio.run(arequire_sealing(AwaitedBeside(sealing())))
    with pytest.raises(SealingCheckError) as caught:  # has no async methods
        asyncio.run(arequire_sealing(Good(sealing())))
    assert "require_sealing" in caught.value.hint
    assert "arequire" not in caught.value.hint


def test_a_cancelled_check_deletes_its_thread() -> None:
    class Hangs(Awaited):
        async def aget_tuple(self, config: Any) -> Any:
            if self:
                await asyncio.Event().wait()

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(arequire_sealing(saver), 0.01)

    saver = Hangs(sealing())
    asyncio.run(cancelled())
    assert not saver
    assert not WATCHED & vars(saver.serde).keys()


def test_a_failed_deletion_is_reported_beside_the_reason() -> None:
    class Refuses(WritesBeside):
        def delete_thread(self, thread_id: str) -> None:
            if self:
                raise OSError("read-only")  # once something is stored

    with pytest.raises(SealingCheckError, match="write was not passed") as caught:
        require_sealing(Refuses(sealing()))
    assert any("read-only" in note for note in caught.value.__notes__)

    class RefusesToo(Good):
        delete_thread = Refuses.delete_thread

    with pytest.raises(SealingCheckError, match="delete_thread raised OSError"):
        require_sealing(RefusesToo(sealing()))


def test_serializer_works_for_others_meanwhile() -> None:
    """Another thread's values pass unchanged, and so does a second check of the same serializer."""
    serde = sealing()
    value = {"deep": [[1, {"a": {2}}]], "text": "x"}
    values: list[Any] = []

    class Shares(Good):
        def put_writes(self, *arguments: Any, **named: Any) -> None:
            other = threading.Thread(
                target=lambda: values.append(serde.loads_typed(serde.dumps_typed(value)))
            )
            other.start()
            other.join()
            require_sealing(Good(serde))
            super().put_writes(*arguments, **named)

    require_sealing(Shares(serde))
    assert values == [value, value]
    assert not WATCHED & vars(serde).keys()


def test_a_serializer_derived_meanwhile_is_not_watched() -> None:
    """A graph that is compiled during a check extends the allowlist in a copy of the serializer."""

    class Compiles(Good):
        def put(self, *arguments: Any) -> Any:
            self.derived = self.serde.with_msgpack_allowlist([("a", "B")])  # type: ignore[attr-defined]
            return super().put(*arguments)

    saver = Compiles(sealing())
    require_sealing(saver)
    assert saver.derived is not saver.serde
    assert vars(saver.derived).keys() == vars(saver.serde).keys() == vars(sealing()).keys()

    class Derives:
        """Makes a new serializer, with attributes of its own."""

        def __init__(self) -> None:
            serde = sealing()
            self.dumps_typed, self.loads_typed = serde.dumps_typed, serde.loads_typed

        def with_msgpack_allowlist(self, extra_allowlist: Any) -> Derives:
            return Derives()

    saver = Compiles(Derives())
    require_sealing(saver)
    assert saver.derived.loads_typed(saver.derived.dumps_typed("x")) == "x"
    assert saver.derived.dumps_typed != saver.serde.dumps_typed


def test_a_serializer_without_attributes_is_refused() -> None:
    class Slots:
        __slots__ = ()

        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return sealing().dumps_typed(obj)

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return sealing().loads_typed(data)

    with pytest.raises(SealingCheckError, match="Slots"):
        require_sealing(Good(Slots()))
    with pytest.raises(SealingCheckError, match="serde"):
        require_sealing(object())


def test_an_attribute_of_the_serializer_is_restored() -> None:
    """A serializer may have its methods as attributes."""
    serde = sealing()

    class Delegates:
        def __init__(self) -> None:
            self.dumps_typed = serde.dumps_typed
            self.loads_typed = serde.loads_typed

    held = Delegates()
    before = dict(vars(held))
    require_sealing(Good(held))
    assert vars(held) == before


def test_further_keys_of_the_config() -> None:
    class Partitioned(Good):
        def put(self, config: Any, *arguments: Any) -> Any:
            assert config["configurable"]["tenant"] == "t1"
            return super().put(config, *arguments)

    require_sealing(Partitioned(sealing()), configurable={"tenant": "t1"})
    with pytest.raises(SealingCheckError, match="KeyError"):
        require_sealing(Partitioned(sealing()))
