"""Ordinary arguments give what the guard and the constructor give, and nothing else is taken for them."""

from __future__ import annotations

import datetime
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.classes import find_class
from sealpoint.serde.limits import MAX_SAME_HASH
from sealpoint.serde.rebuild import make_builder

ORDINARY: dict[tuple[str, str], Any] = {
    names: row.fast_build for names, row in CATALOGUE.items() if row.fast_build
}

texts = st.sampled_from(
    [
        "",
        ".",
        "..",
        "/",
        "a",
        "a/b",
        "/a",
        "a/",
        "a\0b",
        "UTC",
        "Europe/Berlin",
        "a//b",
        "1e9",
        "1E999999",
        "1.5",
    ]
) | st.text(max_size=70)
atoms = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.timedeltas() | st.binary(max_size=3)
)
times = st.lists(st.integers(-1, 1_000_001) | st.booleans() | st.none(), min_size=6, max_size=6).map(
    lambda values: dict(
        zip(("hour", "minute", "second", "microsecond", "tzinfo", "fold"), values, strict=True)
    )
)
moments = st.datetimes(timezones=st.none() | st.just(datetime.UTC)).map(datetime.datetime.isoformat)
spellings = st.builds(
    lambda text, place, mark: text[:place] + mark + text[place + 1 :],
    moments | st.uuids().map(str) | st.uuids().map(lambda uuid: uuid.hex) | st.decimals().map(str),
    st.integers(0, 32),
    st.sampled_from(["", "T", " ", "-", ":", "+", ".", ",", "0", "9", "e", "\u0661", "_"]),
)
"""What is written, with one character changed."""

payloads = atoms | st.lists(atoms | st.lists(atoms, max_size=2), max_size=4) | times | spellings


def never_built(*arguments: Any, **_: Any) -> tuple[Any, ...]:
    """Stand in for a constructor that takes anything."""
    return arguments


def not_ordinary(_: Any) -> None:
    """Stand in for the guard, which all else goes to."""


@pytest.mark.parametrize("kind", [key for key in ORDINARY if key[0] != "builtins"], ids=".".join)
@given(payload=payloads)
def test_what_is_ordinary_passes_the_guard(kind: tuple[str, str], payload: Any) -> None:
    """And comes back as it was stored."""
    rule = CATALOGUE[kind]
    assert rule.guard is not None
    cls = find_class(*kind)
    try:
        made = ORDINARY[kind](cls, make_builder(rule.codes[0], *kind), not_ordinary)(payload)
    except (TypeError, ValueError, ArithmeticError, LookupError, NotImplementedError):
        return
    if made is not None:
        rule.guard(payload)
        assert rule.is_same is None or rule.is_same(made, payload)


@pytest.mark.parametrize("kind", [("builtins", "set"), ("builtins", "frozenset")], ids=".".join)
@given(members=payloads)
def test_ordinary_members_pass_the_guard(kind: tuple[str, str], members: Any) -> None:
    guard = CATALOGUE[kind].guard
    assert guard is not None
    cls = {"set": set, "frozenset": frozenset}[kind[1]]
    if ORDINARY[kind](cls, never_built, not_ordinary)(members) is not None:
        guard(members)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (("builtins", "set"), [1, "a", None]),
        (("builtins", "frozenset"), ["a", b"a"]),
        (("collections", "deque"), [1, [2]]),
        (("datetime", "date"), [2026, 11, 21]),
        (("datetime", "datetime"), "2026-11-21T09:00:00.000001+00:00"),
        (("datetime", "timedelta"), [-1, 86_399, 0]),
        (("datetime", "timezone"), [datetime.timedelta(hours=1)]),
        (
            ("datetime", "time"),
            {"hour": 1, "minute": 2, "second": 3, "microsecond": 4, "tzinfo": None, "fold": 1},
        ),
        (("decimal", "Decimal"), "-1.50"),
        (("ipaddress", "IPv4Address"), "127.0.0.1"),
        (("ipaddress", "IPv6Address"), "2001:db8::1"),
        (("pathlib", "Path"), ["/", "usr", "lib64", ".hidden", ".."]),
        (("pathlib", "Path"), ["a b", "c"]),
        (("uuid", "UUID"), "0" * 32),
        (("zoneinfo", "ZoneInfo"), "Europe/Berlin"),
        (("zoneinfo", "ZoneInfo"), "UTC"),
    ],
    ids=str,
)
def test_both_ways_give_the_same(kind: tuple[str, str], payload: Any) -> None:
    cls = getattr(import_module(kind[0]), kind[1])
    general = make_builder(CATALOGUE[kind].codes[0], *kind)
    short = ORDINARY[kind](cls, general, not_ordinary)(payload)
    assert short is not None
    assert (type(short), short) == (type(general(payload)), general(payload))
    assert getattr(short, "fold", None) == getattr(general(payload), "fold", None)


NEED_A_LOOK: list[tuple[tuple[str, str], Any]] = [
    *[
        (("builtins", "set"), members)
        for members in ([1, True], [0, 0.0], ["a", "a"], [*range(MAX_SAME_HASH + 1)], [[1], [2]], "ab")
    ],
    (("collections", "deque"), "ab"),
    *[(("datetime", "date"), arguments) for arguments in ([1, 1], [1, 1, True], (1, 1, 1), [1, 1, "1"])],
    *[
        (("datetime", "datetime"), text)
        for text in (
            "1" * 65,
            "2026-11-21T09:00",
            "2026-11-21 09:00:00",
            "2026-11-21T09:00+01",
            "2026-11-21T09:00:00.000000+00:00",
            "2026-11-21T09:00:00.000001-00:00",
        )
    ],
    *[
        (("datetime", "timedelta"), arguments)
        for arguments in ([0, 86_400, 0], [0, -1, 0], [0, 0, 1_000_000], [0, 0, -1], [0, 0.5, 0])
    ],
    *[(("datetime", "timezone"), arguments) for arguments in ([0], [datetime.timedelta(), "x"], [])],
    (("datetime", "time"), {"hour": 1, "minute": 2, "second": 3, "microsecond": 4, "tzinfo": None}),
    (
        ("datetime", "time"),
        {"hour": 1, "minute": 2, "second": 3, "microsecond": True, "tzinfo": None, "fold": 0},
    ),
    *[(("decimal", "Decimal"), text) for text in ("1E9999", "1e9999", "1" * 1001, 1)],
    *[
        (("pathlib", "Path"), parts)
        for parts in (
            [],
            ["."],
            ["a", "."],
            ["a/b"],
            ["a", "/"],
            ["a", ""],
            ["a\0b"],
            ["a" * 1001],
            [b"a"],
            "ab",
        )
    ],
    (("uuid", "UUID"), "0" * 65),
    *[
        (("zoneinfo", "ZoneInfo"), key)
        for key in ("../x", "/UTC", "UTC/", "a b", "\xe4", "a" * 65, "a/b/c", "")
    ],
]


@pytest.mark.parametrize(("kind", "payload"), NEED_A_LOOK, ids=lambda part: ascii(part)[:40])
def test_what_needs_a_look_is_not_ordinary(kind: tuple[str, str], payload: Any) -> None:
    cls = find_class(*kind)
    assert ORDINARY[kind](cls, never_built, not_ordinary)(payload) is None
