"""Inventory and inspection: values as plain data, sealed or not, and nothing of them is imported or built."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from sealpoint import RingCipher
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.inspect import (
    MAX_BYTES,
    MAX_CHARS,
    MAX_MEMBERS,
    Inventory,
    Readable,
    inspect,
    inventory,
    plain,
)
from sealpoint.admin.results.events import Event, Failure
from sealpoint.errors import (
    DecodeError,
    IntegrityError,
    LimitError,
    SealpointError,
    UnknownKeyError,
    UnknownTypeError,
)
from sealpoint.serde.inert import Inert
from sealpoint.serde.limits import Limits
from tests.support.databases.foreign import SECRET, cipher, insert, rows_of, write
from tests.support.values.forge import named, pack

HUMAN = ("langchain_core.messages.human", "HumanMessage")
UNIMPORTED = "antigravity"  # of the standard library; importing it opens a browser


@dataclass
class Ticket:
    """A type of this module."""

    number: int


def record(module: str, name: str, argument: Any = None) -> bytes:
    """A value that names a type."""
    return pack(named(0, module, name, argument))


def take(path: Path, ring: RingCipher | None = None, **options: Any) -> tuple[Inventory, list[Failure]]:
    """The inventory of a file, and what did not open."""
    events: list[Event] = []
    with rows_of(path) as store:
        found = inventory(store, ring, report=events.append, **options)
    return found, [event for event in events if isinstance(event, Failure)]


def records(found: Inventory) -> dict[tuple[str, str], int]:
    """How often which type is named."""
    return {pair: part.records for pair, part in found.constructors.items()}


def nested(levels: int) -> bytes:
    """Extensions within each other."""
    data = b"\xc0"
    for _ in range(levels):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


def forged(tmp_path: Path, rows: Iterable[tuple[Any, Any]]) -> Path:
    """A sealed file with rows of a stranger."""
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, rows)
    return path


THREADS: dict[str, dict[str, Any]] = {
    "a": {"m": [HumanMessage("x"), AIMessage("y")]},
    "b": {"m": [HumanMessage(SECRET)], "t": Ticket(7)},
}


@pytest.mark.parametrize("sealed", [False, True])
def test_types_are_counted_with_their_first_thread(tmp_path: Path, sealed: bool) -> None:
    found, failures = take(write(tmp_path / "a.db", THREADS, sealed=sealed), cipher())
    assert records(found) == {
        HUMAN: 2,
        ("langchain_core.messages.ai", "AIMessage"): 1,
        (__name__, "Ticket"): 1,
    }
    assert {part.name: (part.thread, part.is_safe) for part in found.constructors.values()} == {
        "HumanMessage": ("a", True),
        "AIMessage": ("a", True),
        "Ticket": ("b", False),
    }
    assert (found.values, found.not_opened, failures) == (4, 0, [])
    assert SECRET not in repr(found)


def test_nothing_is_imported(tmp_path: Path) -> None:
    rows = [("msgpack", record(UNIMPORTED, "geohash")), ("pickle", b"cantigravity\ngeohash\n.")]
    found, failures = take(forged(tmp_path, rows))
    assert records(found) == {(UNIMPORTED, "geohash"): 1, ("pickle", "?"): 1}
    assert UNIMPORTED not in sys.modules
    assert not failures


def test_every_value_is_read_in_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {"a": {}})
    insert(path, [("null", b"")] * 12, thread="a")
    events: list[Any] = []
    with rows_of(path) as store:
        inventory(store, batch=Batch(rows=3), report=events.append)
    assert [event.rows for event in events] == [3, 6, 9, 12, 13, 14]
    assert {event.total for event in events} == {14}
    assert len(read(path, "a", batch=Batch(rows=4))) == 14


def test_envelopes_of_json_rows_are_counted(tmp_path: Path) -> None:
    envelope = {"lc": 2, "type": "constructor", "id": ["my", "module", "Thing"], "kwargs": {"text": SECRET}}
    path = forged(tmp_path, [("json", json.dumps({"a": [envelope, envelope]}).encode())])
    assert records(take(path)[0]) == {("my.module", "Thing"): 2}


@pytest.mark.parametrize(
    ("tag", "blob", "error"),
    [
        ("msgpack", nested(1_000), LimitError),  # kills a decoder that re-enters itself
        ("msgpack+cobblestone256@k1", bytes(100), IntegrityError),
        ("msgpack", b"\xc1", DecodeError),
        ("msgpack", "text", SealpointError),
        ("json", b"[" * 100_000 + b"]" * 100_000, LimitError),
        ("yaml", b"a: 1", UnknownTypeError),
        (None, b"\xc0", SealpointError),
    ],
)
def test_value_that_is_not_read_is_a_failure_and_no_end(
    tmp_path: Path, tag: Any, blob: Any, error: type[SealpointError]
) -> None:
    path = forged(tmp_path, [(tag, blob), ("msgpack", record("a", "B"))])
    found, (failure,) = take(path, cipher())
    assert isinstance(failure.error, error)
    assert (failure.table, failure.place["checkpoint_id"]) == ("checkpoints", "00000000")
    assert (found.failures, records(found)) == (1, {("a", "B"): 1, HUMAN: 1})


def test_limits_are_those_that_were_given(tmp_path: Path) -> None:
    path = forged(tmp_path, [("msgpack", ormsgpack.packb([1] * 20))])
    assert take(path)[1] == []
    assert len(take(path, limits=Limits(elements=10))[1]) == 1


@pytest.mark.parametrize(
    ("pair", "nameable"),
    [
        (("größe", "Maß.C"), True),
        (("a", ""), False),
        (("", "B"), False),
        (("a", "B', '')] #"), False),
        (("m", "é" * 100_000), False),
    ],
)
def test_only_what_python_could_name_is_nameable(
    tmp_path: Path, pair: tuple[str, str], nameable: bool
) -> None:
    found, _ = take(forged(tmp_path, [("msgpack", record(*pair))]))
    (part,) = found.constructors.values()
    assert (part.is_nameable, part.name[:200], len(part.name) < 210) == (nameable, pair[1][:200], True)


def read(path: Path, thread: str, *, keys: bool = True, **options: Any) -> list[Readable | Failure]:
    """All values of a thread."""
    with rows_of(path) as store:
        return list(inspect(store, cipher() if keys else None, thread, **options))


def test_nothing_is_called_and_sealed_values_need_keys(tmp_path: Path) -> None:
    command = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(["os", "mkdir", [str(tmp_path / "made")]])))
    path = write(tmp_path / "a.db", {"a": {}, "ab": {}, "A": {}}, sealed=True)
    insert(path, [("msgpack", command)], thread="a")
    assert read(path, "%") == []
    sealed, found, written = read(path, "a", keys=False)
    assert isinstance(found, Readable)
    assert found.value == {"$record": "os.mkdir", "kind": "positional", "arguments": [str(tmp_path / "made")]}
    assert not os.path.lexists(tmp_path / "made")
    for failure in (sealed, written):
        assert isinstance(failure, Failure)
        assert isinstance(failure.error, UnknownKeyError)
        assert failure.place["thread_id"] == "a"


def test_value_that_is_not_shown_is_a_failure_and_no_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {})
    insert(path, [("msgpack", b"\xc1"), ("yaml", b""), (None, None), ("null", b"")], thread="a")
    assert [isinstance(part, Failure) for part in read(path, "a")] == [True, True, True, False]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x01\x02", {"$bytes": 2, "hex": "0102"}),
        (bytearray(b"\xff"), {"$bytes": 1, "hex": "ff"}),
        (bytes(1_000), {"$bytes": 1_000, "hex": "00" * MAX_BYTES}),
        ("x" * (MAX_CHARS + 1), {"$text": MAX_CHARS + 1, "start": "x" * MAX_CHARS}),
        ("x" * MAX_CHARS, "x" * MAX_CHARS),
        (math.inf, {"$float": "inf"}),
        (math.nan, {"$float": "nan"}),
        ({1: 2}, {"$map": [[1, 2]]}),
        ({"1": 2, 1: 3}, {"$map": [["1", 2], [1, 3]]}),
        ({"$bytes": 2, "hex": "0102"}, {"$map": [["$bytes", 2], ["hex", "0102"]]}),
        (
            Inert("pickle", "", "", b"x"),
            {"$record": "", "kind": "pickle", "arguments": {"$bytes": 1, "hex": "78"}},
        ),
        ({"a": [None, True, 1.5]}, {"a": [None, True, 1.5]}),
    ],
)
def test_what_json_lacks_says_what_it_is(value: Any, shown: Any) -> None:
    assert plain(value) == shown


def test_members_are_counted_over_the_whole_value() -> None:
    """A wide value and a deep one are cut to the same size, and say how much is missing."""
    assert plain(list(range(MAX_MEMBERS + 5)))[MAX_MEMBERS:] == [{"$cut": 5}]
    cut = plain({n: n for n in range(MAX_MEMBERS + 5)})
    assert cut["$map"][MAX_MEMBERS:] == [{"$cut": 5}]
    nested = plain([[0] * 1_000 for _ in range(10)])
    assert nested[0] == [0] * 1_000
    assert nested[9] == [{"$cut": 1_000}]


def restored(shown: Any) -> Any:
    """What `plain` was given, if nothing was cut."""
    if isinstance(shown, list):
        return [restored(item) for item in shown]
    if not isinstance(shown, dict):
        return shown
    if "$map" in shown:
        return {restored(key): restored(value) for key, value in shown["$map"]}
    if "$bytes" in shown:
        return bytes.fromhex(shown["hex"])
    if "$float" in shown:
        return float(shown["$float"])
    return {key: restored(value) for key, value in shown.items()}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.binary(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["a", "$map", "$bytes", "$float", "hex"]), inner, max_size=4)
            | st.dictionaries(st.integers() | st.binary(max_size=3), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_what_is_shown_can_be_read_one_way_only(value: Any) -> None:
    """No value looks like another one: what was shown is strict JSON, and leads back to it."""
    shown = plain(value)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert restored(shown) == value
