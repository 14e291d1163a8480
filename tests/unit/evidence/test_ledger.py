"""The ledger: what it writes, what it refuses, and how it goes on after a crash."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import (
    AccessError,
    EntryError,
    HeldError,
    LedgerMissingError,
    LedgerSignerError,
    LedgerTamperedError,
    OutputExistsError,
    StoppedError,
)
from sealpoint.evidence import Checkpoint, Entry, Ledger, ledger, recovery, verify_ledger
from sealpoint.evidence import writer as writing
from sealpoint.evidence.checkpoint import open_checkpoint
from sealpoint.evidence.note import VerifierKey
from sealpoint.evidence.signer import KeySigner
from sealpoint.maintenance.result import Reason
from sealpoint.merkle import Tree
from tests.support.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, add, make_entry, make_ledger


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_ledger(tmp_path / "ledger")
    return tmp_path / "ledger"


def events(folder: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (folder / "entries.jsonl").read_bytes().splitlines()]


def pinned(folder: Path) -> bytes:
    return (folder / "checkpoint").read_bytes()


def is_whole(folder: Path, *pins: bytes) -> bool:
    """Whether the ledger is shown to be whole, with its own head as a pin if no other is given."""
    return not verify_ledger(folder, SIGNER.key, pins or [pinned(folder)]).reasons


def test_entries_are_lines_of_sorted_ascii(folder: Path) -> None:
    lines = (folder / "entries.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    for number, line in enumerate(lines):
        members = json.loads(line)
        assert line.isascii()
        assert list(members) == sorted(members)
        assert members["seq"] == number
        assert len(line) < 500
    assert events(folder) == ["ledger.init", "event.1", "event.2", "event.3", "event.4"]
    assert open_checkpoint(pinned(folder), SIGNER.key) == Checkpoint.of(ORIGIN, Tree.of(lines))


def test_files_are_private(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {
        "entries.jsonl": 0o600,
        "checkpoint": 0o600,
        "checkpoint.new": 0o600,
        "vkey": 0o600,
        "edge": 0o600,
        "documents": 0o700,
    }


def test_document_is_named_after_its_digest(folder: Path) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        digest = writer.add_document(b"{}")
        assert writer.add_document(b"{}") == digest
        writer.add(replace(make_entry(), documents=[digest]))
    (file,) = (folder / "documents").iterdir()
    assert (f"sha256:{file.stem}", file.read_bytes()) == (digest, b"{}")
    assert verify_ledger(folder, SIGNER.key).documents == 1


@pytest.mark.parametrize("act", ["edge", "stale", "edited"])
def test_edge_is_made_anew(folder: Path, act: str) -> None:
    """The edge only saves reading: without it, or with another, the tree is that of the entries."""
    edge = folder / "edge"
    before = edge.read_bytes()
    add(Ledger(folder, SIGNER), "a")
    if act == "edge":
        edge.unlink()
    elif act == "stale":
        edge.write_bytes(before)
    else:
        edge.write_bytes(edge.read_bytes().replace(b'"edge": ["', b'"edge": ["AAAA'))
    add(Ledger(folder, SIGNER), "b")
    assert is_whole(folder)
    assert events(folder)[-2:] == ["a", "b"]


def test_adding_reads_no_entry_but_the_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the entries were read")

    monkeypatch.setattr(recovery, "recover", refuse)
    add(Ledger(folder, SIGNER), "a", "b", "c")
    assert is_whole(folder)


def test_entry_costs_three_calls_of_fsync(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the next head, the entries and the folder; no file is created but the next head."""
    calls = list[str]()

    def counted(name: str) -> Any:
        genuine = getattr(os, name)

        def call(first: Any, *more: Any) -> Any:
            if name != "open" or more[0] & os.O_CREAT:
                calls.append(first.name if name == "open" else name)
            return genuine(first, *more)

        return call

    for name in ("open", "fsync", "replace", "unlink", "truncate", "ftruncate"):
        monkeypatch.setattr(os, name, counted(name))
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        writer.add(make_entry("next"))
    assert calls == ["fsync", "fsync", "replace", "checkpoint.new", "fsync", "edge"]


