"""A ledger's folder in which an attacker put pipes, links, endless files, or second names of other files."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sealpoint.admin.evidence import Ledger, verify_ledger
from sealpoint.admin.evidence.folder import digest_of
from sealpoint.admin.evidence.report.sources import find_changes
from sealpoint.admin.evidence.verify import make_proof
from sealpoint.admin.results.reasons import Reason
from sealpoint.errors import LedgerTamperedError, MaintenanceError
from tests.support.keys.ledgers import SIGNER, add, make_entry

# A read that waits fails by name.
pytestmark = pytest.mark.timeout(60)

KINDS = ["fifo", "socket", "folder", "endless", "link"]
DIGEST = "sha256:" + "0" * 64


def put(path: Path, kind: str) -> None:
    """Put what is no regular file at a path; a link leads to the file that was there."""
    away = Path.cwd() / path.name
    if kind == "link" and path.exists():
        path.rename(away)
    path.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.relpath(path))
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/zero" if kind == "endless" else away)


def is_whole_after_another_entry(folder: Path) -> bool:
    head = add(Ledger(folder, SIGNER), "more")
    return not verify_ledger(folder, SIGNER.key, [head.line.encode()]).reasons


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["entries.jsonl", "checkpoint", "vkey", "entries.torn.new"])
def test_what_is_no_file_is_refused_by_readers_and_writers(folder: Path, name: str, kind: str) -> None:
    pin = (folder / "checkpoint").read_bytes()
    put(folder / name, kind)
    if name in ("entries.jsonl", "checkpoint"):
        assert verify_ledger(folder, SIGNER.key, [pin]).reasons == {Reason.LEDGER_BROKEN}
        assert Reason.LEDGER_BROKEN in find_changes(folder, None, DIGEST, SIGNER.key, [pin]).reasons
        with pytest.raises(LedgerTamperedError, match="regular file"):
            make_proof(folder, 1)
    elif name == "vkey":
        with pytest.raises(LedgerTamperedError, match="regular file"):
            verify_ledger(folder)
    with pytest.raises((LedgerTamperedError, OSError)) as caught:
        add(Ledger(folder, SIGNER), "more")
    assert kind != "fifo" or "is not a regular file" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["edge", "checkpoint.new"])
def test_what_is_no_file_and_may_be_deleted_is_not_read(folder: Path, name: str, kind: str) -> None:
    put(folder / name, kind)
    assert verify_ledger(folder, SIGNER.key).reasons == {Reason.PIN_NOT_GIVEN}
    if kind != "folder":
        assert is_whole_after_another_entry(folder)
        assert (folder / name).is_file()
        put(folder / name, kind)
    with (folder / "entries.jsonl").open("ab") as stream:
        stream.write(b"torn")
    expected = Reason.LEDGER_BROKEN if name == "checkpoint.new" else Reason.PIN_NOT_GIVEN
    assert expected in verify_ledger(folder, SIGNER.key).reasons


@pytest.mark.parametrize("name", ["checkpoint.new", "edge"])
def test_pipe_between_two_entries_does_not_wait(folder: Path, name: str) -> None:
    """As a command adds two: a process that has the pipe open for reading cannot make the writer wait."""
    ledger = Ledger(folder, SIGNER)
    add(ledger, "begin")
    with ledger.writing(make_entry()) as writer:
        put(folder / name, "fifo")
        if name == "edge":
            writer.add(make_entry("end"))
        else:
            with pytest.raises(OSError, match="No such device"):
                writer.add(make_entry("end"))
    assert is_whole_after_another_entry(folder)


@pytest.mark.parametrize("name", ["edge", "checkpoint.new"])
def test_second_name_of_a_file_is_not_written_over(folder: Path, tmp_path: Path, name: str) -> None:
    """Also between two entries of one process, which reads less."""
    ledger, ring = Ledger(folder, SIGNER), tmp_path / "keys.toml"
    for _ in range(2):
        ring.write_text("version = 1\n" * 9)
        (folder / name).unlink(missing_ok=True)
        (folder / name).hardlink_to(ring)
        with ledger.writing(make_entry()) as writer:
            writer.add(make_entry("more"))
        assert ring.read_text() == "version = 1\n" * 9
    assert is_whole_after_another_entry(folder)


def test_torn_rest_is_read_up_to_a_bound(folder: Path) -> None:
    ledger, torn = Ledger(folder, SIGNER), folder / "entries.torn.new"
    for size in (1 << 40, (1 << 20) + 1):
        with torn.open("wb") as file:
            file.truncate(size)
        with pytest.raises(LedgerTamperedError, match="over 1048576 bytes"):
            add(ledger, "more")
    torn.write_bytes(bytes(1 << 20))
    add(ledger, "more")
    recovered = [json.loads(line) for line in ledger.folder.entries.read_bytes().splitlines()][-2]
    assert recovered["counts"] == {"bytes": 1 << 20}


@pytest.mark.parametrize("kind", [*KINDS, "huge", "changed", "deleted"])
def test_what_is_not_the_document_is_missing(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are read in parts, up to the size that a writer accepts."""
    limit = 3_000_000
    for module in ("folder", "ledger"):
        monkeypatch.setattr(f"sealpoint.admin.evidence.{module}.MAX_DOCUMENT_BYTES", limit)
    ledger, data = Ledger(folder, SIGNER), bytes(limit + (kind == "huge"))
    with ledger.writing(make_entry()) as writer:
        if kind == "huge":
            with pytest.raises(MaintenanceError, match=f"may have {limit} bytes"):
                writer.add_document(data)
            ledger.folder.document(digest_of(data)).write_bytes(data)
        else:
            writer.add_document(data)
        writer.add(replace(make_entry(), documents=[digest_of(data)]))
    file = ledger.folder.document(digest_of(data))
    assert verify_ledger(folder, SIGNER.key).documents == (kind != "huge")
    if kind in KINDS:
        put(file, kind)
    elif kind == "changed":
        file.write_bytes(data[:-1] + b"x")
    elif kind == "deleted":
        file.unlink()
    verdict = verify_ledger(folder, SIGNER.key)
    assert verdict.reasons == {Reason.DOCUMENTS_MISSING, Reason.PIN_NOT_GIVEN}
    assert verdict.documents == 0


def test_document_outside_the_folder_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(b"")
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        writer.add(replace(make_entry(), documents=["../secret", "sha256:../../secret"]))
    verdict = verify_ledger(folder, SIGNER.key)
    assert (verdict.documents, len(verdict.problems)) == (0, 2)
    assert Reason.DOCUMENTS_MISSING in verdict.reasons
