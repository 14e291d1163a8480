"""What is checked: unauthenticated bytes, and never those that a ring has just opened."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as Theirs

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import DecodeError, LimitError, SealpointError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from sealpoint.serde.limits import Limits
from tests.support.values.wire import NIL, array, deep_values, extension, mapping, record, text

KEY = bytes(range(32))
AES_KEY = b"sixteen or 32 bytes of a secret!"
SMALL = Limits(size_bytes=100, depth=5, elements=20, records=3, patterns=1)

Row = tuple[str, bytes]
Reader = Callable[[bytes], Any]


class Plain:
    """A cipher with LangGraph's two methods that hides nothing."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "plain", plaintext

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext


legacy = Key("langgraph", AES_KEY, KeyState.DECRYPT_ONLY, suite="aes")
cipher = RingCipher(KeyRing([Key("k1", KEY, KeyState.ACTIVE), legacy]))
strict = JsonPlusSerializer(allowed_msgpack_modules=None, limits=SMALL)
theirs = Theirs.from_pycryptodome_aes(key=AES_KEY).cipher

pattern = record(1, "re", "compile", array(text("a"), b"\x20"))

BEYOND = {
    "depth": deep_values(6)["array"],
    "depth of snapshots": deep_values(6)["extension"],
    "elements": array(*[NIL] * 21),
    "records": array(*[extension(7, NIL, 1)] * 4),
    "patterns": array(pattern, pattern),
    "size": text("x" * 100),
    "a key twice": mapping(text("a"), b"\x01", text("a"), b"\x02"),
    "keys that merge": mapping(b"\x01", b"\x01", b"\xc3", b"\x02"),
    "keys of one text": mapping(text("a"), b"\x01", b"\xd9\x01a", b"\x02"),
    "a key that is not itself": mapping(b"\xca\x7f\xc0\x00\x00", NIL),
    "a long range in a pattern": record(1, "re", "compile", array(text("[a-z]" * 19), b"\x22")),
    "a number for a decimal": record(0, "decimal", "Decimal", b"\x05"),
}

UNSEALED: dict[str, Callable[[str, bytes], tuple[EncryptedSerializer | JsonPlusSerializer, Row]]] = {
    "a plain serializer": lambda kind, data: (strict, (kind, data)),
    "plaintext allowed": lambda kind, data: (
        EncryptedSerializer(cipher, strict, plaintext="allow"),
        (kind, data),
    ),
    "a cipher that binds no type": lambda kind, data: (
        EncryptedSerializer(Plain(), strict),
        (f"{kind}+plain", data),
    ),
    "LANGGRAPH_AES_KEY": lambda kind, data: (
        EncryptedSerializer(cipher, strict),
        (f"{kind}+aes", theirs.encrypt(data)[1]),
    ),
}
HARMLESS = ("a long range in a pattern",)


@pytest.mark.parametrize("name", BEYOND)
def test_a_sealed_value_is_not_checked(name: str) -> None:
    """What a holder of the key has sealed opens as it always did, whatever the limits are."""
    row = cipher.seal("msgpack", BEYOND[name])
    lax = JsonPlusSerializer(allowed_msgpack_modules=None)
    sealed = EncryptedSerializer(cipher, strict).loads_typed(row)
    assert repr(sealed) == repr(lax.loads_sealed("msgpack", BEYOND[name]))


@pytest.mark.parametrize("way", UNSEALED)
@pytest.mark.parametrize("name", [name for name in BEYOND if name not in HARMLESS])
def test_any_other_value_is_checked(name: str, way: str) -> None:
    reader, row = UNSEALED[way]("msgpack", BEYOND[name])
    with pytest.raises(SealpointError):
        reader.loads_typed(row)


@pytest.mark.parametrize("way", UNSEALED)
def test_an_honest_value_is_read_in_every_way(way: str) -> None:
    value = {"a": [1, {2}, None], 1: b"x"}
    reader, row = UNSEALED[way](*strict.dumps_typed(value))
    assert reader.loads_typed(row) == value


