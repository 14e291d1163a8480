"""EncryptedSerializer over a ring: how it is made, what it refuses, rows and secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    BlobError,
    BlockedTypeError,
    IntegrityError,
    KeyIdError,
    KeyMaterialError,
    LegacyTypeError,
    PlaintextError,
    RowMissingError,
    SecretMissingError,
    TagError,
    UnknownKeyError,
    UnknownSuiteError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
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
    tag, blob = EncryptedSerializer.from_key(KEY, key_id="k26b").dumps_typed(VALUE)
    assert tag == "msgpack+cobblestone256@k26b"
    assert b"hello" not in blob


def test_from_key_and_the_constructor_make_the_same() -> None:
    long = EncryptedSerializer(RingCipher(KeyRing([Key(id="k1", material=KEY, state=KeyState.ACTIVE)])))
    assert long.loads_typed(EncryptedSerializer.from_key(KEY).dumps_typed(VALUE)) == VALUE


def test_from_key_takes_a_serializer() -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    serde = EncryptedSerializer.from_key(KEY, serde=strict)
    assert serde.serde is strict
    with pytest.raises(BlockedTypeError):
        serde.loads_typed(serde.dumps_typed(Point(1)))


@pytest.mark.parametrize("key", [b"", KEY[:31], KEY + b"\n", KEY.hex().encode()])
def test_from_key_takes_32_bytes(key: bytes) -> None:
    with pytest.raises(KeyMaterialError):
        EncryptedSerializer.from_key(key)


def test_from_key_refuses_an_id_that_is_none() -> None:
    with pytest.raises(KeyIdError):
        EncryptedSerializer.from_key(KEY, key_id="K 1")


def test_from_key_file_reads_a_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k1.key").write_bytes(KEY)
    path = tmp_path / "keys.toml"
    path.write_text(
        'version = 1\nactive = "k1"\n[[key]]\nid = "k1"\nstate = "active"\n'
        "created = 2026-01-01T00:00:00Z\n"
        f'check = "{_check_value()}"\nsource = {{ file = "k1.key" }}\n'
    )
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    row = EncryptedSerializer.from_key(KEY).dumps_typed(VALUE)
    assert EncryptedSerializer.from_key_file(path).loads_typed(row) == VALUE
    monkeypatch.setenv("SEALPOINT_KEYS", str(path))
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    assert EncryptedSerializer.from_key_file(serde=strict).serde is strict


def _check_value() -> str:
    from sealpoint.keys.key import check_value

    return check_value(KEY)


def test_the_default_serializer_reads_the_environment_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not when the module is imported, nor when the class is defined."""
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    serde = EncryptedSerializer(RingCipher(ring("k1")))
    with pytest.raises(BlockedTypeError):
        serde.loads_typed(serde.dumps_typed(Point(1)))


def test_an_untyped_serializer_is_taken_too() -> None:
    import json

    class Json:
        def dumps(self, obj: Any) -> bytes:
            return json.dumps(obj).encode()

        def loads(self, data: bytes) -> Any:
            return json.loads(data)

    serde = EncryptedSerializer(RingCipher(ring("k1")), Json())  # type: ignore[arg-type]
    tag, blob = serde.dumps_typed(VALUE)
    assert tag == "dict+cobblestone256@k1"
    assert serde.loads_typed((tag, blob)) == VALUE


def test_cipher_serde_and_plaintext_are_read_only(serde: EncryptedSerializer) -> None:
    for name in ("cipher", "serde", "plaintext"):
        with pytest.raises(AttributeError):
            setattr(serde, name, None)


def test_repr_shows_no_key(serde: EncryptedSerializer) -> None:
    assert "k1" in repr(serde)
    assert repr(KEY)[2:12] not in repr(serde)
    assert KEY.hex() not in repr(serde)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["msgpack", "bytes", "null", "json", "pickle", ""])
def test_plaintext_is_refused(serde: EncryptedSerializer, inner: str) -> None:
    with pytest.raises(PlaintextError):
        serde.loads_typed((inner, b"\xc0"))


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
        ("pickle+cobblestone256@k1", IntegrityError),
        ("msgpack+xaes256gcm@k1", IntegrityError),
        ("msgpack+cobblestone256@k2", UnknownKeyError),
        ("msgpack+aes", UnknownKeyError),
        ("msgpack+rot13@k1", UnknownSuiteError),
        ("msgpack+cobblestone256", TagError),
        ("msgpack+cobblestone256@k1+x", TagError),
        ("msgpack+cobblestone256.row@k1", RowMissingError),
        ("msgpack+cobblestone256.dek@k1", SecretMissingError),
        ("msgpack+cobblestone256:" + "k" * 60, TagError),
        ("msgpack", PlaintextError),
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
    with pytest.raises((BlobError, PlaintextError)):
        serde.loads_typed((tag, blob))


def test_a_changed_or_cut_blob_is_refused(serde: EncryptedSerializer) -> None:
    tag, blob = serde.dumps_typed(VALUE)
    for damaged in (blob[:-1], blob + b"\0", bytes([blob[0] ^ 1]) + blob[1:], b"", blob[:20]):
        with pytest.raises((IntegrityError, BlobError)):
            serde.loads_typed((tag, damaged))


def test_another_ring_cannot_open(serde: EncryptedSerializer) -> None:
    row = serde.dumps_typed(VALUE)
    with pytest.raises(IntegrityError):
        EncryptedSerializer.from_key(KEY[::-1]).loads_typed(row)


def test_what_an_old_key_sealed_still_opens() -> None:
    old = EncryptedSerializer(RingCipher(ring("k1")))
    new = EncryptedSerializer(RingCipher(ring("k2", "k1")))
    assert new.loads_typed(old.dumps_typed(VALUE)) == VALUE
    assert new.dumps_typed(VALUE)[0].endswith("@k2")
    with pytest.raises(UnknownKeyError):
        old.loads_typed(new.dumps_typed(VALUE))


def test_legacy_rows_name_no_pickle() -> None:
    legacy = Key(id="langgraph", material=KEY, state=KeyState.DECRYPT_ONLY, suite="aes")
    serde = EncryptedSerializer(RingCipher(KeyRing([legacy])), JsonPlusSerializer(pickle_fallback=True))
    with pytest.raises(LegacyTypeError):
        serde.loads_typed(("pickle+aes", os.urandom(64)))
