"""Laws of what hostile bytes may cost, and of what they come back as.

Inputs are made in two sizes from one unit, so that a cost which grows faster than the
input shows. Memory is what Python allocates at most, time is counted in lines of Python that run; those of
the expressions are counted in `tests/unit/test_patterns.py`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import ormsgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealpoint.errors import LimitError, SealpointError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import Inert, decode_inert, inventory
from sealpoint.serde.limits import Limits
from sealpoint.serde.scan import scan
from tests.support.runs.costs import lines_of, peak_of
from tests.support.runs.extent import by_extent
from tests.support.values.forge import named, pack

strict = JsonPlusSerializer(allowed_msgpack_modules=None)
raw = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")

FREE_BYTES: Final = 2_000_000
BYTES_PER_BYTE: Final = 250
"""An empty set takes 20 bytes and becomes 300; a small message 75, and becomes 5 kB."""
FREE_LINES: Final = 50_000
LINES_PER_BYTE: Final = 60

Make = Callable[[int], Any]

MESSAGES: Final = {
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "ToolMessage": "tool",
    "HumanMessage": "human",
    "ChatMessage": "chat",
}


def attempt(read: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(SealpointError):
        read(*arguments)


# --- what grows ----------------------------------------------------------------------------------

units = st.sampled_from(
    ["x", "[", "{", '{"a":', '"', '\\"', "\\", ",", "[],", "0,", "\n", "é", "'\"", "1", "-", "[]", '{"a":1}']
)
texts: st.SearchStrategy[Make] = st.builds(
    lambda start, unit, end, as_bytes: (
        lambda size: (start + unit * size + end).encode() if as_bytes else start + unit * size + end
    ),
    st.sampled_from(["", "[", '{"a":', '"', '["']),
    units,
    st.sampled_from(["", "]", "}", '"', '"}', '"]']),
    st.sampled_from([False, False, True]),
)
small: st.SearchStrategy[Make] = st.sampled_from(
    [5, None, "", "x", b"x", [], {}, [[1]], {"a": 1}, {"type": "text", "text": "x"}, {"name": 5}, {1: 2}]
).map(lambda value: lambda _size: value)
deques: st.SearchStrategy[Make] = texts.map(
    lambda make: lambda size: named(0, "collections", "deque", [{"args": make(size)}])
)
wide: st.SearchStrategy[Make] = st.builds(
    lambda make, times: lambda size: [make(times)] * (size // times), small | texts, st.sampled_from([1, 3])
) | st.just(lambda size: dict.fromkeys(range(size)))
deep: st.SearchStrategy[Make] = st.sampled_from([3, 15, 21, 40]).map(
    lambda depth: lambda size: nested(depth, "'\"" * (size // 4))
)
parts = small | texts | deques | wide | deep


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


def calls(function: bool) -> st.SearchStrategy[Make]:
    """Tool calls in the form of LangChain or of a provider, with any part in any place."""

    def make_calls(name: Make, arguments: Make, several: bool) -> Make:
        def make(size: int) -> Any:
            count, each = (size // 3, 3) if several else (1, size)
            call: dict[str, Any] = {"name": name(3), "args": arguments(each), "id": "1", "index": 0}
            if function:
                call = {"id": "1", "function": {"name": name(3), "arguments": arguments(each)}}
            return [call] * count

        return make

    return st.builds(make_calls, small | st.just(lambda _: "f"), parts, st.booleans())


fields = st.fixed_dictionaries(
    {"content": parts | st.just(lambda _: "")},
    optional={
        "id": parts,
        "tool_call_id": parts | st.just(lambda _: "1"),
        "role": small,
        "tool_calls": calls(False) | parts,
        "invalid_tool_calls": calls(False) | parts,
        "tool_call_chunks": calls(False) | parts,
        "usage_metadata": parts,
        "raw": calls(True) | parts,
        "response_metadata": st.just(lambda _: {"output_version": "v1"}) | parts,
        "chunk_position": st.just(lambda _: "last"),
        "artifact": parts,
    },
)


def message(name: str, made: dict[str, Make], size: int) -> ormsgpack.Ext:
    values = {field: make(size) for field, make in made.items()}
    if "raw" in values:
        values["additional_kwargs"] = {"tool_calls": values.pop("raw")}
    return named(5, f"langchain_core.messages.{MESSAGES[name]}", name, values, "model_validate_json")


def one_message(name: str, made: dict[str, Make]) -> Callable[[int], bytes]:
    return lambda size: pack(message(name, made, size))


def many_messages(name: str, made: dict[str, Make]) -> Callable[[int], bytes]:
    return lambda size: pack([message(name, made, 12)] * (size // 40))


def message_in_message(name: str, made: dict[str, Make]) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        inner: Any = message(name, made, size)
        for _ in range(12):
            fields = {"content": [inner], "tool_call_id": "1"}
            inner = named(5, "langchain_core.messages.tool", "ToolMessage", fields, "model_validate_json")
        return pack(inner)

    return make


values = st.builds(
    lambda form, name, made: form(name, made),
    st.sampled_from([one_message, one_message, many_messages, message_in_message]),
    st.sampled_from([*MESSAGES]),
    fields,
)


@settings(max_examples=by_extent(8, 20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(make=values)
def test_memory_and_time_are_at_most_linear_in_the_input(make: Callable[[int], bytes]) -> None:
    for size in (300, 3_000):
        data = make(size)
        for read in (strict.loads_typed, raw.loads_typed):
            attempt(read, ("msgpack", data))  # which may import modules
            once_more = partial(attempt, read, ("msgpack", data))
            assert lines_of(once_more) <= FREE_LINES + LINES_PER_BYTE * len(data)
            assert peak_of(once_more) <= FREE_BYTES + BYTES_PER_BYTE * len(data)


@pytest.mark.parametrize("field", ["tool_calls", "invalid_tool_calls", "tool_call_chunks"])
@pytest.mark.parametrize("name", ["AIMessage", "AIMessageChunk"])
def test_calls_without_their_fields_cost_no_more(name: str, field: str) -> None:
    """LangChain fills in what they lack: each byte became 600."""
    data = pack(message(name, {"content": lambda _: "", field: lambda size: [{}] * size}, 40_000))
    attempt(strict.loads_typed, ("msgpack", pack(message(name, {"content": lambda _: ""}, 1))))
    peak = peak_of(lambda: attempt(strict.loads_typed, ("msgpack", data)))
    assert peak <= FREE_BYTES + BYTES_PER_BYTE * len(data)


# --- extensions within each other ----------------------------------------------------------------


def within(depth: int, code: int, content: bytes) -> bytes:
    data = pack(content)
    for _ in range(depth):
        payload = data if code == 7 else b"\x93" + pack("builtins") + pack("frozenset") + b"\x91" + data
        data = b"\xc9" + len(payload).to_bytes(4, "big") + bytes((code,)) + payload
    return data


READS: Final[dict[str, Callable[[bytes], Any]]] = {
    "scan": scan,
    "strict": lambda data: strict.loads_typed(("msgpack", data)),
    "raw": lambda data: raw.loads_typed(("msgpack", data)),
    "inert": lambda data: decode_inert("msgpack", data),
    "inventory": inventory,
}


@pytest.mark.claim("f12")
@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("way", READS)
def test_extensions_within_each_other_are_summed(way: str, code: int) -> None:
    """Each is a copy: 20 levels of 4 MiB were 80 MiB, and 64 of 64 MiB were 4.2 GiB."""
    large, small = bytes(4 * 1024 * 1024), bytes(64 * 1024)
    data = within(20, code, large)
    with pytest.raises(LimitError):
        READS[way](data)
    for passes in (within(6, code, large), within(20, code, small)):
        READS[way](passes)
        assert peak_of(lambda: READS[way](passes)) <= FREE_BYTES + 9 * len(passes)  # noqa: B023


def test_as_many_extensions_beside_each_other_pass() -> None:
    """They are not all copied at one time, and are no more than the value together."""
    data = pack([ormsgpack.Ext(7, pack(bytes(1024 * 1024)))] * 20)
    assert len(scan(data, Limits())) == 20


# --- what comes back -----------------------------------------------------------------------------

_moments = st.datetimes(timezones=st.none() | st.timezones()).map(lambda moment: moment.isoformat())
_spelled = st.builds(
    lambda text, place, old, new: (
        text[: place % (len(text) + 1)] + new + text[place % (len(text) + 1) + old :]
    ),
    _moments
    | st.uuids().map(lambda uuid: uuid.hex)
    | st.decimals().map(str)
    | st.ip_addresses().map(str)
    | st.ip_addresses(network="2001:db8::/64").map(lambda address: f"{address}/64"),
    st.integers(0, 40),
    st.integers(0, 2),
    st.sampled_from(["", "", "", " ", "0", "_", "T", "Z", ":", ".", "-", "+", "e", "E", "A", "/", "\u0661"]),
)
_numbers = st.integers(-3, 70) | st.booleans() | st.sampled_from([0.0, 1.0, 1e300, float("inf"), None])
_members = st.lists(_numbers | st.sampled_from(["a", b"a", "", [1], [1.0], [True]]), max_size=4)
_times = st.fixed_dictionaries(
    {
        "hour": _numbers,
        "minute": _numbers,
        "second": _numbers,
        "microsecond": _numbers,
        "tzinfo": st.none(),
        "fold": st.sampled_from([0, 1, 2, True]),
    }
)
_paths = st.lists(st.sampled_from(["/", "a", "..", ".", "", "a/b", "//", "C:\\", "a\\b"]), max_size=3)
_dtypes = st.sampled_from(
    ["|b1", "<b1", "<i4", "=i4", ">u2", "|S3", "<U1", ">U2", "<f8", "<M8[s]", "<M8[0s]", "<m8"]
)
_records = st.one_of(
    st.tuples(st.just(3), st.just("datetime"), st.just("datetime"), _spelled, st.just("fromisoformat")),
    st.tuples(
        st.just(0),
        *[st.just(part) for part in ("uuid", "UUID")],
        _spelled,
    ),
    st.tuples(st.just(0), st.just("decimal"), st.just("Decimal"), _spelled),
    st.tuples(
        st.just(0),
        st.just("ipaddress"),
        st.sampled_from(["IPv4Address", "IPv6Address", "IPv6Network", "IPv6Interface", "IPv4Network"]),
        _spelled,
    ),
    st.tuples(
        st.just(0),
        *[st.sampled_from([name]) for name in ("builtins",)],
        st.sampled_from(["set", "frozenset"]),
        _members,
    ),
    st.tuples(st.just(0), st.just("collections"), st.just("deque"), _members),
    st.tuples(
        st.just(1),
        st.just("datetime"),
        st.sampled_from(["date", "timedelta"]),
        st.lists(_numbers, max_size=4),
    ),
    st.tuples(st.just(2), st.just("datetime"), st.just("time"), _times),
    st.tuples(st.just(1), st.just("pathlib"), st.sampled_from(["Path", "PosixPath"]), _paths),
    st.tuples(
        st.just(1),
        st.just("re"),
        st.just("compile"),
        st.tuples(st.sampled_from(["a", "(?i)a", b"a"]), st.integers(-1, 300)),
    ),
    st.tuples(
        st.just(0),
        st.just("zoneinfo"),
        st.just("ZoneInfo"),
        st.sampled_from(["UTC", "utc", "Europe/Berlin", "./UTC"]),
    ),
)
_arrays = st.tuples(
    _dtypes,
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from("CF"),
    st.binary(max_size=24) | st.integers(0, 24).map(bytes),
)


def plain(value: Any) -> Any:
    """Return inert data in a form that tells 1, 1.0 and True apart, with the members of sets in one order."""
    if isinstance(value, Inert):
        payload = plain(value.payload)
        payload = sorted(payload, key=repr) if value.name in ("set", "frozenset") else payload
        return (value.kind, value.module, "Path" if value.name.endswith("Path") else value.name, payload)
    if isinstance(value, dict):
        return {plain(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return (type(value).__name__, repr(value))


def spelled_otherwise(value: Any) -> Any:
    """Return inert data as it is written by this Python, where two spellings are read for one value."""
    if isinstance(value, Inert) and isinstance(value.payload, str):
        text = value.payload
        text = text.replace("-", "") if value.name == "UUID" else text
        return value._replace(payload=text.replace("e", "E") if value.name == "Decimal" else text)
    if isinstance(value, Inert) and value.name == "compile":
        pattern, flags = value.payload
        is_unicode = isinstance(pattern, str) and not flags & re.ASCII
        return value._replace(payload=[pattern, int(flags | re.UNICODE) if is_unicode else flags])
    return value


@pytest.mark.claim("f16")
@settings(max_examples=by_extent(100, 400))
@given(
    _records.map(lambda parts: named(*parts)) | _arrays.map(lambda payload: ormsgpack.Ext(6, pack(payload)))
)
def test_what_is_read_is_written_as_it_was(value: ormsgpack.Ext) -> None:
    """Or refused: nothing comes back as something else than was stored."""
    data = pack(value)
    try:
        found = strict.loads_typed(("msgpack", data))
    except SealpointError:
        return
    if getattr(getattr(found, "dtype", None), "kind", "") in ("m", "M"):  # which only LangGraph writes
        return
    written = strict.dumps_typed(found)[1]
    assert plain(decode_inert("msgpack", written)) == plain(spelled_otherwise(decode_inert("msgpack", data)))
