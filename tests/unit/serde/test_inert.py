"""Reading without objects: a record is shown as what it names, and an outline has nothing in its place."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphs

from fuzz.targets import names_in
from sealpoint import EncryptedSerializer, JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher, langgraph
from sealpoint.errors import (
    BlockedTypeError,
    DecodeError,
    LimitError,
    SealedValueError,
    SealpointError,
    UnknownTypeError,
)
from sealpoint.serde.inert import Inert, decode_inert, inventory, make_outline
from sealpoint.serde.limits import Limits
from tests.support.sample_types import Color
from tests.support.values.forge import envelope, extension, record
from tests.support.values.samples import SAMPLES
from tests.support.values.wire import NIL, array, mapping, text
from tests.support.values.wire import extension as wire_extension

WRITTEN = {name: JsonPlusSerializer().dumps_typed(value) for name, value in SAMPLES.items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_inventory_is_that_of_the_value(name: str) -> None:
    kind, data = WRITTEN[name]
    value = decode_inert(kind, data)
    assert inventory(data, kind) == names_in(value)
    assert kind == "msgpack" or value == SAMPLES[name]


DELTA = "langgraph.checkpoint.serde.types", "_DeltaSnapshot"


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (record(0, "uuid", "UUID", "05"), Inert("single", "uuid", "UUID", "05")),
        (record(1, "os", "system", ["id"]), Inert("positional", "os", "system", ["id"])),
        (record(2, "no.such", "Type", {"a": [1]}), Inert("keyword", "no.such", "Type", {"a": [1]})),
        (record(3, "m", "n", "x", "fromisoformat"), Inert("method", "m", "n", "x")),
        (record(4, "m", "n", {}), Inert("pydantic-v1", "m", "n", {})),
        (record(5, "m", "n", {"a": 1}, "model_validate_json"), Inert("pydantic-v2", "m", "n", {"a": 1})),
        (extension(6, ["|O", [1]]), Inert("numpy", "numpy", "ndarray", ["|O", [1]])),
        (extension(7, [1]), Inert("delta-snapshot", *DELTA, [1])),
    ],
)
def test_a_record_is_shown_as_what_it_names(row: tuple[str, bytes], value: Inert) -> None:
    """Also what no serializer would rebuild."""
    assert decode_inert(*row) == value
    assert inventory(row[1]) == {(value.module, value.name): 1}


NAMELESS = [
    NIL,
    text("set"),
    array(text("a"), text("b")),
    array(NIL, text("b"), NIL),
    array(text("a"), b"\xc4\x01b", NIL),
    array(text("a"), array(text("b")), NIL),
    array(b"\xa1\xff", text("b"), NIL),
    array(text("a"), text("b"), NIL, text("fromisoformat"), NIL),
    mapping(NIL, NIL),
]
METHODS = [NIL, text("system"), wire_extension(7, text("fromisoformat"))]


@pytest.mark.parametrize(
    "payload", [*NAMELESS, *(array(text("a"), text("b"), NIL, method) for method in METHODS)], ids=bytes.hex
)
def test_a_record_that_is_none_is_refused(payload: bytes) -> None:
    """Nothing of it is left out in silence, such as what stands in the place of a method."""
    with pytest.raises(DecodeError):
        decode_inert("msgpack", wire_extension(3, payload))
    if payload in NAMELESS:
        with pytest.raises(DecodeError):
            inventory(wire_extension(3, payload))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\xc0\xc0", b"\xa1\xff", mapping(NIL, NIL, NIL, NIL), b"\xd4\x63\xc0", b"\x91"]
)
def test_bytes_that_are_not_one_value_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_inert("msgpack", data)


def test_limits_are_those_that_are_given() -> None:
    data = array(wire_extension(7, NIL), wire_extension(7, NIL))
    for read in (partial(decode_inert, "msgpack", data), partial(inventory, data, "msgpack")):
        read(Limits(records=2))
        with pytest.raises(LimitError):
            read(Limits(records=1))
    with pytest.raises(LimitError):
        decode_inert("json", b"[[1]]", Limits(depth=1))


# --- legacy json ---------------------------------------------------------------------------------


def test_an_envelope_is_shown_as_what_it_names() -> None:
    inner = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["id"]}
    value = decode_inert(*envelope("a", "b", "C", kwargs={"x": [inner]}))
    assert value == Inert(
        "envelope",
        "a.b",
        "C",
        {
            "type": "constructor",
            "kwargs": {"x": [Inert("envelope", "os", "system", {"type": "constructor", "args": ["id"]})]},
        },
    )
    assert inventory(envelope("a", "b", "C", kwargs={"x": [inner]})[1], "json") == names_in(value)


def test_a_secret_is_shown_and_not_read() -> None:
    value = decode_inert(*envelope("langchain", "HOME", lc=1, kind="secret"))
    assert value == Inert("envelope", "langchain", "HOME", {"type": "secret"})


def test_plain_json_is_itself() -> None:
    value = {"a": [1, None, "lc"], "lc": 3, "type": 1, "id": 2}
    assert decode_inert("json", json.dumps(value).encode()) == value


@pytest.mark.parametrize("data", [b"", b"[" * 100, b'{"lc": 2, "type": "x", "id": "a.b"}'])
def test_json_that_is_no_json_or_too_deep_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_inert("json", data)
    with pytest.raises(DecodeError):
        inventory(data, "json")


# --- kinds ---------------------------------------------------------------------------------------


def test_a_pickle_is_not_looked_into() -> None:
    data = b"cos\nsystem\n(S'id'\ntR."
    assert decode_inert("pickle", data) == Inert("pickle", "", "", data)
    assert inventory(data, "pickle").total() == 1


def test_kinds_without_types_are_themselves() -> None:
    assert decode_inert("bytes", b"\x93") == b"\x93"
    assert repr(decode_inert("bytearray", b"\x93")) == r"bytearray(b'\x93')"
    assert not inventory(b"\x93", "bytes")
    assert decode_inert("null", b"") is None
    with pytest.raises(DecodeError):
        decode_inert("null", b"x")


@pytest.mark.parametrize("kind", ["", "yaml", "MSGPACK", "msgpack+aes", "msgpack\0", "x" * 10_000])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(UnknownTypeError) as caught:
        decode_inert(kind, b"\xc0")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [None, 5, "text", 1.5, bytearray(b"\xc0"), memoryview(b"\xc0")])
@pytest.mark.parametrize("kind", ["msgpack", "json", "bytes", "null"])
def test_what_is_not_bytes_is_refused(kind: str, data: Any) -> None:
    """SQLite returns a value of any type that was stored."""
    with pytest.raises(SealedValueError):
        decode_inert(kind, data)
    with pytest.raises(SealedValueError):
        inventory(data, kind)


# --- outlines ------------------------------------------------------------------------------------

KEY = bytes(range(32))
DAY = datetime.date(2026, 2, 28)

RING = KeyRing([Key("k1", KEY, KeyState.ACTIVE)])
SEALED = EncryptedSerializer(RingCipher(RING))
STORED = SEALED.dumps_typed({"day": DAY})[1]

VALUES: list[tuple[Any, Any]] = [
    ({"a": DAY, 1: {2}, "b": [Color.RED, [UUID(int=1)], {}]}, {"a": None, 1: None, "b": [None, [None], {}]}),
    *((value, value) for value in (None, "x", b"x", [[{"a": [b""]}]])),
    (DAY, None),
]


@pytest.mark.parametrize(("value", "expected"), VALUES)
def test_an_outline_is_the_value_without_its_objects(value: object, expected: object) -> None:
    outline = make_outline(SEALED)(*SEALED.dumps_typed(value))
    assert repr(outline) == repr(expected)


def test_it_builds_nothing() -> None:
    strict = EncryptedSerializer.from_key(KEY, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    stored = SEALED.dumps_typed({"color": Color.RED})
    with pytest.raises(BlockedTypeError):
        strict.loads_typed(stored)
    assert make_outline(strict)(*stored) == {"color": None}


class Overridden(EncryptedSerializer):
    """A user's own: what it gives back is for it to say."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return {"seen": super().loads_typed(data)}


