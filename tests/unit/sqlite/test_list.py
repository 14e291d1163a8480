"""list: what it finds, what it refuses, and that nothing waits for its reader."""

from __future__ import annotations

import locale
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sealpoint.errors import ConfigError, ConfigKeyError
from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.reader import FIRST_PAGE_ROWS, PAGE_ROWS
from tests.support.databases.checkpoints import at, ids_in, make, put_chain


@pytest.fixture
def filled(saver: SqliteSaver) -> SqliteSaver:
    """Two threads, and a second namespace in the first."""
    put_chain(saver, "1", "3", "5")
    put_chain(saver, "2", "4", ns="sub")
    put_chain(saver, "6", thread_id="other")
    return saver


def test_a_long_listing_loses_nothing_between_pages(saver: SqliteSaver) -> None:
    ids = [f"{number:04}" for number in range(2 * PAGE_ROWS + 1)]
    put_chain(saver, *ids)
    found = [*saver.list(at())]
    assert [each.checkpoint["id"] for each in found] == ids[::-1]
    assert [each.pending_writes for each in found] == [[("task", "n", n)] for n in range(len(ids))][::-1]


NOT_BEFORE: list[Any] = [{}, at(), at("t", None)]
NUMBERS: list[Any] = [2**63 - 1, -(2**63), 1.5, True, "\ud7ff\ue000\U0001f600", [2**64], {}]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        *(({"before": before}, ConfigKeyError) for before in NOT_BEFORE),
        *(({"limit": limit}, ConfigError) for limit in (-1, True, 1.5, 2**63)),
        ({"config": {"configurable": {"checkpoint_ns": ""}}}, ConfigKeyError),  # not every thread
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused(filled: SqliteSaver, wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ids_in(filled, **{"config": at(), **wrong})


METADATA: dict[str, Any] = {
    "text": 'it\'s "quoted"',
    "number": 7,
    "fraction": 1.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "object": {"inner": {"leaf": "x"}, "ä": [1, "ü"]},
    "array": [1, "2", {"three": 3}],
    "dash-ed": 1,
    "empty": {},
    "order": {"y": 2, "x": {"b": [1, None], "a": "t"}},
    "like": '{"x":1}',
    "texts": ["[1]", "{}"],
    "numbers": [1, 2.0, 2**70, -0.0],
    "truths": [True, False, None],
    "keys": {'qu"ote': 1, "do.t": 2, "back\\slash": 3, "nu\x00l": 4, "": 5, "line\n": 6, "😀": 7},
}


FOUND: list[Any] = [
    *({key: value} for key, value in METADATA.items()), METADATA, {"object.inner.leaf": "x"},
    {"object.inner": {"leaf": "x"}}, {"absent": None}, {"number": 7, "absent": None},
    {"array": (1, "2", {"three": 3})}, {}, None,
    # An object is a value, and not its text, in which the order of keys would count and the form of numbers.
    {"order": {"x": {"a": "t", "b": [1, None]}, "y": 2}}, {"order.x": {"a": "t", "b": (1.0, None)}},
    {"like": '{"x":1}'}, {"texts": ["[1]", "{}"]}, {"numbers": [1.0, 2, 2**70, 0]},
    {"truths": [True, False, None]}, {"keys": dict(reversed(METADATA["keys"].items()))},
]  # fmt: skip
LEFT_OUT: list[dict[str, Any]] = [
    {"text": "other"}, {"number": "7"}, {"number": 8}, {"yes": False}, {"no": None}, {"text": None},
    {"object": {}}, {"object.inner.leaf": "y"}, {"object.inner.leaf.x": "x"}, {"array": [1]}, {"absent": 1},
    {"number": 7, "text": "other"}, {"order": '{"y":2,"x":{"b":[1,null],"a":"t"}}'},
    {"order.x.b": "[1,null]"}, {"like": {"x": 1}}, {"texts": [[1], {}]}, {"truths": [1, 0, None]},
    {"truths": [True, False]}, {"truths": {"0": True, "1": False, "2": None}},
    {"numbers": [True, 2.0, 2**70, 0]}, {"numbers": [1, 2.0, 2**70 + 1, 0]},
    {"order": {"y": 2, "x": {"b": [None, 1], "a": "t"}}}, {"order": {"y": 2}},
    {"order": {"y": 2, "x": {"b": [1, None], "a": "t"}, "z": None}},
    *({"number": value} for value in NUMBERS),
    *({"text": value} for value in ("' OR 1=1 --", '"', "%", "?", "\x00")),
]  # fmt: skip


def test_a_filter_finds_what_has_it_and_nothing_else(saver: SqliteSaver) -> None:
    saver.put(at(), make("1"), METADATA, {})  # type: ignore[arg-type]
    for wanted in FOUND:
        assert ids_in(saver, at(), filter=wanted) == ["1"], wanted
    for wanted in LEFT_OUT:
        assert ids_in(saver, at(), filter=wanted) == [], wanted


@pytest.fixture
def comma() -> Iterator[None]:
    """A locale in which fractions have a comma, as an application may set it."""
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("tr_TR.UTF-8", "de_DE.UTF-8", "fr_FR.UTF-8"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
        except locale.Error:
            continue
        break
    else:
        pytest.skip("the system has no such locale")
    yield
    locale.setlocale(locale.LC_NUMERIC, before)


@pytest.mark.usefixtures("comma")
def test_a_fraction_is_found_in_every_locale(saver: SqliteSaver) -> None:
    """SQLite may read 1.5 of JSON as 1."""
    for number, value in enumerate((1, 1.5, -2.25, 1e300, 1.0)):
        saver.put(at(), make(str(number)), {"of": {"number": value}}, {})  # type: ignore[typeddict-unknown-key]
    for wanted, ids in ((1.5, ["1"]), (1, ["4", "0"]), (-2.25, ["2"]), (1e300, ["3"]), (1.0, ["4", "0"])):
        assert ids_in(saver, at(), filter={"of.number": wanted}) == ids


def test_an_object_with_a_key_twice_is_no_value_that_is_found(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    with saver.cursor() as cursor:
        cursor.execute("""UPDATE checkpoints SET metadata = '{"object": {"x": 1, "x": 2}}'""")
    for value in ({"x": 1}, {"x": 2}):
        assert ids_in(saver, at(), filter={"object": value}) == []


ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"x", "is bytes, which JSON lacks"),
        ({1}, "is set, which JSON lacks"),
        (object(), "is object, which JSON lacks"),
        ([object()], "cannot be written as JSON"),
        ({"a": float("nan")}, "cannot be written as JSON"),
        (ITSELF, "cannot be written as JSON"),
        (2**63, "has over 64 bits"),
        (-(2**63) - 1, "has over 64 bits"),
        ("a\ud800", "holds a lone surrogate"),
        ("\udfff", "holds a lone surrogate"),
        (["\ud800"], "holds a lone surrogate"),
        ({"a": {"\udfff": 1}}, "holds a lone surrogate"),
    ],
    ids=lambda part: ascii(part).partition(" at 0x")[0],
)
def test_a_filter_value_is_refused_for_its_reason(filled: SqliteSaver, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"filter value of 'step' {reason}"):
        ids_in(filled, at(), filter={"step": value})


