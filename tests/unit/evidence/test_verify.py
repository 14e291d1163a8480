"""What a check of a ledger notices: laws over changes, pins, and known attacks on other verifiers."""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.errors import LedgerMissingError, LedgerTamperedError, NoteError, SignatureError
from sealpoint.evidence import Checkpoint, Ledger, verify_ledger
from sealpoint.evidence import folder as folder_module
from sealpoint.evidence.folder import digest_of
from sealpoint.evidence.note import format_note
from sealpoint.evidence.proof import make_proof
from sealpoint.evidence.verify import Verdict
from sealpoint.maintenance.result import Reason
from sealpoint.merkle import Tree
from tests.support.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, add, make_entry, make_ledger

ENTRIES = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_ledger(tmp_path / "ledger", ENTRIES)
    return tmp_path / "ledger"


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


def require_broken(folder: Path, data: bytes) -> None:
    """With other entries than its own the ledger is refused, and then with its own it is whole again."""
    file = folder / "entries.jsonl"
    whole = file.read_bytes()
    try:
        file.write_bytes(data)
        assert Reason.LEDGER_BROKEN in check(folder).reasons
    finally:
        file.write_bytes(whole)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "entries.jsonl").read_bytes().splitlines(keepends=True)


def test_whole_ledger_with_key_and_pin(folder: Path) -> None:
    verdict = check(folder, head(folder))
    assert verdict.reasons == set()
    assert verdict.checkpoint is not None
    assert (verdict.checkpoint.size, verdict.pins, verdict.problems) == (ENTRIES, 1, ())


@given(st.integers(min_value=0))
def test_any_flipped_bit_is_noticed(shared: Path, bit: int) -> None:
    data = bytearray((shared / "entries.jsonl").read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    require_broken(shared, bytes(data))


@given(st.integers(0, ENTRIES - 1))
def test_any_dropped_line_is_noticed(shared: Path, number: int) -> None:
    lines = lines_of(shared)
    require_broken(shared, b"".join(lines[:number] + lines[number + 1 :]))


@given(st.integers(0, ENTRIES - 1), st.integers(0, ENTRIES - 1))
def test_any_two_swapped_lines_are_noticed(shared: Path, one: int, other: int) -> None:
    lines = lines_of(shared)
    if one != other:
        lines[one], lines[other] = lines[other], lines[one]
        require_broken(shared, b"".join(lines))


@given(st.integers(min_value=0))
def test_any_cut_is_noticed(shared: Path, place: int) -> None:
    data = (shared / "entries.jsonl").read_bytes()
    require_broken(shared, data[: place % len(data)])


@given(st.binary(min_size=1, max_size=99))
def test_anything_added_is_noticed(shared: Path, more: bytes) -> None:
    require_broken(shared, (shared / "entries.jsonl").read_bytes() + more)


@given(st.integers(0, ENTRIES))
def test_any_inserted_line_is_noticed(shared: Path, number: int) -> None:
    lines = lines_of(shared)
    lines.insert(number, replace(make_entry("more"), seq=number).line() + b"\n")
    require_broken(shared, b"".join(lines))


@given(st.integers(min_value=0))
def test_any_flipped_bit_of_the_checkpoint_is_noticed(shared: Path, bit: int) -> None:
    whole = head(shared)
    data = bytearray(whole)
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    try:
        (shared / "checkpoint").write_bytes(bytes(data))
        assert check(shared).problems
    finally:
        (shared / "checkpoint").write_bytes(whole)


# --- what is not given is not checked ---------------------------------------------


def test_without_a_pin_the_end_is_not_checked(folder: Path) -> None:
    assert check(folder).reasons == {Reason.PIN_NOT_GIVEN}


def test_pin_of_no_entries_is_no_pin(folder: Path) -> None:
    nothing = Checkpoint.of(ORIGIN, Tree()).sign(SIGNER)
    assert check(folder, nothing).reasons == {Reason.PIN_NOT_GIVEN}


def test_key_beside_the_entries_proves_nothing(folder: Path) -> None:
    """All of it could be written anew by another signer, with its own key beside it."""
    assert verify_ledger(folder, None, [head(folder)]).reasons == {Reason.SIGNER_NOT_GIVEN}
    shutil.rmtree(folder)
    make_ledger(folder, ENTRIES, OTHER_SIGNER)
    assert verify_ledger(folder).reasons == {Reason.SIGNER_NOT_GIVEN, Reason.PIN_NOT_GIVEN}
    assert Reason.SIGNER_WRONG in check(folder).reasons


def test_ledger_of_nothing_proves_nothing(folder: Path) -> None:
    """A certificate for nothing: a valid signature over no entries."""
    (folder / "entries.jsonl").write_bytes(b"")
    (folder / "checkpoint").write_bytes(Checkpoint.of(ORIGIN, Tree()).sign(SIGNER))
    assert Reason.NO_ENTRIES in check(folder).reasons


# --- signers ------------------------------------------------------------------------


@pytest.mark.parametrize("note", ["unsigned", "empty line", "other key", "other text", "no bytes"])
def test_ledger_that_the_key_has_not_signed_is_refused(folder: Path, note: str) -> None:
    """Valid by its hashes alone is not valid: an attacker who changes entries computes the hashes again."""
    text = head(folder).decode().partition("\n\n")[0] + "\n"
    notes = {
        "unsigned": text.encode(),
        "empty line": f"{text}\n".encode(),
        "other key": format_note(text, OTHER_SIGNER.key, OTHER_SIGNER.sign(text.encode())),
        "other text": format_note(text, SIGNER.key, SIGNER.sign(b"other")),
        "no bytes": b"",
    }
    (folder / "checkpoint").write_bytes(notes[note])
    verdict = check(folder)
    assert verdict.checkpoint is None
    assert verdict.reasons & {Reason.SIGNER_WRONG, Reason.LEDGER_BROKEN}


def test_ledger_of_another_origin_is_refused(folder: Path, tmp_path: Path) -> None:
    """The name is signed with the entries: no header stands outside."""
    text = head(folder).decode().replace(ORIGIN, "example.org/other", 1)
    (folder / "checkpoint").write_text(text, encoding="utf-8")
    assert check(folder).problems


def test_checkpoint_that_is_missing_is_noticed(folder: Path) -> None:
    (folder / "checkpoint").unlink()
    assert Reason.LEDGER_BROKEN in check(folder).reasons


def test_entries_that_are_missing_are_noticed(folder: Path) -> None:
    (folder / "entries.jsonl").unlink()
    assert Reason.LEDGER_BROKEN in check(folder).reasons


def test_folder_without_a_ledger_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissingError):
        check(tmp_path)


