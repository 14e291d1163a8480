"""What the safe types are made from: all that LangGraph writes is taken, every abuse is refused."""

from __future__ import annotations

import gc
import itertools
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import FrameType
from typing import Any

import numpy
import pytest

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.guards import RefusedError, compile_within
from sealpoint.serde.limits import (
    MAX_DECIMAL_CHARS,
    MAX_DECIMAL_EXPONENT,
    MAX_FIELDS,
    MAX_JSON_DEPTH,
    MAX_NAME_CHARS,
    MAX_PARTS,
    MAX_PATTERN_CHARS,
    MAX_SAME_HASH,
)
from sealpoint.serde.rebuild import make_builder
from tests.property.without import without
from tests.support.values.forge import extension, named, record

SINGLE, POSITIONAL, KEYWORD, METHOD, PYDANTIC_V1, PYDANTIC_V2 = range(6)
METHODS = {METHOD: ["fromisoformat"], PYDANTIC_V2: ["model_validate_json"]}


@pytest.fixture(params=["shortcuts", "guards alone"])
def strict(request: pytest.FixtureRequest) -> Iterator[JsonPlusSerializer]:
    """A strict serializer; in one of two ways all arguments go to their guard."""
    with without({"arguments"} if request.param == "guards alone" else ()):
        yield JsonPlusSerializer(allowed_msgpack_modules=None)


def same_hash(count: int) -> list[list[int]]:
    """Members that would each be compared with all others."""
    fives = [5 + (2**61 - 1) * more for more in range(5)]
    return [list(member) for member in itertools.islice(itertools.product(fives, repeat=3), count)]


# --- arguments ------------------------------------------------------------------------------------

SET, FROZENSET, DEQUE = "builtins.set", "builtins.frozenset", "collections.deque"
DATE, DATETIME, TIME = "datetime.date", "datetime.datetime", "datetime.time"
TIMEDELTA, TIMEZONE, ZONE = "datetime.timedelta", "datetime.timezone", "zoneinfo.ZoneInfo"
DECIMAL, UUID, PATH, PATTERN = "decimal.Decimal", "uuid.UUID", "pathlib.PosixPath", "re.compile"
IPV4, IPV6, NETWORK = "ipaddress.IPv4Address", "ipaddress.IPv6Address", "ipaddress.IPv4Network"
INTERFACE, SEND, STORE_ITEM = "ipaddress.IPv4Interface", "langgraph.types.Send", "langgraph.store.base.Item"
AI, CHUNK = "langchain_core.messages.ai.AIMessage", "langchain_core.messages.ai.AIMessageChunk"

HOUR = named(POSITIONAL, "datetime", "timedelta", [0, 3600, 0])
NOON = {"hour": 12, "minute": 2, "second": 3, "microsecond": 4, "tzinfo": None, "fold": 0}
ITEM = {"namespace": ["a"], "key": "k", "value": {}} | dict.fromkeys(
    ("created_at", "updated_at"), "2020-01-01T00:00:00+00:00"
)
TOO_DEEP = "[" * (MAX_JSON_DEPTH + 1)
DEEP_CALL = {"tool_calls": [{"id": "1", "function": {"arguments": TOO_DEEP}}]}
DEEP_CHUNK = [{"name": "f", "args": TOO_DEEP, "id": "1", "index": 0}]

NOT_TEXT = "its argument is not short text"
NOT_INTEGERS = "its arguments are not 3 whole numbers"
NOT_FIELDS = "its arguments are not its fields"
NOT_WRITTEN = "its arguments are not in the form that is written"
NEVER_WRITTEN = "it is never written as this kind of record"
NO_NAME = "a part is not a file name"
NO_PATH = "its parts are not the parts of a path"

