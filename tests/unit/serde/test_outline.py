"""Outlines: the keys of a sealed value without its objects; the value itself wherever that is not safe."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import pytest
from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphs

from sealpoint import EncryptedSerializer, JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher, langgraph
from sealpoint.errors import BlockedTypeError, SealpointError
from sealpoint.serde.inert import make_outline
from tests.support.sample_types import Color

KEY = bytes(range(32))
DAY = datetime.date(2026, 2, 28)

RING = KeyRing([Key("k1", KEY, KeyState.ACTIVE)])
SEALED = EncryptedSerializer(RingCipher(RING))
STORED = SEALED.dumps_typed({"day": DAY})[1]

VALUES: list[tuple[Any, Any]] = [
    ({"a": DAY, 1: {2}, "b": [Color.RED, [UUID(int=1)], {}]}, {"a": None, 1: None, "b": [None, [None], {}]}),
    *((value, value) for value in (None, True, -(2**63), 2**64 - 1, "x", b"x", 0.5, [], [[{"a": [b""]}]])),
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
        (
            EncryptedSerializer(SEALED.cipher, plaintext="allow"),
            JsonPlusSerializer(),
        ),
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