# --- pins ---------------------------------------------------------------------------


def test_pin_is_checked_by_the_root_of_its_first_lines(folder: Path) -> None:
    pin = head(folder)
    add(Ledger(folder, SIGNER), "a", "b")
    verdict = check(folder, pin, head(folder))
    assert (verdict.reasons, verdict.pins) == (frozenset(), 2)


def test_ledger_that_was_put_back_is_noticed(folder: Path, tmp_path: Path) -> None:
    """Restored from a copy the ledger is valid, and older than the pin."""
    shutil.copytree(folder, tmp_path / "copy")
    add(Ledger(folder, SIGNER), "a")
    pin = head(folder)
    assert check(tmp_path / "copy").reasons == {Reason.PIN_NOT_GIVEN}
    assert check(tmp_path / "copy", pin).reasons == {Reason.LEDGER_DIFFERS}


@pytest.mark.parametrize("more", [1, 2, 3])
def test_fork_is_noticed(folder: Path, tmp_path: Path, more: int) -> None:
    """Two ledgers of one signer that begin alike: a pin of one is not a prefix of the other."""
    shutil.copytree(folder, tmp_path / "fork")
    add(Ledger(folder, SIGNER), "a", "b")
    pin = head(folder)
    add(Ledger(tmp_path / "fork", SIGNER), *(f"other.{number}" for number in range(more)))
    assert check(tmp_path / "fork", pin).reasons == {Reason.LEDGER_DIFFERS}


def test_one_pin_of_several_that_differs_is_enough(folder: Path, tmp_path: Path) -> None:
    """An anchor that is compared with nothing: each pin counts."""
    shutil.copytree(folder, tmp_path / "fork")
    early = head(folder)
    add(Ledger(folder, SIGNER), "a")
    add(Ledger(tmp_path / "fork", SIGNER), "b")
    verdict = check(tmp_path / "fork", early, head(folder))
    assert (verdict.reasons, verdict.pins) == (frozenset({Reason.LEDGER_DIFFERS}), 1)


def test_pin_of_another_signer_is_refused(folder: Path) -> None:
    pin = Checkpoint.of(ORIGIN, Tree.of([b"x"]))
    with pytest.raises(SignatureError):
        check(folder, pin.sign(OTHER_SIGNER))
    with pytest.raises(NoteError):
        check(folder, pin.line.replace("agents", "other").encode())