REFUSED: list[tuple[str, str, int, list[Any]]] = [
    ("its argument is not a list", SET, SINGLE, ["text", {"a": 1}, b"abc"]),
    ("its argument is not a list", DEQUE, SINGLE, ["text", 10**9]),
    ("a member occurs twice", SET, SINGLE, [[1, 1], [1, True], [0, 0.0], [[1], [1.0]]]),
    ("too many of its members share a hash", SET, SINGLE, [same_hash(MAX_SAME_HASH + 1)]),
    ("too many of its members share a hash", FROZENSET, SINGLE, [same_hash(MAX_SAME_HASH + 1)]),
    ("TypeError", SET, SINGLE, [[{}]]),
    (NEVER_WRITTEN, FROZENSET, POSITIONAL, [[[1]]]),
    (NEVER_WRITTEN, SET, KEYWORD, [{}]),
    (NEVER_WRITTEN, DEQUE, POSITIONAL, [[[1], 5]]),
    (NEVER_WRITTEN, DATE, METHOD, ["2020-01-01"]),
    (NEVER_WRITTEN, DATETIME, POSITIONAL, [[2020, 1, 1]]),
    (NEVER_WRITTEN, DATETIME, SINGLE, [b"\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00"]),  # as in a pickle
    (NEVER_WRITTEN, PATTERN, KEYWORD, [{"pattern": "a"}]),
    (NEVER_WRITTEN, UUID, KEYWORD, [{"int": 5}]),
    (NEVER_WRITTEN, SEND, KEYWORD, [{"node": "n", "arg": 1}]),
    (NEVER_WRITTEN, "langgraph.types.Interrupt", POSITIONAL, [[1]]),
    (NEVER_WRITTEN, STORE_ITEM, KEYWORD, [{}]),
    (NEVER_WRITTEN, AI, KEYWORD, [{"content": "x"}]),
    (NOT_INTEGERS, DATE, POSITIONAL, [["2020", 1, 1], [b"\x07\xe4\x01\x01"], [True, True, True], [1, 1]]),
    (NOT_INTEGERS, DATE, POSITIONAL, [[2020.0, 1, 1], [1, 1, True], [1, 1, "1"], [1, 1, 1, 1], None]),
    (NOT_INTEGERS, TIMEDELTA, POSITIONAL, [[1.5, 0, 0], [0, 0.0, 0], [0, 0, 0, 0, 0, 0, 1], {"days": 1}]),
    ("ValueError", DATE, POSITIONAL, [[2020, 13, 1]]),
    ("its normal form", TIMEDELTA, POSITIONAL, [[0, 86_400, 0], [0, -1, 0], [0, 0, 10**6], [0, 0, -1]]),
    ("OverflowError", TIMEDELTA, POSITIONAL, [[10**9, 0, 0]]),
    (NOT_TEXT, DATETIME, METHOD, ["2020-01-01" + " " * 100, "1" * 65, 5, b"1", None]),
    (NOT_WRITTEN, DATETIME, METHOD, ["1" * 64, "2020-01-01 00:00:00", "2020-01-01", "2020-W01-1T00:00:00"]),
    (NOT_WRITTEN, DATETIME, METHOD, ["20200101T000000", "2020-01-01T00:00:00Z", "2020-01-01T00:00"]),
    (NOT_WRITTEN, DATETIME, METHOD, [f"2020-01-01T00:00:00{x}" for x in (".123", ".1234567", ",123456")]),
    (NOT_WRITTEN, DATETIME, METHOD, ["2020-01-01T00:00:00.000000+00:00", "2020-01-01T00:00+01"]),
    (NOT_WRITTEN, DATETIME, METHOD, ["2020-01-01T00:00:00.000001-00:00"]),
    (NOT_FIELDS, TIME, KEYWORD, [{"hour": 1}, NOON | {"x": 1}, [*NOON], {**NOON, "fold": 0, "x": 1}]),
    (NOT_FIELDS, TIME, KEYWORD, [{key: NOON[key] for key in NOON if key != field} for field in NOON]),
    ("5 whole numbers", TIME, KEYWORD, [NOON | {key: "1"} for key in NOON if key != "tzinfo"]),
    ("5 whole numbers", TIME, KEYWORD, [NOON | {key: True} for key in NOON if key != "tzinfo"]),
    ("ValueError", TIME, KEYWORD, [NOON | {"hour": 24}]),
    ("TypeError", TIME, KEYWORD, [NOON | {"tzinfo": "UTC"}]),
    ("an offset and a name", TIMEZONE, POSITIONAL, [[3600], [], ["a"], HOUR, [HOUR, 1], [HOUR, "a", "b"]]),
    (NOT_TEXT, DECIMAL, SINGLE, [5, None, b"1", [0, [1], 10**9], "1" * (MAX_DECIMAL_CHARS + 1)]),
    ("its exponent is not an integer", DECIMAL, SINGLE, ["one"]),
    ("out of range", DECIMAL, SINGLE, [f"1{e}{MAX_DECIMAL_EXPONENT + 1}" for e in ("E", "e", "E+", "e-")]),
    ("out of range", DECIMAL, SINGLE, ["1e-999999999999", "1E999999 ", "\n1E999999\u2028", "1E9999_99"]),
    ("out of range", DECIMAL, SINGLE, ["1E\uff19\uff19\uff19\uff19\uff19\uff19"]),
    (NOT_WRITTEN, DECIMAL, SINGLE, [" 1.5 ", "+1.5", "1_000", "\u0661", "inf", "01"]),
    (NOT_WRITTEN, DECIMAL, SINGLE, [f"1{e}{MAX_DECIMAL_EXPONENT}" for e in "eE"]),  # it writes E+
    ("its arguments are not a pattern and flags", PATTERN, POSITIONAL, [["a"], ["a", 0, 0], "a0"]),
    ("too long", PATTERN, POSITIONAL, [[["a"], 0], [None, 0], ["a" * (MAX_PATTERN_CHARS + 1), 32]]),
    ("too long", PATTERN, POSITIONAL, [[b"a" * (MAX_PATTERN_CHARS + 1), 0]]),
    ("its pattern is not a valid regular expression", PATTERN, POSITIONAL, [["(", 32]]),
    ("flags are not known", PATTERN, POSITIONAL, [["a", flags] for flags in (128, 512, 2**20, -1)]),
    ("flags are not known", PATTERN, POSITIONAL, [["a", flags] for flags in ("I", True, 1.0, None)]),
    ("too long to compile", PATTERN, POSITIONAL, [["[\\x00-\U0010ffff]" * 50, int(re.I | re.U)]]),
    ("too long to compile", PATTERN, POSITIONAL, [["(" * 450 + ")" * 450, 32]]),
    ("OverflowError", PATTERN, POSITIONAL, [["(?:a{9999}){99999999999999999999}", 32]]),
    (NOT_WRITTEN, PATTERN, POSITIONAL, [["(?i)a", 32]]),
    (NOT_TEXT, UUID, SINGLE, [5, "-" * 10_000, "1" * 65, bytes(16), None]),
    ("ValueError", UUID, SINGLE, ["1" * 64]),
    (NOT_WRITTEN, UUID, SINGLE, ["urn:uuid:" + "0" * 32, "A" * 32, "0_" + "0" * 30, "\u0661" * 32]),
    (NOT_TEXT, IPV6, SINGLE, [5, bytes(16), "fe80::1%" + "e" * 100, "1" * 65]),
    (NOT_TEXT, NETWORK, SINGLE, [[0, 0]]),
    ("AddressValueError", IPV6, SINGLE, ["1" * 64]),
    (NOT_WRITTEN, IPV6, SINGLE, ["0:0:0:0:0:0:0:1", "2001:DB8::1"]),
    (NOT_WRITTEN, NETWORK, SINGLE, ["1.2.3.4", "1.2.3.0/255.255.255.0", "1.2.3.0/024"]),
    (NOT_WRITTEN, INTERFACE, SINGLE, ["1.2.3.4/0.0.0.255"]),
    ("name of a time zone", ZONE, SINGLE, ["../../../etc/passwd", "/etc/localtime", "..", "", "\xe4", 5]),
    ("name of a time zone", ZONE, SINGLE, ["Europe//Berlin", "Europe/./Berlin", "UTC/", "a b", "a/b/c/d/e"]),
    ("name of a time zone", ZONE, SINGLE, ["UTC\0", "UTC\n", "a.b", "a" * 65, None, b"UTC"]),
    ("Error", ZONE, SINGLE, ["Europe"]),  # a folder, by its own error if the package tzdata is there
    ("ZoneInfoNotFoundError", ZONE, SINGLE, ["Europe/Nowhere", "a" * 64, "a/b/c/d", "a_b-c"]),
    (NO_NAME, PATH, POSITIONAL, [["a\0b"], ["a" * (MAX_NAME_CHARS + 1)], [b"a"], [1]]),
    (NO_PATH, PATH, POSITIONAL, [["a/../../b"], ["a", "."], ["."], ["a", "/etc"], ["a", "/"], ["a", ""]]),
    ("it has too many parts", PATH, POSITIONAL, [["a"] * (MAX_PARTS + 1), "ab"]),
    (NOT_WRITTEN, SEND, POSITIONAL, [["n", 1, 5]]),
    ("TypeError", "langgraph.types.Command", KEYWORD, [{"nothing": 1}]),
    ("its namespace has an unexpected type", STORE_ITEM, PYDANTIC_V1, [ITEM | {"namespace": "ab"}]),
    ("its namespace is not made of text", STORE_ITEM, PYDANTIC_V1, [ITEM | {"namespace": [5]}]),
    ("its key has an unexpected type", STORE_ITEM, PYDANTIC_V1, [ITEM | {"key": 5}]),
    (NOT_WRITTEN, STORE_ITEM, PYDANTIC_V1, [ITEM | {"updated_at": "2020-01-01"}]),
    ("TypeError", STORE_ITEM, PYDANTIC_V1, [ITEM | {"score": 1}]),
    (NOT_FIELDS, AI, PYDANTIC_V2, ["x", dict.fromkeys(map(str, range(MAX_FIELDS + 1)))]),
    ("pydantic refuses field 'content'", AI, PYDANTIC_V2, [{}]),
    ("nested over 64 deep", AI, PYDANTIC_V2, [{"content": "", "additional_kwargs": DEEP_CALL}]),
    ("nested over 64 deep", CHUNK, PYDANTIC_V2, [{"content": "", "tool_call_chunks": DEEP_CHUNK}]),
]  # fmt: skip


