"""The folder of a ledger: its files, and how they are read.

    entries.jsonl       one entry a line, see `sealpoint.evidence.entry`
    checkpoint          the head, signed, see `sealpoint.evidence.checkpoint`
    checkpoint.new      the next head, while an entry is added; otherwise empty
    vkey                the key that verifies, for convenience: a reader has it from another source
    edge                the edge of the tree, so that adding needs no reading; it may be deleted
    documents/          what commands found, each file named after its SHA-256
    entries.torn        the rest of an entry whose writing was interrupted

Only `sealpoint.evidence.writer` and `recovery` write in it, while `ledger` has it locked.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from sealpoint.errors import LedgerMissingError, NoteError, SignatureError
from sealpoint.evidence import entry, note
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint
from sealpoint.evidence.note import VerifierKey

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

    def read_key(self) -> VerifierKey:
        """Return the verifier key beside the entries, which proves nothing to a reader.

        Raises:
            LedgerMissingError: If the file is missing.
            NoteError: If it contains no verifier key.
        """
        return VerifierKey.parse(self._read(self.vkey).decode(errors="replace").strip())

    def read_note(self) -> bytes:
        """Return the signed head as it is stored.

        Raises:
            LedgerMissingError: If it is missing.
        """
        return self._read(self.checkpoint)

    def read_new(self, key: VerifierKey) -> Checkpoint | None:
        """Return the next head, if it is there and is signed."""
        try:
            return open_checkpoint(self._read(self.new), key)
        except (LedgerMissingError, NoteError, SignatureError):
            return None

    def read_entries(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield the members of the first entries.

        Raises:
            EntryError: If one is not valid.
        """
        with self.entries.open("rb") as stream:
            for seq, line in enumerate(read_lines(stream, count)):
                yield entry.read_members(line, seq)

    def _read(self, file: Path) -> bytes:
        try:
            with file.open("rb") as stream:
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


def digest_of(data: bytes) -> str:
    """Return the name of a document: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{sha256(data).hexdigest()}"
