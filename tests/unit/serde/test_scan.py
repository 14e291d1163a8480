"""The check before decoding: header by header it agrees with the decoder, and its bounds are exact."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessageChunk

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.limits import Limits
from sealpoint.serde.scan import scan
from tests.support.values.wire import (
    NIL,
    array,
    decoded,
    deep_values,
    extension,
    mapping,
    text,
    token,
)

HEADERS = range(256)
UNUSED = 0xC1


def refused(data: bytes, error: type[DecodeError] = DecodeError, limits: Limits | None = None) -> bool:
    """Whether bytes are refused, and with exactly this error."""
    try:
        scan(data, limits or Limits())
    except DecodeError as raised:
        return type(raised) is error
    return False


# --- headers -------------------------------------------------------------------------------------


@pytest.mark.claim("f13")
@pytest.mark.parametrize("head", HEADERS, ids=hex)
def test_a_token_ends_where_the_decoder_ends_it(head: int) -> None:
    """What stands after it is read as the next element, by both."""
    data = array(token(head), b"\x07")
    if head == UNUSED:
        assert refused(data)
        with pytest.raises(ormsgpack.MsgpackDecodeError):
            decoded(data)
        return
    scan(data)
    assert decoded(data)[1] == 7
    assert refused(array(token(head), b"\x07") + b"\x07")
    assert refused(b"\x93" + token(head) + b"\x07")


@pytest.mark.parametrize("head", HEADERS, ids=hex)
def test_a_key_ends_where_the_decoder_ends_it(head: int) -> None:
    """Or is refused: maps and extensions are no keys, and NaN is not equal to itself."""
    data = mapping(token(head), b"\x07")
    is_key = head not in {UNUSED, *range(0x80, 0x90), 0xDE, 0xDF, *range(0xC7, 0xCA), *range(0xD4, 0xD9)}
    assert refused(data) is not is_key
    if is_key:
        assert list(decoded(data).values()) == [7]


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.claim("f12")
@pytest.mark.parametrize("limit", [1, 5, 64])
@pytest.mark.parametrize("kind", ["array", "array16", "map", "map16", "extension", "mixed"])
def test_depth_counts_containers_and_extensions(kind: str, limit: int) -> None:
    """64 levels pass, 65 are refused, whatever they are made of."""
    limits = Limits(depth=limit)
    assert not refused(deep_values(limit)[kind], limits=limits)
    assert refused(deep_values(limit + 1)[kind], LimitError, limits)


NUMBERS = [bytes((number,)) for number in range(4)]
COUNTED = {
    "items": ("elements", 4, array(*NUMBERS)),
    "pairs": ("elements", 4, mapping(*(part for number in NUMBERS for part in (number, NIL)))),
    "items under a long header": ("elements", 5, b"\xdc\x00\x05" + NIL * 5),
    "all containers": ("elements", 7, array(array(NIL), extension(7, array(NIL)), mapping(NIL, array(NIL)))),
    "bytes of a key": ("elements", 12, mapping(array(*[NIL] * 9), array(NIL))),
    "bytes of many keys": (
        "elements",
        16,
        mapping(*(part for number in NUMBERS for part in (array(number), array(NIL)))),
    ),
    "bytes of a last key": ("elements", 13, mapping(NIL, NIL, array(*[NIL] * 10), NIL)),
    "records": ("records", 3, array(extension(7, NIL), extension(7, extension(7, NIL)))),
    "bytes": ("size_bytes", 21, b"\xb4" + b"x" * 20),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_exact(name: str) -> None:
    """A key may be an array, and would else hold what a value may not."""
    limit, most, data = COUNTED[name]
    scan(data, Limits(**{limit: most}))
    assert refused(data, LimitError, Limits(**{limit: most - 1}))


@pytest.mark.parametrize("head", ["c4ff", "c6ffffffff", "d9ff", "dbffffffff", "ddffffffff", "dfffffffff"])
def test_what_is_announced_must_be_there(head: str) -> None:
    """Nothing is set aside for it before."""
    assert refused(bytes.fromhex(head) + bytes(200))
    assert refused(mapping(bytes.fromhex(head) + bytes(200), NIL))


# --- keys ----------------------------------------------------------------------------------------

ONES = ["01", "cc01", "cd0001", "ce00000001", "cf" + "00" * 7 + "01", "d001", "d10001", "ca3f800000", "c3"]
ZEROS = ["00", "cc00", "d000", "ca00000000", "ca80000000", "cb8000000000000000", "c2"]
MINUS = ["ff", "d0ff", "d3" + "ff" * 8, "cabf800000"]
TEXTS = ["a178", "d90178", "da000178", "db0000000178"]
LONG = [form + "78" * 32 for form in ("d920", "da0020", "db00000020")]
BINARIES = ["c40178", "c5000178", "c60000000178"]
ARRAYS = ["9101", "91c3", "91ca3f800000", "dc000101", "dd0000000101", "91cb3ff0000000000000"]
ZERO_ARRAYS = ["9100", "91c2", "91cb8000000000000000"]
NESTED = ["9191a178", "91dc0001d90178"]
INFINITE = ["ca7f800000", "cb7ff0000000000000"]
HUGE = ["cf8000000000000000", "cb43e0000000000000"]
# Of one byte, and the numbers that they would be if they were taken for negative ones.
EMPTIES = ["a0", "d0a0", "91a0", "91d0a0", "90", "d090", "9190", "91d090", "91c0", "9191c0", "d080", "91d0c0"]
LENGTHS = [
    ["a161", "d90161"],
    ["c40161"],
    ["91a161", "91d90161"],
    ["91c40161", "91c5000161"],
    ["61"],
    ["9161"],
]
GROUPS = [ONES, ZEROS, MINUS, TEXTS, LONG, BINARIES, ARRAYS, ZERO_ARRAYS, NESTED, INFINITE, HUGE, ["c0"]]
GROUPS += [*([key] for key in EMPTIES), *LENGTHS]
KEYS = {key: number for number, group in enumerate(GROUPS) for key in group}


@pytest.mark.claim("f13")
@pytest.mark.parametrize("one", KEYS)
def test_keys_that_are_one_in_a_dict_are_refused(one: str) -> None:
    """Beside every other key: exactly where the decoder's dict has one entry less."""
    for other, group in KEYS.items():
        data = mapping(bytes.fromhex(one), NIL, bytes.fromhex(other), NIL)
        same = KEYS[one] == group
        assert refused(data) is same
        assert (len(decoded(data)) == 1) is same


