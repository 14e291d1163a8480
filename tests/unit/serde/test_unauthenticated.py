"""What no key has authenticated is read under the strict allowlist, also by a permissive serializer."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as Theirs

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import BlockedTypeError, DecodeError, UnauthenticatedTypeError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.sample_types import Point
from tests.support.values.forge import envelope, record
from tests.unit.serde.test_ciphers import Flip

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

POINT_ENVELOPE = envelope("tests", "support", "sample_types", "Point", kwargs={"x": 1})


def reader(serde: JsonPlusSerializer | None = None, **options: Any) -> EncryptedSerializer:
    permissive = JsonPlusSerializer(allowed_msgpack_modules=True, allowed_json_modules=True)
    return EncryptedSerializer(CIPHER, serde or permissive, plaintext="allow", **options)


COMMAND = ["touch", "touched"]
FORGED = {
    "positional": record(1, "subprocess", "Popen", [COMMAND]),
    "keyword": record(2, "subprocess", "Popen", {"args": COMMAND}),
    "single": record(0, "subprocess", "Popen", COMMAND),
    "json positional": envelope("subprocess", "Popen", args=[COMMAND]),
    "json keyword": envelope("subprocess", "Popen", kwargs={"args": COMMAND}),
}


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
def test_json_that_is_no_json_is_refused_where_no_key_has_authenticated_it(way: str) -> None:
    with pytest.raises(DecodeError):
        reader().loads_typed(WAYS[way](("json", b"[NaN]")))
