"""put and put_writes: what is stored, in what order it comes back, and what a config must name."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest

from sealpoint.base import WRITES_IDX_MAP, PendingWrite
from sealpoint.errors import ConfigError, ConfigKeyError, MetadataError, RowError
from sealpoint.sqlite import SqliteSaver
from tests.support.checkpoints import at, dump, ids_in, make, put_chain

CYCLE: list[Any] = []
CYCLE.append(CYCLE)


def pending(saver: SqliteSaver, checkpoint_id: str = "1") -> list[PendingWrite] | None:
    found = saver.get_tuple(at("t", checkpoint_id))
    assert found is not None
    return found.pending_writes


def test_what_is_put_comes_back(saver: SqliteSaver) -> None:
    first = saver.put(at(), make("1", x=[1]), {"source": "input", "step": -1}, {})
    second = saver.put(first, make("2", x=[2]), {"source": "loop", "step": 0}, {})
    saver.put_writes(second, [("x", {"deep": [1, None]})], "task")
    found = saver.get_tuple(at())
    assert found is not None
    assert found.config == second == at("t", "2")
    assert found.parent_config == first == at("t", "1")
    assert found.checkpoint["channel_values"] == {"x": [2]}
    assert found.metadata == {"source": "loop", "step": 0}
    assert found.pending_writes == [("task", "x", {"deep": [1, None]})]


def test_the_first_has_no_parent_and_no_writes(saver: SqliteSaver) -> None:
    found = saver.get_tuple(saver.put(at(), make("1"), {}, {}))
    assert found is not None
    assert found.parent_config is None
    assert found.pending_writes == []


def test_get_tuple_gives_the_config_that_asked(saver: SqliteSaver) -> None:
    """With an id the caller's own config comes back, with all it holds; without, one that names the row."""
    saver.put(at(), make("1"), {}, {})
    asked = at("t", "1")
    asked["configurable"]["user"] = "u"
    found = saver.get_tuple(asked)
    assert found is not None
    assert found.config == asked


def test_nothing_is_found_where_nothing_is(saver: SqliteSaver) -> None:
    saver.put(at(), make("1"), {}, {})
    for config in (at("other"), at("t", "2"), at("t", "1", ns="sub")):
        assert saver.get_tuple(config) is None
        assert saver.get(config) is None


def test_a_checkpoint_is_replaced_by_one_with_its_id(saver: SqliteSaver) -> None:
    saver.put(at(), make("1", x=1), {"step": 1}, {})
    saver.put(at(), make("1", x=2), {"step": 2}, {})
    (found,) = saver.list(at())
    assert found.checkpoint["channel_values"] == {"x": 2}
    assert found.metadata == {"step": 2}


def test_the_latest_is_the_one_with_the_greatest_id(saver: SqliteSaver) -> None:
    for checkpoint_id in ("2", "3", "1"):
        saver.put(at(), make(checkpoint_id), {}, {})
    latest = saver.get(at())
    assert latest is not None
    assert latest["id"] == "3"


def test_scalars_of_the_config_are_stored_with_the_metadata(saver: SqliteSaver) -> None:
    config = at()
    config["configurable"]["user"] = "u1"
    config["metadata"] = {"run_id": "r", "thread_id": "elsewhere"}
    saver.put(config, make("1"), {"step": 1}, {})
    (found,) = saver.list(at())
    assert found.metadata == {"step": 1, "user": "u1", "run_id": "r"}


@pytest.mark.parametrize("thread_id", ["t", 7, uuid.UUID(int=1)])
def test_a_thread_id_is_text_a_number_or_a_uuid(saver: SqliteSaver, thread_id: object) -> None:
    stored = saver.put(at(thread_id), make("1"), {}, {})
    assert stored["configurable"]["thread_id"] == thread_id
    (found,) = saver.list(at(thread_id))
    assert found.config["configurable"]["thread_id"] == str(thread_id)


@pytest.mark.parametrize("thread_id", [None, True, 1.5, b"t", ["t"]])
def test_other_thread_ids_are_refused(saver: SqliteSaver, thread_id: Any) -> None:
    for act in (saver.get_tuple, lambda config: [*saver.list(config)]):
        with pytest.raises(ConfigError, match="thread_id"):
            act(at(thread_id))
    with pytest.raises(ConfigError, match="thread_id"):
        saver.put(at(thread_id), make("1"), {}, {})
    with pytest.raises(ConfigError, match="thread_id"):
        saver.delete_thread(thread_id)


@pytest.mark.parametrize("name", ["checkpoint_ns", "checkpoint_id"])
@pytest.mark.parametrize("value", [1, b"x", ["x"]])
def test_namespace_and_id_are_text(saver: SqliteSaver, name: str, value: object) -> None:
    config = at()
    config["configurable"][name] = value
    with pytest.raises(ConfigError, match=name):
        saver.put(config, make("1"), {}, {})
    with pytest.raises(ConfigError, match=name):
        saver.get_tuple(config)


