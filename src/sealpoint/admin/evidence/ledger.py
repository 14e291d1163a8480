"""Ledger: locks the ledger, adds entries, and repairs an entry that a crash left incomplete.

An entry is added in such an order that after a crash at any point it is complete, or visibly incomplete:

1. The next head is signed over the tree with the new entry, and written to `checkpoint.new`.
2. The entry is appended to the entries.
3. `checkpoint.new` is renamed to `checkpoint`, and an empty `checkpoint.new` is created for the next entry.

Each step is fsynced before the next begins: three calls of fsync, since the name of `checkpoint.new` exists
since the previous entry. `edge` is written last: if it matches the checkpoint, all three steps were
completed. After a crash, the entry is completed, or cut off and recorded. Anything else is refused.

| bytes after the entries of the checkpoint | ``checkpoint.new`` | action |
|---|---|---|
| nothing | any | ignored; the next entry replaces ``checkpoint.new`` |
| one line, which matches its root | signed | ``checkpoint.new`` becomes the checkpoint |
| other bytes, at most one entry long | signed, for one more entry | bytes cut off, set aside and recorded |
| anything | missing or not signed | refused: not written by the signer |

A cut-off entry belongs to a command that had not begun: an entry is fsynced before the command has an effect.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sealpoint.admin.evidence.folder import (
    MAX_DOCUMENT_BYTES,
    MAX_ENTRY_BYTES,
    Entry,
    Folder,
    decode,
    digest_of,
    open_regular,
    read_lines,
    read_members,
    require_regular,
)
from sealpoint.admin.evidence.note import Checkpoint, Signer, VerifierKey, open_checkpoint
from sealpoint.admin.keys.files import fsync_path, require_unshared, write_private
from sealpoint.errors import (
    HeldError,
    LedgerSignerError,
    LedgerTamperedError,
    MaintenanceError,
    NoteError,
    OutputError,
    stopping,
)
from sealpoint.keys.files import opened
from sealpoint.merkle import Tree

# Seconds that a writer waits for another writer; a write takes about a millisecond.
LOCK_SECONDS: Final = 30.0

_RETRY_SECONDS: Final = 0.005
_HINT: Final = "free disk space, or let this account write to the ledger: until then commands are refused"
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # do not block on a FIFO
_MAX_EDGE_BYTES: Final = 1 << 16
_PENDING: Final = "entries.torn.new"
_MAX_PENDING: Final = 1 << 20


class Ledger:
    """A ledger to which this account can add entries.

    Args:
        folder: Folder of the ledger, which `create` has made.
        signer: Signer of the new heads.
    """

    def __init__(self, folder: Path, signer: Signer) -> None:
        self.folder: Final = Folder(folder)
        self.signer: Final = signer
        self._state: State | None = None

    @classmethod
    def create(cls, folder: Path, signer: Signer, entry: Entry) -> Checkpoint:
        """Create a ledger with its first entry.

        Args:
            folder: Folder of the ledger, created if missing.
            signer: Signer of the heads.
            entry: The first entry.

        Returns:
            The head after the first entry.

        Raises:
            OutputError: If the folder already contains a ledger with an entry.
            StoppedError: If the ledger cannot be written.
        """
        ledger = cls(folder, signer)
        files = ledger.folder
        with stopping(f"the ledger in {folder} cannot be written", _HINT):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            require_unshared(folder)
            with _locked(files.entries, os.O_CREAT):
                require_new(folder)
                files.documents.mkdir(mode=0o700, exist_ok=True)
                write_private(files.vkey, f"{signer.key}\n".encode())
                empty = Checkpoint.of(signer.key.name, Tree())
                write_private(files.checkpoint, empty.sign(signer))
                fsync_path(folder)
                fsync_path(folder.parent)
        with ledger.writing(entry) as writer:
            return writer.add(entry)

    @contextmanager
    def writing(self, template: Entry) -> Iterator[Writer]:
        """Lock the ledger, repair it after a crash, and provide a `Writer` within the context.

        Args:
            template: Entry from which the entry about a repair, if any, gets its actor, run, tool and time.

        Raises:
            LedgerMissingError: If there is no ledger.
            LedgerTamperedError: If the entries do not match the signed head.
            LedgerSignerError: If the ledger belongs to another signer.
            HeldError: If another run keeps the ledger locked for 30 seconds.
            StoppedError: If the ledger cannot be written.
        """
        self.folder.require()
        with (
            stopping(f"the ledger in {self.folder.path} cannot be written", _HINT),
            _locked(self.folder.entries) as entries,
        ):
            writer = Writer(self.folder, self.signer, entries, self._state)
            writer.record_recovery(template)
            yield writer
            self._state = writer.state


def require_new(folder: Path) -> None:
    """Raise OutputError if a folder contains a ledger with an entry."""
    entries = Folder(folder).entries
    if entries.exists() and entries.stat().st_size:
        raise OutputError(
            f"{folder} already contains a ledger",
            hint="a ledger is never overwritten; name a new folder in [ledger] dir",
        )


@contextmanager
def _locked(entries: Path, create: int = 0) -> Iterator[int]:
    """Open and lock the file of entries; wait until another writer ends. The lock ends with the process.

    The file itself is locked; for a database, this would interfere with the locks of SQLite.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while (descriptor := _take(entries, create)) is None:
        if time.monotonic() > deadline:
            raise HeldError(f"another run holds {entries.name}")
        time.sleep(_RETRY_SECONDS)
    try:
        require_regular(entries, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(entries: Path, create: int) -> int | None:
    descriptor = os.open(entries, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | create, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the path is another file now, a backup was restored meanwhile.
        if os.path.samestat(os.fstat(descriptor), entries.lstat()):
            return descriptor
    os.close(descriptor)
    return None


@dataclass(frozen=True, slots=True)
class State:
    """State of a ledger between two entries."""

    note: bytes
    head: Checkpoint
    tree: Tree
    size: int
    last: Entry | None


class Writer:
    """Adds entries to a locked ledger.

    Made by `Ledger.writing`.
    """

    def __init__(self, folder: Folder, signer: Signer, entries: int, state: State | None) -> None:
        """Read the head; check its signature, and that the head matches the entries.

        A command adds one entry when it begins and another when it ends. If head and file size still match
        ``state``, the head is not checked again, which saves a third of the time.

        Args:
            folder: Folder of the ledger.
            signer: Signer of the new heads.
            entries: File descriptor of the file of entries.
            state: State in which the last writer of this process left the ledger; ``None`` without one.
        """
        require_unshared(folder.path)
        self._folder, self._signer, self._entries = folder, signer, entries
        self._torn = pending(folder)
        self.state = state if state is not None and self._is_current(state) else self._read()

    def add(self, entry: Entry) -> Checkpoint:
        """Add an entry with the next number. When this returns, the entry is fsynced.

        If writing fails, the entry is not added, or the next writer completes the entry.

        Args:
            entry: The entry; the next number of the ledger replaces its number.

        Returns:
            The new head of the ledger.
        """
        tree = self.state.tree.copy()
        entry = replace(entry, seq=tree.size)
        line = entry.line()
        tree.add(line)
        head = Checkpoint.of(self._signer.key.name, tree)
        note = head.sign(self._signer)
        with opened(self._folder.new, _WRITE | os.O_TRUNC) as new:
            _write(new, note)
        _append(self._entries, line + b"\n")
        self._folder.new.replace(self._folder.checkpoint)
        self._make_new()
        self.state = State(note, head, tree, self.state.size + len(line) + 1, entry)
        _keep_edge(self._folder, tree, self.state.size)
        return head

    def add_document(self, data: bytes) -> str:
        """Write a file into the folder ``documents``; return the digest by which an entry names the file.

        Args:
            data: Contents of the file.

        Raises:
            MaintenanceError: If the contents are too large.
        """
        if len(data) > MAX_DOCUMENT_BYTES:
            raise MaintenanceError(
                f"a document may have {MAX_DOCUMENT_BYTES} bytes, but this one has {len(data)}"
            )
        digest = digest_of(data)
        file = self._folder.document(digest)
        if not file.exists():
            write_private(file.with_suffix(".new"), data).replace(file)
            fsync_path(file.parent)
        return digest

    def record_recovery(self, template: Entry) -> None:
        """Add an entry about bytes of an interrupted entry that a recovery has set aside, if there are any.

        Args:
            template: Entry whose actor, run, tool and time the new entry gets.
        """
        if self._torn is None:
            return
        subject, last = {"torn": digest_of(self._torn)}, self.state.last
        if last is None or dict(last.subject) != subject:  # if equal, an interrupted run recorded it
            counts = {"bytes": len(self._torn)}
            self.add(
                replace(template, event="ledger.recovered", outcome="done", subject=subject, counts=counts)
            )
        kept = self._folder.torn  # gets its final name after it is recorded
        if kept.exists():
            kept = kept.with_name(f"{kept.name}.{self.state.tree.size - 1}")
        (self._folder.path / _PENDING).replace(kept)
        fsync_path(self._folder.path)
        self._torn = None

    def _is_current(self, state: State) -> bool:
        """Whether head and size are those of ``state``. Only `verify` detects a line edited in place."""
        return (
            self._torn is None
            and _is_own(self._folder.new)
            and self._folder.read_note() == state.note
            and os.fstat(self._entries).st_size == state.size
        )

    def _read(self) -> State:
        """Read the state of the ledger; unless ``edge`` proves that the last entry is complete, repair it."""
        folder, key = self._folder, self._folder.read_key()
        if key != self._signer.key:
            raise LedgerSignerError(f"the ledger belongs to {key}, but the signer is {self._signer.key}")
        note = folder.read_note()
        try:
            head = open_checkpoint(note, key)
        except NoteError as error:
            raise LedgerTamperedError(f"the checkpoint of {folder.path} is not valid: {error}") from None
        size = os.fstat(self._entries).st_size
        is_whole = self._torn is None and _is_own(folder.new)
        tree = _read_edge(folder, head, size) if is_whole else None
        if tree is None:
            tree = recover(folder, head, key)
            self._torn = pending(folder)
            folder.edge.unlink(missing_ok=True)  # an edge would say that the new entry is complete
            os.fsync(self._entries)  # an interrupted recovery may have truncated them
            folder.new.unlink(missing_ok=True)
            self._make_new()
            note, size = folder.read_note(), os.fstat(self._entries).st_size
            head = Checkpoint.of(key.name, tree)
            _keep_edge(folder, tree, size)
        return State(note, head, tree, size, _read_last(self._entries, tree.size))

    def _make_new(self) -> None:
        """Create an empty `checkpoint.new`; fsync the folder, so that the last rename persists, too."""
        with opened(self._folder.new, _WRITE | os.O_CREAT | os.O_EXCL):
            fsync_path(self._folder.path)


def _keep_edge(folder: Folder, tree: Tree, size: int) -> None:
    """Write the file ``edge``: hashes of the tree, and ``size``, the length of the file of entries."""
    edge = [base64.b64encode(node).decode() for node in tree.edge]
    data = json.dumps({"size": tree.size, "bytes": size, "edge": edge}).encode()
    with suppress(OSError), opened(folder.edge, _WRITE | os.O_CREAT) as descriptor:
        if os.fstat(descriptor).st_nlink == 1:  # do not write through a hard link to another file
            os.write(descriptor, data)  # over a longer edge: the rest is not read


def _read_edge(folder: Folder, checkpoint: Checkpoint, size: int) -> Tree | None:
    """Return the hash tree if the file ``edge`` proves, by the head, that the last entry is complete."""
    try:
        with open_regular(folder.edge) as stream:
            found, _ = decode(stream.read(_MAX_EDGE_BYTES).decode("ascii"))
        edge = [base64.b64decode(node, validate=True) for node in found["edge"]]
        tree = Tree.from_edge(checkpoint.size, edge)
        if found["bytes"] == size and tree.root() == checkpoint.root:
            return tree
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # missing, torn or edited
        pass
    return None


def _read_last(entries: int, size: int) -> Entry | None:
    if not size:
        return None
    start = max(0, os.fstat(entries).st_size - MAX_ENTRY_BYTES - 2)
    line = os.pread(entries, MAX_ENTRY_BYTES + 2, start)[:-1].rpartition(b"\n")[2]
    try:
        return Entry(**read_members(line, size - 1))
    except LedgerTamperedError as error:
        raise LedgerTamperedError(f"the last entry is not valid: {error}") from None


def _is_own(file: Path) -> bool:
    """Whether a file can be overwritten safely: it is a regular file without further hard links."""
    with suppress(FileNotFoundError):
        status = file.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return False


def _append(entries: int, data: bytes) -> None:
    size = os.fstat(entries).st_size
    try:
        _write(entries, data)
    except OSError:
        # If the disk is full, remove the part that was written; if this fails, the next writer removes it.
        os.ftruncate(entries, size)
        os.fsync(entries)
        raise


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


# --- recovery -------------------------------------------------------------------------------------


def recover(folder: Folder, checkpoint: Checkpoint, key: VerifierKey) -> Tree:
    """Check the entries of a locked ledger against its head; complete or cut off a partial entry."""
    with open_regular(folder.entries) as stream:
        tree = Tree.of(read_lines(stream, checkpoint.size))
        whole = stream.tell()
        tail = stream.read(MAX_ENTRY_BYTES + 2)
    if tree.size < checkpoint.size:
        raise LedgerTamperedError(
            f"the ledger has {tree.size} entries, but its checkpoint was signed for {checkpoint.size}"
        )
    if tree.root() != checkpoint.root:
        raise LedgerTamperedError(f"the {tree.size} entries of the ledger do not match its signed checkpoint")
    if not tail:
        return tree
    new = folder.read_next(key, tree.size, tail)
    if new is None:
        raise LedgerTamperedError(
            f"{folder.entries} has lines after the {checkpoint.size} entries of its checkpoint"
        )
    line, newline, rest = tail.partition(b"\n")
    longer = tree.copy()
    longer.add(line)
    if newline and not rest and longer.root() == new.root:
        fsync_path(folder.entries)
        folder.new.replace(folder.checkpoint)
        fsync_path(folder.path)
        return longer
    known = pending(folder) or b""
    # If interrupted before the tail is cut off, this runs again with the same tail.
    write_private(folder.path / _PENDING, known if known.endswith(tail) else known + tail)
    fsync_path(folder.path)
    os.truncate(folder.entries, whole)
    fsync_path(folder.entries)
    return tree


def pending(folder: Folder) -> bytes | None:
    """Return the bytes that a recovery has cut off and not yet recorded; raise if they exceed 1 MiB."""
    file = folder.path / _PENDING
    try:
        with open_regular(file) as stream:
            data = stream.read(_MAX_PENDING + 1)
    except FileNotFoundError:
        return None
    if len(data) > _MAX_PENDING:
        raise LedgerTamperedError(f"{file} has over {_MAX_PENDING} bytes")
    return data
