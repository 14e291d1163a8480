"""The folder of a ledger: its files, and how they are read.

    entries.jsonl       one entry a line, see `sealpoint.evidence.entry`
    checkpoint          the head, signed, see `sealpoint.evidence.checkpoint`
    checkpoint.new      the next head, while an entry is added; otherwise empty
    vkey                the key that verifies, for convenience: a reader has it from another source
    edge                the edge of the tree, so that adding needs no reading; it may be deleted
    documents/          what commands found, each file named after its SHA-256
    entries.torn        the rest of an entry whose writing was interrupted

Only `sealpoint.evidence.writer` and `recovery` write in it, while `ledger` has it locked. An attacker may
write in it too: a file is read only if it is a regular one, and not beyond the length that it can have.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from sealpoint.errors import LedgerMissingError, LedgerTamperedError, NoteError, SignatureError
from sealpoint.evidence import entry, note
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint
from sealpoint.evidence.note import VerifierKey

MAX_DOCUMENT_BYTES: Final = 1 << 28
_CHUNK_BYTES: Final = 1 << 20
_LINE_BYTES: Final = entry.MAX_BYTES + 1  # with its newline


class Folder:
    """The files of a ledger.

    Attributes:
        path: The folder.
        entries: The entries.
        checkpoint: The signed head.
        new: The next head, while an entry is added; otherwise empty.
        vkey: The verifier key.
        edge: The edge of the tree.
        torn: The rest of an interrupted entry.
        documents: The folder of documents.
    """

    def __init__(self, path: Path) -> None:
        """Name the files; none is read."""
        self.path: Final = path
        self.entries: Final = path / "entries.jsonl"
        self.checkpoint: Final = path / "checkpoint"
        self.new: Final = path / "checkpoint.new"
        self.vkey: Final = path / "vkey"
        self.edge: Final = path / "edge"
        self.torn: Final = path / "entries.torn"
        self.documents: Final = path / "documents"

    def document(self, digest: str) -> Path:
        """Return the file of a document, named as an entry names it."""
        return self.documents / f"{digest.removeprefix('sha256:')}.json"

    def require(self) -> None:
        """Check that there is a ledger.

        Raises:
            LedgerMissingError: If there is none.
        """
        if not (self.checkpoint.is_file() or self.entries.is_file()):
            raise LedgerMissingError(f"there is no ledger in {self.path}")

    def require_documents(self) -> None:
        """Check that there is a folder for documents.

        Raises:
            LedgerTamperedError: If there is none, or a link in its place.
        """
        if self.documents.is_symlink() or not self.documents.is_dir():
            raise LedgerTamperedError(f"{self.documents} is not a folder, as it is in each ledger")

    def read_key(self) -> VerifierKey:
        """Return the verifier key beside the entries, which proves nothing to a reader.

        Raises:
            LedgerMissingError: If the file is missing.
            LedgerTamperedError: If it is not a regular file.
            NoteError: If it contains no verifier key.
        """
        return VerifierKey.parse(self._read(self.vkey).decode(errors="replace").strip())

    def read_note(self) -> bytes:
        """Return the signed head as it is stored.

        Raises:
            LedgerMissingError: If it is missing.
            LedgerTamperedError: If it is not a regular file.
        """
        return self._read(self.checkpoint)

    def read_new(self, key: VerifierKey) -> Checkpoint | None:
        """Return the next head, if it is there and is signed."""
        try:
            return open_checkpoint(self._read(self.new), key)
        except (LedgerMissingError, LedgerTamperedError, NoteError, SignatureError):
            return None

    def read_entries(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield the members of the first entries.

        Raises:
            EntryError: If one is not valid.
            LedgerTamperedError: If they are not in a regular file.
        """
        with open_regular(self.entries) as stream:
            for seq, line in enumerate(read_lines(stream, count)):
                yield entry.read_members(line, seq)

    def _read(self, file: Path) -> bytes:
        try:
            with open_regular(file) as stream:
                return stream.read(note.MAX_BYTES + 1)
        except FileNotFoundError:
            raise LedgerMissingError(f"there is no {file.name} in {self.path}") from None


def read_lines(stream: BinaryIO, count: int) -> Iterator[bytes]:
    """Yield at most ``count`` complete lines without their newlines. A longer one than an entry ends it."""
    for _ in range(count):
        line = stream.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            return
        yield line[:-1]


def open_regular(file: Path) -> BinaryIO:
    """Open a file of a ledger to read it.

    Raises:
        LedgerTamperedError: If it is not a regular file.
        OSError: If it cannot be opened.
    """
    try:
        # O_NONBLOCK: opening a FIFO waits for a writer. The checks use the descriptor: a path can change.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a symbolic link; a socket
            raise _not_regular(file) from None
        raise
    try:
        require_regular(file, descriptor)
    except LedgerTamperedError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def require_regular(file: Path, descriptor: int) -> None:
    """Check a file that is open.

    Raises:
        LedgerTamperedError: If it is not a regular file.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _not_regular(file)


def _not_regular(file: Path) -> LedgerTamperedError:
    return LedgerTamperedError(f"{file} is not a regular file, as each file of a ledger is")


def is_document(file: Path, digest: str) -> bool:
    """Whether a file is a document with this name. At most `MAX_DOCUMENT_BYTES` of it are read.

    Raises:
        LedgerTamperedError: If it is not a regular file.
        OSError: If it cannot be read.
    """
    found, left = sha256(), MAX_DOCUMENT_BYTES + 1
    with open_regular(file) as stream:
        while left and (data := stream.read(min(left, _CHUNK_BYTES))):
            found.update(data)
            left -= len(data)
    return left > 0 and f"sha256:{found.hexdigest()}" == digest


def digest_of(data: bytes) -> str:
    """Return the name of a document: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{sha256(data).hexdigest()}"
