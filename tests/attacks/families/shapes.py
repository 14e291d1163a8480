"""Bytes that are no value, or too much of one: depth, size, ambiguity, damage."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.blobs import Build, cases
from tests.attacks.case import Case
from tests.support.values.forge import ext, named, pack, pairs
from tests.support.values.wire import extension, nested_extensions

ALL: Final = "strict plaintext inert"
SMALL: Final = "strict strict-thread inert-thread"
EVERY: Final = f"{ALL} strict-thread inert-thread inventory"
MIB: Final = 1 << 20
_DISTINCT: Final = "arrays of the same letter, binary and text"


def depths() -> Iterator[Case]:
    """Containers and extensions within each other."""
    for depth in (65, 200, 1000, 1100, 100_000, 5_000_000):
        yield from cases("depth", f"{depth} arrays", b"\x91" * depth + b"\xc0", readers=SMALL)
    for depth in (65, 1000, 100_000):
        yield from cases("depth", f"{depth} maps", b"\x81\xa1a" * depth + b"\xc0", readers=SMALL)
        keys = b"\x81" + b"\x91" * depth + b"\xc0" * 2
        yield from cases("depth", f"a key of {depth} arrays", keys, readers=SMALL)
        key_maps = b"\x81" * depth + b"\xc0" * (depth + 1)
        yield from cases("depth", f"{depth} maps as keys of maps", key_maps, readers=SMALL)
    for depth in (65, 130, 500, 2200, 10_000):
        for code in (0, 7):
            readers = EVERY if depth == 2200 else SMALL
            yield from cases(
                "depth", f"{depth} extensions {code}", nested_extensions(code, depth), readers=readers
            )
    for depth in (40, 500):
        records = pack(None)
        for _ in range(depth):
            records = extension(0, b"\x93" + pack("collections") + pack("deque") + b"\x91" + records)
        yield from cases("depth", f"{depth} deques", records, readers=SMALL)
        mixed = b"\xc0"
        for _ in range(depth):
            mixed = b"\x91\x81\xa1a" + extension(7, mixed)
        yield from cases("depth", f"{depth} arrays of maps of snapshots", mixed, readers=SMALL)
        sends = b"\xc0"
        for _ in range(depth):
            sends = extension(1, b"\x93" + pack("langgraph.types") + pack("Send") + b"\x92\xa1n" + sends)
        yield from cases("depth", f"{depth} Sends", sends, readers=SMALL)
    arrays_in_extensions = b"\xc0"
    for _ in range(8):
        arrays_in_extensions = extension(7, b"\x91" * 500 + arrays_in_extensions)
    yield from cases("depth", "8 snapshots of 500 arrays", arrays_in_extensions, readers=SMALL)


def announced() -> Iterator[Case]:
    """Counts and lengths that the bytes do not hold."""
    for label, head in (
        ("array32", b"\xdd"),
        ("map32", b"\xdf"),
        ("str32", b"\xdb"),
        ("bin32", b"\xc6"),
        ("ext32", b"\xc9"),
    ):
        for count in (1, 100_000_000, 0xFFFFFFFF):
            blob = head + struct.pack(">I", count)
            yield from cases("announced", f"{label} of {count}", blob, readers="strict inert", malformed=True)
        nested = (head + b"\x7f\xff\xff\xff") * 50
        yield from cases(
            "announced", f"50 nested {label} of 2147483647", nested, readers="strict inert", malformed=True
        )
    inside = extension(7, b"\xdd\x7f\xff\xff\xff")
    yield from cases("announced", "an array32 in a snapshot", inside, readers=ALL, malformed=True)
    key = b"\x81\xdd\x7f\xff\xff\xff"
    yield from cases("announced", "an array32 as a key", key, readers=ALL, malformed=True)
    half = b"\xdd" + struct.pack(">I", 10_000_000) + b"\xc0" * 9_999_999
    yield from cases("announced", "ten million elements but for one", half, readers=ALL, malformed=True)


def bombs() -> Iterator[Case]:
    """Bytes that hold what they announce, and take far more room or time than they have bytes."""
    for label, count, item in (
        ("19 million empty maps", 19_000_000, b"\x80"),
        ("19 million empty arrays", 19_000_000, b"\x90"),
        ("21 million nils", 21_000_000, b"\xc0"),
        ("15 million strings", 15_000_000, b"\xa2ab"),
        ("9 million maps of one", 9_000_000, b"\x81\xa1a\x01"),
        ("9 million floats", 9_000_000, b"\xcb" + struct.pack(">d", 0.1)),
        ("3 million snapshots", 3_000_000, b"\xd4\x07\xc0"),
        ("a million sets", 1_000_000, pack(named(0, "builtins", "set", []))),
        ("200,000 UUIDs", 200_000, pack(named(0, "uuid", "UUID", "0" * 32))),
        ("200,000 messages", 200_000, _message()),
        ("a million arrays of numpy", 1_000_000, pack(ext(6, ["|u1", [0], "C", b""]))),
        ("a million deep paths", 1_000_000, pack(named(1, "pathlib", "Path", ["a"] * 5))),
        ("300,000 regexes that differ not", 300_000, pack(named(1, "re", "compile", ["a", 32]))),
        ("20,000 zones that are not there", 20_000, pack(named(0, "zoneinfo", "ZoneInfo", "No/Where"))),
    ):
        yield from cases("bombs", label, _repeated(item, count, _array(count)), readers="strict inert")
    patterns = b"".join(pack(named(1, "re", "compile", [f"(a|b{n})*[c-x]" * 20, 32])) for n in range(2000))
    yield from cases("bombs", "2,000 regexes that differ", _array(2000) + patterns)
    for label, head in (("string", b"\xdb"), ("binary", b"\xc6")):
        for size in (300, 500, 600):
            blob = _repeated(b"\0", size * MIB, head + struct.pack(">I", size * MIB))
            yield from cases("bombs", f"a {label} of {size} MiB", blob)
    for kind in ("bytes", "bytearray", "json"):
        blob = _repeated(b" ", 300 * MIB, b"1")
        yield from cases("bombs", f"a {kind} row of 300 MiB", blob, kind=kind, honest=_any)
    blocked = pack(named(0, "os", "system", "x"))
    yield from cases("bombs", "400,000 blocked names", _repeated(blocked, 400_000, _array(400_000)))
    names = [named(0, f"m{n}", "x" * 100, n) for n in range(20_000)]
    yield from cases("bombs", "20,000 names that differ", pack(names), readers="strict inert inventory")


def _array(count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count)


def _repeated(item: bytes, count: int, head: bytes) -> Build:
    """Build a blob when it is needed: some do not fit into memory twice."""
    return lambda _: head + item * count


def _any(_: object) -> bool:
    return True


def _message() -> bytes:
    fields: dict[str, Any] = {
        "content": "",
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "ai",
        "name": None,
        "id": None,
    }
    return pack(named(5, "langchain_core.messages.ai", "AIMessage", fields, "model_validate_json"))


def keys() -> Iterator[Case]:
    """Keys of a map that are one in a dict, or that a dict cannot find again."""
    nan = b"\xcb\x7f\xf8" + b"\0" * 6
    one = b"\xcb" + struct.pack(">d", 1.0)
    minus_zero = b"\xcb" + struct.pack(">d", -0.0)
    for label, first, second in (
        ("text", b"\xa1a", b"\xa1a"),
        ("text, short and long form", b"\xa1a", b"\xd9\x01a"),
        ("text, short and longest form", b"\xa1a", b"\xdb\0\0\0\x01a"),
        ("binary", b"\xc4\x01a", b"\xc4\x01a"),
        ("binary, two forms", b"\xc4\x01a", b"\xc5\0\x01a"),
        ("1 and 1", b"\x01", b"\x01"),
        ("1 and 1 in another form", b"\x01", b"\xcc\x01"),
        ("1 and 1 signed", b"\x01", b"\xd0\x01"),
        ("1 and 1 in 64 bits", b"\x01", b"\xcf" + struct.pack(">Q", 1)),
        ("1 and 1.0", b"\x01", one),
        ("1 and 1.0 in 32 bits", b"\x01", b"\xca" + struct.pack(">f", 1.0)),
        ("1 and True", b"\x01", b"\xc3"),
        ("True and 1.0", b"\xc3", one),
        ("0 and False", b"\0", b"\xc2"),
        ("0 and -0.0", b"\0", minus_zero),
        ("-1 and -1.0", b"\xff", b"\xcb" + struct.pack(">d", -1.0)),
        ("nil twice", b"\xc0", b"\xc0"),
        ("NaN twice", nan, nan),
        ("NaN and text", nan, b"\xa1a"),
        ("arrays", b"\x91\x01", b"\x91\x01"),
        ("arrays that hold 1 and True", b"\x91\x01", b"\x91\xc3"),
        ("arrays in two forms", b"\x91\x01", b"\xdc\0\x01\x01"),
        ("empty arrays", b"\x90", b"\x90"),
        ("arrays with NaN", b"\x91" + nan, b"\x91" + nan),
        ("2**53 and 2.0**53", b"\xcf" + struct.pack(">Q", 2**53), b"\xcb" + struct.pack(">d", 2.0**53)),
        ("a map", b"\x80", b"\xa1a"),
        ("a map in an array", b"\x91\x80", b"\xa1a"),
        (_DISTINCT, b"\x91\xc4\x01a", b"\x91\xa1a"),
    ):
        blob = pairs((first, 1), (second, 2))
        yield from cases("keys", label, blob, readers="strict inert", malformed=label != _DISTINCT)
    for label, blob in (
        ("twice in a snapshot", extension(7, pairs(("a", 1), ("a", 2)))),
        ("twice in a checkpoint", pairs(("v", 1), ("id", "x"), ("id", "y"))),
        (
            "twice in the fields of a message",
            _record(5, "langchain_core.messages.ai", "AIMessage", ("content", "a"), ("content", "b")),
        ),
        ("twice in the arguments of a time", _record(2, "datetime", "time", ("hour", 1), ("hour", 2))),
    ):
        yield from cases("keys", label, blob, readers=ALL, malformed=True)
    colliding = [(-1 if number >> bit & 1 else -2 for bit in range(15)) for number in range(1 << 15)]
    body = b"".join(pack(list(key)) + b"\x01" for key in colliding)
    flood = b"\xdf" + struct.pack(">I", 1 << 15) + body
    yield from cases("keys", "32,768 arrays with one hash", flood, readers=f"{ALL} inventory")


def _record(code: int, module: str, name: str, *fields: tuple[str, object]) -> bytes:
    method = pack("model_validate_json") if code == 5 else b""
    head = b"\x94" if method else b"\x93"
    return extension(code, head + pack(module) + pack(name) + pairs(*fields) + method)


def damage() -> Iterator[Case]:
    """Values cut off, with something behind them, or with what msgpack does not have."""
    value = pack({"a": [1, 2.5, "xyz", b"q", None, named(0, "builtins", "set", [1])]})
    for length in range(0, len(value), 4):
        yield from cases(
            "damage", f"the first {length} bytes", value[:length], readers="strict inert", malformed=True
        )
    for label, blob in (
        ("nothing", b""),
        ("0xc1", b"\xc1"),
        ("0xc1 in a list", b"\x91\xc1"),
        ("0xc1 as a key", b"\x81\xc1\x01"),
        ("nil behind it", value + b"\xc0"),
        ("another value behind it", value + value),
        ("a mebibyte behind it", value + bytes(MIB)),
        ("a byte behind a snapshot", extension(7, b"\x01\x02")),
        ("a byte behind a record", extension(0, pack(["builtins", "set", [1]]) + b"\x01")),
        ("an element too many", b"\x91\x01\x02"),
        ("a pair too few", b"\x82\x01\x02"),
    ):
        yield from cases("damage", label, blob, readers=ALL, malformed=True)
    for label, text in (
        ("a lone byte", b"\xff"),
        ("half a character", b"\xc3"),
        ("an overlong NUL", b"\xc0\x80"),
        ("a surrogate", b"\xed\xa0\x80"),
        ("beyond Unicode", b"\xf4\x90\x80\x80"),
    ):
        string = bytes((0xA0 + len(text),)) + text
        name = pack("set")
        for where, blob in (
            ("in a value", string),
            ("in a key", b"\x81" + string + b"\x01"),
            ("in the name of a module", extension(0, b"\x93" + string + name + b"\x90")),
            ("in the name of a type", extension(0, b"\x93" + pack("builtins") + string + b"\x90")),
            ("in a set", extension(0, b"\x93" + pack("builtins") + name + b"\x91" + string)),
        ):
            yield from cases("damage", f"{label} {where}", blob, readers="strict inert", malformed=True)
    for kind, content in (
        ("null", b"\x01"),
        ("null", value),
        ("", value),
        ("msgpack ", value),
        ("MSGPACK", value),
        ("msgpack\0", value),
        ("yaml", b"a: 1"),
        ("x" * 1_000_000, value),
    ):
        yield from cases(
            "labels",
            f"{kind[:10]!r} on {len(content)} bytes",
            content,
            kind=kind,
            readers="strict inert",
            malformed=True,
        )
    for odd in (None, 0, 1.5, b"msgpack", ["msgpack"], True):
        yield from cases("labels", f"{odd!r}", value, kind=odd, readers="strict inert", malformed=True)
    for strange in (None, 0, 5, 1.5, "text", [1], True):
        for kind in ("msgpack", "bytes", "null", "json"):
            yield from cases(
                "labels", f"{kind} on {strange!r}", _as_it_is(strange), kind=kind, malformed=True
            )


def _as_it_is(content: Any) -> Build:
    return lambda _: content


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (depths, announced, bombs, keys, damage):
        yield from family()