@pytest.mark.parametrize("key", ["dc0400", "ddffffffff", "91dc0400"])
def test_an_array_that_is_a_key_announces_no_more_than_is_there(key: str) -> None:
    """Which is seen at its header, before any of its items are read."""
    with pytest.raises(DecodeError, match="a container announces more"):
        scan(mapping(bytes.fromhex(key) + NIL * 999, NIL))


@pytest.mark.parametrize(
    "key",
    [
        *("81c0c0", "80", "de0000", "c70107c0", "d407c0", "9180", "91d407c0", "c1", "91c1"),
        *("ca7fc00000", "cb7ff8000000000000", "cbfff0000000000001", "91ca7fc00000"),
    ],
)
def test_maps_extensions_and_nan_are_no_keys(key: str) -> None:
    assert refused(mapping(bytes.fromhex(key), NIL))


def test_array_keys_that_share_a_hash_are_refused() -> None:
    """The hash of a tuple of numbers can be chosen, and a dict compares what shares one."""
    fives = [b"\xcf" + (5 + (2**61 - 1) * more).to_bytes(8, "big") for more in range(5)]
    keys = [array(*parts) for parts in itertools.islice(itertools.product(fives, repeat=3), 65)]
    assert len({hash(tuple(decoded(key))) for key in keys}) == 1
    pairs = [part for key in keys for part in (key, NIL)]
    scan(mapping(*pairs[:-2]))
    assert refused(mapping(*pairs))


