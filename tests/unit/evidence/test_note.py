"""Notes, verifier keys, checkpoints, pins and proofs: C2SP's forms, and nothing near them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.evidence import Checkpoint, Proof, VerifierKey
from sealpoint.admin.evidence.note import format_note, open_note
from sealpoint.admin.evidence.signer import KeySigner, open_checkpoint, read_pin
from sealpoint.admin.evidence.verify import make_proof
from sealpoint.errors import NoteError, SignatureError
from sealpoint.merkle import Tree
from tests.support.keys.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, make_ledger

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


# --- checkpoints and pins -------------------------------------------------------------

HEAD = Checkpoint.of(ORIGIN, Tree.of([b"one", b"two"]))
NOTE = HEAD.sign(SIGNER)


def test_checkpoint_has_the_form_of_its_specification() -> None:
    origin, size, root, empty, signature, end = NOTE.decode().split("\n")
    assert (origin, size, len(root), empty, end) == (ORIGIN, "2", 44, "", "")
    assert signature.startswith(f"— {ORIGIN} ")
    assert open_checkpoint(NOTE, SIGNER.key) == HEAD


def test_further_lines_are_ignored_and_signed() -> None:
    text = HEAD.text + "extension\n"
    note = format_note(text, SIGNER.key, SIGNER.sign(text.encode()))
    assert open_checkpoint(note, SIGNER.key) == HEAD
    with pytest.raises(SignatureError):
        open_checkpoint(NOTE.replace(b"\n\n", b"\nextension\n\n", 1), SIGNER.key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        HEAD.text[:-1],
        HEAD.text.replace("\n2\n", "\n02\n"),
        HEAD.text.replace("\n2\n", "\n-2\n"),
        HEAD.text.replace("\n2\n", "\n٢\n"),
        HEAD.text.replace("\n2\n", f"\n{10**19}\n"),
        HEAD.text.replace("=\n", "\n"),
        "a b" + HEAD.text,
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Checkpoint.parse(text)


def test_checkpoint_of_another_ledger_is_refused() -> None:
    """One account may sign for two ledgers with one key: the name is what tells them apart."""
    text = HEAD.text.replace(ORIGIN, "example.org/other")
    note = format_note(text, SIGNER.key, SIGNER.sign(text.encode()))
    with pytest.raises(NoteError, match=r"is of 'example\.org/other'"):
        open_checkpoint(note, SIGNER.key)


def test_pin_is_a_line_or_a_file_of_the_signer() -> None:
    assert read_pin(NOTE, SIGNER.key) == HEAD
    assert read_pin(f"{HEAD.line}\n".encode(), SIGNER.key) == HEAD
    for data in (b"", b"words", HEAD.line.replace("agents", "other").encode(), b"\xff \xff \xff"):
        with pytest.raises(NoteError):
            read_pin(data, SIGNER.key)
    with pytest.raises(SignatureError):
        read_pin(HEAD.sign(OTHER_SIGNER), SIGNER.key)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_ledger(tmp_path / "ledger")
    return tmp_path / "ledger"


@pytest.mark.parametrize("seq", range(5))
def test_proof_is_checked_without_the_ledger(folder: Path, seq: int) -> None:
    line, proof = make_proof(folder, seq)
    again = Proof.parse(bytes(proof))
    assert again == proof
    assert again.verify(line, SIGNER.key).size == 5
    assert line == (folder / "entries.jsonl").read_bytes().split(b"\n")[seq]
    extra = bytes(proof).replace(b"\nindex", b"\nextra eA==\nindex", 1)  # of another tool
    assert Proof.parse(extra) == proof


def test_proof_of_another_line_place_or_signer_is_refused(folder: Path) -> None:
    line, proof = make_proof(folder, 1)
    with pytest.raises(NoteError, match="the line is not entry 1"):
        proof.verify(line + b" ", SIGNER.key)
    with pytest.raises(NoteError):
        Proof(2, proof.hashes, proof.checkpoint).verify(line, SIGNER.key)
    with pytest.raises(NoteError, match="too short"):
        Proof(1, proof.hashes[:-1], proof.checkpoint).verify(line, SIGNER.key)
    with pytest.raises(SignatureError):
        proof.verify(line, OTHER_SIGNER.key)


@pytest.mark.parametrize("change", [("v1", "v2"), ("index 1", "index 01"), ("index", "place"), ("=\n", "\n")])
def test_what_is_no_proof_is_refused(folder: Path, change: tuple[str, str]) -> None:
    before, after = change
    data = bytes(make_proof(folder, 1)[1]).replace(before.encode(), after.encode(), 1)
    with pytest.raises(NoteError):
        Proof.parse(data)


def test_proof_of_an_entry_that_is_not_there_is_refused(folder: Path) -> None:
    for seq in (5, -1):
        with pytest.raises(NoteError, match="no entry"):
            make_proof(folder, seq)
