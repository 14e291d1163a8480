"""``sealpoint.base`` beside ``langgraph.checkpoint.base``: the same names, and the same results."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint import base as theirs
from langgraph.checkpoint.base import id as their_id
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirJsonPlus

from sealpoint import base as ours
from sealpoint.base import checkpoint as our_id
from tests.compat.test_signatures import public_names

PUBLIC = sorted(public_names(theirs))

CONSTANTS = ["ERROR", "INTERRUPT", "RESUME", "SCHEDULED"]
CONSTANTS += ["LATEST_VERSION", "WRITES_IDX_MAP", "EXCLUDED_METADATA_KEYS"]

keys = st.sampled_from(
    ["a", "b", "step", "source", "writes", "run_id", "__own", *sorted(theirs.EXCLUDED_METADATA_KEYS)]
)
texts = st.text(st.sampled_from("ab\x00ü\ud800"), max_size=4)
scalars = texts | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
values = (
    scalars | st.binary(max_size=2) | st.lists(texts, max_size=2) | st.dictionaries(keys, texts, max_size=2)
)
tables = st.dictionaries(keys, values, max_size=5)
configs = st.fixed_dictionaries(
    {}, optional={"configurable": tables, "metadata": tables, "tags": st.just(["x"])}
)

names = st.sampled_from(["a", "b", "c"])
versions = st.dictionaries(names, st.integers(0, 9) | st.just("01.5"))
checkpoints = st.fixed_dictionaries(
    {
        "v": st.integers(1, 2),
        "id": st.just("id"),
        "ts": st.just("then"),
        "channel_values": st.dictionaries(names, st.lists(st.integers())),
        "channel_versions": versions,
        "versions_seen": st.dictionaries(names, versions),
    },
    optional={
        "updated_channels": st.none() | st.lists(names),
        "pending_sends": st.lists(st.integers()),
    },
)
channel_values = st.dictionaries(names, st.none() | st.integers())


def outcome(function: Any, *arguments: Any, **named: Any) -> tuple[str, Any]:
    """What a call returns, or the builtin error that it raises."""
    try:
        return "returned", function(*arguments, **named)
    except (KeyError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        return "raised", type(error).__name__


class Channel:
    """A channel with a value, or an empty one."""

    def __init__(self, value: Any, empty: type[Exception]) -> None:
        self.value = value
        self.empty = empty

    def checkpoint(self) -> Any:
        if self.value is None:
            raise self.empty
        return self.value


def test_there_are_names_to_compare() -> None:
    assert {"BaseCheckpointSaver", "Checkpoint", "ERROR", "RunnableConfig", "logger", "uuid6"} < set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert name in ours.__all__
    assert hasattr(ours, name)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_the_same(name: str) -> None:
    assert getattr(ours, name) == getattr(theirs, name)


def test_tuples_have_the_same_fields_and_defaults() -> None:
    assert ours.CheckpointTuple._fields == theirs.CheckpointTuple._fields
    assert ours.CheckpointTuple._field_defaults == theirs.CheckpointTuple._field_defaults


def test_an_empty_checkpoint_is_the_same_but_for_id_and_time() -> None:
    mine, other = dict(ours.empty_checkpoint()), dict(theirs.empty_checkpoint())
    assert [*mine] == [*other]  # in this order they are stored
    for checkpoint in (mine, other):
        assert uuid.UUID(str(checkpoint.pop("id"))).version == 6
        assert str(checkpoint.pop("ts")).endswith("+00:00")
    assert mine == other


@given(checkpoint=checkpoints)
def test_a_copy_is_the_same(checkpoint: Any) -> None:
    mine, other = ours.copy_checkpoint(checkpoint), theirs.copy_checkpoint(checkpoint)
    assert [*mine.items()] == [*other.items()]


@given(checkpoint=checkpoints)
def test_a_copy_shares_what_theirs_shares(checkpoint: Any) -> None:
    mine: Any = ours.copy_checkpoint(checkpoint)
    other: Any = theirs.copy_checkpoint(checkpoint)
    for part in ("channel_values", "channel_versions", "versions_seen", "updated_channels"):
        assert (mine[part] is checkpoint.get(part)) == (other[part] is checkpoint.get(part))
    for node, seen in checkpoint["versions_seen"].items():
        assert mine["versions_seen"][node] is not seen


@given(checkpoint=checkpoints, channels=st.none() | channel_values, step=st.integers(-1, 20_000))
def test_the_next_checkpoint_is_the_same(checkpoint: Any, channels: Any, step: int) -> None:
    made = []
    for base in (ours, theirs):
        own = channels and {name: Channel(value, base.EmptyChannelError) for name, value in channels.items()}
        made.append(dict(base.create_checkpoint(checkpoint, own, step, id="next")))
    for each in made:
        each.pop("ts")
    assert [*made[0].items()] == [*made[1].items()]


def test_the_next_checkpoint_has_an_id_that_carries_the_step() -> None:
    for base in (ours, theirs):
        checkpoint: Any = base.empty_checkpoint()
        following = base.create_checkpoint(checkpoint, None, 7)
        assert following["id"] > checkpoint["id"]
        assert uuid.UUID(following["id"]).clock_seq == 7


@given(config=configs, metadata=tables)
def test_metadata_is_the_same(config: Any, metadata: Any) -> None:
    for name in ("get_checkpoint_metadata", "get_serializable_checkpoint_metadata"):
        mine = outcome(getattr(ours, name), config, metadata)
        other = outcome(getattr(theirs, name), config, metadata)
        assert repr(mine) == repr(other)  # the same order, and 1 is not True


@pytest.mark.parametrize("config", [{"configurable": {"checkpoint_id": "c"}}, {"configurable": {}}, {}])
def test_the_id_in_a_config_is_the_same(config: Any) -> None:
    assert outcome(ours.get_checkpoint_id, config) == outcome(theirs.get_checkpoint_id, config)


def test_the_order_of_writes_is_the_same() -> None:
    for arguments in (("path",), ("path", "task"), ("path", "task", -3)):
        assert ours.writes_sort_key(*arguments) == theirs.writes_sort_key(*arguments)


class OurBare(ours.BaseCheckpointSaver[Any]): ...


class TheirBare(theirs.BaseCheckpointSaver[Any]): ...


@pytest.mark.parametrize("current", [None, 0, 1, 7, 2.5, True, "x", "1"])
def test_the_next_version_is_the_same(current: Any) -> None:
    assert outcome(OurBare().get_next_version, current, None) == outcome(
        TheirBare().get_next_version, current, None
    )


@given(number=st.integers(0, 2**128 - 1), version=st.none() | st.integers(6, 8))
@example(number=2**128 - 1, version=8)
@example(number=0, version=6)
def test_uuids_are_the_same(number: int, version: int | None) -> None:
    mine, other = our_id.UUID(int=number, version=version), their_id.UUID(int=number, version=version)
    assert mine == other
    assert (mine.version, mine.variant, str(mine)) == (other.version, other.variant, str(other))
    assert (mine.time, mine.subsec) == (other.time, other.subsec)
    assert our_id.UUID(str(other)) == mine


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"int": 1, "version": 9},
        {"int": 1, "version": 0},
        {"int": -1, "version": 6},
        {"int": 2**128, "version": 7},
        {"hex": "zz"},
        {"hex": "0" * 32, "version": 9},
        {"bytes": b"x"},
        {"hex": "0" * 32, "int": 1},
    ],
    ids=str,
)
def test_uuids_refuse_the_same(arguments: Any) -> None:
    mine = outcome(our_id.UUID, **arguments)
    assert mine == outcome(their_id.UUID, **arguments)
    assert mine[0] == "raised"


@given(node=st.integers(0, 2**48 - 1), clock_seq=st.integers(-2, 2**14))
def test_ids_carry_node_and_sequence_as_theirs_do(node: int, clock_seq: int) -> None:
    mine, other = our_id.uuid6(node, clock_seq), their_id.uuid6(node, clock_seq)
    assert mine.int & (1 << 62) - 1 == other.int & (1 << 62) - 1
    assert mine.version == other.version == 6


def test_ids_tell_the_same_time() -> None:
    """Theirs, taken between two of ours, lies between them."""
    before = time.time_ns()
    first, other, last = our_id.uuid6(), their_id.uuid6(), our_id.uuid6()
    after = time.time_ns()
    slack = 10**7  # one second: each of the two clocks may run ahead to stay unique
    assert first.time - slack <= other.time <= last.time + slack
    assert before // 100 <= last.time - 0x01B21DD213814000 <= after // 100 + slack


ALLOWED = [("some.module", "Type")]


def allowed_by(saver: Any, base: Any) -> tuple[bool, bool]:
    """Whether ``with_allowlist`` gave another saver, and whether the second call gave yet another."""
    wider = saver.with_allowlist(ALLOWED)
    assert type(wider) is type(saver)
    return wider is saver, wider.with_allowlist(ALLOWED) is wider


@pytest.mark.parametrize("modules", [True, None, [], ALLOWED, [("other", "Type")]], ids=str)
def test_with_allowlist_makes_another_saver_when_theirs_does(modules: Any) -> None:
    mine = OurBare(serde=ours.JsonPlusSerializer(allowed_msgpack_modules=modules))
    other = TheirBare(serde=TheirJsonPlus(allowed_msgpack_modules=modules))
    assert allowed_by(mine, ours) == allowed_by(other, theirs)


class Plain:
    """A serializer that knows nothing of allowlists."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "x", b""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return None


def test_with_allowlist_leaves_other_serializers_alone() -> None:
    for bare in (OurBare(serde=Plain()), TheirBare(serde=Plain())):
        assert bare.with_allowlist(ALLOWED) is bare
