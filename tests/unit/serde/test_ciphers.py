"""EncryptedSerializer over a cipher that a user brings: it binds neither type nor row."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sealpoint.errors import BlobError, CipherSurfaceError, PlaintextError, TagError, UnknownTypeError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
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
    with pytest.raises(CipherSurfaceError, match="Flip cannot bind a row"):
        serde.seal([1], **binding)
    with pytest.raises(CipherSurfaceError):
        serde.open(tag, blob, **binding)


def test_plaintext_is_refused(serde: EncryptedSerializer) -> None:
    with pytest.raises(PlaintextError):
        serde.loads_typed(("msgpack", b"\x01"))


def test_a_pickle_is_not_read_though_it_was_asked_for() -> None:
    """A relabelled row of bytes would be one."""
    serde = EncryptedSerializer(Flip(), JsonPlusSerializer(pickle_fallback=True))
    _, blob = serde.dumps_typed(pickle.dumps(1))
    with pytest.raises(UnknownTypeError):
        serde.loads_typed(("pickle+flip", blob))


@pytest.mark.parametrize("blob", [None, 0, 10**9, "text", memoryview(b"x")])
def test_a_blob_that_is_not_bytes_never_reaches_the_cipher(serde: EncryptedSerializer, blob: Any) -> None:
    with pytest.raises(BlobError):
        serde.loads_typed(("msgpack+flip", blob))


@pytest.mark.parametrize("tag", [None, 5, b"msgpack+flip"])
def test_a_tag_that_is_not_text_is_refused(serde: EncryptedSerializer, tag: Any) -> None:
    with pytest.raises(TagError):
        serde.loads_typed((tag, b"x"))


def test_with_msgpack_allowlist_keeps_the_cipher() -> None:
    serde = EncryptedSerializer(Flip(), JsonPlusSerializer(allowed_msgpack_modules=None))
    extended = serde.with_msgpack_allowlist([Point])
    assert extended.cipher is serde.cipher
    assert extended.loads_typed(serde.dumps_typed(Point(1))) == Point(1)