@pytest.mark.parametrize("config", [{}, {"configurable": None}, {"configurable": {}}, None])
def test_a_config_names_a_thread(saver: SqliteSaver, config: Any) -> None:
    with pytest.raises(ConfigKeyError):
        saver.get_tuple(config)
    with pytest.raises(KeyError):  # as LangGraph raises
        saver.put(config, make("1"), {}, {})


def test_a_write_needs_namespace_and_checkpoint(saver: SqliteSaver) -> None:
    with pytest.raises(ConfigKeyError, match="checkpoint_ns"):
        saver.put({"configurable": {"thread_id": "t"}}, make("1"), {}, {})
    with pytest.raises(ConfigKeyError, match="checkpoint_id"):
        saver.put_writes(at(), [("x", 1)], "task")
    with pytest.raises(ConfigKeyError, match="checkpoint_ns"):
        saver.put_writes({"configurable": {"thread_id": "t", "checkpoint_id": "1"}}, [("x", 1)], "task")


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        b"x",
        {1, 2},
        object(),
        CYCLE,
        {1: "a", "1": "b"},
        dict.fromkeys(["\ud800", "\udfff"]),
    ],
    ids=["nan", "inf", "-inf", "bytes", "set", "object", "cycle", "same key", "same without surrogates"],
)
def test_metadata_that_json_cannot_hold_leaves_nothing_behind(saver: SqliteSaver, value: Any) -> None:
    """Checked before anything is written, down to what could not be read back."""
    with pytest.raises(MetadataError):
        saver.put(at(), make("1"), {"step": value}, {})
    assert dump(saver.conn) == []


def test_pending_writes_are_ordered_by_path_task_and_place(saver: SqliteSaver) -> None:
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [("a", 1), ("b", 2), ("__error__", 3)], "task2", "path1")
    saver.put_writes(config, [("a", 4)], "task0", "path2")
    saver.put_writes(config, [("a", 5)], "task1", "path1")
    saver.put_writes(config, [("a", 6)], "task3")
    assert pending(saver) == [
        ("task3", "a", 6),
        ("task1", "a", 5),
        ("task2", "__error__", 3),
        ("task2", "a", 1),
        ("task2", "b", 2),
        ("task0", "a", 4),
    ]


def test_a_write_that_is_there_stays(saver: SqliteSaver) -> None:
    """A task that runs again does not change what it wrote; what is new is added."""
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [("a", 1)], "task")
    saver.put_writes(config, [("a", 2), ("b", 3)], "task", "path")
    assert pending(saver) == [("task", "a", 1), ("task", "b", 3)]


@pytest.mark.parametrize("channel", WRITES_IDX_MAP)
def test_a_special_write_is_replaced_by_its_like(saver: SqliteSaver, channel: str) -> None:
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [(channel, "old"), ("a", 1)], "task")
    saver.put_writes(config, [(channel, "new")], "task")
    assert pending(saver) == [("task", channel, "new"), ("task", "a", 1)]


def test_a_special_write_beside_others_replaces_nothing(saver: SqliteSaver) -> None:
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [("__error__", "old")], "task")
    saver.put_writes(config, [("__error__", "new"), ("a", 1)], "task")
    assert pending(saver) == [("task", "__error__", "old"), ("task", "a", 1)]


def test_no_writes_are_no_writes(saver: SqliteSaver) -> None:
    config = saver.put(at(), make("1"), {}, {})
    saver.put_writes(config, [], "task")
    assert pending(saver) == []


def test_writes_may_come_before_their_checkpoint(saver: SqliteSaver) -> None:
    saver.put_writes(at("t", "1"), [("a", 1)], "task")
    assert ids_in(saver) == []
    saver.put(at(), make("1"), {}, {})
    assert pending(saver) == [("task", "a", 1)]


def test_versions_only_grow(saver: SqliteSaver) -> None:
    """As text: that is how they are compared."""
    versions = [saver.get_next_version(None, None)]
    for _ in range(20):
        versions.append(saver.get_next_version(versions[-1], None))
    assert versions == sorted(set(versions))


def test_a_checkpoint_without_an_id_is_refused(saver: SqliteSaver) -> None:
    """A config that names it would mean the latest one, which is another."""
    put_chain(saver, "1")
    before = dump(saver.conn)
    with pytest.raises(ConfigError):
        saver.put(at(), make(""), {}, {})
    with pytest.raises(ConfigError):
        saver.put_writes(at("t", ""), [("n", 1)], "task")
    assert dump(saver.conn) == before


def test_a_row_without_an_id_is_refused(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    kind, data = saver.serde.dumps_typed(make(""))
    saver.conn.execute("UPDATE checkpoints SET checkpoint_id = '', type = ?, checkpoint = ?", (kind, data))
    with pytest.raises(RowError):
        list(saver.list(None))
    with pytest.raises(RowError):
        saver.get_tuple(at())
