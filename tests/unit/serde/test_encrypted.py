"""EncryptedSerializer over a ring, over a user's own cipher, and over serializers with other methods."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    BlockedTypeError,
    ContextMissingError,
    IntegrityError,
    PlaintextError,
    SealedValueError,
    SealingError,
    TagError,
    UnknownKeyError,
)
from sealpoint.serde import (
    AllowlistSerializer,
    EncryptedSerializer,
    JsonPlusSerializer,
    SealAwareSerializer,
    SerializerProtocol,
    encrypted,
)
from tests.support.sample_types import Point

KEY = bytes(range(32))
VALUE = {"messages": ["hello"], "n": 1}


@pytest.fixture
def serde() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY)


def ring(*ids: str) -> KeyRing:
    """Return a ring whose first key is active."""
    states = [KeyState.ACTIVE] + [KeyState.DECRYPT_ONLY] * len(ids)
    return KeyRing(
        [Key(id=i, material=i.encode().ljust(32), state=s) for i, s in zip(ids, states, strict=False)]
    )


# --- construction --------------------------------------------------------------------------------


def test_from_key_seals_under_its_id() -> None:
    serde = EncryptedSerializer.from_key(KEY, key_id="k26b", allow_unauthenticated_types=True)
    assert (serde.plaintext, serde.allow_unauthenticated_types) == ("refuse", True)
    tag, blob = serde.dumps_typed(VALUE)
    assert tag == "msgpack+cobblestone256@k26b"
    assert b"hello" not in blob


def test_from_key_takes_a_serializer() -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    serde = EncryptedSerializer.from_key(KEY, serde=strict)
    assert serde.serde is strict
    with pytest.raises(BlockedTypeError):
        serde.loads_typed(serde.dumps_typed(Point(1)))


def test_from_key_file_reads_a_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k1.key").write_bytes(KEY)
    path = tmp_path / "keys.toml"
    path.write_text(
        'version = 1\nactive = "k1"\n[[key]]\nid = "k1"\nstate = "active"\nsource = { file = "k1.key" }\n'
    )
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    row = EncryptedSerializer.from_key(KEY).dumps_typed(VALUE)
    assert EncryptedSerializer.from_key_file(path).loads_typed(row) == VALUE
    assert not EncryptedSerializer.from_key_file(path).allow_unauthenticated_types
    monkeypatch.setenv("SEALPOINT_KEYS", str(path))
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    made = EncryptedSerializer.from_key_file(
        serde=strict, plaintext="allow", allow_unauthenticated_types=True
    )
    assert (made.serde, made.plaintext, made.allow_unauthenticated_types) == (strict, "allow", True)


def test_the_default_serializer_reads_the_environment_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when the module is imported, nor when the class is defined."""
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    serde = EncryptedSerializer(RingCipher(ring("k1")))
    with pytest.raises(BlockedTypeError):
        serde.loads_typed(serde.dumps_typed(Point(1)))


def test_an_untyped_serializer_is_taken_too() -> None:
    class Json:
        def dumps(self, obj: Any) -> bytes:
            return json.dumps(obj).encode()

        def loads(self, data: bytes) -> Any:
            return json.loads(data)

    serde = EncryptedSerializer(RingCipher(ring("k1")), Json())  # type: ignore[arg-type]
    tag, blob = serde.dumps_typed(VALUE)
    assert tag == "dict+cobblestone256@k1"
    assert serde.loads_typed((tag, blob)) == VALUE


def test_repr_shows_no_key(serde: EncryptedSerializer) -> None:
    assert "k1" in repr(serde)
    assert repr(KEY)[2:12] not in repr(serde)
    assert KEY.hex() not in repr(serde)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["msgpack", "bytes", "null", "json", "pickle", ""])
def test_plaintext_is_refused(serde: EncryptedSerializer, inner: str) -> None:
    with pytest.raises(PlaintextError):
        serde.loads_typed((inner, b"\xc0"))
    with pytest.raises(PlaintextError):
        serde.with_msgpack_allowlist([Point]).loads_typed((inner, b"\xc0"))


@pytest.mark.parametrize(
    ("tag", "error"),
    [
        ("bytes+cobblestone256@k1", IntegrityError),
        ("msgpack+cobblestone256@k2", UnknownKeyError),
        ("msgpack+cobblestone256.row@k1", ContextMissingError),
        (5, TagError),
        (None, TagError),
        (b"msgpack+cobblestone256@k1", TagError),
    ],
)
def test_a_relabelled_row_is_refused(serde: EncryptedSerializer, tag: Any, error: type[Exception]) -> None:
    _, blob = serde.dumps_typed(VALUE)
    with pytest.raises(error):
        serde.loads_typed((tag, blob))


