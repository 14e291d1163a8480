"""Tokens and pseudonyms: equal for equal values, and recomputed here by HMAC alone."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from base64 import b32encode
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState
from sealpoint.errors import KeyRingError, UnknownKeyError
from sealpoint.seal.tokens import PSEUDONYM, Tokens

INDEX = bytes(range(32))
RING = KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)], index=INDEX)
TOKENS = Tokens(lambda: RING)


def derived(purpose: str) -> bytes:
    """HKDF-Expand of RFC 5869, one block of SHA-512."""
    return hmac.digest(INDEX, f"sealpoint v1 index {purpose}".encode() + b"\x01", hashlib.sha512)[:32]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "s:a"),
        ("", "s:"),
        (1, "n:1"),
        (1.0, "n:1"),
        (0.5, "n:0.5"),
        (2**60, f"n:{2**60}"),
        ("1", "s:1"),
        (True, "True"),
        (False, "False"),
        (None, "None"),
    ],
)
def test_a_token_is_an_hmac_of_key_and_value(value: Any, text: str) -> None:
    data = b"".join(len(part).to_bytes(4, "big") + part for part in (b"user", text.encode()))
    assert TOKENS.token("user", value) == "sp" + hmac.digest(derived("metadata"), data, "sha256")[:16].hex()


def test_a_pseudonym_is_an_hmac_of_the_thread() -> None:
    digest = hmac.digest(derived("thread_id"), b"maria", "sha256")
    assert TOKENS.pseudonym("maria") == "t-" + b32encode(digest).decode().lower()[:32]
    assert PSEUDONYM.match(TOKENS.pseudonym("maria"))


@pytest.mark.parametrize("value", [{"a": 1}, [1]])
def test_objects_have_no_token(value: Any) -> None:
    assert TOKENS.token("k", value) is None


def test_without_an_index_key_there_is_an_error() -> None:
    ring = KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)])
    with pytest.raises(UnknownKeyError, match="index"):
        Tokens(lambda: ring).token("k", 1)


def test_derived_keys_are_never_pickled_or_shown() -> None:
    TOKENS.token("secret-name", "secret-value")
    assert "secret" not in repr(TOKENS)
    with pytest.raises(KeyRingError):
        pickle.dumps(TOKENS)
