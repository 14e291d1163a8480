"""What no key has authenticated: checked against limits, and read under the strict allowlist.

What a ring has just opened is not checked, and a permissive serializer builds any type from it.
"""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as Theirs

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    BlockedTypeError,
    DecodeError,
    LimitError,
    SealpointError,
    UnauthenticatedTypeError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from sealpoint.serde.limits import Limits
from tests.support.sample_types import Point
from tests.support.values.forge import envelope
from tests.support.values.forge import record as type_record
from tests.support.values.wire import NIL, array, deep_values, extension, mapping, record, text
from tests.unit.serde.test_encrypted import Flip

Row = tuple[str, bytes]

KEY, AES_KEY = bytes(range(32)), b"16, 24, 32 bytes"
RING = KeyRing(
    [Key("k1", KEY, KeyState.ACTIVE), Key("langgraph", AES_KEY, KeyState.DECRYPT_ONLY, suite="aes")]
)
CIPHER = RingCipher(RING)
THEIRS = Theirs.from_pycryptodome_aes(key=AES_KEY).cipher

WAYS: dict[str, Callable[[Row], Row]] = {
    "plaintext": lambda row: row,
    "LANGGRAPH_AES_KEY": lambda row: (f"{row[0]}+aes", THEIRS.encrypt(row[1])[1]),
}
UNBOUND: dict[str, Callable[[Row], Row]] = {
    **WAYS,
    "a cipher that binds no type": lambda row: (f"{row[0]}+flip+v2", Flip().encrypt(row[1])[1]),
}


def reader(serde: JsonPlusSerializer | None = None, **options: Any) -> EncryptedSerializer:
    permissive = JsonPlusSerializer(allowed_msgpack_modules=True, allowed_json_modules=True)
    return EncryptedSerializer(CIPHER, serde or permissive, plaintext="allow", **options)


def reads(serde: Any, way: str, row: Row) -> Any:
    """Return what a row that came in some way is read as."""
    cipher: Any = CIPHER if way in WAYS else Flip()
    return EncryptedSerializer(cipher, serde, plaintext="allow").loads_typed(UNBOUND[way](row))


# --- limits --------------------------------------------------------------------------------------

strict = JsonPlusSerializer(
    allowed_msgpack_modules=None,
    limits=Limits(size_bytes=100, depth=5, elements=20, records=3, patterns=1),
)
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

HARMLESS = ("a long range in a pattern",)


@pytest.mark.claim("f20")
@pytest.mark.parametrize("name", BEYOND)
def test_a_sealed_value_is_not_checked(name: str) -> None:
    """What a holder of the key has sealed opens as it always did, whatever the limits are."""
    lax = JsonPlusSerializer(allowed_msgpack_modules=None)
    sealed = reader(strict).loads_typed(CIPHER.seal("msgpack", BEYOND[name]))
    assert repr(sealed) == repr(lax.loads_sealed("msgpack", BEYOND[name]))


@pytest.mark.claim("f11")
@pytest.mark.parametrize("way", UNBOUND)
@pytest.mark.parametrize("name", [name for name in BEYOND if name not in HARMLESS])
def test_any_other_value_is_checked(name: str, way: str) -> None:
    row = ("msgpack", BEYOND[name])
    with pytest.raises(SealpointError):
        reads(strict, way, row)
    with pytest.raises(SealpointError):
        strict.loads_typed(row)


@pytest.mark.parametrize("way", UNBOUND)
def test_a_pickle_is_read_only_inside_a_seal_that_binds_its_type(way: str) -> None:
    """Not even with pickle_fallback; and it does not reach a serializer that might unpickle it."""
    reached: list[str] = []

    class Other:
        def dumps_typed(self, obj: Any) -> Row:
            return "pickle", pickle.dumps(obj)

        def loads_typed(self, data: Row) -> Any:
            reached.append(data[0])

    pickler = JsonPlusSerializer(pickle_fallback=True, allowed_msgpack_modules=None)
    for serde in (pickler, Other()):
        with pytest.raises(SealpointError):
            reads(serde, way, Other().dumps_typed([1]))
    with pytest.raises(SealpointError):
        pickler.loads_typed(Other().dumps_typed([1]))
    assert reached == []
    EncryptedSerializer(CIPHER, Other()).loads_typed(CIPHER.seal("pickle", b"."))
    assert reached == ["pickle"]


@pytest.mark.claim("f17")
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
    for made, most in ((one, 3), (compiled, 1)):
        assert len(serde.loads_typed(("json", b"[" + b",".join([made] * most) + b"]"))) == most
        with pytest.raises(LimitError):
            serde.loads_typed(("json", b"[" + b",".join([made] * (most + 1)) + b"]"))


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


# --- types ---------------------------------------------------------------------------------------

