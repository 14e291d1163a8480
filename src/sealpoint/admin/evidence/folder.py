"""The folder of a ledger: its entries, its files, and functions to read them.

    entries.jsonl       one entry per line
    checkpoint          the signed head, see `sealpoint.admin.evidence.note`
    checkpoint.new      the next head, while an entry is added; otherwise empty
    vkey                the verifier key, for convenience: readers must get it from another source
    edge                hashes of the tree, so that adding an entry reads no entries; it may be deleted
    documents/          JSON files with details of commands, each named after its SHA-256
    entries.torn        the rest of an entry whose writing was interrupted

An entry is a line of ASCII JSON with sorted members. The line without its newline is a leaf of the hash tree:
readers hash the stored bytes, so JSON formatting does not matter. Entries contain no database values and no
key material; threads are named only by their HMACs under the index key.

Only the module `ledger` writes to the folder, with a lock. An attacker may also write there, so a file is
read only if it is regular, and only up to its maximum length.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Final

from sealpoint.admin.evidence import note
from sealpoint.admin.evidence.note import Checkpoint, VerifierKey, open_checkpoint
from sealpoint.errors import LedgerMissingError, LedgerTamperedError, MaintenanceError, NoteError, excerpt

VERSION: Final = 1
MAX_ENTRY_BYTES: Final = 65_535

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "actor": (dict,),
    "at": (str,),
    "counts": (dict,),
    "documents": (list,),
    "event": (str,),
    "exit": (int, type(None)),
    "outcome": (str,),
    "ring": (dict, type(None)),
    "run": (str,),
    "seq": (int,),
    "subject": (dict,),
    "tool": (str,),
    "v": (int,),
    "waived": (list,),
}
_NAMES: Final = list(_KINDS)
_SHAPES: Final = frozenset(product(*_KINDS.values()))
decode: Final = json.JSONDecoder().raw_decode  # skips white space checks: twice as fast

CHANGES: Final = ("key.", "ring.create")  # prefixes of events that change the ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A ledger entry.

    Attributes:
        seq: Number of the entry, from 0.
        at: Time when the entry was written: UTC, ISO 8601.
        run: UUID of the run of a command; all entries of the run, and its JSON result, have this UUID.
        event: Name of the event, e.g. ``key.promote``.
        outcome: ``begun``, or at the end ``done``, ``found``, ``refused``, ``stopped`` or ``failed``.
        exit: Exit code of the command; ``None`` in a begin entry.
        actor: ``account``, ``uid`` and ``host`` of the command, as the operating system reports them.
        tool: Name and version of the program.
        ring: ``digest`` of the ring's keys, id of the ``active`` key; ``None`` if the ring cannot be read.
        subject: What the event is about, such as the database and the key.
        counts: The counts in the command's result.
        waived: Names of the checks that options of the command waived.
        documents: SHA-256 digests of files in ``documents``: ``sha256:`` and 64 hexadecimal digits.
        v: Version of the entry's format.
    """

    seq: int = 0
    at: str
    run: str
    event: str
    outcome: str
    exit: int | None = None
    actor: Mapping[str, Any]
    tool: str
    ring: Mapping[str, Any] | None
    subject: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    waived: Sequence[str] = ()
    documents: Sequence[str] = ()
    v: int = VERSION

    def line(self) -> bytes:
        """Return the entry as a line of ASCII JSON, without a newline.

        Raises:
            MaintenanceError: If the line has over 65,535 bytes.
        """
        members = {name: getattr(self, name) for name in _NAMES}
        text = json.dumps(members, sort_keys=True, separators=(",", ":"), allow_nan=False)
        if len(text) > MAX_ENTRY_BYTES:
            raise MaintenanceError(
                f"a ledger entry may have {MAX_ENTRY_BYTES} bytes, but this one would have {len(text)}",
                hint="name fewer databases in one command",
            )
        return text.encode("ascii")


def read_members(line: bytes, seq: int) -> dict[str, Any]:
    """Parse the line of a ledger entry, and return the JSON members.

    Args:
        line: Line of the entry, without a newline.
        seq: Expected number of the entry.

    Raises:
        LedgerTamperedError: If the line is not an entry of this version, or has another number.
    """
    if len(line) > MAX_ENTRY_BYTES:
        raise LedgerTamperedError(f"line {seq} has over {MAX_ENTRY_BYTES} bytes")
    try:
        members, end = decode(line.decode("ascii"))
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        members, end = None, -1
    if end != len(line):
        raise LedgerTamperedError(f"line {seq} is not ASCII JSON")
    if not isinstance(members, dict) or type(members.get("v")) is not int or members["v"] != VERSION:
        raise LedgerTamperedError(
            f"line {seq} is not an object of version {VERSION}, the only one that this release reads"
        )
    # Names and types are compared at once, for speed: a ledger has many lines.
    if list(members) != _NAMES or tuple(map(type, members.values())) not in _SHAPES:
        raise LedgerTamperedError(
            f"line {seq} does not have the members of an entry, sorted and with the right types"
        )
    if members["seq"] != seq:
        raise LedgerTamperedError(f"line {seq} has the number {members['seq']}")
    return members


