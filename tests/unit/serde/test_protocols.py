"""What a serializer may offer beyond LangGraph's two methods, and what is done without it."""

from __future__ import annotations

from typing import Any

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.serde import (
    AllowlistSerializer,
    EncryptedSerializer,
    JsonPlusSerializer,
    SealAwareSerializer,
    SerializerProtocol,
)

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
