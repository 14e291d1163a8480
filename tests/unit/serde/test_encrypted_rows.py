"""EncryptedSerializer over a ring: plaintext that is allowed, rows and secrets, allowlists."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sealpoint.crypto import RingCipher
from sealpoint.errors import (
    BlockedTypeError,
    IntegrityError,
    PlaintextError,
    RowMissingError,
    UnboundValueError,
    UnexpectedSecretError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer, encrypted
from tests.support.sample_types import Point
from tests.unit.serde.test_encrypted import KEY, VALUE, ring

ROW = {"table": "writes", "thread_id": "t"}


@pytest.fixture
def serde() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(KEY)


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
            assert serde.loads_typed(serde.dumps_typed(VALUE)) == VALUE
            assert serde.plaintext_count == 1
    assert len(caplog.records) == 1
    assert "not sealed" in caplog.text


def test_allowed_plaintext_is_never_written() -> None:
    serde = EncryptedSerializer(RingCipher(ring("k1")), plaintext="allow")
    assert serde.dumps_typed(VALUE)[0] == "msgpack+cobblestone256@k1"


@pytest.mark.parametrize("word", ["no", "", True, None])
def test_plaintext_knows_two_words(word: Any) -> None:
    with pytest.raises(ValueError, match="plaintext is 'refuse' or 'allow'"):
        EncryptedSerializer(RingCipher(ring("k1")), plaintext=word)


# --- rows, secrets, heads ------------------------------------------------------------------------


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
    with pytest.raises(RowMissingError):
        serde.open(tag, blob)
    with pytest.raises(RowMissingError):
        serde.loads_typed((tag, blob))


def test_a_value_that_is_not_bound_opens_in_no_row(serde: EncryptedSerializer) -> None:
    row = serde.dumps_typed(VALUE)
    with pytest.raises(UnboundValueError):
        serde.open(*row, row=ROW)
    with pytest.raises(UnexpectedSecretError):
        serde.open(*row, secret=b"s" * 32)


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


def test_with_msgpack_allowlist_still_refuses_plaintext(serde: EncryptedSerializer) -> None:
    strict = EncryptedSerializer(serde.cipher, JsonPlusSerializer(allowed_msgpack_modules=None))
    with pytest.raises(PlaintextError):
        strict.with_msgpack_allowlist([Point]).loads_typed(("msgpack", b"\x01"))


def test_a_serializer_without_allowlists_is_left_as_it_is() -> None:
    class Bare:
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return "own", bytes(obj)

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return data[1]

    serde = EncryptedSerializer(RingCipher(ring("k1")), Bare())
    assert serde.with_msgpack_allowlist([Point]) is serde