def test_ledger_as_this_process_left_it_is_not_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command adds an entry when it begins and when it ends."""
    opened = list[bytes]()

    def counted(note: bytes, key: VerifierKey) -> Checkpoint:
        opened.append(note)
        return open_checkpoint(note, key)

    monkeypatch.setattr(writing, "open_checkpoint", counted)
    command = Ledger(folder, SIGNER)
    for _ in range(3):
        with command.writing(make_entry()) as writer:
            writer.add(make_entry("next"))
    assert len(opened) == 1
    add(Ledger(folder, SIGNER), "of another process")
    with command.writing(make_entry()) as writer:
        writer.add(make_entry("last"))
    assert len(opened) == 4
    assert is_whole(folder)


@pytest.mark.parametrize(
    "act", ["earlier head", "head of another key", "edited head", "added line", "cut line"]
)
def test_what_was_replaced_between_two_entries_is_refused(folder: Path, act: str) -> None:
    """Even if the edge was made to agree."""
    command, earlier = Ledger(folder, SIGNER), (folder / "checkpoint").read_bytes()
    with command.writing(make_entry()) as writer:
        writer.add(make_entry("begin"))
        head = writer.state.head
    note, lines = (folder / "checkpoint").read_bytes(), (folder / "entries.jsonl").read_bytes()
    file, data = {
        "earlier head": ("checkpoint", earlier),
        "head of another key": ("checkpoint", head.sign(KeySigner(ORIGIN, bytes(32)))),
        "edited head": (
            "checkpoint",
            note.replace(f"\n{head.size}\n".encode(), f"\n{head.size + 1}\n".encode()),
        ),
        "added line": ("entries.jsonl", lines + replace(make_entry("forged"), seq=head.size).line() + b"\n"),
        "cut line": ("entries.jsonl", lines[: lines.rindex(b"\n", 0, -1) + 1]),
    }[act]
    (folder / file).write_bytes(data)
    edge = json.loads((folder / "edge").read_bytes())
    edge["bytes"] = (folder / "entries.jsonl").stat().st_size
    (folder / "edge").write_text(json.dumps(edge), encoding="ascii")
    with pytest.raises(LedgerTamperedError), command.writing(make_entry()) as writer:
        writer.add(make_entry("end"))


def test_edge_does_not_hide_a_cut(folder: Path) -> None:
    """The edge says how long the entries are, and is not signed: the last line is checked by its number."""
    file, edge = folder / "entries.jsonl", folder / "edge"
    *lines, _ = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines))
    found = json.loads(edge.read_bytes())
    edge.write_text(json.dumps(found | {"bytes": len(b"".join(lines))}), encoding="ascii")
    with pytest.raises(LedgerTamperedError, match="says that it is entry 3"):
        add(Ledger(folder, SIGNER), "next")


@pytest.mark.parametrize("act", ["edited", "swapped", "cut off"])
def test_without_an_edge_entries_that_were_not_signed_are_refused(folder: Path, act: str) -> None:
    """And so are never signed over."""
    file, before = folder / "entries.jsonl", pinned(folder)
    first, second, *others = file.read_bytes().splitlines(keepends=True)
    lines = {
        "edited": [first, second.replace(b"event.1", b"event.7"), *others],
        "swapped": [second, first, *others],
        "cut off": [first, second, *others[:-1]],
    }[act]
    file.write_bytes(b"".join(lines))
    (folder / "edge").unlink()
    with pytest.raises(LedgerTamperedError):
        add(Ledger(folder, SIGNER), "next")
    assert pinned(folder) == before


# --- refusals ---------------------------------------------------------------------


def test_ledger_is_not_created_twice(folder: Path) -> None:
    with pytest.raises(OutputExistsError):
        Ledger.create(folder, SIGNER, make_entry())
    assert is_whole(folder)


def test_folder_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerMissingError), Ledger(tmp_path, SIGNER).writing(make_entry()):
        pass


def test_another_signer_is_refused(folder: Path) -> None:
    before = pinned(folder)
    with pytest.raises(LedgerSignerError, match="belongs to"):
        add(Ledger(folder, OTHER_SIGNER), "a")
    (folder / "vkey").write_text(f"{OTHER_SIGNER.key}\n", encoding="ascii")
    with pytest.raises(LedgerTamperedError, match="no signature of"):
        add(Ledger(folder, OTHER_SIGNER), "a")
    assert pinned(folder) == before


def test_entry_that_is_too_long_is_refused(folder: Path) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer, pytest.raises(EntryError, match="65535"):
        writer.add(replace(make_entry(), subject={"database": ["x" * 65_535]}))
    assert is_whole(folder)


def test_longest_entry_is_read_again(folder: Path) -> None:
    long = make_entry("last")
    room = 65_535 - len(replace(long, seq=5, subject={"x": ""}).line())
    with Ledger(folder, SIGNER).writing(long) as writer:
        writer.add(replace(long, subject={"x": "x" * room}))
    with Ledger(folder, SIGNER).writing(long) as writer:
        last = writer.state.last
    assert last is not None
    assert len(last.line()) == 65_535
    assert is_whole(folder)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"{}", "version"),
        (b"[" * 60_000, "not JSON"),
        ("ä".encode(), "not JSON"),
        (make_entry().line().replace(b'"v":1', b'"v":2'), "version"),
        (make_entry().line().replace(b'"seq":0', b'"seq":1'), "says that it is entry 1"),
        (make_entry().line().replace(b'"seq":0', b'"seq":true'), "members"),
        (make_entry().line().replace(b'"waived":[]', b'"waved":[]'), "members"),
        (b" " * 70_000, "over 65535"),
    ],
)
def test_what_is_no_entry_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(EntryError, match=problem):
        Entry.parse(line, 0)


def test_entry_is_read_as_it_was_written() -> None:
    entry = replace(make_entry(), seq=7, counts={"rows": 3}, waived=["plaintext"], documents=["d"])
    assert Entry.parse(entry.line(), 7).line() == entry.line()


def test_writer_waits_for_another_and_not_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOCK_SECONDS", 0.0)
    with Ledger(folder, SIGNER).writing(make_entry()), pytest.raises(HeldError):
        add(Ledger(folder, SIGNER), "a")
    add(Ledger(folder, SIGNER), "a")
    assert is_whole(folder)


# --- a disk without room, a folder without rights -----------------------------------


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_ledger_without_room_adds_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    before = pinned(folder)
    genuine = getattr(os, name)

    def fail(*arguments: Any) -> None:
        if name == "write":
            genuine(arguments[0], bytes(arguments[1])[:7])
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(StoppedError, match="cannot be written"):
            add(Ledger(folder, SIGNER), "lost")
    add(Ledger(folder, SIGNER), "next")
    assert is_whole(folder, before)
    assert events(folder)[-1] == "next"


def test_entry_without_room_leaves_no_part_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next head is written, and then there is room for its beginning alone."""
    before, genuine, file = (folder / "entries.jsonl").read_bytes(), os.write, folder / "entries.jsonl"

    def fail(descriptor: int, data: Any) -> int:
        if not os.path.samestat(os.fstat(descriptor), file.stat()):
            return genuine(descriptor, data)
        if file.stat().st_size > len(before):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return genuine(descriptor, bytes(data)[:7])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StoppedError, match="No space left"):
            add(Ledger(folder, SIGNER), "lost")
    assert file.read_bytes() == before
    add(Ledger(folder, SIGNER), "next")
    assert (events(folder)[-1], "ledger.recovered" in events(folder)) == ("next", False)
    assert is_whole(folder)


