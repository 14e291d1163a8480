"""Guards by themselves: behind the shortcut they see few arguments, and must refuse for the right reason."""

from __future__ import annotations

from datetime import UTC, date, timedelta, timezone
from typing import Any

import pytest

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer, fast
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.guards import RefusedError
from sealpoint.serde.limits import (
    MAX_DECIMAL_CHARS,
    MAX_DECIMAL_EXPONENT,
    MAX_FIELDS,
    MAX_NAME_CHARS,
    MAX_PARTS,
    MAX_PATTERN_CHARS,
    MAX_SAME_HASH,
)
from sealpoint.serde.shapes import json_budget
from tests.support.forge import envelope, record
from tests.support.samples import alike
from tests.unit.serde.test_guards import (
    AT_THE_BOUND,
    DAY,
    METHOD,
    PYDANTIC_V2,
    REFUSED,
    WRITTEN,
    same_hash,
)

REASONS: dict[str, tuple[str, ...]] = {
    "its argument is not a list": (
        "set from text", "set from a map", "set from bytes", "deque from text", "deque from a number",
    ),
    "a member occurs twice": ("set of one twice", "set of merged numbers", "set of merged lists"),
    "its members share a hash": ("set of one hash", "frozenset of one hash"),
    "it is never written as this kind of record": (
        "frozenset by position", "set by keyword", "deque with an end", "date by text",
        "datetime by position", "datetime from a pickle", "pattern by keyword", "uuid by keyword",
        "send by keyword", "interrupt by position", "item as another kind", "message by keyword",
    ),
    "it is not made from 3 whole numbers": (
        "date of text", "date from a pickle", "date of flags", "date of fractions", "timedelta of fractions",
        "timedelta of weeks",
    ),
    "its argument is not short text": (
        "datetime of long text", "datetime of a number", "decimal of a number", "decimal of a tuple",
        "decimal of many digits", "uuid of a number", "uuid of long text", "uuid of bytes",
        "address of a number", "address of bytes", "address of long text", "network of a pair",
    ),
    "it is not made from its fields": ("time of a missing field", "time of a further field"),
    "it is not made from 5 whole numbers": ("time of text",),
    "it is not in its normal form": ("timedelta not normal", "timedelta below zero"),
    "it is not made from an offset and a name": ("timezone of a number", "timezone of nothing"),
    "its exponent is out of range": (
        "decimal of a large exponent", "decimal of a small exponent", "decimal with a space behind",
        "decimal with a line around", "decimal with an underscore", "decimal in other digits",
    ),
    "it is not made from a pattern and flags": ("pattern alone",),
    "its pattern is too long": ("pattern of a list", "pattern too long", "pattern of bytes too long"),
    "it is not a pattern": ("pattern that is none",),
    "its flags are not known": (
        "pattern debugged", "pattern with unknown flags", "pattern with negative flags",
        "pattern with flags as text",
    ),
    "its pattern takes too long to compile": ("pattern that takes minutes", "pattern nested"),
    "it is not the key of a time zone": (
        "zone outside", "zone at the root", "zone with nothing between", "zone with a dot",
        "zone with a zero", "zone with a line", "zone of a number",
    ),
    "a part is not a file name": ("path with a zero", "path with a long part", "path of bytes"),
    "its parts are not the parts of a path": (
        "path with a slash", "path with a dot", "path with a root later",
    ),
    "it has too many parts": ("path of many parts",),
    # What no guard looks for, because the class refuses it at once.
    "ValueError": ("date of no month", "time of no hour"),
    "OverflowError": ("timedelta too long", "pattern repeated"),
    "TypeError": ("time of another zone", "set of maps", "command of unknown fields"),
    "its exponent is not an integer": ("decimal of words",),
    "ZoneInfoNotFoundError": ("zone that is none",),
}  # fmt: skip
REASON_OF = {name: reason for reason, names in REASONS.items() for name in names}


