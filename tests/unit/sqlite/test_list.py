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
from tests.support.checkpoints import at, ids_in, make, put_chain


@pytest.fixture
def filled(saver: SqliteSaver) -> SqliteSaver:
    """Two threads, and a second namespace in the first."""
    put_chain(saver, "1", "3", "5")
    put_chain(saver, "2", "4", ns="sub")
    put_chain(saver, "6", thread_id="other")
    return saver


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, ["6", "5", "4", "3", "2", "1"]),
        ({"configurable": {"thread_id": "t"}}, ["5", "4", "3", "2", "1"]),
        ({"configurable": {"thread_id": "t", "checkpoint_ns": None}}, ["5", "4", "3", "2", "1"]),
        (at(), ["5", "3", "1"]),
        (at(ns="sub"), ["4", "2"]),
        (at("t", "3"), ["3"]),
        (at("t", ""), ["5", "3", "1"]),
        (at("t", "4"), []),
        (at("nobody"), []),
    ],
)
def test_a_config_narrows_the_listing(filled: SqliteSaver, config: Any, expected: list[str]) -> None:
    assert ids_in(filled, config) == expected


def test_before_and_limit_narrow_it_further(filled: SqliteSaver) -> None:
    assert ids_in(filled, at(), before=at("t", "5")) == ["3", "1"]
    assert ids_in(filled, at(), before=at("elsewhere", "5"), limit=1) == ["3"]
    assert ids_in(filled, None, limit=2) == ["6", "5"]
    assert ids_in(filled, None, limit=0) == []


def test_each_comes_with_its_parent_and_its_own_writes(filled: SqliteSaver) -> None:
    latest, _, first = filled.list(at())
    assert latest.parent_config == at("t", "3")
    assert latest.pending_writes == [("task", "n", 2)]
    assert latest.metadata == {"step": 2, "run_id": "run"}
    assert first.parent_config is None
    assert first.pending_writes == [("task", "n", 0)]


def test_a_long_listing_loses_nothing_between_pages(saver: SqliteSaver) -> None:
    ids = [f"{number:04}" for number in range(2 * PAGE_ROWS + 1)]
    put_chain(saver, *ids)
    found = [*saver.list(at())]
    assert [each.checkpoint["id"] for each in found] == ids[::-1]
    assert [each.pending_writes for each in found] == [[("task", "n", n)] for n in range(len(ids))][::-1]


@pytest.mark.parametrize("before", [{}, {"configurable": {}}, at(), at("t", None)])
def test_before_without_an_id_is_an_error(filled: SqliteSaver, before: Any) -> None:
    with pytest.raises(ConfigKeyError):
        ids_in(filled, at(), before=before)


@pytest.mark.parametrize("limit", [-1, True, 1.5, "1", b"1"])
def test_a_limit_is_a_whole_number(filled: SqliteSaver, limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit"):
        ids_in(filled, at(), limit=limit)


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": {"checkpoint_ns": ""}}])
def test_a_config_without_a_thread_does_not_list_every_thread(filled: SqliteSaver, config: Any) -> None:
    with pytest.raises(ConfigKeyError):
        ids_in(filled, config)


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
}


@pytest.mark.parametrize(
    "wanted",
    [
        *({key: value} for key, value in METADATA.items()),
        METADATA,
        {"object.inner.leaf": "x"},
        {"object.inner": {"leaf": "x"}},
        {"absent": None},
        {"number": 7, "absent": None},
        {"array": (1, "2", {"three": 3})},
        {},
        None,
    ],
    ids=str,
)
def test_a_filter_finds_what_has_it(saver: SqliteSaver, wanted: Any) -> None:
    saver.put(at(), make("1"), METADATA, {})  # type: ignore[arg-type]
    assert ids_in(saver, at(), filter=wanted) == ["1"]


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


@pytest.mark.parametrize(
    "wanted",
    [
        {"text": "other"},
        {"number": "7"},
        {"number": 8},
        {"yes": False},
        {"no": None},
        {"text": None},
        {"object": {}},
        {"object.inner.leaf": "y"},
        {"object.inner.leaf.x": "x"},
        {"array": [1]},
        {"absent": 1},
        {"number": 7, "text": "other"},
    ],
    ids=str,
)
def test_a_filter_leaves_out_what_has_it_not(saver: SqliteSaver, wanted: dict[str, Any]) -> None:
    saver.put(at(), make("1"), METADATA, {})  # type: ignore[arg-type]
    assert ids_in(saver, at(), filter=wanted) == []


STORED: dict[str, Any] = {
    "object": {"y": 2, "x": {"b": [1, None], "a": "t"}},
    "text": '{"x":1}',
    "texts": ["[1]", "{}"],
    "numbers": [1, 2.0, 2**70, -0.0],
    "truths": [True, False, None],
    "keys": {'qu"ote': 1, "do.t": 2, "back\\slash": 3, "nu\x00l": 4, "": 5, "line\n": 6, "😀": 7},
}


