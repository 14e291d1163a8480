"""A wrapped saver returns what the bare one returns for the same calls, on every saver and in every form."""

from __future__ import annotations

import math
import uuid
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import TASKS

from tests.sealed.reading import content, exact, parts
from tests.sealed.savers import BARE, HEADS, SAVERS, Open
from tests.sealed.scene import ALICE, BOB, C1, C2, C3, CHILD, DELTA, PLACES, ROOT, at, fill, version

FORMS: Final = ("sealed", "all options")
SOME: Final = {
    "LangGraph SqliteSaver",
    "LangGraph AsyncPostgresSaver, pipeline",
    "AsyncSqliteSaver, on aiosqlite",
    "InMemorySaver",
}
"""Savers that are compared beside a thread store every day; the others in `make soak`."""
FILTERS: Final[list[dict[str, Any]]] = [
    {},
    {"source": "loop"},
    {"step": 1},
    {"step": 1.0},
    {"step": "1"},
    {"step": 9},
    {"source": "loop", "step": 2},
    {"user_id": "user alice"},
    {"user_id": "user nobody"},
    {"user_id": None},
    {"tenant": "tenant bob"},
    {"score": 20},
    {"score": 20.0},
    {"score": "20"},
    {"score": 20, "user_id": "user bob"},
    {"score": 20, "source": "input"},
    {"run_id": "run alice 2 "},
    {"parents": {}},
    {"parents": {"": C1}},
    {"notes": {"of": [ALICE, ROOT, 2, ""]}},
    {"notes": {"of": [ALICE]}},
    {"missing": 1},
    {"missing": None},
]
LISTINGS: Final[list[tuple[Any, dict[str, Any]]]] = [
    *((config, {}) for config in (None, at(ALICE, None), at(ALICE), at(ALICE, CHILD), at("nobody", None))),
    (at(ALICE, ROOT, C2), {}),
    *((config, {"filter": chosen}) for config in (None, at(ALICE, None)) for chosen in FILTERS),
    *((config, {"before": at(ALICE, ROOT, C3)}) for config in (None, at(ALICE, None))),
    *((config, {"limit": limit}) for config in (None, at(ALICE, None)) for limit in (0, 1, 2, 100)),
    (at(ALICE), {"before": at(ALICE, ROOT, C3), "limit": 1}),
    (at(ALICE), {"filter": {"user_id": "user alice"}, "limit": 1}),
    (at(ALICE), {"filter": {"notes": {"of": [ALICE, ROOT, 1, ""]}}, "limit": 1}),
    (at(ALICE), {"filter": {"score": 10}, "before": at(ALICE, ROOT, C3), "limit": 2}),
]


def read(saver: Any, config: Any) -> dict[str, Any] | None:
    found = saver.get_tuple(config)
    return None if found is None else parts(found)


def listed(saver: Any, config: Any, named: Any) -> Any:
    """A listing, or the name of its error: those with equal ids have no order of their own."""
    try:
        found = [parts(each) for each in saver.list(config, **named)]
    except (psycopg.Error, ValueError) as error:
        return type(error).__name__
    return sorted(found, key=lambda each: (each["config"]["checkpoint_id"], repr(each["config"])))


@pytest.mark.broad
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, form) for name in SAVERS for form in FORMS),
        *(pytest.param(name, HEADS, marks=[] if name in SOME else [pytest.mark.soak]) for name in SAVERS),
    ],
)
def test_the_same_is_read(open_: Open, name: str, form: str) -> None:
    """By get_tuple, list with filters, ``before`` and ``limit``, and delta histories."""
    bare, wrapped = open_(name, BARE), open_(name, form)
    for saver in (bare, wrapped):
        fill(saver)
    for place in PLACES:
        assert read(wrapped, place.config) == read(bare, place.config)
        histories = [
            exact(saver.get_delta_channel_history(config=place.config, channels=DELTA))
            for saver in (bare, wrapped)
        ]
        assert histories[1] == histories[0]
    for config, named in LISTINGS:
        expected = listed(bare, config, named)
        if len(expected) == named.get("limit") and config in (None, at(ALICE, None)):
            assert len(listed(wrapped, config, named)) == len(
                expected
            )  # which of equal ids is not determined
        else:
            assert listed(wrapped, config, named) == expected, (config, named)
    for config in (at(ALICE), at(BOB), at("nobody"), at(ALICE, "other"), at(ALICE, ROOT, "unknown")):
        found = [saver.get_tuple(config) for saver in (bare, wrapped)]
        assert [each and content(each) for each in found[1:]] == [
            each and content(each) for each in found[:1]
        ]


SYNC: Final = [
    "LangGraph SqliteSaver",
    "LangGraph PostgresSaver",
    "LangGraph InMemorySaver",
    "SqliteSaver",
    "InMemorySaver",
]

VALUES: Final[dict[str, Any]] = {
    "int of 64 bits": 2**64 - 1,
    "float": 0.1,
    "minus zero": -0.0,
    "text": "é\u2028\U0001f600",
    "empty text": "",
    "none": None,
    "true": True,
    "bytes": b"\0",
    "uuid": uuid.UUID(int=7),
}
NOT_ON_BARE_POSTGRES: Final[dict[str, Any]] = {
    "NUL": "a\0b",
    "infinity": math.inf,
    "text like an escape": "\\u0000",
    "float like an int": 1e300,
}
BIG: Final = [10**40, -(2**70), 2**64]
"""What no msgpack holds, and so no saver but Postgres, in JSON."""