# --- types that are limited by their names --------------------------------------------------------

COSTLY: dict[str, Any] = {"patterns": re.compile("a"), "chunks": AIMessageChunk(content="a")}
OVER = r"over 3 (regular expressions|streamed messages)"


def serializer(**limits: int) -> JsonPlusSerializer:
    return JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(**limits))


@pytest.mark.parametrize("filler", [[], [{1}] * 9, ["x" * 10_000]], ids=["alone", "records", "long text"])
@pytest.mark.parametrize("kind", COSTLY)
def test_costly_types_are_counted(kind: str, filler: list[Any]) -> None:
    """Among records that are short or long: the search for names has another way for each."""
    data = JsonPlusSerializer().dumps_typed([COSTLY[kind]] * 4 + filler)
    assert serializer(**{kind: 4}).loads_typed(data) == [COSTLY[kind]] * 4 + filler
    with pytest.raises(LimitError, match=OVER):
        serializer(**{kind: 3}).loads_typed(data)


def forms(name: str) -> list[bytes]:
    """Every header under which a text may stand."""
    data = name.encode()
    sizes = {0xD9: 1, 0xDA: 2, 0xDB: 4}
    long = [bytes((head,)) + len(data).to_bytes(size, "big") + data for head, size in sizes.items()]
    return [text(name), *long] if len(data) < 32 else long


@pytest.mark.parametrize("filler", [NIL, text("x" * 10_000)], ids=["short", "long"])
@pytest.mark.parametrize("head", [b"\x93", b"\xdc\x00\x03", b"\xdd\x00\x00\x00\x03"], ids=bytes.hex)
@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [("patterns", "re", "compile"), ("chunks", "langchain_core.messages.ai", "AIMessageChunk")],
)
def test_costly_types_are_counted_in_every_form(
    kind: str, module: str, name: str, head: bytes, filler: bytes
) -> None:
    """Under headers that no encoder writes, too."""
    for first, second in itertools.product(forms(module), forms(name)):
        one = extension(1, head + first + second + array(text("a"), b"\x20"))
        with pytest.raises(LimitError, match=OVER):
            serializer(**{kind: 3}).loads_typed(("msgpack", array(filler, *[one] * 4)))


# --- small stacks --------------------------------------------------------------------------------

SMALL_STACK = """
import sys, threading
from sealpoint.errors import SealpointError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert, inventory
from sealpoint.serde.scan import scan
from tests.support.sample_types import Point
from tests.support.values.wire import deep_values

strict = JsonPlusSerializer(allowed_msgpack_modules=[Point])
read, refused = set(), set()

def run():
    for depth in (1, 16, 21, 22, 62, 63, 64, 65, 200, 5000):
        for kind, data in deep_values(depth).items():
            try:
                scan(data)
                inventory(data)
                decode_inert("msgpack", data)
                strict.loads_typed(("msgpack", data))
                read.add((kind, depth))
            except SealpointError:
                refused.add((kind, depth))

threading.stack_size(int(sys.argv[1]) * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
print(sorted({kind for kind, depth in read if depth == 64}))
print(sorted({kind for kind, depth in refused}))
print(sorted({kind for kind, depth in read if depth > 64}))
"""


@pytest.mark.claim("f14")
@pytest.mark.parametrize("kibibytes", [128, 144, 160, 192])
def test_all_of_it_holds_in_a_thread_with_a_small_stack(kibibytes: int) -> None:
    """As some platforms and servers give, at the full depth that is permitted and beyond."""
    command = [sys.executable, "-c", SMALL_STACK, str(kibibytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read, out, beyond = map(ast.literal_eval, done.stdout.splitlines())
    kinds = sorted(deep_values(1))
    # Python 3.14 keeps a part of the stack back.
    assert read == kinds or (sys.version_info >= (3, 14) and kibibytes < 192)
    assert out == kinds
    assert beyond == []