@pytest.mark.parametrize("key", ["", "a b", "a') OR 1=1 --", "a.", ".a", "a..b", "ä", "a\n", 1])
def test_a_filter_key_cannot_carry_sql(filled: SqliteSaver, key: Any) -> None:
    with pytest.raises(ConfigError, match="filter key"):
        ids_in(filled, at(), filter={key: 1})


def test_put_inside_the_loop_works(saver: SqliteSaver) -> None:
    """From another thread, too: the lock is free meanwhile. The listing stays what it was when it began."""
    put_chain(saver, *(f"{number:04}" for number in range(PAGE_ROWS + 5)))
    seen = []
    for found in saver.list(at()):
        seen.append(found.checkpoint["id"])
        copied = make(f"{found.checkpoint['id']}-copy")
        thread = threading.Thread(target=saver.put, args=(found.config, copied, {}, {}), daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()
        saver.put_writes(found.config, [("x", 1)], "other task")
    assert len(seen) == len(set(seen)) == PAGE_ROWS + 5
    assert len(ids_in(saver, at())) == 2 * len(seen)


def test_what_is_deleted_meanwhile_is_left_out(saver: SqliteSaver) -> None:
    put_chain(saver, *(f"{number:04}" for number in range(PAGE_ROWS + 1)))
    listing = saver.list(at())
    next(listing)
    saver.delete_thread("t")
    assert [each.checkpoint["id"] for each in listing][-1] == f"{PAGE_ROWS - FIRST_PAGE_ROWS + 1:04}"