@pytest.mark.parametrize(
    "wanted",
    [
        {"object": {"x": {"a": "t", "b": [1, None]}, "y": 2}},
        {"object.x": {"a": "t", "b": (1, None)}},
        {"object": {"x": {"a": "t", "b": [1.0, None]}, "y": 2.0}},
        {"text": '{"x":1}'},
        {"texts": ["[1]", "{}"]},
        {"numbers": [1.0, 2, 2**70, 0]},
        {"truths": [True, False, None]},
        {"keys": dict(reversed(STORED["keys"].items()))},
    ],
    ids=str,
)
def test_an_object_is_compared_as_a_value(saver: SqliteSaver, wanted: dict[str, Any]) -> None:
    """Not as text, in which the order of keys would count, and how a number is written."""
    saver.put(at(), make("1"), STORED, {})  # type: ignore[arg-type]
    assert ids_in(saver, at(), filter=wanted) == ["1"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"object": '{"y":2,"x":{"b":[1,null],"a":"t"}}'},
        {"object.x.b": "[1,null]"},
        {"text": {"x": 1}},
        {"texts": [[1], {}]},
        {"truths": [1, 0, None]},
        {"truths": [True, False]},
        {"truths": {"0": True, "1": False, "2": None}},
        {"numbers": [True, 2.0, 2**70, 0]},
        {"numbers": [1, 2.0, 2**70 + 1, 0]},
        {"object": {"y": 2, "x": {"b": [None, 1], "a": "t"}}},
        {"object": {"y": 2}},
        {"object": {"y": 2, "x": {"b": [1, None], "a": "t"}, "z": None}},
    ],
    ids=str,
)
def test_another_value_is_not_found(saver: SqliteSaver, wanted: dict[str, Any]) -> None:
    saver.put(at(), make("1"), STORED, {})  # type: ignore[arg-type]
    assert ids_in(saver, at(), filter=wanted) == []


def test_an_object_with_a_key_twice_is_no_value_that_is_found(saver: SqliteSaver) -> None:
    saver.put(at(), make("1"), STORED, {})  # type: ignore[arg-type]
    with saver.cursor() as cursor:
        cursor.execute("""UPDATE checkpoints SET metadata = '{"object": {"x": 1, "x": 2}}'""")
    for value in ({"x": 1}, {"x": 2}):
        assert ids_in(saver, at(), filter={"object": value}) == []


@pytest.mark.parametrize("value", [{"a": "\ud800"}, {"\udfff": 1}, ["\ud83d"]])
def test_a_filter_value_holds_no_lone_surrogate(filled: SqliteSaver, value: Any) -> None:
    with pytest.raises(ConfigError, match="lone surrogate"):
        ids_in(filled, at(), filter={"a": value})


@pytest.mark.parametrize(
    "key",
    ["", "a b", "a'", 'a"', "a') OR 1=1 --", "a[0]", "$", "a.", ".a", "a..b", "ä", "a\n", "a\x00", 1, None],
)
def test_a_filter_key_cannot_carry_sql(filled: SqliteSaver, key: Any) -> None:
    with pytest.raises(ConfigError, match="filter key"):
        ids_in(filled, at(), filter={key: 1})


@pytest.mark.parametrize("value", ["' OR 1=1 --", '"', "%", "?", "\x00"])
def test_a_filter_value_cannot_carry_sql(filled: SqliteSaver, value: str) -> None:
    assert ids_in(filled, at(), filter={"run_id": value}) == []


@pytest.mark.parametrize("value", [b"x", {1}, object(), [object()], {"a": float("nan")}])
def test_a_filter_value_is_json(filled: SqliteSaver, value: Any) -> None:
    with pytest.raises(ConfigError, match="filter value"):
        ids_in(filled, at(), filter={"step": value})


def test_put_inside_the_loop_works(saver: SqliteSaver) -> None:
    """And the listing stays what it was when it began."""
    put_chain(saver, *(f"{number:04}" for number in range(PAGE_ROWS + 5)))
    seen = []
    for found in saver.list(at()):
        seen.append(found.checkpoint["id"])
        saver.put(found.config, make(f"{found.checkpoint['id']}-copy"), {}, {})
        saver.put_writes(found.config, [("x", 1)], "other task")
    assert len(seen) == len(set(seen)) == PAGE_ROWS + 5
    assert len(ids_in(saver, at())) == 2 * len(seen)


def test_put_from_another_thread_inside_the_loop_works(saver: SqliteSaver) -> None:
    """The lock is free while the caller has a checkpoint in hand: the thread ends within the loop."""
    put_chain(saver, "1", "2")
    for found in saver.list(at()):
        copied = f"{found.checkpoint['id']}-copy"
        thread = threading.Thread(target=saver.put, args=(found.config, make(copied), {}, {}), daemon=True)
        thread.start()
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert ids_in(saver, at()) == ["2-copy", "2", "1-copy", "1"]


def test_what_is_deleted_meanwhile_is_left_out(saver: SqliteSaver) -> None:
    put_chain(saver, *(f"{number:04}" for number in range(PAGE_ROWS + 1)))
    listing = saver.list(at())
    next(listing)
    saver.delete_thread("t")
    assert [each.checkpoint["id"] for each in listing][-1] == f"{PAGE_ROWS - FIRST_PAGE_ROWS + 1:04}"


def test_a_listing_left_half_read_keeps_nobody_out(saver: SqliteSaver) -> None:
    put_chain(saver, "1", "2")
    listing = saver.list(at())
    next(listing)
    with saver.cursor() as cursor:
        cursor.execute("DROP TABLE writes")


@pytest.mark.parametrize("wanted", [None, {"run_id": "odd"}])
def test_a_limit_gives_the_head_of_the_whole(saver: SqliteSaver, wanted: dict[str, Any] | None) -> None:
    """In a thread with several namespaces, where SQLite goes another way to a few than to all."""
    ids = [f"{number:03}" for number in range(60)]
    for number, ns in enumerate(("", "a", "b|1")):
        put_chain(saver, *ids[number::3], ns=ns, run_id="odd" if number else "even")
    config: Any = {"configurable": {"thread_id": "t"}}
    whole = ids_in(saver, config, filter=wanted)
    assert whole == sorted(whole, reverse=True)
    for limit in (0, 1, 7, 100):
        assert ids_in(saver, config, filter=wanted, limit=limit) == whole[:limit]
        before = ids_in(saver, config, filter=wanted, limit=limit, before=at("t", "030"))
        assert before == [each for each in whole if each < "030"][:limit]
