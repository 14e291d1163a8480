"""Writer: adds entries to a ledger, in an order that a crash at any point leaves whole or shows.

1. The next head is signed over the tree with the new entry, and written to `checkpoint.new`.
2. The entry is added to the entries.
3. `checkpoint.new` is renamed to `checkpoint`, and an empty one is created for the entry after this.

Each step is on the disk before the next begins: three calls of fsync, since the name of `checkpoint.new` is
there from the entry before. `edge` is written last: if it is the edge of the checkpoint, all three steps were
completed. `sealpoint.evidence.recovery` repairs what a crash left.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sealpoint.errors import EntryError, LedgerSignerError, LedgerTamperedError, NoteError
from sealpoint.evidence import recovery
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint
from sealpoint.evidence.entry import MAX_BYTES, Entry
from sealpoint.evidence.folder import MAX_DOCUMENT_BYTES, Folder, digest_of, open_regular
from sealpoint.evidence.note import VerifierKey
from sealpoint.evidence.signer import Signer
from sealpoint.keys.files import fsync_path, require_unshared, write_private
from sealpoint.merkle import Tree

_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO does not wait
_MAX_EDGE_BYTES: Final = 1 << 16
_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class State:
    """A ledger between two entries.

    Attributes:
        note: The head as it is stored, signed.
        head: The head.
        tree: The tree over the entries.
        size: Of the entries, in bytes.
        last: The last entry, if there is one.
    """

    note: bytes
    head: Checkpoint
    tree: Tree
    size: int
    last: Entry | None


class Writer:
    """Adds entries to a ledger that is locked.

    Attributes:
        state: The ledger as it is now.
    """

    def __init__(self, folder: Folder, signer: Signer, entries: int, state: State | None) -> None:
        """Read the head, and check that it is one of the signer, over these entries.

        Args:
            folder: The files.
            signer: Signs the heads.
            entries: Descriptor of the entries, which holds the lock.
            state: What this process left, if it has added an entry. A command adds one when it begins and one
                when it ends: if head and size are still the same, nothing is read or verified again, which
                would take a third of the time.
        """
        require_unshared(folder.path)
        self._folder, self._signer, self._entries = folder, signer, entries
        self._torn = recovery.pending(folder)
        self.state = state if state is not None and self._is_current(state) else self._read()

    def add(self, entry: Entry) -> Checkpoint:
        """Add an entry, which gets the next number. When this returns, it is on the disk.

        Raises:
            EntryError: If it is too long.
            StoppedError: If it cannot be written; then it is not part of the ledger, or will be completed.
            KeyRingError: If the signing key is not available.
        """
        tree = self.state.tree.copy()
        entry = replace(entry, seq=tree.size)
        line = entry.line()
        tree.add(line)
        head = Checkpoint.of(self._signer.key.name, tree)
        note = head.sign(self._signer)
        _rewrite(self._folder.new, note)
        _append(self._entries, line + b"\n")
        self._folder.new.replace(self._folder.checkpoint)
        self._make_new()
        self.state = State(note, head, tree, self.state.size + len(line) + 1, entry)
        _keep_edge(self._folder, tree, self.state.size)
        return head

    def add_document(self, data: bytes) -> str:
        """Write a document, and return the name by which an entry refers to it.

        Raises:
            EntryError: If it has over 256 MiB.
            StoppedError: If it cannot be written.
        """
        if len(data) > MAX_DOCUMENT_BYTES:
            raise EntryError(f"a document has at most {MAX_DOCUMENT_BYTES} bytes, and this has {len(data)}")
        digest = digest_of(data)
        file = self._folder.document(digest)
        if not file.exists():
            write_private(file.with_suffix(".new"), data).replace(file)
            fsync_path(file.parent)
        return digest

    def record_recovery(self, template: Entry) -> None:
        """Record the rest of an interrupted entry that a recovery has set aside, if there is one."""
        if self._torn is None:
            return
        subject, last = {"torn": digest_of(self._torn)}, self.state.last
        if last is None or dict(last.subject) != subject:  # else recorded, and interrupted after that
            counts = {"bytes": len(self._torn)}
            self.add(
                replace(template, event="ledger.recovered", outcome="done", subject=subject, counts=counts)
            )
        recovery.name_torn(self._folder, self.state.tree.size)
        self._torn = None

    def _is_current(self, state: State) -> bool:
        """Whether nothing was written since; a line that was altered in place is found by `verify` alone."""
        return (
            self._torn is None
            and _is_own(self._folder.new)
            and self._folder.read_note() == state.note
            and os.fstat(self._entries).st_size == state.size
        )

    def _read(self) -> State:
        """Read the ledger; first repair what a crash left, unless the edge shows that there was none."""
        folder, key = self._folder, self._folder.read_key()
        if key != self._signer.key:
            raise LedgerSignerError(f"the ledger belongs to {key}, and the signer is {self._signer.key}")
        note = folder.read_note()
        head, size = self._open_head(note, key), os.fstat(self._entries).st_size
        is_whole = self._torn is None and _is_own(folder.new)
        tree = _read_edge(folder, head, size) if is_whole else None
        if tree is None:
            tree = self._recover(head, key)
            note, size = folder.read_note(), os.fstat(self._entries).st_size
            head = Checkpoint.of(key.name, tree)
            _keep_edge(folder, tree, size)
        return State(note, head, tree, size, _read_last(self._entries, tree.size))

    def _open_head(self, note: bytes, key: VerifierKey) -> Checkpoint:
        try:
            return open_checkpoint(note, key)
        except NoteError as error:
            raise LedgerTamperedError(
                f"the checkpoint of {self._folder.path} is not valid: {error}"
            ) from None

    def _recover(self, head: Checkpoint, key: VerifierKey) -> Tree:
        """Check the entries, repair what a crash left, and prepare the files for `add`."""
        tree = recovery.recover(self._folder, head, key)
        self._torn = recovery.pending(self._folder)
        self._folder.edge.unlink(missing_ok=True)  # an edge says that what follows was completed
        os.fsync(self._entries)  # a recovery that was interrupted may have cut them
        self._folder.new.unlink(missing_ok=True)
        self._make_new()
        return tree

    def _make_new(self) -> None:
        """Create the file of the next head; its name and the rename before it are then on the disk."""
        os.close(os.open(self._folder.new, _WRITE | os.O_CREAT | os.O_EXCL, 0o600))
        fsync_path(self._folder.path)


def _keep_edge(folder: Folder, tree: Tree, size: int) -> None:
    """Write the edge of entries of ``size`` bytes. It is checked before use, and need not be on the disk."""
    edge = [base64.b64encode(node).decode() for node in tree.edge]
    data = json.dumps({"size": tree.size, "bytes": size, "edge": edge}).encode()
    with suppress(OSError):
        descriptor = os.open(folder.edge, _WRITE | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_nlink == 1:  # else it is another file too
                os.write(descriptor, data)  # over a longer one: what follows is not read
        finally:
            os.close(descriptor)


def _read_edge(folder: Folder, checkpoint: Checkpoint, size: int) -> Tree | None:
    """Return the tree if the last entry was completed: the edge is that of the checkpoint.

    Args:
        folder: The files.
        checkpoint: The head.
        size: How many bytes the entries have.
    """
    try:
        with open_regular(folder.edge) as stream:
            found, _ = _decode(stream.read(_MAX_EDGE_BYTES).decode("ascii"))
        edge = [base64.b64decode(node, validate=True) for node in found["edge"]]
        tree = Tree.from_edge(checkpoint.size, edge)
        if found["bytes"] == size and tree.root() == checkpoint.root:
            return tree
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # missing, torn or edited
        pass
    return None


def _read_last(entries: int, size: int) -> Entry | None:
    """Return the last of ``size`` entries, without reading the others.

    Raises:
        LedgerTamperedError: If the last line is not that entry.
    """
    if not size:
        return None
    start = max(0, os.fstat(entries).st_size - MAX_BYTES - 2)
    line = os.pread(entries, MAX_BYTES + 2, start)[:-1].rpartition(b"\n")[2]
    try:
        return Entry.parse(line, size - 1)
    except EntryError as error:
        raise LedgerTamperedError(f"the last entry is not valid: {error}") from None


def _is_own(file: Path) -> bool:
    """Whether a file can be written over: it is a regular one, and has no second name that changes too."""
    with suppress(FileNotFoundError):
        status = file.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return False


def _rewrite(file: Path, data: bytes) -> None:
    """Replace the contents of a file that exists."""
    descriptor = os.open(file, _WRITE | os.O_TRUNC)
    try:
        _write(descriptor, data)
    finally:
        os.close(descriptor)


def _append(entries: int, data: bytes) -> None:
    size = os.fstat(entries).st_size
    try:
        _write(entries, data)
    except OSError:
        # Without room for all of it nothing is added. If this fails too, the next writer cuts it off.
        os.ftruncate(entries, size)
        os.fsync(entries)
        raise


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)
