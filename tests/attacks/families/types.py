"""Allowed types with arguments that no honest writer gives them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.blobs import cases
from tests.attacks.case import Case
from tests.support.values.forge import named, pack

BOTH: Final = "strict plaintext"
PRIME: Final = 2**61 - 1
"""Numbers that differ by multiples of this have one hash, on builds with 64 bits."""

Arguments = tuple[str, int, Any]


def _of(
    family: str, module: str, name: str, *arguments: Arguments, readers: str = "strict"
) -> Iterator[Case]:
    for label, code, argument in arguments:
        method = ("fromisoformat",) if code == 3 else ()
        blob = pack(named(code, module, name, argument, *method))
        yield from cases(family, f"{name}: {label}", blob, readers=readers)


def regexes() -> Iterator[Case]:
    """Patterns that take long to compile, are too long, or are no patterns."""
    wide = "[\\u0000-\\U0010ffff]"
    yield from _of(
        "regex",
        "re",
        "compile",
        ("a mebibyte", 1, ["a" * (1 << 20), 32]),
        ("a mebibyte of alternatives", 1, ["|".join(map(str, range(150_000))), 32]),
        ("200,000 groups", 1, ["()" * 200_000, 32]),
        ("300 groups in groups", 1, ["(" * 300 + ")" * 300, 32]),
        ("50,000 groups in groups", 1, ["(" * 50_000 + ")" * 50_000, 32]),
        ("300 repeated groups in groups", 1, ["(?:" * 240 + "a" + ")*" * 240, 32]),
        ("all characters, case ignored", 1, [wide, 34]),
        ("all characters 90 times, case ignored", 1, [wide * 40, 34]),
        ("all characters, case ignored inline", 1, [f"(?i){wide * 9}", 32]),
        ("all characters but one, case ignored", 1, ["[^\\u0000-\\U0010fffe]" * 40, 34]),
        ("a range of letters beyond ASCII", 1, ["[\u0100-\U00010000]" * 30, 34]),
        ("repeats of repeats", 1, ["((a{1,65535}){1,65535}){1,65535}", 32]),
        ("a repeat beyond all", 1, ["a{99999999999}", 32]),
        ("a long look behind", 1, ["(?<=" + "a" * 900 + ")", 32]),
        ("a look behind of unknown width", 1, ["(?<=a*)", 32]),
        ("no pattern", 1, ["(", 32]),
        ("half an escape", 1, ["\\", 32]),
        ("a number", 1, [5, 0]),
        ("nil", 1, [None, 0]),
        ("a list", 1, [["a"], 0]),
        ("flags that print", 1, ["a" * 500, 128]),
        ("flags of old", 1, ["a", 1]),
        ("flags beyond", 1, ["a", 1 << 40]),
        ("flags below 0", 1, ["a", -1]),
        ("flags as text", 1, ["a", "IGNORECASE"]),
        ("flags as a float", 1, ["a", 2.0]),
        ("flags True", 1, ["a", True]),
        ("flags nil", 1, ["a", None]),
        ("ASCII and Unicode", 1, ["a", 32 | 256]),
        ("the locale", 1, ["a", 4]),
        ("no flags", 1, ["a"]),
        ("three arguments", 1, ["a", 0, 0]),
        ("none", 1, []),
        ("text alone", 0, "a" * 5000),
        ("keywords", 2, {"pattern": "a" * 5000, "flags": 0}),
        ("a method", 3, "a"),
        ("fields", 4, {"pattern": "a", "flags": 128}),
        ("model", 5, {"pattern": "a", "flags": 128}),
    )
    slow = pack(named(1, "re", "compile", ["(" * 300 + ")" * 300, 32]))
    yield from cases("regex", "300 groups in groups", slow, readers="strict-thread")
    deep = pack(named(1, "re", "compile", ["(?:" * 240 + "a" + ")*" * 240, 32]))
    yield from cases("regex", "240 repeated groups in groups", deep, readers="strict-thread")


def zones() -> Iterator[Case]:
    """Time zones that are files elsewhere, or none."""
    keys: tuple[Any, ...] = (
        "/etc/passwd",
        "../../../etc/passwd",
        "Europe/../../../../etc/passwd",
        "UTC\0",
        "",
        ".",
        "..",
        "Europe",
        "Europe/",
        "/",
        "A" * 5000,
        "a/" * 2000 + "b",
        "canary_package/inner",
        "//UTC",
        "./UTC",
        "Europe//Berlin",
        "UTC\n",
        "\u0395urope/Berlin",
        "C:\\zone",
        "tzdata.zi",
        "zone.tab",
        "__init__.py",
        None,
        5,
        True,
        b"UTC",
        ["UTC"],
        {"key": "UTC"},
    )
    for key in keys:
        blob = pack(named(0, "zoneinfo", "ZoneInfo", key))
        yield from cases("zone", f"{ascii(key)[:40]}", blob)
    yield from _of(
        "zone", "zoneinfo", "ZoneInfo", ("a keyword", 2, {"key": "/etc/passwd"}), ("no_cache", 1, ["../UTC"])
    )


def paths() -> Iterator[Case]:
    """Paths that are no paths."""
    yield from _of(
        "path",
        "pathlib",
        "Path",
        ("NUL", 1, ["a\0b"]),
        ("a huge part", 1, ["a" * 10_000_000]),
        ("200,000 parts", 1, ["a"] * 200_000),
        ("a number", 1, [5]),
        ("nil", 1, [None]),
        ("a binary", 1, [b"a"]),
        ("a list", 1, [["a"]]),
        ("text alone", 0, "a\0"),
        ("keywords", 2, {"x": "y"}),
        ("parts that merge", 1, ["a", "/b"]),
    )
    yield from _of("path", "pathlib", "WindowsPath", ("elsewhere", 1, ["a\0"]))


def numbers() -> Iterator[Case]:
    """Decimals, UUIDs and addresses."""
    yield from _of(
        "decimal",
        "decimal",
        "Decimal",
        ("a huge exponent", 0, "1e999999999999999999"),
        ("a large exponent", 0, "1E+999999"),
        ("a small exponent", 0, "1E-999999"),
        ("a million digits", 0, "9" * 1_000_000),
        ("a long NaN", 0, "NaN" + "1" * 100_000),
        ("a float", 0, 0.1),
        ("an integer", 0, 5),
        ("a tuple", 0, [0, [1, 2], 999_999_999]),
        ("True", 0, True),
        ("no number", 0, "abc"),
        ("nothing", 0, ""),
        ("two arguments", 1, ["1", None]),
        ("a keyword", 2, {"value": "1e999999999"}),
    )
    yield from _of(
        "uuid",
        "uuid",
        "UUID",
        ("a number", 0, 5),
        ("no UUID", 0, "xyz"),
        ("a million characters", 0, "-" * 1_000_000 + "0" * 32),
        ("a list", 0, [1, 2]),
        ("bytes", 0, b"0" * 16),
        ("an integer below 0", 2, {"int": -1}),
        ("an integer", 2, {"int": 1}),
        ("fields", 2, {"fields": [1, 2, 3, 4, 5, 2**50]}),
        ("a version", 2, {"hex": "0" * 32, "version": 99}),
        ("is_safe", 2, {"hex": "0" * 32, "is_safe": "x"}),
    )
    for version, good in ((4, "1.2.3.4"), (6, "::1")):
        for kind in ("Address", "Interface", "Network"):
            yield from _of(
                "ip",
                "ipaddress",
                f"IPv{version}{kind}",
                ("a number", 0, 5),
                ("below 0", 0, -1),
                ("bytes", 0, bytes(4 if version == 4 else 16)),
                ("a pair", 0, [good, 99]),
                ("no address", 0, "x"),
                ("a long prefix", 0, f"{good}/999999"),
                ("a huge zone", 0, f"{good}%{'x' * 1_000_000}"),
                ("a list of arguments", 1, [3]),
            )


def times() -> Iterator[Case]:
    """Dates, times and offsets out of range, or made from bytes."""
    moment = struct.pack(">HBBBBB", 2024, 1, 1, 0, 0, 0) + b"\0\0\0"
    yield from _of(
        "times",
        "datetime",
        "timedelta",
        ("too many days", 1, [10**10, 0, 0]),
        ("floats", 1, [0.5, 0.5, 0.5]),
        ("seconds that are days", 1, [0, 10**9, 0]),
        ("True", 1, [True, True, True]),
        ("text", 1, ["1", "2", "3"]),
        ("seven arguments", 1, [1] * 7),
        ("none", 1, []),
        ("NaN", 1, [float("nan"), 0, 0]),
        ("weeks", 2, {"weeks": 10**12}),
        ("one", 0, 10**18),
    )
    yield from _of(
        "times",
        "datetime",
        "date",
        ("no such month", 1, [2024, 13, 1]),
        ("year 0", 1, [0, 1, 1]),
        ("year 10000", 1, [10000, 1, 1]),
        ("True", 1, [True, True, True]),
        ("floats", 1, [2024.0, 1, 1]),
        ("the bytes of its pickle", 0, moment[:4]),
        ("the bytes of its pickle, in a list", 1, [moment[:4]]),
        ("keywords", 2, {"year": 2024, "month": 99, "day": 1}),
        ("text", 3, "2024-99-01"),
        ("huge text", 3, "2" * 1_000_000),
        ("huge year", 1, [2**63, 1, 1]),
    )
    yield from _of(
        "times",
        "datetime",
        "datetime",
        ("no such month", 3, "2024-13-01T00:00:00"),
        ("a huge offset", 3, "2024-01-01T00:00:00+99:99"),
        ("a number", 3, 5),
        ("huge text", 3, "2" * 1_000_000),
        ("the bytes of its pickle", 0, moment[:10]),
        ("the bytes of its pickle, in a list", 1, [moment[:10]]),
        ("numbers", 1, [2024, 13, 1]),
        ("a number alone", 0, 5),
        ("surrogates", 3, "2024-01-01T00:00:00.\u0661"),
    )
    yield from _of(
        "times",
        "datetime",
        "time",
        ("hour 25", 2, {"hour": 25}),
        ("below 0", 2, {"hour": -1}),
        ("fold 9", 2, {"hour": 1, "fold": 9}),
        ("a zone that is text", 2, {"hour": 1, "tzinfo": "UTC"}),
        ("the bytes of its pickle", 0, b"\0" * 6),
        ("the bytes of its pickle, in a list", 1, [b"\0" * 6]),
        ("another keyword", 2, {"day": 1}),
        ("floats", 2, {"hour": 1.5}),
    )
    long = named(1, "datetime", "timedelta", [1, 0, 0])
    yield from _of(
        "times",
        "datetime",
        "timezone",
        ("a day", 1, [long]),
        ("no offset", 1, []),
        ("nil", 1, [None]),
        ("a number", 1, [3600]),
        ("a name that is a number", 1, [named(1, "datetime", "timedelta", [0, 60, 0]), 5]),
        ("three arguments", 1, [named(1, "datetime", "timedelta", [0, 60, 0]), "x", "y"]),
        ("text", 0, "UTC"),
    )


def collections() -> Iterator[Case]:
    """Sets and deques: floods of one hash, members that merge, arguments that are no members."""
    tuples = [[-1 if number >> bit & 1 else -2 for bit in range(15)] for number in range(1 << 15)]
    uuids = [named(0, "uuid", "UUID", f"{n * PRIME:032x}") for n in range(1, 20_001)]
    decimals = [named(0, "decimal", "Decimal", str(n * PRIME)) for n in range(1, 20_001)]
    for name in ("set", "frozenset"):
        yield from _of(
            "sets",
            "builtins",
            name,
            ("32,768 tuples with one hash", 0, tuples),
            ("20,000 UUIDs with one hash", 0, uuids),
            ("20,000 decimals with one hash", 0, decimals),
            ("text", 0, "abc"),
            ("a number", 0, 10**9),
            ("nil", 0, None),
            ("a map", 0, {"a": 1}),
            ("bytes", 0, b"abc"),
            ("maps in it", 0, [{"a": 1}]),
            ("arguments", 1, [[1], [2]]),
            ("text as arguments", 1, ["abc"]),
            ("keywords", 2, {"a": 1}),
            ("a member twice", 0, [1, 1]),
            ("1 and True", 0, [1, True, 1.0]),
            ("a tuple twice", 0, [[1], [True]]),
            ("NaN twice", 0, [float("nan"), float("nan")]),
            readers="strict",
        )
    yield from _of(
        "sets",
        "collections",
        "deque",
        ("text", 0, "abc"),
        ("a number", 0, 10**9),
        ("a map", 0, {"a": 1}),
        ("nil", 0, None),
        ("bytes", 0, b"abc"),
        ("a greatest length", 1, [[1, 2, 3, 4], 2]),
        ("a greatest length below 0", 1, [[1], -1]),
        ("keywords", 2, {"iterable": [1, 2, 3], "maxlen": 1}),
        ("text as arguments", 1, ["abc"]),
    )


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (regexes, zones, paths, numbers, times, collections):
        yield from family()
