"""With LangGraph: RingCipher under LangGraph's own EncryptedSerializer, and LangGraph's own rows read."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag
from sealpoint.errors import (
    BlobError,
    IntegrityError,
    KeyDestroyedError,
    KeyDisabledError,
    KeyMaterialError,
    LegacyTypeError,
    UnboundValueError,
    UnknownKeyError,
)
from tests.unit.crypto.rings import NEW, SUITES, make_cipher, make_ring

VALUES: list[Any] = [None, b"", b"bytes", bytearray(b"bytearray"), {"a": [1, 2.5, "ü", None]}, "x" * 50_000]
KEYS = [bytes(range(size)) for size in (16, 24, 32)]


def langgraph_rows(key: bytes) -> EncryptedSerializer:
    """LangGraph's serializer under its own AES."""
    return EncryptedSerializer.from_pycryptodome_aes(key=key)


def legacy_cipher(key: bytes, state: KeyState = KeyState.DECRYPT_ONLY) -> RingCipher:
    legacy = Key("langgraph", key, state, suite="aes")
    return RingCipher(KeyRing([*make_ring().keys, legacy]))


def is_cipher(cipher: CipherProtocol) -> CipherProtocol:
    """What the type checker says about `RingCipher`, said where it is checked."""
    return cipher


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_ring_cipher_under_langgraphs_serializer(suite: str, value: object) -> None:
    serializer = EncryptedSerializer(is_cipher(make_cipher(suite)))
    tag, blob = serializer.dumps_typed(value)
    assert (Tag.parse(tag).suite, Tag.parse(tag).key_id) == (suite, "new")
    assert serializer.loads_typed((tag, blob)) == value


def test_refusals_reach_langgraphs_caller() -> None:
    serializer = EncryptedSerializer(make_cipher())
    tag, blob = serializer.dumps_typed({"a": 1})
    with pytest.raises(IntegrityError):
        serializer.loads_typed((tag, blob[:-1] + bytes([blob[-1] ^ 1])))
    with pytest.raises(UnknownKeyError):
        serializer.loads_typed((tag.replace(":new", ":none"), blob))


@pytest.mark.parametrize("key", KEYS, ids=len)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_langgraphs_rows_open(key: bytes, value: object) -> None:
    """Written by LangGraph with each key size, opened by a ring, read by LangGraph's plain serializer."""
    tag, blob = langgraph_rows(key).dumps_typed(value)
    assert tag.endswith("+aes")
    assert JsonPlusSerializer().loads_typed(legacy_cipher(key).open(tag, blob)) == value


@pytest.mark.parametrize("inner", ["pickle", "", "json5", "Msgpack", "msgpack.row"])
def test_langgraphs_rows_may_not_name_any_type(inner: str) -> None:
    """Their type is not authenticated: a relabelled row must not reach an unpickler."""
    _, blob = langgraph_rows(NEW).dumps_typed({"a": 1})
    with pytest.raises(LegacyTypeError):
        legacy_cipher(NEW).open(f"{inner}+aes", blob)


@pytest.mark.parametrize("inner", ["null", "bytes", "bytearray", "msgpack", "json"])
def test_types_that_langgraphs_rows_may_name(inner: str) -> None:
    _, blob = langgraph_rows(NEW).dumps_typed(b"data")
    assert legacy_cipher(NEW).open(f"{inner}+aes", blob) == (inner, b"data")


def test_langgraphs_rows_are_not_opened_without_their_type() -> None:
    """LangGraph's protocol hands a cipher no type, so such rows are only read where it can be checked."""
    _, blob = langgraph_rows(NEW).dumps_typed({"a": 1})
    with pytest.raises(LegacyTypeError):
        legacy_cipher(NEW).decrypt("aes", blob)


def test_damaged_langgraph_row_is_refused() -> None:
    """Nonce, tag and ciphertext; every byte."""
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    cipher = legacy_cipher(NEW)
    for at in range(len(blob)):
        with pytest.raises(IntegrityError):
            cipher.open(tag, blob[:at] + bytes([blob[at] ^ 0x80]) + blob[at + 1 :])
    with pytest.raises(BlobError):
        cipher.open(tag, blob[:31])


def test_langgraphs_rows_under_another_key_are_refused() -> None:
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    with pytest.raises(IntegrityError):
        legacy_cipher(NEW[::-1]).open(tag, blob)


def test_langgraphs_rows_need_a_key_for_them() -> None:
    """A key with the same material that is not for the suite ``aes`` is not tried."""
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    with pytest.raises(UnknownKeyError):
        make_cipher().open(tag, blob)


def test_langgraphs_rows_are_bound_to_nothing() -> None:
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    with pytest.raises(UnboundValueError):
        legacy_cipher(NEW).open(tag, blob, row={})


def test_state_of_the_legacy_key_counts() -> None:
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    with pytest.raises(KeyDisabledError):
        legacy_cipher(NEW, KeyState.DISABLED).open(tag, blob)
    with pytest.raises(KeyDestroyedError):
        legacy_cipher(b"", KeyState.DESTROYED).open(tag, blob)


def test_ring_with_a_legacy_key_seals_with_the_active_one() -> None:
    assert legacy_cipher(NEW).seal("msgpack", b"")[0].endswith(":new")
    with pytest.raises(KeyMaterialError):
        legacy_cipher(b"fifteen bytes..")
