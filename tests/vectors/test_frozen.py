"""What a release sealed, every later one opens: ``crypto.json`` of each release, which nothing edits.

Everything is computed twice: by sealpoint, and here from the formats' definitions with plain
``hmac`` (HKDF-Expand of RFC 5869, section 2.3), so the vectors agree with more than themselves.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.cobblestone import Cobblestone256Decryptor
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag, context
from sealpoint.crypto.zstd import require_zstd
from sealpoint.keys.material import check_value
from tests.vectors.releases import read_set

zstd = require_zstd()


def entries(name: str) -> list[dict[str, Any]]:
    """All entries of one set, of every release."""
    return read_set("crypto.json", name)


def hkdf_expand(key: bytes, info: str) -> bytes:
    """HKDF-Expand-SHA512 for 32 bytes: the first half of T(1) = HMAC(key, info | 0x01)."""
    return hmac.new(key, info.encode() + b"\x01", hashlib.sha512).digest()[:32]


def cmac(key: bytes, data: bytes) -> bytes:
    """AES-CMAC."""
    mac = CMAC(AES(key))
    mac.update(data)
    return mac.finalize()


def plain_xaes_key(key: bytes, nonce: bytes) -> bytes:
    """Two blocks of AES-CMAC over counter, label, zero byte and half of the nonce (C2SP, XAES-256-GCM)."""
    return b"".join(cmac(key, bytes([0, number]) + b"X\0" + nonce[:12]) for number in (1, 2))


def plain_context(tag: str, row: Mapping[str, str] | None) -> bytes:
    texts = [tag, *(text for name in sorted(row or {}) for text in (name, (row or {})[name]))]
    fields = (len(text.encode()).to_bytes(4, "big") + text.encode() for text in texts)
    return b"sealpoint\x00\x01" + b"".join(fields)


def key_of(entry: Mapping[str, Any]) -> Key:
    """The key under which an entry was sealed."""
    tag = Tag.parse(entry["tag"])
    suite = None if tag.key_id else tag.suite
    return Key(tag.key_id or "langgraph", bytes.fromhex(entry["key"]), KeyState.DECRYPT_ONLY, suite=suite)


@pytest.mark.parametrize("entry", entries("tags"), ids=lambda entry: entry["text"])
def test_tag(entry: dict[str, Any]) -> None:
    tag = Tag.parse(entry["text"])
    parts = [tag.inner, tag.suite, list(tag.flags), tag.key_id]
    assert parts == [entry["inner"], entry["suite"], entry["flags"], entry["key_id"]]
    assert tag.format() == entry["text"]


@pytest.mark.parametrize("entry", entries("contexts"))
def test_context(entry: dict[str, Any]) -> None:
    wanted = bytes.fromhex(entry["context"])
    assert context(entry["tag"], entry["row"]) == wanted
    assert plain_context(entry["tag"], entry["row"]) == wanted


@pytest.mark.parametrize("entry", entries("subkeys"))
def test_subkey(entry: dict[str, Any]) -> None:
    key, wanted = bytes.fromhex(entry["key"]), bytes.fromhex(entry["subkey"])
    assert Key("k", key, KeyState.ACTIVE).subkey(entry["suite"]) == wanted
    assert hkdf_expand(key, f"sealpoint v1 {entry['suite']}") == wanted


@pytest.mark.parametrize("entry", entries("check_values"))
def test_check_value(entry: dict[str, Any]) -> None:
    key = bytes.fromhex(entry["key"])
    assert check_value(key) == entry["check"]
    assert hkdf_expand(key, "sealpoint v1 check")[:4].hex() == entry["check"]


@pytest.mark.parametrize("entry", entries("index_keys"))
def test_index_key(entry: dict[str, Any]) -> None:
    index, wanted = bytes.fromhex(entry["index"]), bytes.fromhex(entry["key"])
    assert KeyRing([], index=index).index_key(entry["purpose"]) == wanted
    assert hkdf_expand(index, f"sealpoint v1 index {entry['purpose']}") == wanted


VALUES = [*entries("sealed"), *entries("compressed")]


@pytest.mark.claim("v1")
@pytest.mark.parametrize("entry", VALUES, ids=lambda entry: entry["tag"])
def test_sealed_value_opens(entry: dict[str, Any]) -> None:
    cipher = RingCipher(KeyRing([key_of(entry)]))
    opened = cipher.open(entry["tag"], bytes.fromhex(entry["blob"]), row=entry["row"])
    assert opened.typed == (entry["inner"], bytes.fromhex(entry["data"]))


@pytest.mark.parametrize("entry", [e for e in VALUES if "@" in e["tag"]], ids=lambda e: e["tag"])
def test_sealed_value_opens_without_sealpoint(entry: dict[str, Any]) -> None:
    """The tag, the key and the definitions are enough: no code of ours is needed to recover a value."""
    blob = bytes.fromhex(entry["blob"])
    suite = entry["tag"].partition("+")[2].partition("@")[0].partition(".")[0]
    key = hkdf_expand(bytes.fromhex(entry["key"]), f"sealpoint v1 {suite}")
    bound = plain_context(entry["tag"], entry["row"])
    if suite == "xaes256gcm":
        data = AESGCM(plain_xaes_key(key, blob[:24])).decrypt(blob[12:24], blob[24:], bound)
    else:
        message = Cobblestone256Decryptor(key, bound)
        data = message.update(blob) + message.finalize()
    if ".zst" in entry["tag"]:
        assert zstd.get_frame_info(data).decompressed_size == len(entry["data"]) // 2
        data = zstd.decompress(data)
    assert data.hex() == entry["data"]


@pytest.mark.parametrize("name", ["cobblestone256", "xaes256gcm"])
@pytest.mark.parametrize("flags", ["", ".row", ".zst", ".zst.row"])
def test_every_form_is_frozen(name: str, flags: str) -> None:
    """Each suite with and without row and compression; a set that lost an entry would prove nothing."""
    assert any(f"+{name}{flags}@" in entry["tag"] for entry in VALUES)


def test_every_legacy_key_length_is_frozen() -> None:
    legacy = [entry for entry in entries("sealed") if entry["tag"].endswith("+aes")]
    assert sorted(len(entry["key"]) // 2 for entry in legacy) == [16, 24, 32]
