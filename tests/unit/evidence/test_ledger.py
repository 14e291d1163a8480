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

from sealpoint.admin.evidence import Checkpoint, Ledger, ledger, verify_ledger
from sealpoint.admin.evidence.folder import read_members
from sealpoint.admin.evidence.note import KeySigner, open_checkpoint
from sealpoint.errors import (
    AccessError,
    HeldError,
    LedgerMissingError,
    LedgerSignerError,
    LedgerTamperedError,
    MaintenanceError,
    OutputError,
    StoppedError,
)
from sealpoint.merkle import Tree
from tests.support.keys.ledgers import ORIGIN, OTHER_SIGNER, SIGNER, add, make_entry


def events(folder: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (folder / "entries.jsonl").read_bytes().splitlines()]


def pinned(folder: Path) -> bytes:
    return (folder / "checkpoint").read_bytes()


def is_whole(folder: Path, *pins: bytes) -> bool:
    """Whether the ledger is shown to be whole, with its own head as a pin if no other is given."""
    return not verify_ledger(folder, SIGNER.key, pins or [pinned(folder)]).reasons


def test_entries_are_lines_of_sorted_ascii_in_private_files(folder: Path) -> None:
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
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder, *folder.iterdir())}
    files = dict.fromkeys(["entries.jsonl", "checkpoint", "checkpoint.new", "vkey", "edge"], 0o600)
    assert modes == {"ledger": 0o700, "documents": 0o700} | files


def test_edge_of_another_form_is_replaced(folder: Path) -> None:
    """The edge only saves reading: without it, or with another, the tree is that of the entries."""
    edge = folder / "edge"
    before = edge.read_bytes()
    add(Ledger(folder, SIGNER), "a")
    texts = [
        *(before, b"[" * 60_000, b'{"edge": ' + b"[" * 60_000, b"x" * (1 << 20)),
        edge.read_bytes().replace(b'"edge": ["', b'"edge": ["AAAA'),
    ]
    for number in range(7):
        edge.unlink()
        if number < len(texts):
            edge.write_bytes(texts[number])
        elif number == len(texts):
            edge.touch()
            os.truncate(edge, 1 << 40)
        add(Ledger(folder, SIGNER), "b")
        assert is_whole(folder)
        assert events(folder)[6:] == ["b"] * (number + 1)
        assert edge.stat().st_size <= 1 << 20


