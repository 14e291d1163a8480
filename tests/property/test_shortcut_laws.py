"""Laws of the shortcuts for speed: with any of them switched off, and with all, nothing else comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import ormsgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from sealpoint.errors import DecodeError, LimitError, SealpointError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer, encode, jsontext
from sealpoint.serde.fast import SHORTCUTS
from sealpoint.serde.limits import Limits
from sealpoint.serde.scan import is_plain, require_few_costly, scan
from tests.property.without import without
from tests.support.runs.extent import by_extent
from tests.support.values import hostile
from tests.support.values.samples import SAMPLES, alike
from tests.support.values.strategies import anything, equal, messages
from tests.support.values.wire import NIL, array, extension, mapping, text

EACH: Final = pytest.mark.parametrize(
    "off", [*([name] for name in sorted(SHORTCUTS)), sorted(SHORTCUTS)], ids=[*sorted(SHORTCUTS), "all"]
)


def outcome(read: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, or the class of the error that it raises."""
    try:
        return read(*arguments)
    except SealpointError as error:
        return type(error)


def same(one: Any, other: Any) -> bool:
    return one is other if isinstance(one, type) or isinstance(other, type) else equal(one, other)


def read_twice(kind: str, data: bytes) -> list[Any]:
    """Read by all kinds of serializers, made here, and again: a message is adopted at its third sight."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    raw = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
    reads = [strict.loads_typed, raw.loads_typed, strict.with_msgpack_allowlist([("a", "B")]).loads_typed]
    found = [outcome(read, (kind, data)) for read in reads]
    return found + [outcome(strict.loads_sealed, kind, data) for _ in range(4)]


# --- all of them ---------------------------------------------------------------------------------


@EACH
def test_samples_round_trip_without_it(off: list[str]) -> None:
    """To the same bytes and the same values."""
    usual = JsonPlusSerializer()
    for name, value in SAMPLES.items():
        written = usual.dumps_typed(value)
        with without(off):
            serde = JsonPlusSerializer()
            sealed = EncryptedSerializer.from_key(bytes(32), serde=serde)
            assert serde.dumps_typed(value) == written, name
            for _ in range(3):
                assert alike(serde.loads_typed(written), usual.loads_typed(written)), name
                assert alike(sealed.loads_typed(sealed.dumps_typed(value)), usual.loads_typed(written)), name


@EACH
@settings(max_examples=by_extent(20, 60))
@given(anything() | messages())
def test_values_are_written_to_the_same_bytes_without_it(off: list[str], value: Any) -> None:
    written = outcome(JsonPlusSerializer().dumps_typed, value)
    with without(off):
        assert outcome(JsonPlusSerializer().dumps_typed, value) == written


@EACH
@settings(max_examples=by_extent(20, 60))
@given(
    hostile.written
    | hostile.msgpack
    | hostile.damaged("msgpack")
    | anything().map(lambda value: JsonPlusSerializer(on_blocked="raw").dumps_typed(value)[1])
    | st.lists(messages()).map(lambda value: JsonPlusSerializer().dumps_typed(value)[1])
)
def test_bytes_are_read_or_refused_the_same_without_it(off: list[str], data: bytes) -> None:
    """Honest bytes, damaged ones, and those that were made to be refused."""
    found = read_twice("msgpack", data)
    with without(off):
        assert all(map(same, read_twice("msgpack", data), found))


# --- one by one ----------------------------------------------------------------------------------

BOUNDS = [Limits(), *(Limits(depth=depth) for depth in range(1, 9)), Limits(records=2), Limits(elements=9)]


@settings(max_examples=by_extent(100, 400))
@given(hostile.written | hostile.msgpack | hostile.damaged("msgpack"))
@example(extension(7, array(*[array()] * 70)))
@example(extension(0, mapping(text("a"), NIL, text("a"), NIL)))
@example(extension(0, mapping(b"\xca\x7f\xc0\x00\x00", NIL)))
@example(extension(0, mapping(b"\xcb\x7f\xf8" + bytes(6), NIL)))
@example(extension(0, mapping(b"\x01", NIL, b"\xc3", NIL)))
@example(extension(0, array(NIL))[:-1])
@example(extension(8, array(NIL)))
@example(extension(5, b"\x91" * 62 + NIL))
@example(extension(5, b"\x91" * 63 + NIL))
@example(extension(5, b"\x91" * 64 + NIL))
@example(bytes.fromhex("c71a0094a27265a0c40161c70f0093a27265a091c7070093a27265a000"))
def test_plain_payloads_are_checked_as_others(data: bytes) -> None:
    """The same payloads, or the same refusal, also at every bound.

    A payload that is malformed and beyond a bound is refused for either reason.
    """
    for limits in BOUNDS:
        found = outcome(scan, data, limits)
        with without({"records"}):
            general = outcome(scan, data, limits)
        assert general == found or (limits != BOUNDS[0] and {general, found} == {DecodeError, LimitError})


def test_plain_payloads_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the law above would compare the general path with itself."""
    skipped: list[bytes] = []
    real = is_plain

    def counting(payload: bytes, levels: int) -> bool:
        passes = real(payload, levels)
        skipped.extend([payload] * passes)
        return passes

    monkeypatch.setattr("sealpoint.serde.scan.is_plain", counting)
    call = {"name": "f", "args": {"a": [1, {"b": 2.5}]}, "id": "1", "type": "tool_call"}
    value = [HumanMessage("a"), AIMessage("b" * 300, tool_calls=[call]), {1}, re.compile("c")]
    scan(JsonPlusSerializer().dumps_typed(value)[1])
    assert len(skipped) == len(value)


