"""Inspection: one thread as plain data that says what it is, bounded, and never built."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Batch
from sealpoint.errors import LimitError, SealpointError, UnknownKeyError
from sealpoint.maintenance.inspect import MAX_BYTES, MAX_CHARS, MAX_MEMBERS, Readable, inspect, plain
from sealpoint.serde.inert import Inert, decode_inert
from tests.support.foreign import SECRET, cipher, insert, rows_of, write
from tests.support.strategies_hostile import msgpack


def read(path: Path, thread: str, *, keys: bool = True, **options: Any) -> list[Readable | Failure]:
    """All values of a thread."""
    with rows_of(path) as store:
        return list(inspect(store, cipher() if keys else None, thread, **options))


@pytest.mark.parametrize("sealed", [False, True])
def test_thread_is_read_as_plain_data(tmp_path: Path, sealed: bool) -> None:
    threads: dict[str, dict[str, Any]] = {"a": {"m": [HumanMessage(SECRET)], "n": 7}, "b": {"n": 8}}
    checkpoint, written = read(write(tmp_path / "a.db", threads, sealed=sealed), "a")
    assert isinstance(checkpoint, Readable)
    assert isinstance(written, Readable)
    channels = checkpoint.value["channel_values"]
    assert channels["n"] == 7
    assert channels["m"][0]["$record"] == "langchain_core.messages.human.HumanMessage"
    assert channels["m"][0]["arguments"]["content"] == SECRET
    assert (checkpoint.table, checkpoint.place["thread_id"]) == ("checkpoints", "a")
    assert (written.table, written.place["channel"], written.value) == ("writes", "answer", SECRET)


def test_other_threads_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {"a": {}, "ab": {}, "A": {}})
    assert {value.place["thread_id"] for value in read(path, "a")} == {"a"}
    assert read(path, "%") == []


def test_all_batches_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {"a": {}})
    insert(path, [("null", b"")] * 25, thread="a")
    assert len(read(path, "a", batch=Batch(rows=4))) == 27


def test_without_keys_sealed_values_are_failures(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {"a": {}}, sealed=True)
    insert(path, [("msgpack", b"\x07")], thread="a")
    sealed, plaintext, written = read(path, "a", keys=False)
    assert isinstance(plaintext, Readable)
    assert plaintext.value == 7
    for failure in (sealed, written):
        assert isinstance(failure, Failure)
        assert isinstance(failure.error, UnknownKeyError)


def test_nothing_is_called(tmp_path: Path) -> None:
    command = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(["os", "mkdir", [str(tmp_path / "made")]])))
    path = write(tmp_path / "a.db", {})
    insert(path, [("msgpack", command)], thread="a")
    (found,) = read(path, "a")
    assert isinstance(found, Readable)
    assert found.value == {"$record": "os.mkdir", "kind": "positional", "arguments": [str(tmp_path / "made")]}
    assert not os.path.lexists(tmp_path / "made")


def test_value_that_is_not_read_is_a_failure_and_no_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", {})
    insert(
        path, [("msgpack", b"\x91" * 1_000 + b"\xc0"), ("yaml", b""), (None, None), ("null", b"")], thread="a"
    )
    found = read(path, "a")
    assert [isinstance(part, Failure) for part in found] == [True, True, True, False]
    assert isinstance(found[0], Failure)
    assert isinstance(found[0].error, LimitError)


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
        ({(1, 2): None}, {"$map": [[[1, 2], None]]}),
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


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["$map", "$cut", "$bytes"]) | st.integers(),
            inner,
            max_size=4,
        )
        | st.builds(Inert, st.just("single"), st.text(max_size=3), st.text(max_size=3), inner)
    ),
    max_leaves=30,
)


@given(values)
def test_what_is_shown_is_strict_json(value: Any) -> None:
    shown = plain(value)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


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
    """No value looks like another one: what was shown leads back to it."""
    assert restored(plain(value)) == value


@given(msgpack)
def test_hostile_bytes_are_shown_or_refused(blob: bytes) -> None:

    try:
        shown = plain(decode_inert("msgpack", blob))
    except SealpointError:
        return
    assert len(json.dumps(shown, allow_nan=False)) < 10_000_000
