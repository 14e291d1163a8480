"""Ledger: creates one, and locks it for a writer."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sealpoint.errors import HeldError, OutputExistsError, SealpointError
from sealpoint.errors.maintenance import stopped_by
from sealpoint.evidence.checkpoint import Checkpoint
from sealpoint.evidence.entry import Entry
from sealpoint.evidence.folder import Folder, require_regular
from sealpoint.evidence.signer import Signer
from sealpoint.evidence.writer import State, Writer
from sealpoint.keys.files import fsync_path, require_unshared, write_private
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
        self._state: State | None = None

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
            with _locked(files.entries, os.O_CREAT):
                require_new(folder)
                files.documents.mkdir(mode=0o700, exist_ok=True)
                write_private(files.vkey, f"{signer.key}\n".encode())
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
        try:
            with _locked(self.folder.entries) as entries:
                writer = Writer(self.folder, self.signer, entries, self._state)
                writer.record_recovery(template)
                yield writer
                self._state = writer.state
        except OSError as error:
            raise _refused(error, self.folder.path) from None


def require_new(folder: Path) -> None:
    """Check that a folder has no ledger with an entry.

    Raises:
        OutputExistsError: If it has one.
    """
    entries = Folder(folder).entries
    if entries.exists() and entries.stat().st_size:
        hint = "nothing is overwritten; name a new folder in [ledger] dir"
        raise OutputExistsError(f"{folder} has a ledger already", hint=hint)


@contextmanager
def _locked(entries: Path, create: int = 0) -> Iterator[int]:
    """Open and lock the entries; wait for another writer. The lock ends with the process.

    Unlike a database, the entries themselves can be locked: no library does so.
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
        # Else a backup was restored meanwhile.
        if os.path.samestat(os.fstat(descriptor), entries.lstat()):
            return descriptor
    os.close(descriptor)
    return None


def _refused(error: OSError, folder: Path) -> OSError:
    """Return the error for what the system refused; an error of sealpoint is returned as it is."""
    if isinstance(error, SealpointError):
        return error
    return stopped_by(error, f"the ledger in {folder} cannot be written", _HINT)