def test_folder_that_may_not_be_written_is_a_matter_of_rights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(AccessError, match="cannot be written"):
        add(Ledger(folder, SIGNER), "lost")


# --- what a crash leaves -----------------------------------------------------------


def crash(folder: Path, tail: bytes | None, *, new: bytes | None = None) -> None:
    """Leave the files as a crash while entry 5 was added: all of its line, or ``tail``."""
    line = replace(make_entry("torn"), seq=5).line()
    tree = Tree.of((folder / "entries.jsonl").read_bytes().split(b"\n")[:-1])
    tree.add(line)
    (folder / "checkpoint.new").write_bytes(Checkpoint.of(ORIGIN, tree).sign(SIGNER) if new is None else new)
    with (folder / "entries.jsonl").open("ab") as file:
        file.write(line + b"\n" if tail is None else tail)


def test_next_head_without_its_entry_is_dropped(folder: Path) -> None:
    crash(folder, b"")
    assert is_whole(folder)
    add(Ledger(folder, SIGNER), "next")
    assert events(folder)[-1] == "next"
    assert is_whole(folder)
    assert (folder / "checkpoint.new").read_bytes() == b""


def test_entry_with_its_next_head_is_completed(folder: Path) -> None:
    crash(folder, None)
    assert {*verify_ledger(folder, SIGNER.key, [pinned(folder)]).reasons} == {"append-unfinished"}
    add(Ledger(folder, SIGNER), "next")
    assert events(folder)[-2:] == ["torn", "next"]
    assert is_whole(folder)


