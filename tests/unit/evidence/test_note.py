"""Notes, verifier keys, checkpoints, pins and proofs: C2SP's forms, and nothing near them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.evidence import Checkpoint, Proof, VerifierKey
from sealpoint.admin.evidence.note import KeySigner, format_note, open_checkpoint, open_note, read_pin
from sealpoint.admin.evidence.verify import make_proof
from sealpoint.errors import NoteError, SignatureError
from sealpoint.merkle import Tree
from tests.support.keys.ledgers import ORIGIN, OTHER_SIGNER, SIGNER

TEXT = "one\n\ntwo\n"
HEAD = Checkpoint.of(ORIGIN, Tree.of([b"one", b"two"]))

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
    assert open_note(GO_NOTE, VerifierKey.parse(GO_KEY)).startswith("If you think cryptography")
    assert str(VerifierKey.parse(GO_KEY)) == GO_KEY


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1).map(lambda text: text + "\n"))
def test_note_opens_under_its_keys_alone(text: str) -> None:
    """A witness adds its line; a reader needs the one of the key that it knows."""
    other = sign(text, OTHER_SIGNER)
    both = sign(text) + other.rpartition(b"\n\n")[2]
    assert open_note(sign(text), SIGNER.key) == text
    assert open_note(both, SIGNER.key) == open_note(both, OTHER_SIGNER.key) == text
    with pytest.raises(SignatureError, match="no signature of"):
        open_note(other, SIGNER.key)


@given(st.integers(min_value=0))
def test_any_flipped_bit_is_refused(bit: int) -> None:
    note = bytearray(sign(TEXT))
    note[bit // 8 % len(note)] ^= 1 << bit % 8
    with pytest.raises(NoteError):
        open_note(bytes(note), SIGNER.key)


NOTE, VKEY = sign(TEXT), str(SIGNER.key)
WRONG: dict[Callable[[str], object], list[str]] = {
    VerifierKey.parse: [
        *("", ORIGIN, VKEY[:-1], VKEY + "\n", "a b+" + VKEY.partition("+")[2]),
        VKEY.replace("example", "exemple"),
        VKEY.replace("+AQ", "+Ag"),
    ],
    Checkpoint.parse: [
        *("", "a\n1\n", HEAD.text[:-1], "a b" + HEAD.text, HEAD.text.replace("=\n", "\n")),
        *(HEAD.text.replace("\n2\n", f"\n{number}\n") for number in ("02", "-2", "٢", 10**19)),
    ],
    lambda name: KeySigner(name, bytes(32)): ["", "a b", "a+b", "ä", "a\n", "x" * 256],
    lambda line: read_pin(line.encode("latin-1"), SIGNER.key): [
        *("", "words", HEAD.line.replace("agents", "other"), "\xff \xff \xff"),
    ],
}


@pytest.mark.parametrize(
    ("parse", "text"), [(parse, text) for parse, texts in WRONG.items() for text in texts]
)
def test_text_of_another_form_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(NoteError):
        parse(text)


@pytest.mark.parametrize(
    "note",
    [
        *(b"", b"text\n", b"text\n\n", NOTE[:-1], NOTE + b"x" * (1 << 16)),
        NOTE.replace(b"one", b"o\tne"),
        NOTE.replace(b"one", b"o\xffne"),
        NOTE.replace("—".encode(), b"-"),
        NOTE.replace(b"\n\n", b"\n"),
        NOTE[:-3] + bytes([NOTE[-3] + 1]) + NOTE[-2:],  # base64 leaves two bits of the last character unused
    ],
)
def test_what_is_no_note_is_refused(note: bytes) -> None:
    with pytest.raises(NoteError):
        open_note(note, SIGNER.key)


def test_second_signature_that_is_wrong_is_refused() -> None:
    wrong = format_note(TEXT, SIGNER.key, bytes(64)).rpartition(b"\n\n")[2]
    with pytest.raises(SignatureError, match="is invalid"):
        open_note(NOTE + wrong, SIGNER.key)


def test_checkpoint_has_the_form_of_its_specification() -> None:
    """Further lines are ignored, and signed."""
    origin, size, root, empty, signature, end = HEAD.sign(SIGNER).decode().split("\n")
    assert (origin, size, len(root), empty, end) == (ORIGIN, "2", 44, "", "")
    assert signature.startswith(f"— {ORIGIN} ")
    for text in (HEAD.text, HEAD.text + "extension\n"):
        assert open_checkpoint(sign(text), SIGNER.key) == HEAD
    with pytest.raises(SignatureError):
        open_checkpoint(sign(HEAD.text).replace(b"\n\n", b"\nextension\n\n", 1), SIGNER.key)


def test_checkpoint_of_another_ledger_is_refused() -> None:
    """One account may sign for two ledgers with one key: the name is what tells them apart."""
    with pytest.raises(NoteError, match=r"is of 'example\.org/other'"):
        open_checkpoint(sign(HEAD.text.replace(ORIGIN, "example.org/other")), SIGNER.key)


def test_pin_is_a_line_or_a_file_of_the_signer() -> None:
    assert read_pin(HEAD.sign(SIGNER), SIGNER.key) == HEAD
    assert read_pin(f"{HEAD.line}\n".encode(), SIGNER.key) == HEAD
    with pytest.raises(SignatureError):
        read_pin(HEAD.sign(OTHER_SIGNER), SIGNER.key)


def test_proof_is_checked_without_the_ledger(folder: Path) -> None:
    for seq, line in enumerate((folder / "entries.jsonl").read_bytes().splitlines()):
        found, proof = make_proof(folder, seq)
        assert found == line
        assert Proof.parse(bytes(proof)) == proof
        assert proof.verify(line, SIGNER.key).size == 5
        extra = bytes(proof).replace(b"\nindex", b"\nextra eA==\nindex", 1)  # of another tool
        assert Proof.parse(extra) == proof
    for seq in (5, -1):
        with pytest.raises(NoteError, match="no entry"):
            make_proof(folder, seq)


def test_proof_of_another_line_place_signer_or_form_is_refused(folder: Path) -> None:
    line, proof = make_proof(folder, 1)
    with pytest.raises(NoteError, match="the line is not entry 1"):
        proof.verify(line + b" ", SIGNER.key)
    with pytest.raises(NoteError):
        Proof(2, proof.hashes, proof.checkpoint).verify(line, SIGNER.key)
    with pytest.raises(NoteError, match="too short"):
        Proof(1, proof.hashes[:-1], proof.checkpoint).verify(line, SIGNER.key)
    with pytest.raises(SignatureError):
        proof.verify(line, OTHER_SIGNER.key)
    for before, after in ((b"v1", b"v2"), (b"index 1", b"index 01"), (b"index", b"place"), (b"=\n", b"\n")):
        with pytest.raises(NoteError):
            Proof.parse(bytes(proof).replace(before, after, 1))
