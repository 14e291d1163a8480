"""Checkpoints, pins and proofs of inclusion: their forms, and what they are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealpoint.errors import NoteError, SignatureError
from sealpoint.evidence import Checkpoint, Proof
from sealpoint.evidence.checkpoint import open_checkpoint, read_pin
from sealpoint.evidence.note import format_note
from sealpoint.evidence.proof import make_proof
from sealpoint.merkle import Tree
from tests.support.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, make_ledger

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


def test_pin_is_a_file_or_a_line() -> None:
    assert read_pin(NOTE, SIGNER.key) == HEAD
    assert read_pin(f"{HEAD.line}\n".encode(), SIGNER.key) == HEAD


@pytest.mark.parametrize(
    "data", [b"", b"words", HEAD.line.replace("agents", "other").encode(), b"\xff \xff \xff"]
)
def test_what_is_no_pin_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        read_pin(data, SIGNER.key)


def test_pin_that_the_key_has_not_signed_is_refused() -> None:
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


def test_proof_of_another_tool_may_have_extra_data(folder: Path) -> None:
    line, proof = make_proof(folder, 1)
    data = bytes(proof).replace(b"\nindex", b"\nextra eA==\nindex", 1)
    assert Proof.parse(data).verify(line, SIGNER.key).size == 5


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


@pytest.mark.parametrize("seq", [5, -1])
def test_proof_of_an_entry_that_is_not_there_is_refused(folder: Path, seq: int) -> None:
    with pytest.raises(NoteError, match="no entry"):
        make_proof(folder, seq)
