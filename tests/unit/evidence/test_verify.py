"""What a check of a ledger notices: laws over changes, pins, and known attacks on other verifiers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.evidence import Checkpoint, Ledger, verify_ledger
from sealpoint.admin.evidence.note import format_note
from sealpoint.admin.evidence.verify import Verdict
from sealpoint.admin.results.reasons import Reason
from sealpoint.errors import LedgerMissingError
from sealpoint.merkle import Tree
from tests.support.keys.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, add, make_entry, make_ledger

ENTRIES = 5


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger for laws, which change a copy of its entries."""
    folder = tmp_path_factory.mktemp("law") / "ledger"
    make_ledger(folder, ENTRIES)
    return folder


def head(folder: Path) -> bytes:
    return (folder / "checkpoint").read_bytes()


def check(folder: Path, *pins: bytes) -> Verdict:
    return verify_ledger(folder, SIGNER.key, pins)


EDITS: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "bit flipped": lambda lines, at: [flip(b"".join(lines), at)],
    "line dropped": lambda lines, at: lines[: at % ENTRIES] + lines[at % ENTRIES + 1 :],
    "cut": lambda lines, at: [(data := b"".join(lines))[: at % len(data)]],
    "bytes added": lambda lines, at: [*lines, at.to_bytes(32)],
    "line added": lambda lines, at: [*lines, replace(make_entry(str(at)), seq=ENTRIES).line() + b"\n"],
}


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.claim("u17")
@pytest.mark.parametrize("act", EDITS)
@given(st.integers(0, 1 << 64))
def test_any_edit_is_noticed(shared: Path, act: str, at: int) -> None:
    """With other entries than its own the ledger is refused, and then with its own it is whole again."""
    file = shared / "entries.jsonl"
    whole = file.read_bytes()
    try:
        file.write_bytes(b"".join(EDITS[act](whole.splitlines(keepends=True), at)))
        assert Reason.LEDGER_BROKEN in check(shared).reasons
    finally:
        file.write_bytes(whole)
    assert check(shared).reasons == {Reason.PIN_NOT_GIVEN}


def test_what_is_not_given_is_not_shown(folder: Path) -> None:
    """All of it could be written by another signer, with its own key in the folder."""
    nothing = Checkpoint.of(ORIGIN, Tree()).sign(SIGNER)
    assert check(folder, nothing).reasons == {Reason.PIN_NOT_GIVEN}
    assert verify_ledger(folder, None, [head(folder)]).reasons == {Reason.SIGNER_NOT_GIVEN}
    (folder / "entries.jsonl").write_bytes(b"")
    (folder / "checkpoint").write_bytes(nothing)
    assert Reason.NO_ENTRIES in check(folder).reasons
    shutil.rmtree(folder)
    with pytest.raises(LedgerMissingError):
        check(folder)
    make_ledger(folder, ENTRIES, OTHER_SIGNER)
    assert verify_ledger(folder).reasons == {Reason.SIGNER_NOT_GIVEN, Reason.PIN_NOT_GIVEN}
    assert Reason.SIGNER_WRONG in check(folder).reasons


@pytest.mark.parametrize(
    "note", ["unsigned", "empty line", "other key", "other text", "other origin", "no bytes"]
)
def test_ledger_that_the_key_has_not_signed_is_refused(folder: Path, note: str) -> None:
    """Valid by its hashes alone is not valid: an attacker who changes entries computes the hashes again."""
    text = head(folder).decode().partition("\n\n")[0] + "\n"
    notes = {
        "unsigned": text.encode(),
        "empty line": f"{text}\n".encode(),
        "other key": format_note(text, OTHER_SIGNER.key, OTHER_SIGNER.sign(text.encode())),
        "other text": format_note(text, SIGNER.key, SIGNER.sign(b"other")),
        "other origin": head(folder).replace(ORIGIN.encode(), b"example.org/other", 1),
        "no bytes": b"",
    }
    (folder / "checkpoint").write_bytes(notes[note])
    verdict = check(folder)
    assert verdict.checkpoint is None
    assert verdict.reasons & {Reason.SIGNER_WRONG, Reason.LEDGER_BROKEN}


@pytest.mark.parametrize("name", ["checkpoint", "entries.jsonl"])
def test_file_that_is_missing_is_noticed(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert Reason.LEDGER_BROKEN in check(folder).reasons


def test_pins_that_the_ledger_continues(folder: Path, tmp_path: Path) -> None:
    """Restored from a copy the ledger is valid, and older than the last pin."""
    shutil.copytree(folder, tmp_path / "copy")
    pin = head(folder)
    add(Ledger(folder, SIGNER), "a", "b")
    verdict = check(folder, pin, head(folder))
    assert verdict.checkpoint is not None
    assert (verdict.checkpoint.size, verdict.pins) == (7, 2)
    assert (verdict.reasons, verdict.problems) == (set(), [])
    assert check(tmp_path / "copy", head(folder)).reasons == {Reason.LEDGER_DIFFERS}


@pytest.mark.claim("u17")
@pytest.mark.parametrize("more", [1, 2, 3])
def test_fork_is_noticed(folder: Path, tmp_path: Path, more: int) -> None:
    """A pin of one is not a prefix of the other; of several pins, one that differs is enough."""
    shutil.copytree(folder, tmp_path / "fork")
    early = head(folder)
    add(Ledger(folder, SIGNER), "a", "b")
    add(Ledger(tmp_path / "fork", SIGNER), *(f"other.{number}" for number in range(more)))
    verdict = check(tmp_path / "fork", early, head(folder))
    assert (verdict.reasons, verdict.pins) == ({Reason.LEDGER_DIFFERS}, 1)


def test_entry_with_a_wrong_number_is_noticed_though_signed(folder: Path) -> None:
    """The signer signs what it is given: a reader checks the entries too."""
    lines = (folder / "entries.jsonl").read_bytes().splitlines()
    lines[2] = lines[2].replace(b'"seq":2', b'"seq":7')
    (folder / "entries.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "checkpoint").write_bytes(Checkpoint.of(ORIGIN, Tree.of(lines)).sign(SIGNER))
    verdict = check(folder)
    assert Reason.LEDGER_BROKEN in verdict.reasons
    assert verdict.problems == ["line 2 has the number 7"]


def test_reader_needs_no_right_to_write(folder: Path) -> None:
    before = {file.name for file in folder.iterdir()}
    folder.chmod(0o500)
    (folder / "entries.jsonl").chmod(0o444)
    try:
        assert check(folder, head(folder)).reasons == set()
    finally:
        folder.chmod(0o700)
    assert {file.name for file in folder.iterdir()} == before