MAX_DOCUMENT_BYTES: Final = 1 << 28
_CHUNK_BYTES: Final = 1 << 20
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
_LINE_BYTES: Final = MAX_ENTRY_BYTES + 1  # including the newline


class Folder:
    """The files of a ledger."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.entries: Final = path / "entries.jsonl"
        self.checkpoint: Final = path / "checkpoint"
        self.new: Final = path / "checkpoint.new"
        self.vkey: Final = path / "vkey"
        self.edge: Final = path / "edge"
        self.torn: Final = path / "entries.torn"
        self.documents: Final = path / "documents"

    def document(self, digest: str) -> Path:
        """Return the path of a file in ``documents``, from its digest in a ledger entry."""
        return self.documents / f"{digest.removeprefix('sha256:')}.json"

    def has_document(self, digest: str) -> bool:
        """Whether the file with this digest is in ``documents``, and its contents match the digest."""
        if not _DIGEST.fullmatch(digest):  # it could name a file outside of the folder
            return False
        found, left = sha256(), MAX_DOCUMENT_BYTES + 1
        with suppress(OSError, LedgerTamperedError), open_regular(self.document(digest)) as stream:
            while left and (data := stream.read(min(left, _CHUNK_BYTES))):
                found.update(data)
                left -= len(data)
            return left > 0 and f"sha256:{found.hexdigest()}" == digest
        return False

    def read_document(self, digest: str) -> bytes:
        """Return the file with this digest in ``documents``; raise if its contents have another digest."""
        if _DIGEST.fullmatch(digest):
            with suppress(OSError, LedgerTamperedError), open_regular(self.document(digest)) as stream:
                if digest_of(data := stream.read(MAX_DOCUMENT_BYTES)) == digest:
                    return data
        raise LedgerTamperedError(f"document {excerpt(digest)} is missing or was changed")

    def require(self) -> None:
        """Raise LedgerMissingError if the folder has no ledger."""
        if not (self.checkpoint.is_file() or self.entries.is_file()):
            raise LedgerMissingError(f"there is no ledger in {self.path}")

    def read_key(self) -> VerifierKey:
        """Return the verifier key in the folder. Readers must not trust it: an attacker may replace it."""
        return VerifierKey.parse(self._read(self.vkey).decode(errors="replace").strip())

    def read_note(self) -> bytes:
        """Return the stored bytes of the signed head."""
        return self._read(self.checkpoint)

    def read_next(self, key: VerifierKey, size: int, tail: bytes) -> Checkpoint | None:
        """Return the next head, if ``tail`` may be the rest of an entry whose writer was interrupted.

        A writer signs the next head, of a ledger with one more entry, before it begins to append the entry.
        """
        try:
            head = open_checkpoint(self._read(self.new), key)
        except (LedgerMissingError, LedgerTamperedError, NoteError):
            return None
        return head if head.size == size + 1 and len(tail) <= _LINE_BYTES else None

    def read_entries(self, count: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield the first ``count`` ledger entries, each as its line and its JSON members."""
        with open_regular(self.entries) as stream:
            for seq, line in enumerate(read_lines(stream, count)):
                yield line, read_members(line, seq)

    def _read(self, file: Path) -> bytes:
        try:
            with open_regular(file) as stream:
                return stream.read(note.MAX_BYTES + 1)
        except FileNotFoundError:
            raise LedgerMissingError(f"there is no {file.name} in {self.path}") from None


def read_lines(stream: BinaryIO, count: int) -> Iterator[bytes]:
    """Yield at most ``count`` complete lines without newlines; stop at a line too long for an entry."""
    for _ in range(count):
        line = stream.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            return
        yield line[:-1]


def open_regular(file: Path) -> BinaryIO:
    """Open a file of a ledger for reading; raise LedgerTamperedError if it is not a regular file."""
    try:
        # O_NONBLOCK: do not wait for the writer of a FIFO. The descriptor is checked, as the path may change.
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
    """Raise LedgerTamperedError if an open file is not a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _not_regular(file)


def _not_regular(file: Path) -> LedgerTamperedError:
    return LedgerTamperedError(f"{file} is not a regular file, as every file of a ledger must be")


def digest_of(data: bytes) -> str:
    """Return the digest of a file in ``documents``: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{sha256(data).hexdigest()}"