POINT_ENVELOPE = envelope("tests", "support", "sample_types", "Point", kwargs={"x": 1})


COMMAND = ["touch", "touched"]
FORGED = {
    "positional": type_record(1, "subprocess", "Popen", [COMMAND]),
    "keyword": type_record(2, "subprocess", "Popen", {"args": COMMAND}),
    "single": type_record(0, "subprocess", "Popen", COMMAND),
    "json positional": envelope("subprocess", "Popen", args=[COMMAND]),
    "json keyword": envelope("subprocess", "Popen", kwargs={"args": COMMAND}),
}


@pytest.mark.claim("f10")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_row_starts_no_process(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BlockedTypeError):
        reader().loads_typed(WAYS[way](FORGED[name]))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("way", WAYS)
def test_the_refusal_says_how_to_make_an_allowlist(way: str) -> None:
    with pytest.raises(UnauthenticatedTypeError) as caught:
        reader().loads_typed(WAYS[way](JsonPlusSerializer().dumps_typed(Point(1))))
    assert "no key has authenticated" in str(caught.value)
    call, _, entries = caught.value.hint.partition("serde.")[2].partition(";")[0].partition("(")
    allowing = getattr(reader(), call)(ast.literal_eval(entries.removesuffix(")")))
    assert allowing.loads_typed(WAYS[way](JsonPlusSerializer().dumps_typed(Point(1)))) == Point(1)
    assert "sealpoint types DB --emit" in caught.value.hint


@pytest.mark.parametrize("way", WAYS)
def test_safe_and_listed_types_are_built(way: str) -> None:
    value = {"messages": [HumanMessage("hi", id="1")], "point": Point(1)}
    row = WAYS[way](JsonPlusSerializer().dumps_typed(value))
    assert reader(JsonPlusSerializer(allowed_msgpack_modules=[Point])).loads_typed(row) == value
    listed = JsonPlusSerializer(
        allowed_msgpack_modules=True, allowed_json_modules=[("tests.support.sample_types", "Point")]
    )
    assert reader(listed).loads_typed(WAYS[way](POINT_ENVELOPE)) == Point(1)


@pytest.mark.parametrize("way", WAYS)
def test_the_types_of_a_graph_are_added_to_a_permissive_serializer(way: str) -> None:
    """As `compile` adds them; what is sealed stays permissive."""
    row = WAYS[way](JsonPlusSerializer().dumps_typed(Point(1)))
    before = reader()
    after = before.with_msgpack_allowlist([Point])
    assert after.loads_typed(row) == Point(1)
    assert after.with_msgpack_allowlist([Point]) is after
    assert isinstance(after.serde, JsonPlusSerializer)
    assert after.serde.allowlist.permissive
    with pytest.raises(BlockedTypeError):
        before.loads_typed(row)


@pytest.mark.parametrize("way", WAYS)
def test_an_option_brings_the_former_behaviour_back(way: str) -> None:
    lax = reader(allow_unauthenticated_types=True)
    assert lax.allow_unauthenticated_types
    assert lax.loads_typed(WAYS[way](JsonPlusSerializer().dumps_typed(Point(1)))) == Point(1)
    assert lax.loads_typed(WAYS[way](POINT_ENVELOPE)) == Point(1)
    assert lax.with_msgpack_allowlist([Point]).allow_unauthenticated_types


def test_the_option_makes_no_strict_serializer_permissive() -> None:
    strict = reader(JsonPlusSerializer(allowed_msgpack_modules=None), allow_unauthenticated_types=True)
    with pytest.raises(BlockedTypeError):
        strict.loads_typed(JsonPlusSerializer().dumps_typed(Point(1)))


def test_a_users_own_cipher_reads_the_types_it_wrote() -> None:
    """It binds no type, but opens nothing that was not written under it. A strict serializer stays strict."""
    own = EncryptedSerializer(Flip(), JsonPlusSerializer(allowed_msgpack_modules=True))
    assert own.loads_typed(own.dumps_typed(Point(1))) == Point(1)
    strict = EncryptedSerializer(Flip(), JsonPlusSerializer(allowed_msgpack_modules=None))
    with pytest.raises(BlockedTypeError):
        strict.loads_typed(own.dumps_typed(Point(1)))
    plain = EncryptedSerializer(Flip(), JsonPlusSerializer(allowed_msgpack_modules=True), plaintext="allow")
    with pytest.raises(UnauthenticatedTypeError):
        plain.loads_typed(JsonPlusSerializer().dumps_typed(Point(1)))


@pytest.mark.parametrize("way", WAYS)
def test_json_of_langgraph_is_read_where_no_key_has_authenticated_it(way: str) -> None:
    assert repr(reader().loads_typed(WAYS[way](("json", b'{"a": 1, "a": [NaN]}')))) == "{'a': [nan]}"
