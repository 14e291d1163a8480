"""The check before decoding: header by header it agrees with the decoder, and its bounds are exact."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from typing import Any

import ormsgpack
import pytest

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde import Allowlist, JsonPlusSerializer
from sealpoint.serde.codes import EXTENSIONS
from sealpoint.serde.decode import Decoder
from sealpoint.serde.headers import FIXSTR_SIZES, SIZES
from sealpoint.serde.limits import Limits
from sealpoint.serde.scan import read_names, scan
from tests.support.samples import SAMPLES
from tests.support.wire import (
    array,
    decoded,
    deep_values,
    extension,
    mapping,
    text,
    token,
)

NIL = b"\xc0"
HEADERS = range(256)
UNUSED = 0xC1

HONEST = {
    name: data
    for name, (kind, data) in ((n, JsonPlusSerializer().dumps_typed(v)) for n, v in SAMPLES.items())
    if kind == "msgpack"
}


def refused(data: bytes, error: type[DecodeError] = DecodeError, limits: Limits | None = None) -> bool:
    """Whether bytes are refused, and with exactly this error."""
    try:
        scan(data, limits or Limits())
    except DecodeError as raised:
        return type(raised) is error
    return False


# --- headers -------------------------------------------------------------------------------------


def test_the_table_of_sizes_knows_every_header() -> None:
    assert len(SIZES) == len(FIXSTR_SIZES) == 256


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


@pytest.mark.parametrize("name", HONEST)
def test_honest_values_pass(name: str) -> None:
    scan(HONEST[name])


@pytest.mark.parametrize("name", HONEST)
def test_a_value_that_is_cut_short_is_refused(name: str) -> None:
    """At every byte of it."""
    data = HONEST[name]
    assert all(refused(data[:end]) for end in range(len(data)))


@pytest.mark.parametrize("name", HONEST)
def test_a_value_with_more_behind_it_is_refused(name: str) -> None:
    assert refused(HONEST[name] + NIL)


@pytest.mark.parametrize("payload", [b"", NIL + NIL, b"\x92\xc0", array(NIL) + NIL])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_payload_of_an_extension_is_exactly_one_value(payload: bytes, width: int) -> None:
    """Also where the bytes behind it would complete it."""
    assert refused(array(extension(7, payload, width), NIL, NIL))


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 5, 64])
@pytest.mark.parametrize("kind", ["array", "array16", "map", "map16", "extension", "mixed"])
def test_depth_counts_containers_and_extensions(kind: str, limit: int) -> None:
    """64 levels pass, 65 are refused, whatever they are made of."""
    limits = Limits(depth=limit)
    assert not refused(deep_values(limit)[kind], limits=limits)
    assert refused(deep_values(limit + 1)[kind], LimitError, limits)


@pytest.mark.parametrize("more", [0, 1])
def test_depth_counts_within_a_key(more: int) -> None:
    """One map, and arrays within each other as its key."""
    key = b"\x91" * (4 + more) + NIL
    assert refused(mapping(key, NIL), limits=Limits(depth=5)) is bool(more)


@pytest.mark.parametrize("shape", [array, lambda *items: mapping(*(x for i in items for x in (i, NIL)))])
def test_elements_are_counted(shape: Any) -> None:
    numbers = [bytes((number,)) for number in range(5)]
    assert not refused(shape(*numbers[:4]), limits=Limits(elements=4))
    assert refused(shape(*numbers), LimitError, Limits(elements=4))


def test_elements_of_all_containers_are_counted_together() -> None:
    data = array(array(NIL), extension(7, array(NIL)), mapping(NIL, array(NIL)))
    assert not refused(data, limits=Limits(elements=7))
    assert refused(data, LimitError, Limits(elements=6))


@pytest.mark.parametrize("head", [b"\xdc\x00\x05", b"\xdd\x00\x00\x00\x05"])
def test_elements_are_counted_under_every_header(head: bytes) -> None:
    assert not refused(head + NIL * 5, limits=Limits(elements=5))
    assert refused(head + NIL * 5, LimitError, Limits(elements=4))


def test_what_is_in_a_key_counts_too() -> None:
    """A key may be an array, and would else hold what a value may not."""
    for key in (array(*[NIL] * 9), array(array(NIL, NIL), array(NIL, NIL, NIL))):
        assert not refused(mapping(key, NIL), limits=Limits(elements=11))
        assert refused(mapping(key, NIL), LimitError, Limits(elements=5))
    many = mapping(*(part for number in range(4) for part in (array(bytes((number,))), NIL)))
    assert refused(many, LimitError, Limits(elements=7))


def test_records_are_counted() -> None:
    data = array(extension(7, NIL), extension(7, extension(7, NIL)))
    assert not refused(data, limits=Limits(records=3))
    assert refused(data, LimitError, Limits(records=2))


def test_patterns_are_counted() -> None:
    """By the decoder, which is the one to compile them."""
    data = JsonPlusSerializer().dumps_typed([SAMPLES["regex"], SAMPLES["regex bytes"], "compile"])[1]
    assert len(Decoder(Allowlist(), limits=Limits(patterns=4)).decode(data)) == 3
    with pytest.raises(LimitError):
        Decoder(Allowlist(), limits=Limits(patterns=3)).decode(data)


def test_size_is_bounded() -> None:
    data = text("x" * 20)
    assert not refused(data, limits=Limits(size_bytes=len(data)))
    assert refused(data, LimitError, Limits(size_bytes=len(data) - 1))


@pytest.mark.parametrize("head", ["c4ff", "c6ffffffff", "d9ff", "dbffffffff", "ddffffffff", "dfffffffff"])
def test_what_is_announced_must_be_there(head: str) -> None:
    """Nothing is set aside for it before."""
    assert refused(bytes.fromhex(head) + bytes(200))
    assert refused(mapping(bytes.fromhex(head) + bytes(200), NIL))


@pytest.mark.parametrize("code", [*sorted(set(range(256)) - EXTENSIONS.keys())[:2], 64, 127, 128, 255])
def test_other_extensions_are_refused(code: int) -> None:
    for width in (1, 2, 4):
        assert refused(extension(code, NIL, width))
    assert refused(bytes((0xD4, code)) + NIL)


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


@pytest.mark.parametrize("one", KEYS)
def test_keys_that_are_one_in_a_dict_are_refused(one: str) -> None:
    """Beside every other key: exactly where the decoder's dict has one entry less."""
    for other, group in KEYS.items():
        data = mapping(bytes.fromhex(one), NIL, bytes.fromhex(other), NIL)
        same = KEYS[one] == group
        assert refused(data) is same
        assert (len(decoded(data)) == 1) is same


