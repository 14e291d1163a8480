"""With LangGraph: RingCipher under LangGraph's own EncryptedSerializer, and LangGraph's own rows read."""

from __future__ import annotations

from typing import Any

import pytest
from Crypto.Cipher import AES
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from sealpoint.crypto import Key, KeyRing, KeyState, Opened, RingCipher
from sealpoint.errors import (
    IntegrityError,
    KeyDestroyedError,
    KeyDisabledError,
    KeyMaterialError,
    SealedValueError,
    UnboundValueError,
    UnknownKeyError,
    UnknownTypeError,
)
from sealpoint.serde.encrypted import EncryptedSerializer as OurEncryptedSerializer
from tests.support.keys.rings import NEW, make_cipher, make_ring

VALUES: list[Any] = [None, b"", b"bytes", bytearray(b"bytearray"), {"a": [1, 2.5, "ü", None]}, "x" * 50_000]
KEYS = [bytes(range(size)) for size in (16, 24, 32)]
MODES = {"EAX": AES.MODE_EAX, "GCM": AES.MODE_GCM}


def langgraph_rows(key: bytes, **options: Any) -> EncryptedSerializer:
    """LangGraph's serializer under its own AES, in its default mode or a named one."""
    return EncryptedSerializer.from_pycryptodome_aes(key=key, **options)


def legacy_cipher(key: bytes, state: KeyState = KeyState.DECRYPT_ONLY) -> RingCipher:
    legacy = Key("langgraph", key, state, suite="aes")
    return RingCipher(KeyRing([*make_ring().keys, legacy]))


@pytest.mark.parametrize("value", [{"a": 1}, b"bytes", None], ids=["msgpack", "bytes", "null"])
def test_what_it_seals_there_is_not_taken_for_a_value_whose_type_is_bound(value: object) -> None:
    """LangGraph's serializer does not authenticate the type: any writer of the database may change it."""
    cipher = make_cipher()
    tag, blob = EncryptedSerializer(cipher).dumps_typed(value)
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob)
    with pytest.raises(IntegrityError):
        OurEncryptedSerializer(cipher).loads_typed((tag, blob))


@pytest.mark.parametrize("options", [{}, *({"mode": mode} for mode in MODES.values())], ids=["", *MODES])
@pytest.mark.parametrize("key", KEYS, ids=len)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_langgraphs_rows_open(key: bytes, value: object, options: dict[str, int]) -> None:
    """Written by LangGraph with each key size and mode, opened by a ring, read by its plain serializer."""
    tag, blob = langgraph_rows(key, **options).dumps_typed(value)
    assert tag.endswith("+aes")
    assert JsonPlusSerializer().loads_typed(legacy_cipher(key).open(tag, blob).typed) == value


@pytest.mark.parametrize("mode", MODES)
def test_damaged_langgraph_row_is_refused(mode: str) -> None:
    """Nonce, tag and ciphertext; every byte; and another key."""
    tag, blob = langgraph_rows(NEW, mode=MODES[mode]).dumps_typed(b"data")
    cipher = legacy_cipher(NEW)
    for at in range(len(blob)):
        with pytest.raises(IntegrityError):
            cipher.open(tag, blob[:at] + bytes([blob[at] ^ 0x80]) + blob[at + 1 :])
    with pytest.raises(IntegrityError):
        legacy_cipher(NEW[::-1]).open(tag, blob)
    with pytest.raises(SealedValueError):
        cipher.open(tag, blob[:31])


@pytest.mark.parametrize(
    "options", [{"mode": AES.MODE_OCB}, {"mode": AES.MODE_CCM, "nonce": bytes(11)}], ids=["OCB", "CCM"]
)
def test_langgraphs_rows_of_other_modes_are_refused(options: dict[str, Any]) -> None:
    """LangGraph writes them, and cannot read them itself."""
    tag, blob = langgraph_rows(NEW, **options).dumps_typed(b"data" * 10)
    with pytest.raises(IntegrityError):
        legacy_cipher(NEW).open(tag, blob)


@pytest.mark.claim("u2")
def test_types_that_langgraphs_rows_may_name() -> None:
    """Their type is not authenticated: a relabelled row must not reach an unpickler.

    LangGraph's protocol passes no type to a cipher, so such rows are only read where it can be checked.
    """
    cipher = legacy_cipher(NEW)
    _, blob = langgraph_rows(NEW).dumps_typed(b"data")
    for inner in ("null", "bytes", "bytearray", "msgpack", "json"):
        opened = Opened(inner, b"data", authenticated=False, key_id=None)
        assert cipher.open(f"{inner}+aes", blob) == opened
    assert cipher.stats().opened_retired == {"langgraph": 5}
    for inner in ("pickle", "", "json5", "Msgpack", "msgpack.row"):
        with pytest.raises(UnknownTypeError):
            cipher.open(f"{inner}+aes", blob)
    with pytest.raises(UnknownTypeError):
        cipher.decrypt("aes", blob)


def test_langgraphs_rows_need_their_key_and_are_bound_to_nothing() -> None:
    """A key with the same material that is not for the suite ``aes`` is not tried."""
    tag, blob = langgraph_rows(NEW).dumps_typed(b"data")
    for cipher, error in (
        (make_cipher(), UnknownKeyError),
        (legacy_cipher(NEW, KeyState.DISABLED), KeyDisabledError),
        (legacy_cipher(b"", KeyState.DESTROYED), KeyDestroyedError),
    ):
        with pytest.raises(error):
            cipher.open(tag, blob)
    cipher = legacy_cipher(NEW)
    with pytest.raises(UnboundValueError):
        cipher.open(tag, blob, row={})
    assert cipher.seal("msgpack", b"")[0].endswith("@new")
    with pytest.raises(KeyMaterialError):
        legacy_cipher(b"fifteen bytes..")