def row(target: str, code: int, argument: Any) -> tuple[str, bytes]:
    module, _, kind = target.rpartition(".")
    return record(code, module, kind, argument, *METHODS.get(code, []))


@pytest.mark.claim("f15")
@pytest.mark.parametrize(
    ("reason", "target", "code", "argument"),
    [(*start, argument) for *start, arguments in REFUSED for argument in arguments],
    ids=lambda part: ascii(part).partition(" at 0x")[0][:40],
)
def test_an_abuse_is_refused(
    reason: str, target: str, code: int, argument: Any, strict: JsonPlusSerializer
) -> None:
    """For its reason: by the guard and not after it, except for what the class refuses at once."""
    with pytest.raises(UnbuildableValueError) as caught:
        strict.loads_typed(row(target, code, argument))
    assert f"{caught.value.module}.{caught.value.name}" == target
    assert str(caught.value).splitlines()[0].endswith(reason) or reason in caught.value.cause


TAKEN: list[tuple[str, int, list[Any]]] = [
    (SET, SINGLE, [same_hash(MAX_SAME_HASH), [], [1, "1", b"1"], [[1], [2]], [*range(MAX_SAME_HASH + 1)]]),
    (DECIMAL, SINGLE, ["1" * MAX_DECIMAL_CHARS, f"1E-{MAX_DECIMAL_EXPONENT}", f"1E+{MAX_DECIMAL_EXPONENT}"]),
    (DECIMAL, SINGLE, ["1e+5", "-sNaN12", "0E-9", "Infinity", "-1.5E+3"]),  # "e" is that of a context
    (PATTERN, POSITIONAL, [["a" * (MAX_PATTERN_CHARS // 2), flags] for flags in (0, 32, 2 | 8)]),
    (PATTERN, POSITIONAL, [["[" + "a" * (MAX_PATTERN_CHARS - 2) + "]", 0], [b"a" * 500, 0]]),
    (PATH, POSITIONAL, [["a"] * MAX_PARTS, ["a" * MAX_NAME_CHARS], [], ["/", "a"]]),
    ("pathlib.Path", POSITIONAL, [["C:\\", "a"]]),
    (ZONE, SINGLE, ["America/Argentina/ComodRivadavia", "Etc/GMT+5", "UTC"]),
    (STORE_ITEM, PYDANTIC_V1, [ITEM]),
    (UUID, SINGLE, ["00000000-0000-0000-0000-000000000001"]),  # as in legacy rows
    (IPV6, SINGLE, ["::ffff:102:304", "::ffff:1.2.3.4", "fe80::1%eth0"]),  # as Python 3.11 and 3.13 write it
    ("ipaddress.IPv6Interface", SINGLE, ["fe80::1%eth0/64"]),
    (DATETIME, METHOD, ["0001-01-01T23:59:59.999999-23:59:59.000001"]),
    (TIME, KEYWORD, [NOON]),
    (TIMEDELTA, POSITIONAL, [[-999_999_999, 86_399, 999_999], [0, 0, 0]]),
    (TIMEZONE, POSITIONAL, [[HOUR], [HOUR, "here"]]),
    (AI, PYDANTIC_V2, [{"content": "x"} | dict.fromkeys(map(str, range(MAX_FIELDS - 1)))]),
]


@pytest.mark.parametrize(
    ("target", "code", "argument"),
    [(*start, argument) for *start, arguments in TAKEN for argument in arguments],
    ids=lambda part: ascii(part).partition(" at 0x")[0][:40],
)
def test_what_is_just_within_a_bound_is_taken(
    target: str, code: int, argument: Any, strict: JsonPlusSerializer
) -> None:
    strict.loads_typed(row(target, code, argument))


ORDINARY = [
    (("builtins", "set"), [1, "a", None]),
    (("builtins", "set"), [*range(MAX_SAME_HASH)]),
    (("builtins", "frozenset"), ["a", b"a"]),
    (("datetime", "datetime"), "2026-11-21T09:00:00.000001+00:00"),
    (("datetime", "datetime"), "2026-11-21T09:00:00"),
    (("ipaddress", "IPv4Address"), "127.0.0.1"),
    (("ipaddress", "IPv6Address"), "2001:db8::1"),
    (("pathlib", "Path"), ["/", "usr", "lib64", ".hidden", ".."]),
    (("pathlib", "Path"), ["a b", "c"]),
    (("pathlib", "Path"), ["a" * MAX_NAME_CHARS]),
]


@pytest.mark.parametrize(
    ("kind", "payload"), ORDINARY, ids=lambda part: ascii(part).partition(" at 0x")[0][:40]
)
def test_ordinary_arguments_pass_their_guard_by(kind: tuple[str, str], payload: Any) -> None:
    """And make what the constructor makes; otherwise the tests above would run the guard twice."""
    cls, general = getattr(import_module(kind[0]), kind[1]), make_builder(CATALOGUE[kind].codes[0], *kind)
    fast_build: Any = CATALOGUE[kind].fast_build
    short = fast_build(cls, lambda _: None)(payload)
    assert short is not None
    assert (type(short), short) == (type(general(payload)), general(payload))


# --- arrays ---------------------------------------------------------------------------------------

NOT_PLAIN: list[Any] = [
    *([dtype, [1], "C", bytes(8)] for dtype in ("|O", "|V8", "i4,i4", "(2,)<i4", "T", "<f16x")),
    *(["<i8", shape, "C", bytes(8)] for shape in ([2], [-1], [2**40, 2**40], [1.0], ["1"], [1] * 65)),
    ["<i8", [1], "C", bytes(9)], ["<i8", [2**32, 2**32], "C", b""], ["<i8", [1], "K", bytes(8)],
    ["<i8", [1], "C", "text"], ["<i8", [1], "C"], ["<U999999999", [0], "C", b"x"], "<i8", None, {},
    ["|b1", [1], "C", b"\7"], ["|b1", [3], "C", b"\0\1\2"],
    ["<U1", [1], "C", (0x110000).to_bytes(4, "little")], [">U1", [1], "C", (0x110000).to_bytes(4, "big")],
    ["<U2", [1, 2], "C", bytes(12) + b"\xff" * 4],
    *([dtype, [1], "C", bytes(8)] for dtype in ("<M8[0s]", "<m8[0D]", "<M8", "<M8[1s]", "<M8[generic]")),
    ["=i4", [1], "C", bytes(4)], ["<b1", [1], "C", bytes(1)], ["<i4", [1], "F", bytes(4)],
    ["<i4", [True], "C", bytes(4)],
]  # fmt: skip


@pytest.mark.parametrize("payload", NOT_PLAIN, ids=str)
def test_an_array_that_is_not_plain_is_refused(payload: Any) -> None:
    with pytest.raises(UnbuildableValueError):
        JsonPlusSerializer(allowed_msgpack_modules=None).loads_typed(extension(6, payload))


@pytest.mark.skipif(numpy.finfo("g").nmant != 63, reason="longdouble is not the 80-bit format here")
@pytest.mark.parametrize("name", ["<f16", ">f16", "<c32"])
def test_an_extended_float_has_its_leading_bit(name: str) -> None:
    """It is written out in this format, and absent from what the others mean by the same bits."""
    strict, size = JsonPlusSerializer(allowed_msgpack_modules=None), numpy.dtype(name).itemsize
    bits = [0x3FFF << 64 | 1 << 63, 0x7FFF << 64 | 1 << 63, 1, 0, 0xBFFF << 64 | 3 << 62]
    wrong = [0x3FFF << 64, 0x7FFF << 64 | 1, 1 << 63]
    order: Any = "big" if name[0] == ">" else "little"
    for number in (*bits, *wrong):
        payload = [name, [1], "C", number.to_bytes(16, order) * (size // 16)]
        if number in bits:
            assert strict.loads_typed(extension(6, payload)).tobytes() == payload[3]
        else:
            with pytest.raises(UnbuildableValueError):
                strict.loads_typed(extension(6, payload))


ARRAYS = [
    numpy.arange(6).reshape(2, 3),
    numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    numpy.array(5),
    numpy.zeros((0, 3)),
    numpy.array([True, False]),
    numpy.zeros((2, 3, 2), bool).T,
    numpy.array(["a", "\U0010ffff", "\ud800", ""]),
    numpy.array(["x"], ">U4"),
    numpy.array([], "U1"),
    numpy.array([b"a\xff", b""]),
    numpy.array([1.5, numpy.nan, numpy.inf, -0.0], "f2"),
    numpy.array([1.1, numpy.nan, numpy.inf, 0.0], numpy.longdouble),
    numpy.array([1.1 + 2j], numpy.clongdouble),
    numpy.array(["2020-01-01", "NaT"], "M8[D]"),
    numpy.array([5, -5], "m8[25s]"),
    numpy.array([5]).view("m8"),  # without a unit: numpy 2.5 deprecates every other way to make one
    numpy.array([numpy.iinfo("i8").min]).view("M8"),
    numpy.array([1, 2], ">i4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str} {array.shape}")
def test_an_array_of_values_is_read(array: Any) -> None:
    """Dates as LangGraph writes them, which this package does not."""
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    order = "F" if is_fortran else "C"
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    found = strict.loads_typed(extension(6, [array.dtype.str, array.shape, order, array.tobytes(order)]))
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


# --- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["a|b", "("])
@pytest.mark.parametrize("steps", [10, 5000])
def test_a_pattern_is_given_up_after_its_steps(pattern: str, steps: int) -> None:
    """Steps, not seconds; and the tracer of a debugger or of coverage is there again afterwards."""

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        return None

    before = sys.gettrace()
    re.purge()
    sys.settrace(tracer)
    try:
        reason = ""
        try:
            compile_within(pattern, 0, steps)
        except RefusedError as error:
            reason = str(error)
        found: Any = sys.gettrace()
    finally:
        sys.settrace(before)
    assert found is tracer
    assert ("too long to compile" in reason) is (steps == 10)
    assert bool(reason) is (steps == 10 or pattern == "(")


@pytest.mark.parametrize("steps", [10, 200])
def test_a_pattern_that_is_given_up_cuts_nothing_else_short(steps: int) -> None:
    """The garbage collector may run between two steps: its callbacks and finalizers come to their end."""
    begun = ended = 0

    def callback(_phase: str, _info: dict[str, int]) -> None:
        nonlocal begun, ended
        begun += 1
        for _ in range(300):
            pass
        ended += 1

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        with pytest.raises(RefusedError, match="too long to compile"):
            compile_within("(a|b)" * 50, 0, steps)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
    assert begun == ended > 0