@pytest.mark.parametrize("way", UNSEALED)
def test_a_pickle_is_read_only_inside_a_seal_that_binds_its_type(way: str) -> None:
    """Not even by a permissive serializer with pickle_fallback."""
    picklers: Any = JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=None)
    reader, row = UNSEALED[way]("pickle", pickle.dumps([1]))
    if isinstance(reader, EncryptedSerializer):
        picklers = EncryptedSerializer(reader.cipher, picklers, plaintext=reader.plaintext)
    with pytest.raises(SealpointError):
        picklers.loads_typed(row)


def test_a_pickle_does_not_reach_a_serializer_of_another_kind() -> None:
    """It cannot know whether its bytes are authenticated, and might unpickle them."""
    reached: list[str] = []

    class Other:
        def dumps_typed(self, obj: Any) -> Row:
            return "pickle", pickle.dumps(obj)

        def loads_typed(self, data: Row) -> Any:
            reached.append(data[0])

    for way in ("plaintext allowed", "a cipher that binds no type", "LANGGRAPH_AES_KEY"):
        reader, row = UNSEALED[way]("pickle", pickle.dumps([1]))
        assert isinstance(reader, EncryptedSerializer)
        with pytest.raises(SealpointError):
            EncryptedSerializer(reader.cipher, Other(), plaintext=reader.plaintext).loads_typed(row)
    assert reached == []
    sealed = EncryptedSerializer(cipher, Other())
    sealed.loads_typed(sealed.dumps_typed([1]))
    assert reached == ["pickle"]


@pytest.mark.parametrize(
    ("beyond", "within"),
    [
        (b"[[[[[[1]]]]]]", b"[[[[[1]]]]]"),
        (b"[" + b"1," * 20 + b"1]", b"[" + b"1," * 18 + b"1]"),
        (b"[" + b"[]," * 10 + b"[]]", b"[" + b"[]," * 9 + b"[]]"),
        (b"[" + b'{"":1},' * 10 + b"1]", b"[" + b'{"":1},' * 6 + b"1]"),
        (b'"' + b"x" * 49 + b'"', b'"' + b"x" * 48 + b'"'),
    ],
)
def test_json_rows_have_the_same_limits(beyond: bytes, within: bytes) -> None:
    """Half of the size: text that is not ASCII takes more in memory, and stands there twice."""
    strict.loads_typed(("json", within))
    with pytest.raises(LimitError):
        strict.loads_typed(("json", beyond))


def test_envelopes_of_json_rows_have_the_same_limits() -> None:
    roomy = Limits(records=3, patterns=1)
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, limits=roomy)
    one = b'{"lc": 2, "type": "constructor", "id": ["builtins", "set"], "args": [[]]}'
    compiled = b'{"lc": 2, "type": "constructor", "id": ["re", "compile"], "args": ["a"]}'
    for envelope, most in ((one, 3), (compiled, 1)):
        assert len(serde.loads_typed(("json", b"[" + b",".join([envelope] * most) + b"]"))) == most
        with pytest.raises(LimitError):
            serde.loads_typed(("json", b"[" + b",".join([envelope] * (most + 1)) + b"]"))


def test_a_serializer_with_more_types_has_the_same_limits() -> None:
    """LangGraph adds to the allowlist of a serializer while it compiles a graph."""
    more = strict.with_msgpack_allowlist([("a", "B")])
    with pytest.raises(LimitError):
        more.loads_typed(("msgpack", BEYOND["depth"]))


def test_bytes_may_come_as_a_bytearray() -> None:
    good: Any = bytearray(mapping(text("a"), NIL))
    bad: Any = bytearray(BEYOND["a key twice"])
    assert strict.loads_typed(("msgpack", good)) == {"a": None}
    with pytest.raises(DecodeError):
        strict.loads_typed(("msgpack", bad))


def test_more_depth_than_python_has_is_an_error_of_ours() -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(depth=10**6))
    for row in (("json", b"[" * 10**5 + b"]" * 10**5), ("msgpack", b"\x91" * 10**5 + NIL)):
        with pytest.raises(DecodeError):
            serde.loads_typed(row)