def put_value(saver: Any, value: Any, *, versions: bool = True, writes: bool = True) -> Any:
    checkpoint: Any = {
        **empty_checkpoint(),
        "channel_values": {"x": value},
        "channel_versions": {"x": version(1)} if versions else {},
    }
    config = saver.put(at("t"), checkpoint, {}, {"x": version(1)} if versions else {})
    if writes:
        saver.put_writes(config, [("x", value)], "task")
    return saver.get_tuple(at("t"))


@pytest.mark.broad
@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("name", SYNC)
def test_a_value_is_the_same(open_: Open, name: str, what: str) -> None:
    found = [put_value(open_(name, form), VALUES[what]) for form in (BARE, "sealed")]
    bare, wrapped = (exact((each.checkpoint["channel_values"], each.pending_writes)) for each in found)
    assert wrapped == bare


@pytest.mark.broad
@pytest.mark.parametrize("what", VALUES | NOT_ON_BARE_POSTGRES)
@pytest.mark.parametrize("name", SYNC)
def test_a_value_is_read_back(open_: Open, name: str, what: str) -> None:
    """Also those that bare Postgres cannot hold."""
    value = (VALUES | NOT_ON_BARE_POSTGRES)[what]
    found = put_value(open_(name, "sealed"), value)
    assert exact(found.checkpoint["channel_values"]) == exact({"x": value})


@pytest.mark.parametrize("value", BIG)
def test_a_big_int_is_the_same_on_postgres(open_: Open, value: int) -> None:
    for form in (BARE, "sealed"):
        found = put_value(open_("LangGraph PostgresSaver", form), value, writes=False)
        assert exact(found.checkpoint["channel_values"]) == exact({"x": value})


@pytest.mark.parametrize("name", SYNC)
def test_nan_is_read_back(open_: Open, name: str) -> None:
    found = put_value(open_(name, "sealed"), math.nan)
    assert math.isnan(found.checkpoint["channel_values"]["x"])
    assert math.isnan(found.pending_writes[0][2])


@pytest.mark.broad
@pytest.mark.parametrize("value", ["text", 7, None, ["list"]])
@pytest.mark.parametrize("name", SYNC)
def test_a_value_without_a_version_is_the_same(open_: Open, name: str, value: Any) -> None:
    """What a saver does with it differs: it keeps it, keeps it if it stands in its JSON, or drops it."""
    found = [put_value(open_(name, form), value, versions=False) for form in (BARE, "sealed")]
    bare, wrapped = (each.checkpoint["channel_values"] for each in found)
    assert wrapped == bare


METADATA: Final[dict[str, Any]] = {
    "nested": {"a": {"b": [1, 2.5, None, True, "x"]}},
    "a tuple": {"a": (1, 2)},
    "a key that is no text": {"a": {1: 2}},
    "big int": {"a": 10**40},
    "float": {"a": 1e15, "b": 0.1},
    "unicode": {"a": "é\u2028\U0001f600", "é": 1},
    "NUL at the top": {"a": "x\0y"},
    "our own key": {"__sealpoint__": {"type": "x", "value": "y"}},
    "a dotted key": {"a.b": 1},
    "writes": {"writes": {"x": 1}},
    "nothing": {},
}


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", METADATA)
@pytest.mark.parametrize("name", SYNC)
def test_metadata_is_the_same(open_: Open, name: str, what: str, form: str) -> None:
    """With scalars of ``configurable`` and of the config's own metadata merged in."""
    config: Any = {
        "configurable": {**at("t")["configurable"], "user_id": "u", "score": 3, "__private": 1, "list": []},
        "metadata": {"from": "config", "user_id": "other", "ratio": 0.5},
    }
    found = []
    for each in (BARE, form):
        saver = open_(name, each)
        checkpoint: Any = {**empty_checkpoint(), "id": C1}
        try:
            saver.put(config, checkpoint, METADATA[what], {})
            found.append(content(saver.get_tuple(at("t")))["metadata"])
        except (TypeError, ValueError) as error:
            found.append(type(error).__mro__[-3:])
    assert found[1] == found[0]


@pytest.mark.parametrize("name", SYNC)
def test_sends_of_an_old_checkpoint_are_the_same(open_: Open, name: str) -> None:
    """PostgresSaver takes them from the writes to the parent, for checkpoints of before version 4."""
    for old, present in ((3, True), (3, False), (4, True)):
        found = []
        for form in (BARE, "sealed"):
            saver = open_(name, form)
            parent = None
            for id_ in (C1, C2):
                checkpoint: Any = {**empty_checkpoint(), "v": old, "id": id_}
                parent = saver.put(at("t", ROOT, parent and C1), checkpoint, {}, {})
                if present:
                    saver.put_writes(parent, [(TASKS, f"sent {id_}"), (TASKS, "again")], "task")
            found.append(content(saver.get_tuple(at("t")))["checkpoint"]["channel_values"])
        assert found[1] == found[0]