class Migrating(JsonPlusSerializer):
    """The same a floor below."""

    def loads_sealed(self, kind: str, content: bytes) -> Any:
        return {"seen": super().loads_sealed(kind, content)}


class Rot13:
    """A cipher with LangGraph's two methods, which binds no type."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def legacy() -> EncryptedSerializer:
    ring = KeyRing([Key("langgraph", KEY, KeyState.DECRYPT_ONLY, suite="aes")])
    return EncryptedSerializer(RingCipher(ring))


@pytest.mark.parametrize(
    ("serde", "writer"),
    [
        (JsonPlusSerializer(), None),
        (Overridden.from_key(KEY), None),
        (EncryptedSerializer.from_key(KEY, serde=Migrating()), None),
        (EncryptedSerializer(Rot13()), None),
        (LangGraphs.from_pycryptodome_aes(key=KEY), None),
        (legacy(), LangGraphs.from_pycryptodome_aes(key=KEY, mode=AES.MODE_EAX)),
        (EncryptedSerializer(SEALED.cipher, plaintext="allow"), JsonPlusSerializer()),
    ],
    ids=["plain", "own", "own within", "own cipher", "LangGraph's", "legacy rows", "plaintext"],
)
def test_unauthenticated_values_are_built(serde: Any, writer: Any) -> None:
    stored = (writer or serde).dumps_typed({"day": DAY})
    assert make_outline(serde)(*stored) == serde.loads_typed(stored) != {"day": None}


def test_the_bridges_serializer_has_outlines() -> None:
    bridge = langgraph.EncryptedSerializer.from_key(KEY, serde=langgraph.JsonPlusSerializer())
    assert make_outline(bridge)(*bridge.dumps_typed({"day": DAY})) == {"day": None}


REFUSED = [
    *((kind, STORED) for kind in ("msgpack", "msgpack+cobblestone256@k2", "bytes+cobblestone256@k1", "x", 5)),
    ("msgpack+cobblestone256@k1", STORED[:-1] + bytes([STORED[-1] ^ 1])),
    *(RingCipher(RING).seal("msgpack", content) for content in (b"", b"\xc1", b"\x81\xa1", b"\x92\x01")),
    RingCipher(RING).seal("msgpack", b"\xa1\xff"),
]


@pytest.mark.parametrize("stored", REFUSED)
def test_refusals_are_the_serializers_own(stored: Any) -> None:
    with pytest.raises(SealpointError) as expected:
        SEALED.loads_typed(stored)
    with pytest.raises(type(expected.value)):
        make_outline(SEALED)(*stored)


# --- imports -------------------------------------------------------------------------------------

PLAINLY = """
import heapq, json, sys  # heapq is loaded late by collections
from sealpoint.serde.inert import decode_inert, inventory
for codec in ("utf-8", "ascii"):
    "".encode(codec)
rows = [(kind, bytes.fromhex(data)) for kind, data in json.load(sys.stdin)]
before = set(sys.modules)
for kind, data in rows:
    decode_inert(kind, data)
    inventory(data, kind)
print(len(rows), *sorted(set(sys.modules) - before))
"""


@pytest.mark.claim("f19")
def test_nothing_is_imported(tmp_path: Path) -> None:
    """In a fresh process that has a module to be lured into, and every sample besides."""
    (tmp_path / "canary.py").write_text(f"open({str(tmp_path / 'sang')!r}, 'w').close()\nclass Bird: pass\n")
    lures = [record(code, "canary", "Bird", []) for code in range(6)] + [envelope("canary", "Bird", args=[])]
    lures += [record(0, "os", "system", "touch sang"), extension(6, ["|O", [1], "C", bytes(8)])]
    rows = [(kind, data.hex()) for kind, data in [*WRITTEN.values(), *lures]]
    done = subprocess.run(
        [sys.executable, "-c", PLAINLY],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(rows))]
    assert not (tmp_path / "sang").exists()