_names = st.sampled_from([("re", "compile"), ("langchain_core.messages.ai", "AIMessageChunk"), ("a", "b")])
_spelled = st.builds(
    lambda code, head, form, names, more: extension(code, head + b"".join(map(form, names)) + more),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([b"\x93", b"\xdc\x00\x03", b"\xdd\x00\x00\x00\x03", b"\x94", b"\x80"]),
    st.sampled_from([text, lambda name: b"\xd9" + bytes((len(name),)) + name.encode()]),
    _names,
    st.sampled_from([NIL, text("compile"), text("x" * 300)]),
)


@given(st.lists(_spelled, max_size=9), st.integers(0, 3), st.integers(0, 3))
def test_costly_types_are_counted_as_by_their_names(made: list[bytes], patterns: int, chunks: int) -> None:
    """In whatever form the names are written, and beside the same text elsewhere."""
    data, limits = array(text("compile"), *made), Limits(patterns=patterns, chunks=chunks)
    try:
        payloads = scan(data)
    except SealpointError:
        return
    found = outcome(require_few_costly, data, payloads, limits)
    with without({"costly"}):
        assert outcome(require_few_costly, data, payloads, limits) is found


def test_costly_types_are_refused_both_ways() -> None:
    data = JsonPlusSerializer().dumps_typed([AIMessageChunk(content="a")] * 3)[1]
    for off in (set[str](), {"costly"}):
        with without(off):
            assert outcome(require_few_costly, data, scan(data), Limits(chunks=2)) is not None
            assert outcome(require_few_costly, data, scan(data), Limits(chunks=3)) is None


_json = st.recursive(
    st.sampled_from(
        ["0", "-0", "-0.0", "1e999", "1", '"-0"', '"a"', "null", "NaN", "9" * 4300, "9" * 4301, ""]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(inner, max_size=3).map(
            lambda items: "{" + ",".join(f'"{i % 2}":{v}' for i, v in enumerate(items)) + "}"
        )
    ),
    max_leaves=5,
) | st.text(max_size=9)


@settings(max_examples=by_extent(75, 300))
@given(_json, st.sampled_from(["", " ", "\n"]), st.sampled_from(["", " ", "1", "]"]))
def test_short_json_is_parsed_as_long(body: str, before: str, after: str) -> None:
    data = f"{before}{body}{after}".encode("utf-8", "surrogatepass")
    found = outcome(jsontext.parse, data, 64, 1000)
    with without({"json"}):
        other = outcome(jsontext.parse, data, 64, 1000)
    assert repr(other) == repr(found)


def test_memory_is_left_alone_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is freed once in a process, at the first large value."""
    freed: list[int] = []
    monkeypatch.setattr(encode, "_keep_freed_memory", lambda: freed.append(1))
    large = bytes(2 * encode.LARGE_BYTES)
    with without({"memory"}):
        JsonPlusSerializer().dumps_typed([large])
    assert not freed
    JsonPlusSerializer().dumps_typed([large])
    assert freed


def test_own_snapshots_are_written_as_such_after_the_encoders_are_forgotten() -> None:
    from sealpoint.serde.classes import _DeltaSnapshot

    with without(()):
        data = JsonPlusSerializer().dumps_typed(_DeltaSnapshot(1))[1]
    assert data == ormsgpack.packb(ormsgpack.Ext(7, b"\x01"))
