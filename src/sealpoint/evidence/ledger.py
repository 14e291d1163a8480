"""Ledger: adds entries, in an order that a crash at any point leaves whole or shows.

1. `checkpoint.new` is signed over the tree with the new entry, and written.
2. The entry is added to the entries.
3. `checkpoint.new` is renamed to `checkpoint`.

Each step is on the disk before the next begins. `sealpoint.evidence.recovery` repairs what a crash left.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from sealpoint.errors import (
    EntryError,
    HeldError,
    LedgerSignerError,
    LedgerTamperedError,
    NoteError,
    OutputExistsError,
    SealpointError,
)
from sealpoint.errors.maintenance import stopped_by
from sealpoint.evidence import recovery
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint
from sealpoint.evidence.entry import MAX_BYTES, Entry
from sealpoint.evidence.folder import Folder, digest_of
from sealpoint.evidence.note import VerifierKey
from sealpoint.evidence.signer import Signer
from sealpoint.keys.files import fsync_path, require_unshared, write_private
from sealpoint.keys.lock import holding
from sealpoint.merkle import Tree

LOCK_SECONDS: Final = 30.0
"""How long a writer waits for another one, which needs about a millisecond."""

_RETRY_SECONDS: Final = 0.005
_HINT: Final = "make room, or let this account write to the folder: recorded commands are refused until then"


class Ledger:
    """A ledger that this account signs for."""

    def __init__(self, folder: Path, signer: Signer) -> None:
        """Open a ledger. Nothing is read yet.

        Args:
            folder: Its folder.
            signer: Signs its checkpoints.
        """
        self.folder: Final = Folder(folder)
        self.signer: Final = signer

    @classmethod
    def create(cls, folder: Path, signer: Signer, entry: Entry) -> Checkpoint:
        """Create a ledger with its first entry.

        Args:
            folder: Its folder, which is made if it is missing.
            signer: Signs its checkpoints.
            entry: The first entry.

        Returns:
            The signed head.

        Raises:
            OutputExistsError: If a ledger with an entry is there already.
            StoppedError: If it cannot be written.
        """
        ledger = cls(folder, signer)
        files = ledger.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            require_unshared(folder)
            with _locked(files.entries):
                require_new(folder)
                files.documents.mkdir(mode=0o700, exist_ok=True)
                write_private(files.vkey, f"{signer.key}\n".encode())
                write_private(files.entries, b"")
                empty = Checkpoint.of(signer.key.name, Tree())
                write_private(files.checkpoint, empty.sign(signer))
                fsync_path(folder)
                fsync_path(folder.parent)
        except OSError as error:
            raise _refused(error, folder) from None
        with ledger.writing(entry) as writer:
            return writer.add(entry)

    @contextmanager
    def writing(self, template: Entry) -> Iterator[Writer]:
        """Lock a ledger to add entries; first repair what a crash has left.

        Args:
            template: An entry whose actor, run, tool and time an entry about a recovery has.

        Raises:
            LedgerMissingError: If there is no ledger.
            LedgerTamperedError: If the entries are not those of the checkpoint.
            LedgerSignerError: If the signer is not the ledger's.
            HeldError: If another run holds it for 30 seconds.
            StoppedError: If it cannot be written.
        """
        self.folder.require()
        with _locked(self.folder.entries):
            try:
                writer = Writer(self.folder, self.signer)
                writer.record_recovery(template)
                yield writer
            except OSError as error:
                raise _refused(error, self.folder.path) from None


class Writer:
    """Adds entries to a ledger that is locked.

    Attributes:
        checkpoint: The head.
        last: The last entry, if there is one.
    """

    def __init__(self, folder: Folder, signer: Signer) -> None:
        """Read the head, and check that it is one of the signer, over these entries."""
        require_unshared(folder.path)
        self._folder, self._signer = folder, signer
        key = folder.read_key()
        if key != signer.key:
            raise LedgerSignerError(f"the ledger belongs to {key}, and the signer is {signer.key}")
        self.checkpoint = _open_head(folder, key)
        tree = _read_edge(folder, self.checkpoint)
        if tree is None:
            tree = recovery.recover(folder, self.checkpoint, key)
            self.checkpoint = Checkpoint.of(key.name, tree)
            self._keep_edge(tree)
        self._tree = tree
        self.last = _read_last(folder, tree.size)

    def add(self, entry: Entry) -> Checkpoint:
        """Add an entry, which gets the next number. When this returns, it is on the disk.

        Raises:
            EntryError: If it is too long.
            StoppedError: If it cannot be written; then it is not part of the ledger, or will be completed.
            KeyRingError: If the signing key is not available.
        """
        entry = replace(entry, seq=self._tree.size)
        line = entry.line()
        tree = self._tree.copy()
        tree.add(line)
        head = Checkpoint.of(self._signer.key.name, tree)
        write_private(self._folder.new, head.sign(self._signer))
        fsync_path(self._folder.path)  # otherwise a power failure could leave the entry, and not this
        _append(self._folder.entries, line + b"\n")
        self._folder.new.replace(self._folder.checkpoint)
        fsync_path(self._folder.path)
        self._tree, self.checkpoint, self.last = tree, head, entry
        self._keep_edge(tree)
        return head

    def add_document(self, data: bytes) -> str:
        """Write a document, and return the name by which an entry refers to it.

        Raises:
            StoppedError: If it cannot be written.
        """
        digest = digest_of(data)
        file = self._folder.document(digest)
        if not file.exists():
            write_private(file.with_suffix(".new"), data).replace(file)
            fsync_path(file.parent)
        return digest

    def record_recovery(self, template: Entry) -> None:
        """Record the rest of an interrupted entry that a recovery has set aside, if there is one."""
        torn = recovery.pending(self._folder)
        if torn is None:
            return
        subject = {"torn": digest_of(torn)}
        if (
            self.last is None or dict(self.last.subject) != subject
        ):  # else recorded, and interrupted after that
            counts = {"bytes": len(torn)}
            self.add(
                replace(template, event="ledger.recovered", outcome="done", subject=subject, counts=counts)
            )
        recovery.name_torn(self._folder, self._tree.size)

    def _keep_edge(self, tree: Tree) -> None:
        """Write the edge. It is checked before it is used, so that it need not be on the disk."""
        edge = [base64.b64encode(node).decode() for node in tree.edge]
        size = self._folder.entries.stat().st_size
        data = json.dumps({"size": tree.size, "bytes": size, "edge": edge}).encode()
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._folder.edge, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)


def require_new(folder: Path) -> None:
    """Check that a folder has no ledger with an entry.

    Raises:
        OutputExistsError: If it has one.
    """
    entries = Folder(folder).entries
    if entries.exists() and entries.stat().st_size:
        hint = "nothing is overwritten; name a new folder in [ledger] dir"
        raise OutputExistsError(f"{folder} has a ledger already", hint=hint)


def _open_head(folder: Folder, key: VerifierKey) -> Checkpoint:
    try:
        return open_checkpoint(folder.read_note(), key)
    except NoteError as error:
        raise LedgerTamperedError(f"the checkpoint of {folder.path} is not valid: {error}") from None


def _read_edge(folder: Folder, checkpoint: Checkpoint) -> Tree | None:
    """Return the tree, if the edge is that of the checkpoint and nothing follows the entries it covers."""
    try:
        found = json.loads(folder.edge.read_bytes())
        edge = [base64.b64decode(node, validate=True) for node in found["edge"]]
        tree = Tree.from_edge(checkpoint.size, edge)
        if found["bytes"] == folder.entries.stat().st_size and tree.root() == checkpoint.root:
            return tree
    except (OSError, ValueError, KeyError, TypeError):  # missing, torn or edited: it is made anew
        pass
    return None


def _read_last(folder: Folder, size: int) -> Entry | None:
    """Return the last of ``size`` entries, without reading the others.

    Raises:
        LedgerTamperedError: If the last line is not that entry.
    """
    if not size:
        return None
    with folder.entries.open("rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, end - MAX_BYTES - 2))
        line = stream.read()[:-1].rpartition(b"\n")[2]
    try:
        return Entry.parse(line, size - 1)
    except EntryError as error:
        raise LedgerTamperedError(f"the last entry is not valid: {error}") from None


def _append(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError:
            # Without room for all of it nothing is added. If this fails too, the next writer cuts it off.
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lock a file; wait for another writer."""
    deadline = time.monotonic() + LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(holding(file))
                break
            except HeldError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        yield


def _refused(error: OSError, folder: Path) -> OSError:
    """Return the error for what the system refused; an error of sealpoint is returned as it is."""
    if isinstance(error, SealpointError):
        return error
    return stopped_by(error, f"the ledger in {folder} cannot be written", _HINT)
