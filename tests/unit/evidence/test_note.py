"""Signed notes and verifier keys: C2SP's forms, and nothing near them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.errors import NoteError, SignatureError
from sealpoint.evidence import VerifierKey
from sealpoint.evidence.note import format_note, open_note
from sealpoint.evidence.signer import KeySigner
from tests.support.ledgers import ORIGIN, OTHER_SIGNER, SIGNER

TEXT = "one\n\ntwo\n"

# Source: golang.org/x/mod/sumdb/note, the note of the Go checksum database and its key.
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
).encode()


def sign(text: str, signer: KeySigner = SIGNER) -> bytes:
    return format_note(text, signer.key, signer.sign(text.encode()))


def test_note_of_go_opens() -> None:
    text = open_note(GO_NOTE, VerifierKey.parse(GO_KEY))
    assert text.startswith("If you think cryptography")
    assert str(VerifierKey.parse(GO_KEY)) == GO_KEY


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1).map(lambda text: text + "\n"))
def test_note_opens_under_its_key_alone(text: str) -> None:
    assert open_note(sign(text), SIGNER.key) == text
    with pytest.raises(SignatureError, match="no signature of"):
        open_note(sign(text), OTHER_SIGNER.key)


def test_signatures_of_others_are_ignored() -> None:
    """A witness adds its line; a reader needs the one of the key that it knows."""
    other = sign(TEXT, OTHER_SIGNER).rpartition(b"\n\n")[2]
    assert open_note(sign(TEXT) + other, SIGNER.key) == TEXT
    assert open_note(sign(TEXT) + other, OTHER_SIGNER.key) == TEXT


def test_signature_has_one_form() -> None:
    """Base64 of 68 bytes leaves two bits of its last character unused."""
    note = sign(TEXT)
    following = bytes([note[-3] + 1])
    with pytest.raises(NoteError):
        open_note(note[:-3] + following + note[-2:], SIGNER.key)


@given(st.integers(min_value=0))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    note = bytearray(sign(TEXT))
    note[bit // 8 % len(note)] ^= 1 << bit % 8
    with pytest.raises(NoteError):
        open_note(bytes(note), SIGNER.key)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"text\n",
        b"text\n\n",
        sign(TEXT)[:-1],
        sign(TEXT).replace(b"one", b"o\tne"),
        sign(TEXT).replace(b"one", b"o\xffne"),
        sign(TEXT).replace("—".encode(), b"-"),
        sign(TEXT) + b"x" * (1 << 16),
        sign(TEXT).replace(b"\n\n", b"\n"),
    ],
)
def test_what_is_no_note_is_refused(note: bytes) -> None:
    with pytest.raises(NoteError):
        open_note(note, SIGNER.key)


def test_signature_of_another_text_is_refused() -> None:
    with pytest.raises(SignatureError, match="is wrong"):
        open_note(sign(TEXT).replace(b"one", b"0ne"), SIGNER.key)


def test_second_signature_that_is_wrong_is_refused() -> None:
    wrong = format_note(TEXT, SIGNER.key, bytes(64)).rpartition(b"\n\n")[2]
    with pytest.raises(SignatureError, match="is wrong"):
        open_note(sign(TEXT) + wrong, SIGNER.key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ORIGIN,
        str(SIGNER.key).replace("example", "exemple"),
        str(SIGNER.key)[:-1],
        str(SIGNER.key).replace("+AQ", "+Ag"),
        str(SIGNER.key) + "\n",
        "a b+" + str(SIGNER.key).partition("+")[2],
    ],
)
def test_what_is_no_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        VerifierKey.parse(text)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "ä", "a\n", "x" * 256])
def test_name_that_others_cannot_read_is_refused(name: str) -> None:
    with pytest.raises(NoteError, match="is not a name"):
        KeySigner(name, bytes(32))