@pytest.mark.parametrize("plaintext", ["refuse", "allow"])
@pytest.mark.parametrize("tag", ["msgpack+cobblestone256@k1", "msgpack"])
@pytest.mark.parametrize("blob", [None, 0, 2**40, "text", 1.5, memoryview(b"x" * 99)])
def test_a_blob_that_is_not_bytes_is_refused(tag: str, blob: Any, plaintext: Any) -> None:
    serde = EncryptedSerializer(RingCipher(ring("k1")), plaintext=plaintext)
    with pytest.raises((SealedValueError, PlaintextError)):
        serde.loads_typed((tag, blob))


# --- plaintext="allow" ---------------------------------------------------------------------------


def test_allowed_plaintext_is_read_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encrypted, "_warned_plaintext", set())
    plain = JsonPlusSerializer()
    with caplog.at_level(logging.WARNING, "sealpoint.serde"):
        for _ in range(2):
            serde = EncryptedSerializer(RingCipher(ring("k1")), plaintext="allow")
            assert serde.loads_typed(plain.dumps_typed(VALUE)) == VALUE
            assert serde.dumps_typed(VALUE)[0] == "msgpack+cobblestone256@k1"
            assert serde.loads_typed(serde.dumps_typed(VALUE)) == VALUE
            assert serde.plaintext_count == 1
    assert len(caplog.records) == 1
    assert "not sealed" in caplog.text


@pytest.mark.parametrize("word", ["no", "", True, None])
def test_plaintext_knows_two_words(word: Any) -> None:
    with pytest.raises(ValueError, match="plaintext must be 'refuse' or 'allow'"):
        EncryptedSerializer(RingCipher(ring("k1")), plaintext=word)


# --- rows, heads ---------------------------------------------------------------------------------


ROW = {"table": "writes", "thread_id": "t"}


def test_encode_and_decode_do_not_seal(serde: EncryptedSerializer) -> None:
    assert serde.encode(VALUE) == JsonPlusSerializer().dumps_typed(VALUE)
    assert serde.decode(*serde.encode(VALUE)) == VALUE


@pytest.mark.parametrize("row", [None, {}, ROW])
@pytest.mark.parametrize("head", [b"", b"\x00head"])
def test_seal_and_open_go_through_the_cipher(serde: EncryptedSerializer, row: Any, head: bytes) -> None:
    tag, blob = serde.seal(VALUE, row=row, head=head)
    assert tag == f"msgpack+cobblestone256{'' if row is None else '.row'}@k1"
    inner, data = serde.open(tag, blob, row=row).typed
    assert data.startswith(head)
    assert serde.decode(inner, data[len(head) :]) == VALUE


# --- allowlists ----------------------------------------------------------------------------------


def test_with_msgpack_allowlist_keeps_class_cipher_and_policy() -> None:
    class Mine(EncryptedSerializer):
        pass

    serde = Mine(RingCipher(ring("k1")), JsonPlusSerializer(allowed_msgpack_modules=None), plaintext="allow")
    extended = serde.with_msgpack_allowlist([Point])
    assert type(extended) is Mine
    assert extended.cipher is serde.cipher
    assert extended.plaintext == "allow"
    assert extended.loads_typed(serde.dumps_typed(Point(1))) == Point(1)
    assert extended.with_msgpack_allowlist([Point]) is extended
    with pytest.raises(BlockedTypeError):
        serde.loads_typed(serde.dumps_typed(Point(1)))


# --- a cipher that binds neither type nor row ----------------------------------------------------


class Flip:
    """A cipher with LangGraph's two methods; its name holds what separates type and name."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "flip+v2", bytes(byte ^ 0xFF for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "flip+v2"
        return self.encrypt(ciphertext)[1]


@pytest.mark.parametrize("value", [None, b"x", bytearray(b"x"), {"a": {1}}, Point(1)])
def test_any_cipher_seals_and_opens(value: Any) -> None:
    serde = EncryptedSerializer(Flip())
    tag, blob = serde.dumps_typed(value)
    inner, data = JsonPlusSerializer().dumps_typed(value)
    assert (tag, blob) == (f"{inner}+flip+v2", Flip().encrypt(data)[1])
    assert serde.loads_typed((tag, blob)) == value


@pytest.mark.parametrize("row", [{}, {"a": "b"}])
def test_rows_are_refused_and_not_ignored(row: Any) -> None:
    serde = EncryptedSerializer(Flip())
    tag, blob = serde.seal([1])
    with pytest.raises(SealingError, match="Flip cannot bind a value to a row"):
        serde.seal([1], row=row)
    with pytest.raises(SealingError):
        serde.open(tag, blob, row=row)


# --- serializers ----------------------------------------------------------------------------------

CIPHER = RingCipher(ring("k1"))


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
