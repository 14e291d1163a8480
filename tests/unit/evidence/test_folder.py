"""A ledger's folder with files that are none, are endless, or are larger than any that is written."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sealpoint.errors import LedgerTamperedError
from sealpoint.evidence import Ledger, recovery, verify_ledger
from sealpoint.evidence import folder as folders
from sealpoint.evidence.folder import digest_of
from sealpoint.evidence.proof import make_proof
from sealpoint.evidence.report.changes import find_changes
from sealpoint.maintenance.result import Reason
from tests.support.ledgers import SIGNER, add, make_entry, make_ledger

# A read that waits fails by name.
pytestmark = pytest.mark.timeout(60)

KINDS = ["fifo", "folder", "endless", "link"]
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_ledger(tmp_path / "ledger")
    return tmp_path / "ledger"


def put(path: Path, kind: str) -> None:
    """Put what is no regular file at a path; a link leads to the file that was there."""
    if kind == "link" and path.exists():
        path.rename(path.parent.parent / path.name)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "endless" else path.parent.parent / path.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["entries.jsonl", "checkpoint"])
def test_what_is_no_file_is_found_by_a_check(folder: Path, name: str, kind: str) -> None:
    pin = (folder / "checkpoint").read_bytes()
    put(folder / name, kind)
    assert Reason.LEDGER_BROKEN in verify_ledger(folder, SIGNER.key, [pin]).reasons
    assert Reason.LEDGER_BROKEN in find_changes(folder, None, DIGEST, SIGNER.key, [pin]).reasons
    with pytest.raises(LedgerTamperedError, match="regular file"):
        make_proof(folder, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_key_is_refused(folder: Path, kind: str) -> None:
    put(folder / "vkey", kind)
    with pytest.raises(LedgerTamperedError, match="regular file"):
        verify_ledger(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_next_head_is_not_used(folder: Path, kind: str) -> None:
    put(folder / "checkpoint.new", kind)
    with (folder / "entries.jsonl").open("ab") as stream:
        stream.write(b"torn")
    assert Reason.LEDGER_BROKEN in verify_ledger(folder, SIGNER.key).reasons


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["entries.jsonl", "checkpoint", "vkey", "entries.torn.new"])
def test_writer_refuses_what_is_no_file(folder: Path, name: str, kind: str) -> None:
    put(folder / name, kind)
    with pytest.raises((LedgerTamperedError, OSError)):
        add(Ledger(folder, SIGNER), "more")


@pytest.mark.parametrize("kind", ["fifo", "endless", "link"])
@pytest.mark.parametrize("name", ["edge", "checkpoint.new"])
def test_writer_replaces_what_may_be_deleted(folder: Path, name: str, kind: str) -> None:
    put(folder / name, kind)
    head = add(Ledger(folder, SIGNER), "more")
    assert not verify_ledger(folder, SIGNER.key, [head.line.encode()]).reasons


@pytest.mark.parametrize("text", ["[" * 60_000, '{"edge": ' + "[" * 60_000, "x" * (1 << 20)])
def test_edge_of_any_text_is_made_anew(folder: Path, text: str) -> None:
    (folder / "edge").write_text(text)
    head = add(Ledger(folder, SIGNER), "more")
    assert not verify_ledger(folder, SIGNER.key, [head.line.encode()]).reasons


def test_torn_rest_is_read_up_to_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(folder, SIGNER)
    monkeypatch.setattr(recovery, "_MAX_PENDING", 1_000)
    (folder / "entries.torn.new").write_bytes(bytes(1_001))
    with pytest.raises(LedgerTamperedError, match="over 1000 bytes"):
        add(ledger, "more")
    (folder / "entries.torn.new").write_bytes(bytes(1_000))
    add(ledger, "more")
    recovered = [json.loads(line) for line in ledger.folder.entries.read_bytes().splitlines()][-2]
    assert recovered["counts"] == {"bytes": 1_000}


@pytest.mark.parametrize("kind", [*KINDS, "huge"])
def test_what_is_no_document_is_missing(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(folder, SIGNER)
    monkeypatch.setattr(folders, "MAX_DOCUMENT_BYTES", 1_000)
    data = b"x" * (1_001 if kind == "huge" else 1_000)
    file = ledger.folder.document(digest_of(data))
    file.write_bytes(data)
    with ledger.writing(make_entry()) as writer:
        writer.add(replace(make_entry(), documents=[digest_of(data)]))
    if kind != "huge":
        assert verify_ledger(folder, SIGNER.key).documents == 1
        put(file, kind)
    assert Reason.DOCUMENTS_MISSING in verify_ledger(folder, SIGNER.key).reasons


@pytest.mark.parametrize("name", ["edge", "checkpoint.new"])
def test_second_name_of_a_file_is_not_written_over(folder: Path, tmp_path: Path, name: str) -> None:
    """Also between two entries of one process, which reads less."""
    ledger, other = Ledger(folder, SIGNER), tmp_path / "file"
    for _ in range(2):
        other.write_bytes(b"of the account that signs")
        (folder / name).unlink(missing_ok=True)
        (folder / name).hardlink_to(other)
        with ledger.writing(make_entry()) as writer:
            head = writer.add(make_entry("more"))
        assert other.read_bytes() == b"of the account that signs"
    with ledger.writing(make_entry()) as writer:
        head = writer.add(make_entry("more"))
    assert not verify_ledger(folder, SIGNER.key, [head.line.encode()]).reasons
