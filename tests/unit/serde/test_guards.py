"""What the safe types are made from: all that LangGraph writes is taken, every abuse is refused."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import numpy
import pytest

from sealpoint.errors import BlockedTypeError, UnbuildableValueError
from sealpoint.serde import SAFE_TYPES, Allowlist, JsonPlusSerializer
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.decode import Decoder
from sealpoint.serde.guards import RefusedError, compile_within, require_json_depth
from sealpoint.serde.inert import inventory
from sealpoint.serde.limits import (
    MAX_DECIMAL_CHARS,
    MAX_DECIMAL_EXPONENT,
    MAX_JSON_DEPTH,
    MAX_NAME_CHARS,
    MAX_PARTS,
    MAX_PATTERN_CHARS,
    MAX_PATTERN_STEPS,
    MAX_SAME_HASH,
)
from tests.support.forge import extension, record
from tests.support.samples import SAMPLES, alike

strict = JsonPlusSerializer(allowed_msgpack_modules=None)
trusting = Decoder(Allowlist())  # as for bytes that a ring has opened

SINGLE, POSITIONAL, KEYWORD, METHOD, PYDANTIC_V1, PYDANTIC_V2 = range(6)
METHODS = {METHOD: ["fromisoformat"], PYDANTIC_V2: ["model_validate_json"]}
MODULUS = 2**61 - 1
PLAIN = {("numpy", "ndarray"), ("langgraph.checkpoint.serde.types", "_DeltaSnapshot")}
TOO_DEEP = "[" * (MAX_JSON_DEPTH + 1)
DAY = {"hour": 1, "minute": 2, "second": 3, "microsecond": 4, "tzinfo": None, "fold": 0}

permissive = JsonPlusSerializer(allowed_msgpack_modules=True)  # writes lone surrogates too
WRITTEN = {name: permissive.dumps_typed(value) for name, value in SAMPLES.items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_langgraph_writes_is_taken(name: str) -> None:
    """Checked or not, the value is the same; or it names a type that is not a safe one."""
    kind, data = WRITTEN[name]
    if kind == "msgpack" and not inventory(data).keys() <= SAFE_TYPES | PLAIN:
        with pytest.raises(BlockedTypeError):
            strict.loads_typed((kind, data))
    elif kind == "msgpack":
        assert alike(strict.loads_typed((kind, data)), trusting.decode(data))


def test_the_samples_show_every_rule_at_work() -> None:
    """But for those whose types a sample of this machine cannot have."""
    shown = {name for kind, data in WRITTEN.values() if kind == "msgpack" for name in inventory(data)}
    elsewhere = {
        name for name in CATALOGUE if name[0].startswith("pathlib")
    }  # one of them, by Python and system
    assert shown & elsewhere
    tasks = {("langgraph.types", "PregelTask"), ("langgraph.types", "StateSnapshot")}
    bases = {("langchain_core.messages.base", name) for name in ("BaseMessage", "BaseMessageChunk")}
    assert CATALOGUE.keys() - shown <= elsewhere | tasks | bases


def same_hash(count: int) -> list[list[int]]:
    """Members that would each be compared with all others."""
    fives = [5 + MODULUS * more for more in range(5)]
    return [list(member) for member in itertools.islice(itertools.product(fives, repeat=3), count)]


ITEM = {
    "namespace": ["a"],
    "key": "k",
    "value": {},
    "created_at": "2020-01-01T00:00:00+00:00",
    "updated_at": "2020-01-01T00:00:00+00:00",
}

REFUSED: dict[str, tuple[str, int, Any]] = {
    "set from text": ("builtins.set", SINGLE, "text"),
    "set from a map": ("builtins.set", SINGLE, {"a": 1}),
    "set from bytes": ("builtins.set", SINGLE, b"abc"),
    "set of one twice": ("builtins.set", SINGLE, [1, 1]),
    "set of merged numbers": ("builtins.set", SINGLE, [1, True]),
    "set of merged lists": ("builtins.set", SINGLE, [[1], [1.0]]),
    "set of maps": ("builtins.set", SINGLE, [{}]),
    "set of one hash": ("builtins.set", SINGLE, same_hash(MAX_SAME_HASH + 1)),
    "frozenset of one hash": ("builtins.frozenset", SINGLE, same_hash(MAX_SAME_HASH + 1)),
    "frozenset by position": ("builtins.frozenset", POSITIONAL, [[1]]),
    "set by keyword": ("builtins.set", KEYWORD, {}),
    "deque from text": ("collections.deque", SINGLE, "text"),
    "deque from a number": ("collections.deque", SINGLE, 10**9),
    "deque with an end": ("collections.deque", POSITIONAL, [[1], 5]),
    "date of text": ("datetime.date", POSITIONAL, ["2020", 1, 1]),
    "date from a pickle": ("datetime.date", POSITIONAL, [b"\x07\xe4\x01\x01"]),
    "date of flags": ("datetime.date", POSITIONAL, [True, True, True]),
    "date of no month": ("datetime.date", POSITIONAL, [2020, 13, 1]),
    "date of fractions": ("datetime.date", POSITIONAL, [2020.0, 1, 1]),
    "date by text": ("datetime.date", METHOD, "2020-01-01"),
    "datetime of long text": ("datetime.datetime", METHOD, "2020-01-01" + " " * 100),
    "datetime by position": ("datetime.datetime", POSITIONAL, [2020, 1, 1]),
    "datetime from a pickle": ("datetime.datetime", SINGLE, b"\x07\xe4\x01\x01\x00\x00\x00\x00\x00\x00"),
    "datetime of a number": ("datetime.datetime", METHOD, 5),
    "time of a missing field": ("datetime.time", KEYWORD, {"hour": 1}),
    "time of a further field": ("datetime.time", KEYWORD, DAY | {"x": 1}),
    "time of text": ("datetime.time", KEYWORD, DAY | {"hour": "1"}),
    "time of no hour": ("datetime.time", KEYWORD, DAY | {"hour": 24}),
    "time of another zone": ("datetime.time", KEYWORD, DAY | {"tzinfo": "UTC"}),
    "timedelta of fractions": ("datetime.timedelta", POSITIONAL, [1.5, 0, 0]),
    "timedelta not normal": ("datetime.timedelta", POSITIONAL, [0, 86_400, 0]),
    "timedelta below zero": ("datetime.timedelta", POSITIONAL, [0, -1, 0]),
    "timedelta of weeks": ("datetime.timedelta", POSITIONAL, [0, 0, 0, 0, 0, 0, 1]),
    "timedelta too long": ("datetime.timedelta", POSITIONAL, [10**9, 0, 0]),
    "timezone of a number": ("datetime.timezone", POSITIONAL, [3600]),
    "timezone of nothing": ("datetime.timezone", POSITIONAL, []),
    "decimal of a number": ("decimal.Decimal", SINGLE, 5),
    "decimal of a tuple": ("decimal.Decimal", SINGLE, [0, [1], 10**9]),
    "decimal of words": ("decimal.Decimal", SINGLE, "one"),
    "decimal of many digits": ("decimal.Decimal", SINGLE, "1" * (MAX_DECIMAL_CHARS + 1)),
    "decimal of a large exponent": ("decimal.Decimal", SINGLE, f"1E{MAX_DECIMAL_EXPONENT + 1}"),
    "decimal of a small exponent": ("decimal.Decimal", SINGLE, "1e-999999999999"),
    "decimal with a space behind": ("decimal.Decimal", SINGLE, "1E999999 "),
    "decimal with a line around": ("decimal.Decimal", SINGLE, "\n1E999999\u2028"),
    "decimal with an underscore": ("decimal.Decimal", SINGLE, "1E9999_99"),
    "decimal in other digits": ("decimal.Decimal", SINGLE, "1E\uff19\uff19\uff19\uff19\uff19\uff19"),
    "pattern alone": ("re.compile", POSITIONAL, ["a"]),
    "pattern of a list": ("re.compile", POSITIONAL, [["a"], 0]),
    "pattern too long": ("re.compile", POSITIONAL, ["a" * (MAX_PATTERN_CHARS + 1), 32]),
    "pattern of bytes too long": ("re.compile", POSITIONAL, [b"a" * (MAX_PATTERN_CHARS + 1), 0]),
    "pattern that is none": ("re.compile", POSITIONAL, ["(", 32]),
    "pattern debugged": ("re.compile", POSITIONAL, ["a", int(re.DEBUG)]),
    "pattern with unknown flags": ("re.compile", POSITIONAL, ["a", 2**20]),
    "pattern with negative flags": ("re.compile", POSITIONAL, ["a", -1]),
    "pattern with flags as text": ("re.compile", POSITIONAL, ["a", "I"]),
    "pattern that takes minutes": ("re.compile", POSITIONAL, ["[\\x00-\U0010ffff]" * 50, int(re.I | re.U)]),
    "pattern nested": ("re.compile", POSITIONAL, ["(" * 450 + ")" * 450, 32]),
    "pattern repeated": ("re.compile", POSITIONAL, ["(?:a{9999}){99999999999999999999}", 32]),
    "datetime with a space": ("datetime.datetime", METHOD, "2020-01-01 00:00:00"),
    "datetime of a date": ("datetime.datetime", METHOD, "2020-01-01"),
    "datetime of a week": ("datetime.datetime", METHOD, "2020-W01-1T00:00:00"),
    "datetime without marks": ("datetime.datetime", METHOD, "20200101T000000"),
    "datetime with a Z": ("datetime.datetime", METHOD, "2020-01-01T00:00:00Z"),
    "datetime of many digits": ("datetime.datetime", METHOD, "2020-01-01T00:00:00.1234567"),
    "datetime of few digits": ("datetime.datetime", METHOD, "2020-01-01T00:00:00.123"),
    "datetime with a comma": ("datetime.datetime", METHOD, "2020-01-01T00:00:00,123456"),
    "datetime of no fraction": ("datetime.datetime", METHOD, "2020-01-01T00:00:00.000000+00:00"),
    "datetime of a negative zero": ("datetime.datetime", METHOD, "2020-01-01T00:00:00.000001-00:00"),
    "decimal with spaces": ("decimal.Decimal", SINGLE, " 1.5 "),
    "decimal with a plus": ("decimal.Decimal", SINGLE, "+1.5"),
    "decimal with a mark": ("decimal.Decimal", SINGLE, "1_000"),
    "decimal in Arabic digits": ("decimal.Decimal", SINGLE, "\u0661"),
    "decimal of a short name": ("decimal.Decimal", SINGLE, "inf"),
    "decimal with a leading zero": ("decimal.Decimal", SINGLE, "01"),
    "uuid with a prefix": ("uuid.UUID", SINGLE, "urn:uuid:" + "0" * 32),
    "uuid in capitals": ("uuid.UUID", SINGLE, "A" * 32),
    "uuid with a mark": ("uuid.UUID", SINGLE, "0_" + "0" * 30),
    "uuid in Arabic digits": ("uuid.UUID", SINGLE, "\u0661" * 32),
    "address in a long form": ("ipaddress.IPv6Address", SINGLE, "0:0:0:0:0:0:0:1"),
    "address in capitals": ("ipaddress.IPv6Address", SINGLE, "2001:DB8::1"),
    "network without a length": ("ipaddress.IPv4Network", SINGLE, "1.2.3.4"),
    "network with a mask": ("ipaddress.IPv4Network", SINGLE, "1.2.3.0/255.255.255.0"),
    "interface with a mask": ("ipaddress.IPv4Interface", SINGLE, "1.2.3.4/0.0.0.255"),
    "network with zeros": ("ipaddress.IPv4Network", SINGLE, "1.2.3.0/024"),
    "pattern that sets flags": ("re.compile", POSITIONAL, ["(?i)a", 32]),
    "send with a number of seconds": ("langgraph.types.Send", POSITIONAL, ["n", 1, 5]),
    "item of text": ("langgraph.store.base.Item", PYDANTIC_V1, ITEM | {"namespace": "ab"}),
    "item of a number": ("langgraph.store.base.Item", PYDANTIC_V1, ITEM | {"key": 5}),
    "item of a short time": ("langgraph.store.base.Item", PYDANTIC_V1, ITEM | {"updated_at": "2020-01-01"}),
    "item of a field too many": ("langgraph.store.base.Item", PYDANTIC_V1, ITEM | {"score": 1}),
    "pattern by keyword": ("re.compile", KEYWORD, {"pattern": "a"}),
    "uuid of a number": ("uuid.UUID", SINGLE, 5),
    "uuid of long text": ("uuid.UUID", SINGLE, "-" * 10_000),
    "uuid of bytes": ("uuid.UUID", SINGLE, bytes(16)),
    "uuid by keyword": ("uuid.UUID", KEYWORD, {"int": 5}),
    "zone outside": ("zoneinfo.ZoneInfo", SINGLE, "../../../etc/passwd"),
    "zone at the root": ("zoneinfo.ZoneInfo", SINGLE, "/etc/localtime"),
    "zone with nothing between": ("zoneinfo.ZoneInfo", SINGLE, "Europe//Berlin"),
    "zone with a dot": ("zoneinfo.ZoneInfo", SINGLE, "Europe/./Berlin"),
    "zone that is a folder": ("zoneinfo.ZoneInfo", SINGLE, "Europe"),
    "zone with a zero": ("zoneinfo.ZoneInfo", SINGLE, "UTC\0"),
    "zone with a line": ("zoneinfo.ZoneInfo", SINGLE, "UTC\n"),
    "zone that is none": ("zoneinfo.ZoneInfo", SINGLE, "Europe/Nowhere"),
    "zone of a number": ("zoneinfo.ZoneInfo", SINGLE, 5),
    "address of a number": ("ipaddress.IPv4Address", SINGLE, 5),
    "address of bytes": ("ipaddress.IPv6Address", SINGLE, bytes(16)),
    "address of long text": ("ipaddress.IPv6Address", SINGLE, "fe80::1%" + "e" * 100),
    "network of a pair": ("ipaddress.IPv4Network", SINGLE, [0, 0]),
    "path with a zero": ("pathlib.PosixPath", POSITIONAL, ["a\0b"]),
    "path with a slash": ("pathlib.PosixPath", POSITIONAL, ["a/../../b"]),
    "path with a dot": ("pathlib.PosixPath", POSITIONAL, ["a", "."]),
    "path with a root later": ("pathlib.PosixPath", POSITIONAL, ["a", "/etc"]),
    "path of many parts": ("pathlib.PosixPath", POSITIONAL, ["a"] * (MAX_PARTS + 1)),
    "path with a long part": ("pathlib.PosixPath", POSITIONAL, ["a" * (MAX_NAME_CHARS + 1)]),
    "path of bytes": ("pathlib.PosixPath", POSITIONAL, [b"a"]),
    "send by keyword": ("langgraph.types.Send", KEYWORD, {"node": "n", "arg": 1}),
    "interrupt by position": ("langgraph.types.Interrupt", POSITIONAL, [1]),
    "command of unknown fields": ("langgraph.types.Command", KEYWORD, {"nothing": 1}),
    "item as another kind": ("langgraph.store.base.Item", KEYWORD, {}),
    "message by keyword": ("langchain_core.messages.ai.AIMessage", KEYWORD, {"content": "x"}),
    "message of nothing": ("langchain_core.messages.ai.AIMessage", PYDANTIC_V2, {}),
    "message of text": ("langchain_core.messages.ai.AIMessage", PYDANTIC_V2, "x"),
    "chunk of deep arguments": (
        "langchain_core.messages.ai.AIMessageChunk",
        PYDANTIC_V2,
        {"content": "", "tool_call_chunks": [{"name": "f", "args": TOO_DEEP, "id": "1", "index": 0}]},
    ),
    "message of deep arguments": (
        "langchain_core.messages.ai.AIMessage",
        PYDANTIC_V2,
        {
            "content": "",
            "additional_kwargs": {"tool_calls": [{"id": "1", "function": {"arguments": TOO_DEEP}}]},
        },
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_abuse_is_refused(name: str) -> None:
    target, code, argument = REFUSED[name]
    module, _, kind = target.rpartition(".")
    with pytest.raises(UnbuildableValueError) as caught:
        strict.loads_typed(record(code, module, kind, argument, *METHODS.get(code, [])))
    assert (caught.value.module, caught.value.name) == (module, kind)


AT_THE_BOUND: dict[str, tuple[str, int, Any]] = {
    "set": ("builtins.set", SINGLE, same_hash(MAX_SAME_HASH)),
    "decimal digits": ("decimal.Decimal", SINGLE, "1" * MAX_DECIMAL_CHARS),
    "decimal exponent": ("decimal.Decimal", SINGLE, f"1E-{MAX_DECIMAL_EXPONENT}"),
    "pattern": ("re.compile", POSITIONAL, ["a" * (MAX_PATTERN_CHARS // 2), 32]),
    "path parts": ("pathlib.PosixPath", POSITIONAL, ["a"] * MAX_PARTS),
    "path part": ("pathlib.PosixPath", POSITIONAL, ["a" * MAX_NAME_CHARS]),
    "zone": ("zoneinfo.ZoneInfo", SINGLE, "America/Argentina/ComodRivadavia"),
    "item": ("langgraph.store.base.Item", PYDANTIC_V1, ITEM),
    "uuid of a legacy row": ("uuid.UUID", SINGLE, "00000000-0000-0000-0000-000000000001"),
    "address of another Python": ("ipaddress.IPv6Address", SINGLE, "::ffff:102:304"),
    "address of this Python": ("ipaddress.IPv6Address", SINGLE, "::ffff:1.2.3.4"),
    "address with a scope": ("ipaddress.IPv6Address", SINGLE, "fe80::1%eth0"),
    "interface": ("ipaddress.IPv6Interface", SINGLE, "fe80::1%eth0/64"),
    "decimal of a context": ("decimal.Decimal", SINGLE, "1e+5"),
    "decimal of no number": ("decimal.Decimal", SINGLE, "-sNaN12"),
    "decimal below one": ("decimal.Decimal", SINGLE, "0E-9"),
    "datetime": ("datetime.datetime", METHOD, "0001-01-01T23:59:59.999999-23:59:59.000001"),
    "timedelta": ("datetime.timedelta", POSITIONAL, [-999_999_999, 86_399, 999_999]),
}


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_what_is_just_within_a_bound_is_taken(name: str) -> None:
    target, code, argument = AT_THE_BOUND[name]
    module, _, kind = target.rpartition(".")
    strict.loads_typed(record(code, module, kind, argument, *METHODS.get(code, [])))


@pytest.mark.parametrize(
    "payload",
    [
        ["|O", [1], "C", bytes(8)],
        ["|V8", [1], "C", bytes(8)],
        ["i4,i4", [1], "C", bytes(8)],
        ["(2,)<i4", [1], "C", bytes(8)],
        ["T", [1], "C", bytes(16)],
        ["<i8", [2], "C", bytes(8)],
        ["<i8", [1], "C", bytes(9)],
        ["<i8", [-1], "C", bytes(8)],
        ["<i8", [2**40, 2**40], "C", bytes(8)],
        ["<i8", [2**32, 2**32], "C", b""],
        ["<i8", [1.0], "C", bytes(8)],
        ["<i8", ["1"], "C", bytes(8)],
        ["<i8", [1] * 65, "C", bytes(8)],
        ["<i8", [1], "K", bytes(8)],
        ["<i8", [1], "C", "text"],
        ["<i8", [1], "C"],
        ["<f16x", [1], "C", bytes(8)],
        ["<U999999999", [0], "C", b"x"],
        "<i8",
        None,
        {},
        ["|b1", [1], "C", b"\7"],
        ["|b1", [3], "C", b"\0\1\2"],
        ["<U1", [1], "C", (0x110000).to_bytes(4, "little")],
        [">U1", [1], "C", (0x110000).to_bytes(4, "big")],
        ["<U2", [1, 2], "C", bytes(12) + b"\xff" * 4],
        ["<M8[0s]", [1], "C", bytes(8)],
        ["<m8[0D]", [1], "C", bytes(8)],
        ["<M8", [1], "C", bytes(8)],
        ["<M8[1s]", [1], "C", bytes(8)],
        ["<M8[generic]", [1], "C", bytes(8)],
        ["=i4", [1], "C", bytes(4)],
        ["<b1", [1], "C", bytes(1)],
        ["<i4", [1], "F", bytes(4)],
        ["<i4", [True], "C", bytes(4)],
    ],
    ids=str,
)
def test_an_array_that_is_not_plain_is_refused(payload: Any) -> None:
    with pytest.raises(UnbuildableValueError):
        strict.loads_typed(extension(6, payload))


@pytest.mark.skipif(numpy.finfo("g").nmant != 63, reason="longdouble is not the 80-bit format here")
@pytest.mark.parametrize("name", ["<f16", ">f16", "<c32"])
def test_an_extended_float_has_its_leading_bit(name: str) -> None:
    """It is written out in this format, and absent from what the others mean by the same bits."""
    size = numpy.dtype(name).itemsize
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
    found = strict.loads_typed(extension(6, [array.dtype.str, array.shape, order, array.tobytes(order)]))
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


# --- patterns ------------------------------------------------------------------------------------


def test_a_pattern_is_given_up_after_its_steps() -> None:
    """Steps are counted, not seconds: a slow machine refuses what a fast one does."""
    compile_within("a|b", 0, 5000)
    re.purge()
    with pytest.raises(RefusedError):
        compile_within("a|b", 0, 10)


@pytest.mark.parametrize("pattern", ["a|b", "(", "[a-z]" * 100, "(?P<name>" * 9])
@pytest.mark.parametrize("steps", [10, MAX_PATTERN_STEPS])
def test_a_tracer_is_there_again_afterwards(pattern: str, steps: int) -> None:
    """Of a debugger or of coverage, whatever the pattern came to."""

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        return None

    before = sys.gettrace()
    re.purge()
    sys.settrace(tracer)
    try:
        with suppress(RefusedError):
            compile_within(pattern, 0, steps)
        found: Any = sys.gettrace()
    finally:
        sys.settrace(before)
    assert found is tracer


def test_a_pattern_is_given_up_while_another_tracer_is_on() -> None:
    """A process of its own, traced from its first line as under coverage."""
    code = (
        "import sys; sys.settrace(lambda *_: None)\n"
        "from sealpoint.serde.guards import RefusedError, compile_within\n"
        "from sealpoint.serde.limits import MAX_PATTERN_STEPS\n"
        "def main():\n"
        "    try:\n"
        "        compile_within('[\\x00-\\U0010ffff]' * 50, 2, MAX_PATTERN_STEPS)\n"
        "    except RefusedError:\n"
        "        print('refused', sys.gettrace() is not None)\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["refused", "True"], done.stderr


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("", 0),
        ("5", 0),
        ('"[[[["', 0),
        ('"\\"[[["', 0),
        ('"\\\\"[]', 1),
        ("[]", 1),
        ('[{"a": [1]}]', 3),
        ("[][][]", 1),
        ('[{"]]]]": []}]', 3),
        ("]]]][[", 0),
        ("[" * 100_000, 100_000),
        ('"\\u005b"[[', 2),
    ],
    ids=lambda part: str(part)[:20],
)
def test_the_depth_of_json_is_exact(text: str, depth: int) -> None:
    """Brackets in strings do not count."""
    require_json_depth(text, depth)
    if depth:
        with pytest.raises(RefusedError):
            require_json_depth(text, depth - 1)
