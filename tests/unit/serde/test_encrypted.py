"""EncryptedSerializer over a ring: how it is made, what it refuses, plaintext, rows, secrets, allowlists."""

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
    KeyIdError,
    KeyMaterialError,
    PlaintextError,
    SealedValueError,
    TagError,
    UnknownKeyError,
    UnknownSuiteError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer, encrypted
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


def test_from_key_refuses_other_material_and_ids() -> None:
    for key in (b"", KEY[:31], KEY + b"\n"):
        with pytest.raises(KeyMaterialError):
            EncryptedSerializer.from_key(key)
    with pytest.raises(KeyIdError):
        EncryptedSerializer.from_key(KEY, key_id="K 1")


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


def test_every_label_of_a_value_is_sealed(serde: EncryptedSerializer) -> None:
    for value, inner in ((None, "null"), (b"x", "bytes"), (bytearray(b"x"), "bytearray"), (1, "msgpack")):
        tag, blob = serde.dumps_typed(value)
        assert tag == f"{inner}+cobblestone256@k1"
        assert len(blob) >= 24 + 32 + 16
        assert serde.loads_typed((tag, blob)) == value


@pytest.mark.parametrize(
    ("tag", "error"),
    [
        ("bytes+cobblestone256@k1", IntegrityError),
        ("msgpack+xaes256gcm@k1", IntegrityError),
        ("msgpack+cobblestone256@k2", UnknownKeyError),
        ("msgpack+aes", UnknownKeyError),
        ("msgpack+rot13@k1", UnknownSuiteError),
        ("msgpack+cobblestone256", TagError),
        ("msgpack+cobblestone256.row@k1", ContextMissingError),
        ("msgpack+cobblestone256.dek@k1", ContextMissingError),
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


def test_a_changed_or_cut_blob_is_refused(serde: EncryptedSerializer) -> None:
    tag, blob = serde.dumps_typed(VALUE)
    for damaged in (blob[:-1], blob + b"\0", bytes([blob[0] ^ 1]) + blob[1:], b"", blob[:20]):
        with pytest.raises((IntegrityError, SealedValueError)):
            serde.loads_typed((tag, damaged))


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
    with pytest.raises(ValueError, match="plaintext is 'refuse' or 'allow'"):
        EncryptedSerializer(RingCipher(ring("k1")), plaintext=word)


# --- rows, secrets, heads ------------------------------------------------------------------------


ROW = {"table": "writes", "thread_id": "t"}


def test_encode_and_decode_do_not_seal(serde: EncryptedSerializer) -> None:
    assert serde.encode(VALUE) == JsonPlusSerializer().dumps_typed(VALUE)
    assert serde.decode(*serde.encode(VALUE)) == VALUE


@pytest.mark.parametrize("row", [None, {}, ROW])
@pytest.mark.parametrize("secret", [None, b"s" * 32])
@pytest.mark.parametrize("head", [b"", b"\x00head"])
def test_seal_and_open_go_through_the_cipher(
    serde: EncryptedSerializer, row: Any, secret: bytes | None, head: bytes
) -> None:
    tag, blob = serde.seal(VALUE, row=row, secret=secret, head=head)
    flags = (".dek" if secret else "") + (".row" if row is not None else "")
    assert tag == f"msgpack+cobblestone256{flags}@k1"
    inner, data = serde.open(tag, blob, row=row, secret=secret).typed
    assert data.startswith(head)
    assert serde.decode(inner, data[len(head) :]) == VALUE


def test_a_bound_value_opens_in_its_row_only(serde: EncryptedSerializer) -> None:
    tag, blob = serde.seal(VALUE, row=ROW)
    for row in ({}, {**ROW, "thread_id": "u"}, {**ROW, "more": ""}, {"table": "writes"}):
        with pytest.raises(IntegrityError):
            serde.open(tag, blob, row=row)
    with pytest.raises(ContextMissingError):
        serde.open(tag, blob)
    with pytest.raises(ContextMissingError):
        serde.loads_typed((tag, blob))


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