# --- documents and runs -----------------------------------------------------------------


@pytest.mark.parametrize("act", ["delete", "change"])
def test_document_that_is_missing_or_changed_is_noticed(folder: Path, act: str) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        digest = writer.add_document(b"{}")
        writer.add(replace(make_entry(), documents=[digest]))
    (file,) = (folder / "documents").iterdir()
    assert check(folder, head(folder)).reasons == set()
    if act == "delete":
        file.unlink()
    else:
        file.write_bytes(b"{ }")
    assert check(folder, head(folder)).reasons == {Reason.DOCUMENTS_MISSING}


def test_document_outside_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(b"")
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        writer.add(replace(make_entry(), documents=["../secret", "sha256:../../secret"]))
    verdict = check(folder, head(folder))
    assert (verdict.reasons, len(verdict.problems)) == (frozenset({Reason.DOCUMENTS_MISSING}), 2)


def test_runs_that_have_begun_and_not_ended_are_counted(folder: Path) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        writer.add(make_entry("rotate.begin", "begun", "run 1"))
        writer.add(make_entry("rotate.begin", "begun", "run 2"))
        writer.add(make_entry("rotate.end", "done", "run 1"))
    assert check(folder).unended == 1


def test_entry_with_a_wrong_number_is_noticed_though_signed(folder: Path) -> None:
    """The signer signs what it is given: a reader checks the entries too."""
    lines = [line.rstrip() for line in lines_of(folder)]
    lines[2] = lines[2].replace(b'"seq":2', b'"seq":7')
    (folder / "entries.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "checkpoint").write_bytes(Checkpoint.of(ORIGIN, Tree.of(lines)).sign(SIGNER))
    verdict = check(folder)
    assert Reason.LEDGER_BROKEN in verdict.reasons
    assert verdict.problems == ("line 2 says that it is entry 7",)


def test_reader_needs_no_right_to_write(folder: Path) -> None:
    before = {file.name for file in folder.iterdir()}
    folder.chmod(0o500)
    (folder / "entries.jsonl").chmod(0o444)
    try:
        assert check(folder, head(folder)).reasons == set()
    finally:
        folder.chmod(0o700)
    assert {file.name for file in folder.iterdir()} == before
    assert json.loads(lines_of(folder)[0])["event"] == "ledger.init"


# --- files that are none of a ledger ----------------------------------------------------

NO_FILES = ["pipe", "socket", "link", "folder", "device"]


def put(file: Path, kind: str) -> None:
    """Put something at a path that is no regular file; a link leads to the genuine file."""
    away = file.with_name("away")
    file.rename(away)
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.relpath(file))
        case "link":
            file.symlink_to(away)
        case "folder":
            file.mkdir()
        case _:
            file.symlink_to("/dev/zero")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["checkpoint", "entries.jsonl"])
def test_what_is_no_file_is_refused_unread(
    folder: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # the name of a socket is short
    pin = head(folder)
    put(folder / name, kind)
    assert check(folder, pin).reasons == {Reason.LEDGER_BROKEN}
    with pytest.raises((LedgerTamperedError, NoteError)):
        make_proof(folder, 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", NO_FILES)
def test_verifier_key_that_is_no_file_is_refused(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    put(folder / "vkey", kind)
    with pytest.raises(LedgerTamperedError):
        verify_ledger(folder)
    assert check(folder, head(folder)).reasons == set()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", NO_FILES)
def test_document_that_is_no_file_is_missing(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        digest = writer.add_document(b"{}")
        writer.add(replace(make_entry(), documents=[digest]))
    (file,) = (folder / "documents").iterdir()
    monkeypatch.chdir(file.parent)
    put(file, kind)
    assert check(folder, head(folder)).reasons == {Reason.DOCUMENTS_MISSING}


def test_document_of_any_length_is_read_to_its_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_DOCUMENT_BYTES", 5_000_000)
    whole, longer = bytes(5_000_000), bytes(5_000_001)
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        digests = [writer.add_document(whole), digest_of(longer)]
        (folder / "documents" / f"{digests[1][7:]}.json").write_bytes(longer)
        writer.add(replace(make_entry(), documents=digests))
    verdict = check(folder, head(folder))
    assert (verdict.documents, *verdict.reasons) == (1, Reason.DOCUMENTS_MISSING)
