"""Inventory and inspection: values as plain data, sealed or not, and nothing of them is imported or built."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    UnknownKeyError,
)
from sealpoint.serde.inert import Inert
from tests.support.databases.foreign import cipher, insert, rows_of, write
from tests.support.values.forge import named, pack

UNIMPORTED = "antigravity"  # of the standard library; importing it opens a browser


def record(module: str, name: str, argument: Any = None) -> bytes:
    """A value that names a type."""
    return pack(named(0, module, name, argument))


def take(path: Path) -> tuple[Inventory, list[Failure]]:
    """The inventory of a file, and what did not open."""
    events: list[Event] = []
    with rows_of(path) as store:
        found = inventory(store, report=events.append)
    return found, [event for event in events if isinstance(event, Failure)]


def records(found: Inventory) -> dict[tuple[str, str], int]:
    """How often which type is named."""
    return {pair: part.records for pair, part in found.constructors.items()}


def forged(tmp_path: Path, rows: Iterable[tuple[Any, Any]]) -> Path:
    """A sealed file with rows of a stranger."""
    path = write(tmp_path / "a.db", sealed=True)
    insert(path, rows)
    return path


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