def test_writer_reads_the_last_entry_alone_and_less_if_it_is_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command adds an entry when it begins and when it ends."""
    opened, genuine = list[str](), os.open

    def recorded(file: Path, flags: int, *more: int, **options: Any) -> int:
        if not flags & os.O_ACCMODE:
            opened.append(Path(file).name)
        return genuine(file, flags, *more, **options)

    def next_entry(command: Ledger) -> set[str]:
        opened.clear()
        with command.writing(make_entry()) as writer:
            writer.add(make_entry("next"))
        return {*opened} & {"checkpoint", "edge", "entries.jsonl", "vkey"}

    monkeypatch.setattr(os, "open", recorded)
    command, other = Ledger(folder, SIGNER), Ledger(folder, SIGNER)
    assert next_entry(command) == {"checkpoint", "edge", "vkey"}
    assert next_entry(command) == next_entry(command) == {"checkpoint"}
    assert next_entry(other) == next_entry(command) == {"checkpoint", "edge", "vkey"}
    assert is_whole(folder)


@pytest.mark.parametrize("act", ["earlier head", "other key", "edited head", "added line", "cut line"])
def test_what_was_replaced_between_two_entries_is_refused(folder: Path, act: str) -> None:
    """Even if the edge was made to agree."""
    command, earlier = Ledger(folder, SIGNER), pinned(folder)
    with command.writing(make_entry()) as writer:
        writer.add(make_entry("begin"))
        head = writer.state.head
    lines = (folder / "entries.jsonl").read_bytes()
    heads = {
        "earlier head": earlier,
        "other key": head.sign(KeySigner(ORIGIN, bytes(32))),
        "edited head": pinned(folder).replace(b"\n%d\n" % head.size, b"\n%d\n" % (head.size + 1)),
    }
    (folder / "checkpoint").write_bytes(heads.get(act, pinned(folder)))
    if act == "added line":
        lines += replace(make_entry("forged"), seq=head.size).line() + b"\n"
    elif act == "cut line":
        lines = lines[: lines.rindex(b"\n", 0, -1) + 1]
    (folder / "entries.jsonl").write_bytes(lines)
    edge = json.loads((folder / "edge").read_bytes()) | {"bytes": len(lines)}
    (folder / "edge").write_text(json.dumps(edge), encoding="ascii")
    with pytest.raises(LedgerTamperedError), command.writing(make_entry()) as writer:
        writer.add(make_entry("end"))


@pytest.mark.parametrize("act", ["edited", "swapped", "cut off", "cut off, with an edge"])
def test_entries_that_were_not_signed_are_refused(folder: Path, act: str) -> None:
    """And so are never signed over. An edge says how long they are: the last has the number of another."""
    file, before = folder / "entries.jsonl", pinned(folder)
    first, second, *others = file.read_bytes().splitlines(keepends=True)
    lines = {
        "edited": [first, second.replace(b"event.1", b"event.7"), *others],
        "swapped": [second, first, *others],
    }.get(act, [first, second, *others[:-1]])
    file.write_bytes(b"".join(lines))
    if act == "cut off, with an edge":
        edge = json.loads((folder / "edge").read_bytes()) | {"bytes": file.stat().st_size}
        (folder / "edge").write_text(json.dumps(edge), encoding="ascii")
    else:
        (folder / "edge").unlink()
    with pytest.raises(LedgerTamperedError, match="number 3" if act == "cut off, with an edge" else None):
        add(Ledger(folder, SIGNER), "next")
    assert pinned(folder) == before


def test_ledger_is_not_created_twice_nor_by_a_writer(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        Ledger.create(folder, SIGNER, make_entry())
    assert is_whole(folder)
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


def test_longest_entry_is_read_as_it_was_written(folder: Path) -> None:
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        digest = writer.add_document(b"{}")
        assert writer.add_document(b"{}") == digest
        long = replace(make_entry(), seq=5, counts={"rows": 3}, waived=["plaintext"], documents=[digest])
        room = 65_535 - len(replace(long, subject={"x": ""}).line())
        with pytest.raises(MaintenanceError, match="65535"):
            writer.add(replace(long, subject={"x": "x" * (room + 1)}))
        writer.add(long := replace(long, subject={"x": "x" * room}))
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        assert writer.state.last == long
    assert is_whole(folder)
    (file,) = (folder / "documents").iterdir()
    assert (f"sha256:{file.stem}", file.read_bytes()) == (digest, b"{}")
    assert verify_ledger(folder, SIGNER.key).documents == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not ASCII JSON"),
        (b"{}", "version"),
        (b"[" * 60_000, "not ASCII JSON"),
        ("ä".encode(), "not ASCII JSON"),
        (make_entry().line().replace(b'"v":1', b'"v":2'), "version"),
        (make_entry().line().replace(b'"seq":0', b'"seq":1'), "has the number 1"),
        (make_entry().line().replace(b'"seq":0', b'"seq":true'), "members"),
        (make_entry().line().replace(b'"waived":[]', b'"waved":[]'), "members"),
        (b" " * 70_000, "over 65535"),
    ],
)
def test_what_is_no_entry_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(LedgerTamperedError, match=problem):
        read_members(line, 0)


def test_writer_waits_for_another_and_not_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOCK_SECONDS", 0.0)
    with Ledger(folder, SIGNER).writing(make_entry()), pytest.raises(HeldError):
        add(Ledger(folder, SIGNER), "a")
    add(Ledger(folder, SIGNER), "a")
    assert is_whole(folder)


@pytest.mark.parametrize("name", ["write", "fsync", "replace", "append"])
@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, StoppedError), (errno.EIO, StoppedError), (errno.EACCES, AccessError)],
)
def test_ledger_that_cannot_be_written_adds_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: type[Exception]
) -> None:
    """At ``append`` the next head is written, and then there is room for the beginning of the entry alone."""
    before, entries = pinned(folder), folder / "entries.jsonl"
    whole, function = entries.read_bytes(), "write" if name == "append" else name
    genuine = getattr(os, function)

    def fail(*arguments: Any) -> Any:
        if name == "append" and not os.path.samestat(os.fstat(arguments[0]), entries.stat()):
            return genuine(*arguments)
        if function == "write" and entries.stat().st_size == len(whole):
            done = genuine(arguments[0], bytes(arguments[1])[:7])
            if name == "append":
                return done
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(error, match=f"cannot be written: {os.strerror(number)}"):
            add(Ledger(folder, SIGNER), "lost")
    assert name != "append" or entries.read_bytes() == whole
    add(Ledger(folder, SIGNER), "next")
    assert is_whole(folder, before)
    assert events(folder)[-1] == "next"
    assert "ledger.recovered" not in events(folder)


def crash(folder: Path, tail: bytes | None, *, new: bytes | None = None) -> None:
    """Leave the files as a crash while entry 5 was added: all of its line, or ``tail``."""
    line = replace(make_entry("torn"), seq=5).line()
    tree = Tree.of((folder / "entries.jsonl").read_bytes().split(b"\n")[:-1])
    tree.add(line)
    (folder / "checkpoint.new").write_bytes(Checkpoint.of(ORIGIN, tree).sign(SIGNER) if new is None else new)
    with (folder / "entries.jsonl").open("ab") as file:
        file.write(line + b"\n" if tail is None else tail)


@pytest.mark.parametrize("tail", [b"", None, b"{", b"{}\n", b"two\nlines\n", b"x" * 65_536])
def test_interrupted_entry_is_completed_or_cut_off_and_recorded(folder: Path, tail: bytes | None) -> None:
    before = pinned(folder)
    crash(folder, tail)
    unfinished = {"append-unfinished"} if tail != b"" else set()
    assert {*verify_ledger(folder, SIGNER.key, [before]).reasons} == unfinished
    add(Ledger(folder, SIGNER), "next")
    assert is_whole(folder, before)
    assert (folder / "checkpoint.new").read_bytes() == b""
    if not tail:
        assert events(folder)[5:] == (["next"] if tail == b"" else ["torn", "next"])
        return
    assert events(folder)[5:] == ["ledger.recovered", "next"]
    recovered = json.loads((folder / "entries.jsonl").read_bytes().splitlines()[5])
    assert recovered["counts"] == {"bytes": len(tail)}
    # A second one does not replace the first.
    tree = Tree.of((folder / "entries.jsonl").read_bytes().splitlines())
    tree.add(b"other")
    crash(folder, b"second", new=Checkpoint.of(ORIGIN, tree).sign(SIGNER))
    add(Ledger(folder, SIGNER), "next")
    assert (folder / "entries.torn").read_bytes() == tail
    assert [file.read_bytes() for file in folder.glob("entries.torn.*")] == [b"second"]
    assert events(folder).count("ledger.recovered") == 2
    assert is_whole(folder, before)


@pytest.mark.parametrize(
    "new", ["none", "empty", "other signer", "old head", "far head", "longer than an entry"]
)
def test_lines_that_the_signer_did_not_begin_are_never_signed_over(folder: Path, new: str) -> None:
    """A tail without a next head of the signer is tampering: the ledger refuses, and keeps it as it is."""
    tree = Tree.of([b""] * 9)
    heads = {
        "empty": b"",
        "other signer": Checkpoint.of(ORIGIN, tree).sign(OTHER_SIGNER),
        "old head": pinned(folder),
        "far head": Checkpoint.of(ORIGIN, tree).sign(SIGNER),
    }
    crash(folder, b"x" * 65_537 if new == "longer than an entry" else None, new=heads.get(new))
    if new == "none":
        (folder / "checkpoint.new").unlink()
    files = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    with pytest.raises(LedgerTamperedError, match="lines after"):
        add(Ledger(folder, SIGNER), "next")
    assert {file: file.read_bytes() for file in files} == files
    assert {*verify_ledger(folder, SIGNER.key, [pinned(folder)]).reasons} == {"ledger-broken"}
