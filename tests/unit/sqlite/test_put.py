"""put and put_writes: what is stored, in what order it comes back, and what a config must name."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest

from sealpoint.base import PendingWrite
from sealpoint.errors import ConfigError, ConfigKeyError, MetadataError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump, ids_in, make, put_chain

CYCLE: list[Any] = []
CYCLE.append(CYCLE)


def pending(saver: SqliteSaver, checkpoint_id: str = "1") -> list[PendingWrite] | None:
    found = saver.get_tuple(at("t", checkpoint_id))
    assert found is not None
    return found.pending_writes


# --- configs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("thread_id", [None, True, 1.5, b"t"], "it is a string, an integer or a UUID"),
        ("checkpoint_ns", [1, b"x"], "it is a string"),
        ("checkpoint_id", [1, b"x"], "it is a string"),
        *((name, ["\ud800", "a\udfff"], "lone surrogate") for name in at("", "")["configurable"]),
    ],
)
def test_a_place_is_named_by_text(saver: SqliteSaver, name: str, wrong: list[Any], reason: str) -> None:
    put_chain(saver, "1")
    before = dump(saver.conn)
    for value in wrong:
        config: Any = at("t", "1")
        config["configurable"][name] = value
        acts: list[Callable[[], object]] = [
            lambda: saver.get_tuple(config),  # noqa: B023
            lambda: ids_in(saver, config),  # noqa: B023
            lambda: saver.put(config, make("1"), {}, {}),  # noqa: B023
        ]
        if name == "thread_id":
            acts += [partial(saver.delete_thread, value), partial(saver.copy_thread, "t", value)]
        for act in acts:
            with pytest.raises(ConfigError, match=f"{name}.*{reason}"):
                act()
    assert dump(saver.conn) == before


@pytest.mark.parametrize("text", [7, uuid.UUID(int=1), "\ud7ff", "\ue000", "\U0001f600", "ä"], ids=ascii)
def test_a_place_holds_all_other_characters(saver: SqliteSaver, text: Any) -> None:
    put_chain(saver, "1", thread_id=text, ns=str(text))
    (found,) = saver.list(at(text, ns=str(text)))
    assert found.config["configurable"]["thread_id"] == str(text)


def test_a_config_names_what_a_call_needs(saver: SqliteSaver) -> None:
    configs: list[Any] = [{}, {"configurable": None}, {"configurable": {}}, None]
    for wrong in configs:
        with pytest.raises(ConfigKeyError):
            saver.get_tuple(wrong)
        with pytest.raises(KeyError):  # as LangGraph raises
            saver.put(wrong, make("1"), {}, {})
    with pytest.raises(ConfigKeyError, match="checkpoint_ns"):
        saver.put({"configurable": {"thread_id": "t"}}, make("1"), {}, {})
    with pytest.raises(ConfigKeyError, match="checkpoint_id"):
        saver.put_writes(at(), [("x", 1)], "task")
    with pytest.raises(ConfigKeyError, match="checkpoint_ns"):
        saver.put_writes({"configurable": {"thread_id": "t", "checkpoint_id": "1"}}, [("x", 1)], "task")


ABSENT = object()
IDS = ("t1", "", "ü", "\ud800", 7, True, None, uuid.UUID(int=1), b"t1", ABSENT)
TEXTS = ("ns", "", "ü", "\ud800", 7, None, ABSENT)
CHECKPOINT = make("1")
CALLS: dict[str, Callable[[SqliteSaver, Any], object]] = {
    "get_tuple": lambda saver, config: saver.get_tuple(config),
    "put": lambda saver, config: saver.put(config, CHECKPOINT, {}, {}),
    "put_writes": lambda saver, config: saver.put_writes(config, [("a", 1)], "task"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_plain_config_means_what_any_mapping_means(saver: SqliteSaver, call: str) -> None:
    """It is read in one step: the same statements run with the same values, or the same error is raised."""

    def outcome(config: Any) -> object:
        ran: list[str] = []
        saver.conn.set_trace_callback(ran.append)
        try:
            CALLS[call](saver, config)
        except ConfigError as error:
            return type(error), str(error)
        return ran

    for call_once in CALLS.values():
        call_once(saver, at("t", "1"))  # later calls run one statement
    saver.get_tuple(at())
    for thread_id, checkpoint_ns, checkpoint_id in product(IDS, TEXTS, TEXTS):
        names = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        plain = {"configurable": {name: value for name, value in names.items() if value is not ABSENT}}
        assert outcome(plain) == outcome(MappingProxyType(plain)) != [], plain


# --- what is stored -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        {1, 2},
        object(),
        CYCLE,
        {1: "a", "1": "b"},
        dict.fromkeys(["\ud800", "\udfff"]),
    ],
    ids=["bytes", "set", "object", "cycle", "same key", "same without surrogates"],
)
def test_metadata_that_json_cannot_hold_leaves_nothing_behind(saver: SqliteSaver, value: Any) -> None:
    """Checked before anything is written, down to what could not be read back."""
    with pytest.raises(MetadataError):
        saver.put(at(), make("1"), {"step": value}, {})
    assert dump(saver.conn) == []


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
