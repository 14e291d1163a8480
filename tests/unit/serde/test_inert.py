"""Reading as plain data: every record is shown as what it names, and nothing is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fuzz.targets import names_in
from sealpoint.errors import DecodeError, LimitError, SealedValueError, UnknownTypeError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import Inert, decode_inert, inventory
from sealpoint.serde.limits import Limits
from tests.support.values.forge import envelope, extension, record
from tests.support.values.samples import SAMPLES
from tests.support.values.wire import NIL, array, mapping, text
from tests.support.values.wire import extension as wire_extension

TYPES = "tests.support.sample_types"
WRITTEN = {name: JsonPlusSerializer().dumps_typed(value) for name, value in SAMPLES.items()}
ONE = "00000000-0000-0000-0000-000000000001"


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
    assert inventory(wire_extension(0, payload)) == {("a.b", "C"): 1}


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


def test_an_old_path_of_langchain_leads_to_the_class_of_today() -> None:
    value = decode_inert(*envelope("langchain", "schema", "messages", "HumanMessage", lc=1, kwargs={}))
    assert (value.module, value.name) == ("langchain_core.messages.human", "HumanMessage")


def test_a_secret_is_shown_and_not_read() -> None:
    value = decode_inert(*envelope("langchain", "HOME", lc=1, kind="secret"))
    assert value == Inert("envelope", "langchain", "HOME", {"type": "secret"})


def test_plain_json_is_itself() -> None:
    value = {"a": [1, None, "lc"], "lc": 3, "type": 1, "id": 2}
    assert decode_inert("json", json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "data", [b"", b"[" * 100, b'{"a": 1, "a": 1}', b'{"lc": 2, "type": "x", "id": "a.b"}']
)
def test_json_that_is_ambiguous_or_too_deep_is_refused(data: bytes) -> None:
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