@pytest.fixture(params=["shortcut", "guards alone"])
def strict(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> JsonPlusSerializer:
    """A strict serializer; in one of two ways with nothing that passes its guards by."""
    if request.param == "guards alone":
        monkeypatch.setattr(fast, "switched_off", {"arguments"})
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def row(target: str, code: int, argument: Any) -> tuple[str, bytes]:
    module, _, kind = target.rpartition(".")
    method = {METHOD: ["fromisoformat"], PYDANTIC_V2: ["model_validate_json"]}.get(code, [])
    return record(code, module, kind, argument, *method)


@pytest.mark.parametrize("name", REFUSED)
def test_an_abuse_is_refused_for_its_reason(name: str, strict: JsonPlusSerializer) -> None:
    with pytest.raises(UnbuildableValueError) as caught:
        strict.loads_typed(row(*REFUSED[name]))
    assert str(caught.value).splitlines()[0].endswith(REASON_OF.get(name, ""))


def test_reasons_are_for_abuses() -> None:
    assert REASON_OF.keys() <= REFUSED.keys()


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_what_is_just_within_a_bound_passes_the_guard(name: str, strict: JsonPlusSerializer) -> None:
    strict.loads_typed(row(*AT_THE_BOUND[name]))


@pytest.mark.parametrize("name", WRITTEN)
def test_what_langgraph_writes_passes_the_guard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same with the shortcut and without, or refused in the same words."""

    def read() -> Any:
        try:
            return JsonPlusSerializer(allowed_msgpack_modules=None).loads_typed(WRITTEN[name])
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is compared
            return str(error)

    short = read()
    monkeypatch.setattr(fast, "switched_off", {"arguments"})
    assert alike(short, read())


ADDRESS = ("ipaddress", "IPv6Address")
DATETIME, DECIMAL, DELTA, TIME = (
    ("datetime", "datetime"),
    ("decimal", "Decimal"),
    ("datetime", "timedelta"),
    ("datetime", "time"),
)
PATH, PATTERN, SET, UUID, ZONE, OFFSET = (
    ("pathlib", "Path"),
    ("re", "compile"),
    ("builtins", "set"),
    ("uuid", "UUID"),
    ("zoneinfo", "ZoneInfo"),
    ("datetime", "timezone"),
)
DOCUMENT = ("langchain_core.documents.base", "Document")
TAKEN: list[tuple[tuple[str, str], Any]] = [
    *[(kind, "1" * 64) for kind in (ADDRESS, DATETIME, UUID)],
    *[(DECIMAL, text) for text in ("1" * MAX_DECIMAL_CHARS, "1e5", "Infinity", "-1.5E+3")],
    *[(DECIMAL, f"1{sign}{MAX_DECIMAL_EXPONENT}") for sign in ("E", "e", "E+", "e-")],
    *[(DELTA, numbers) for numbers in ([0, 0, 0], [-1, 86_399, 999_999])],
    (TIME, DAY),
    *[(OFFSET, arguments) for arguments in ([timedelta(hours=1)], [timedelta(0), "UTC"])],
    *[(PATH, parts) for parts in ([], ["a"] * MAX_PARTS, ["a" * MAX_NAME_CHARS], ["/", "a"], ["C:\\", "a"])],
    *[(PATTERN, ["a" * (MAX_PATTERN_CHARS // 2), flags]) for flags in (0, 32, 2 | 8)],
    (PATTERN, ["[" + "a" * (MAX_PATTERN_CHARS - 2) + "]", 0]),
    *[(DOCUMENT, dict.fromkeys(map(str, range(count)))) for count in (0, MAX_FIELDS)],
    (PATTERN, [b"a" * (MAX_PATTERN_CHARS // 2), 0]),
    *[(SET, members) for members in ([], [1, "1", b"1"], [[1], [2]], same_hash(MAX_SAME_HASH))],
    *[(ZONE, key) for key in ("UTC", "a" * 64, "a/b/c/d", "Etc/GMT+5", "a_b-c")],
]
BEYOND: list[tuple[tuple[str, str], Any]] = [
    *[(kind, wrong) for kind in (ADDRESS, DATETIME, UUID) for wrong in ("1" * 65, b"1", 1, None, ["1"])],
    *[(DECIMAL, wrong) for wrong in ("1" * (MAX_DECIMAL_CHARS + 1), 1, None, b"1", [0, [1], 1])],
    *[(DECIMAL, f"1{sign}{MAX_DECIMAL_EXPONENT + 1}") for sign in ("E", "e", "E+", "e-", "E-")],
    *[
        (DELTA, wrong)
        for wrong in (
            [0, 86_400, 0],
            [0, -1, 0],
            [0, 0, 1_000_000],
            [0, 0, -1],
            [0, 0],
            [0, 0, 0, 0],
            [True, 0, 0],
            [0, 0.0, 0],
            (0, 0, 0),
            {"days": 1},
            None,
        )
    ],
    *[
        (TIME, {**DAY, field: wrong})
        for field in DAY
        if field != "tzinfo"
        for wrong in ("1", 1.0, True, None)
    ],
    *[(TIME, {key: DAY[key] for key in DAY if key != field}) for field in DAY],
    (TIME, [*DAY]),
    *[
        (OFFSET, wrong)
        for wrong in ([], [1], [timedelta(0), 1], [timedelta(0), "a", "b"], timedelta(0), ["a"])
    ],
    *[
        (PATH, wrong)
        for wrong in (
            ["a"] * (MAX_PARTS + 1),
            ["a" * (MAX_NAME_CHARS + 1)],
            ["a\0"],
            [1],
            "a",
            ("a",),
            ["a", ""],
        )
    ],
    *[(PATTERN, ["a", flags]) for flags in (128, 512, 1024, 2**40, -1, True, 1.0, None)],
    (PATTERN, ["[" + "a" * (MAX_PATTERN_CHARS - 1) + "]", 0]),
    (DOCUMENT, dict.fromkeys(map(str, range(MAX_FIELDS + 1)))),
    *[(PATTERN, ["a" * (MAX_PATTERN_CHARS + 1), 0]), (PATTERN, [b"a" * (MAX_PATTERN_CHARS + 1), 0])],
    *[(PATTERN, wrong) for wrong in (["a"], ["a", 0, 0], "a0", ("a", 0), [None, 0], [["a"], 0], ["(", 0])],
    *[(SET, wrong) for wrong in (same_hash(MAX_SAME_HASH + 1), [1, 1.0], [0, False], [[1], [1]], (1,), "a")],
    *[
        (ZONE, wrong)
        for wrong in (
            "a" * 65,
            "a/b/c/d/e",
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a.b",
            "\xe4",
            "a\n",
            1,
            None,
            b"UTC",
        )
    ],
]


@pytest.mark.parametrize(("kind", "argument"), TAKEN, ids=lambda part: ascii(part)[:40])
def test_a_guard_takes_what_is_within_its_bounds(kind: tuple[str, str], argument: Any) -> None:
    guard = CATALOGUE[kind].guard
    assert guard is not None
    guard(argument)


@pytest.mark.parametrize(("kind", "argument"), BEYOND, ids=lambda part: ascii(part)[:40])
def test_a_guard_refuses_what_is_beyond_its_bounds(kind: tuple[str, str], argument: Any) -> None:
    """By itself: no constructor is asked."""
    guard = CATALOGUE[kind].guard
    assert guard is not None
    with pytest.raises(RefusedError):
        guard(argument)


def test_offsets_are_read_without_the_shortcut(strict: JsonPlusSerializer) -> None:
    for zone in (UTC, timezone(timedelta(hours=-3)), timezone(timedelta(minutes=90), "here")):
        assert strict.loads_typed(strict.dumps_typed(zone)) == zone


@pytest.mark.parametrize(("args", "taken"), [('{"a": [1, ', True), ('{"a": [' + "1, " * 5_000, False)])
def test_long_arguments_that_are_not_json_are_refused(
    args: str, taken: bool, strict: JsonPlusSerializer
) -> None:
    """LangChain completes what was cut off while it was streamed, in time that grows with its square."""
    chunk = {"content": "", "tool_call_chunks": [{"name": "f", "args": args, "id": "1", "index": 0}]}
    given = row("langchain_core.messages.ai.AIMessageChunk", PYDANTIC_V2, chunk)
    if taken:
        assert strict.loads_typed(given).tool_calls[0]["args"] == {"a": [1]}
    else:
        with pytest.raises(UnbuildableValueError, match="AIMessageChunk"):
            strict.loads_typed(given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (envelope("builtins", "set", kind="secret", args=[[1]]), "its envelope is a 'secret'"),
        (
            envelope("builtins", "set", kind="not_implemented", args=[[1]]),
            "its envelope is a 'not_implemented'",
        ),
        (
            envelope("builtins", "set", args=[[1]], kwargs={"a": 1}),
            "its envelope has arguments of both kinds",
        ),
        (envelope("uuid", "UUID", args=["0" * 32, 1]), "the arguments it is written with"),
        (envelope("uuid", "UUID", kwargs={"hex": "0" * 32}), "the arguments it is written with"),
        (envelope("datetime", "date", kwargs={"year": 2026}), "the arguments it is written with"),
        (envelope("datetime", "time", args=[1, 2]), "the arguments it is written with"),
        (
            envelope("langchain_core", "messages", "human", "HumanMessage", args=["a"]),
            "the arguments it is written with",
        ),
        (envelope("datetime", "date", args=[2026, 1, 1]), None),
    ],
    ids=[
        "secret",
        "not implemented",
        "both kinds",
        "one too many",
        "keyword for single",
        "keyword for position",
        "position for keyword",
        "position for fields",
        "honest",
    ],
)
def test_an_envelope_is_refused_for_its_reason(
    given: tuple[str, bytes], reason: str | None, strict: JsonPlusSerializer
) -> None:
    if reason is None:
        assert strict.loads_typed(given) == date(2026, 1, 1)
    else:
        with pytest.raises(UnbuildableValueError, match=reason):
            strict.loads_typed(given)


def test_the_json_of_a_value_is_taken_up_to_its_budget_and_no_further() -> None:
    def spend(*texts: str) -> None:
        for text in texts:
            json_budget.spend(text)

    json_budget.run(4, lambda: spend("[1, 2]", '{"a": 1}'))
    with pytest.raises(RefusedError, match="too many elements"):
        json_budget.run(3, lambda: spend("[1, 2]", '{"a": 1}'))
    assert json_budget.elements is None