@pytest.mark.parametrize("tail", [b"{", b"{}\n", b"two\nlines\n", b"x" * 65_536])
def test_torn_entry_is_cut_off_and_recorded(folder: Path, tail: bytes) -> None:
    before = pinned(folder)
    crash(folder, tail)
    assert {*verify_ledger(folder, SIGNER.key, [before]).reasons} == {"append-unfinished"}
    add(Ledger(folder, SIGNER), "next")
    assert events(folder)[-2:] == ["ledger.recovered", "next"]
    assert (folder / "entries.torn").read_bytes() == tail
    recovered = json.loads((folder / "entries.jsonl").read_bytes().splitlines()[5])
    assert recovered["counts"] == {"bytes": len(tail)}
    assert is_whole(folder, before)


def test_second_torn_entry_does_not_replace_the_first(folder: Path) -> None:
    crash(folder, b"first")
    add(Ledger(folder, SIGNER), "next")
    crash(folder, b"second", new=_next_head(folder))
    add(Ledger(folder, SIGNER), "next")
    assert (folder / "entries.torn").read_bytes() == b"first"
    assert [file.read_bytes() for file in folder.glob("entries.torn.*")] == [b"second"]
    assert events(folder).count("ledger.recovered") == 2
    assert is_whole(folder)


def _next_head(folder: Path) -> bytes:
    tree = Tree.of((folder / "entries.jsonl").read_bytes().split(b"\n")[:-1])
    tree.add(b"other")
    return Checkpoint.of(ORIGIN, tree).sign(SIGNER)


@pytest.mark.parametrize("new", [None, b"", "other signer", "old head", "far head"])
def test_lines_that_the_signer_did_not_begin_are_never_signed_over(folder: Path, new: Any) -> None:
    """A tail without a next head of the signer is tampering: the ledger refuses, and keeps it as it is."""
    tree = Tree.of([b""] * 9)
    heads = {
        "other signer": Checkpoint.of(ORIGIN, tree).sign(OTHER_SIGNER),
        "old head": pinned(folder),
        "far head": Checkpoint.of(ORIGIN, tree).sign(SIGNER),
    }
    crash(folder, None, new=heads.get(new, b"" if new is None else new))
    if new is None:
        (folder / "checkpoint.new").unlink()
    files = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    with pytest.raises(LedgerTamperedError, match="lines after"):
        add(Ledger(folder, SIGNER), "next")
    assert {file: file.read_bytes() for file in files} == files
    assert {*verify_ledger(folder, SIGNER.key, [pinned(folder)]).reasons} == {"ledger-broken"}


