"""EncryptedSerializer over a cipher that a user brings, which binds neither type nor row, or a serializer."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import PlaintextError, SealedValueError, SealingError, TagError, UnknownTypeError
from sealpoint.serde import (
    AllowlistSerializer,
    EncryptedSerializer,
    JsonPlusSerializer,
    SealAwareSerializer,
    SerializerProtocol,
)
from tests.support.sample_types import Point


class Flip:
    """A cipher with LangGraph's two methods, good for tests only."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "flip", bytes(byte ^ 0xFF for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "flip"
        return self.encrypt(ciphertext)[1]


@pytest.fixture
def serde() -> EncryptedSerializer:
    return EncryptedSerializer(Flip())


@pytest.mark.parametrize("value", [None, b"x", bytearray(b"x"), {"a": {1}}, Point(1)])
def test_it_seals_and_opens(serde: EncryptedSerializer, value: Any) -> None:
    tag, blob = serde.dumps_typed(value)
    inner, data = JsonPlusSerializer().dumps_typed(value)
    assert (tag, blob) == (f"{inner}+flip", Flip().encrypt(data)[1])
    assert serde.loads_typed((tag, blob)) == value


def test_a_name_may_hold_what_separates_type_and_name() -> None:
    class Plus(Flip):
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "flip+v2", super().encrypt(plaintext)[1]

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            assert ciphername == "flip+v2"
            return Flip().decrypt("flip", ciphertext)

    serde = EncryptedSerializer(Plus())
    assert serde.loads_typed(serde.dumps_typed([1])) == [1]


@pytest.mark.parametrize("binding", [{"row": {}}, {"row": {"a": "b"}}, {"secret": b"s"}])
def test_rows_and_secrets_are_refused_and_not_ignored(serde: EncryptedSerializer, binding: Any) -> None:
    tag, blob = serde.seal([1])
    with pytest.raises(SealingError, match="Flip cannot bind a row"):
        serde.seal([1], **binding)
    with pytest.raises(SealingError):
        serde.open(tag, blob, **binding)


def test_a_pickle_is_not_read_though_it_was_asked_for() -> None:
    """A relabelled row of bytes would be one."""
    serde = EncryptedSerializer(Flip(), JsonPlusSerializer(pickle_fallback=True))
    _, blob = serde.dumps_typed(pickle.dumps(1))
    with pytest.raises(UnknownTypeError):
        serde.loads_typed(("pickle+flip", blob))


@pytest.mark.parametrize(
    ("tag", "blob", "error"),
    [
        *(("msgpack+flip", blob, SealedValueError) for blob in (None, 10**9, "text", memoryview(b"x"))),
        *((tag, b"x", TagError) for tag in (None, 5, b"msgpack+flip")),
        ("msgpack", b"\x01", PlaintextError),
    ],
)
def test_what_is_not_sealed_bytes_never_reaches_the_cipher(
    serde: EncryptedSerializer, tag: Any, blob: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        serde.loads_typed((tag, blob))


# --- serializers ----------------------------------------------------------------------------------

CIPHER = RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)]))


class Plain:
    """A serializer with LangGraph's two methods, which notes how it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "bytes", obj

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.calls.append("loads_typed")
        return data[1]


class Aware(Plain):
    """A serializer that learns whether bytes are authenticated."""

    def loads_sealed(self, kind: str, content: bytes) -> Any:
        self.calls.append("loads_sealed")
        return content

    def loads_unsealed(self, kind: str, content: bytes, *, allow_any_type: bool = False) -> Any:
        self.calls.append(f"loads_unsealed {allow_any_type}")
        return content

    def with_unsealed_allowlist(self, extra_allowlist: Any) -> SerializerProtocol:
        return Aware()


class Extensible(Plain):
    def with_msgpack_allowlist(self, extra_allowlist: Any) -> SerializerProtocol:
        return Aware()


def test_ours_offers_both() -> None:
    assert isinstance(JsonPlusSerializer(), SealAwareSerializer)
    assert isinstance(JsonPlusSerializer(), AllowlistSerializer)
    assert isinstance(EncryptedSerializer(CIPHER), AllowlistSerializer)
    assert not isinstance(Plain(), SealAwareSerializer | AllowlistSerializer)


def test_serializer_is_asked_by_what_it_offers() -> None:
    for serde, sealed, unsealed in (
        (Plain(), "loads_typed", "loads_typed"),
        (Aware(), "loads_sealed", "loads_unsealed False"),
    ):
        subject = EncryptedSerializer(CIPHER, serde, plaintext="allow")
        assert subject.loads_typed(subject.dumps_typed(b"x")) == b"x"
        assert subject.loads_typed(("bytes", b"y")) == b"y"
        assert serde.calls == [sealed, unsealed]


def test_replaced_serializer_is_asked_by_what_it_offers() -> None:
    """The answer of `with_msgpack_allowlist` may be of another class."""
    subject = EncryptedSerializer(CIPHER, Extensible()).with_msgpack_allowlist([("a", "B")])
    assert subject.loads_typed(subject.dumps_typed(b"x")) == b"x"
    assert isinstance(subject.serde, Aware)
    assert subject.serde.calls == ["loads_sealed"]
    assert EncryptedSerializer(CIPHER, Aware()).with_msgpack_allowlist([("a", "B")]).serde is not None
    plain = EncryptedSerializer(CIPHER, Plain())
    assert plain.with_msgpack_allowlist([("a", "B")]) is plain