@pytest.mark.parametrize("shape", [lambda key: key, array, lambda key: array(NIL, array(key))])
@pytest.mark.parametrize("head", range(0x80, 0x100), ids=hex)
def test_no_key_is_the_number_that_its_header_would_be(head: int, shape: Any) -> None:
    """But for negative fixint, which is one: a header is never the value of another token."""
    key, number = shape(token(head)), shape(b"\xd0" + bytes((head,)))
    if head == UNUSED or refused(mapping(key, NIL)):
        return
    for one, other in ((key, number), (number, key)):
        data = mapping(one, NIL, other, NIL)
        assert refused(data) is (len(decoded(data)) == 1) is (head >= 0xE0)


@pytest.mark.parametrize("key", ["dc0400", "ddffffffff", "91dc0400"])
def test_an_array_that_is_a_key_announces_no_more_than_is_there(key: str) -> None:
    """Which is seen at its header, before any of its items are read."""
    with pytest.raises(DecodeError, match="a container announces more"):
        scan(mapping(bytes.fromhex(key) + NIL * 999, NIL))


@pytest.mark.parametrize("nan", ["ca7fc00000", "cb7ff8000000000000", "cbfff0000000000001", "91ca7fc00000"])
def test_nan_is_no_key(nan: str) -> None:
    assert refused(mapping(bytes.fromhex(nan), NIL))


def test_a_key_is_looked_for_in_its_own_map() -> None:
    one = mapping(text("a"), NIL)
    scan(mapping(text("a"), one, text("b"), array(one, one)))
    assert refused(mapping(text("a"), one, text("b"), array(one, mapping(text("a"), NIL, text("a"), NIL))))


@pytest.mark.parametrize(
    "key", ["81c0c0", "80", "de0000", "c70107c0", "d407c0", "9180", "91d407c0", "c1", "91c1"]
)
def test_maps_and_extensions_are_no_keys(key: str) -> None:
    assert refused(mapping(bytes.fromhex(key), NIL))


def test_array_keys_that_share_a_hash_are_refused() -> None:
    """The hash of a tuple of numbers can be chosen, and a dict compares what shares one."""
    fives = [b"\xcf" + (5 + (2**61 - 1) * more).to_bytes(8, "big") for more in range(5)]
    keys = [array(*parts) for parts in itertools.islice(itertools.product(fives, repeat=3), 65)]
    assert len({hash(tuple(decoded(key))) for key in keys}) == 1
    pairs = [part for key in keys for part in (key, NIL)]
    scan(mapping(*pairs[:-2]))
    assert refused(mapping(*pairs))


def test_many_array_keys_pass() -> None:
    scan(mapping(*(part for n in range(5000) for part in (array(b"\xcd" + n.to_bytes(2, "big")), NIL))))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        NIL,
        text("set"),
        array(text("builtins"), text("set")),
        array(NIL, text("set"), NIL),
        array(text("builtins"), b"\xc4\x03set", NIL),
        array(text("builtins"), array(text("set")), NIL),
        array(b"\xa1\xff", text("set"), NIL),
        mapping(NIL, NIL),
        array(*[text("a")] * 5),
    ],
    ids=bytes.hex,
)
def test_what_names_no_type_has_no_names(payload: bytes) -> None:
    data = extension(0, payload)
    with pytest.raises(DecodeError):
        read_names(data, scan(data)[0])


@pytest.mark.parametrize(
    "payload",
    [
        array(text("a.b"), text("C"), NIL),
        array(b"\xd9\x03a.b", b"\xda\x00\x01C", NIL, text("m")),
        b"\xdc\x00\x03" + b"\xa3a.b" + b"\xa1C" + NIL,
        b"\xdd\x00\x00\x00\x03" + b"\xa3a.b" + b"\xa1C" + NIL,
    ],
    ids=bytes.hex,
)
def test_names_are_read_in_every_form(payload: bytes) -> None:
    data = extension(0, payload)
    assert read_names(data, scan(data)[0]) == ("a.b", "C")


# --- small stacks --------------------------------------------------------------------------------

SMALL_STACK = """
import sys, threading
from sealpoint.errors import SealpointError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert, inventory
from sealpoint.serde.scan import scan
from tests.support.sample_types import Point
from tests.support.wire import deep_values

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

threading.stack_size(128 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
print(sorted({kind for kind, depth in read if depth == 64}))
print(sorted({kind for kind, depth in refused}))
print(sorted({kind for kind, depth in read if depth > 64}))
"""


def test_all_of_it_holds_in_a_thread_with_a_small_stack() -> None:
    """128 KiB, as some platforms and servers give, at the full depth that is permitted and beyond."""
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read, out, beyond = map(ast.literal_eval, done.stdout.splitlines())
    kinds = sorted(deep_values(1))
    assert read == kinds
    assert out == kinds
    assert beyond == []