def test_tail_longer_than_an_entry_is_never_cut_off(folder: Path) -> None:
    crash(folder, b"x" * 65_537)
    with pytest.raises(LedgerTamperedError, match="lines after"):
        add(Ledger(folder, SIGNER), "next")
    assert {*verify_ledger(folder, SIGNER.key, [pinned(folder)]).reasons} == {"ledger-broken"}


def test_new_signer_is_a_new_ledger(folder: Path, tmp_path: Path) -> None:
    """The first entry of the new ledger holds the last head of the old one."""
    first = replace(make_entry("ledger.init"), subject={"previous": pinned(folder).decode()})
    Ledger.create(tmp_path / "new", OTHER_SIGNER, first)
    with Ledger(tmp_path / "new", OTHER_SIGNER).writing(make_entry()) as writer:
        entry = writer.state.last
    assert entry is not None
    assert open_checkpoint(str(entry.subject["previous"]).encode(), SIGNER.key).size == 5


# --- files that are none of a ledger ------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["checkpoint", "entries.jsonl", "vkey", "entries.torn.new"])
def test_pipe_in_the_place_of_a_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(LedgerTamperedError, match="is not a regular file"):
        add(Ledger(folder, SIGNER), "more")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["checkpoint.new", "edge"])
def test_pipe_in_the_place_of_a_file_that_is_made_anew_is_replaced(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    add(Ledger(folder, SIGNER), "more")
    assert (folder / name).is_file()
    assert verify_ledger(folder, SIGNER.key).reasons == {Reason.PIN_NOT_GIVEN}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["checkpoint.new", "edge"])
def test_pipe_between_two_entries_does_not_wait(folder: Path, name: str) -> None:
    """As a command adds two; whoever holds the reading end gets nothing that keeps the writer."""
    ledger = Ledger(folder, SIGNER)
    add(ledger, "begin")
    with ledger.writing(make_entry()) as writer:
        (folder / name).unlink()
        os.mkfifo(folder / name)
        if name == "edge":
            writer.add(make_entry("end"))
        else:
            with pytest.raises(OSError, match="No such device"):
                writer.add(make_entry("end"))
    add(Ledger(folder, SIGNER), "after")
    assert verify_ledger(folder, SIGNER.key).reasons == {Reason.PIN_NOT_GIVEN}


@pytest.mark.parametrize("name", ["checkpoint.new", "edge"])
def test_file_with_another_name_elsewhere_is_not_written_over(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """An attacker may add a hard link to a file of this account, such as the ring."""
    ring = tmp_path / "keys.toml"
    for act in ("first", "second"):
        ring.write_text("version = 1\n" * 9)
        ledger = Ledger(folder, SIGNER)
        if act == "second":
            add(ledger, "begin")
        (folder / name).unlink()
        (folder / name).hardlink_to(ring)
        with ledger.writing(make_entry()) as writer:
            writer.add(make_entry("more"))
        assert ring.read_text() == "version = 1\n" * 9
    assert verify_ledger(folder, SIGNER.key).reasons == {Reason.PIN_NOT_GIVEN}


def test_what_was_set_aside_is_read_to_its_bound(folder: Path) -> None:
    with (folder / "entries.torn.new").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(LedgerTamperedError, match="has over 1048576 bytes"):
        add(Ledger(folder, SIGNER), "more")


def test_edge_is_read_to_its_bound(folder: Path) -> None:
    with (folder / "edge").open("wb") as file:
        file.truncate(1 << 40)
    add(Ledger(folder, SIGNER), "more")
    assert (folder / "edge").stat().st_size < 1 << 20


def test_document_that_could_not_be_read_again_is_not_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealpoint.evidence.writer.MAX_DOCUMENT_BYTES", 9)
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        writer.add_document(bytes(9))
        with pytest.raises(EntryError, match="at most 9 bytes"):
            writer.add_document(bytes(10))
