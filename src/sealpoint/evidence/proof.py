"""Proofs that an entry is in a ledger, to be checked without the ledger.

    c2sp.org/tlog-proof@v1
    index           number of the entry, from 0
    hashes          base64, one a line, that of the sibling first
                    an empty line
    checkpoint      as the signer wrote it

The entry itself is not part of it: the reader has its line. Source: C2SP tlog-proof.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from sealpoint.errors import LedgerTamperedError, NoteError, excerpt
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint, parse_decimal
from sealpoint.evidence.folder import Folder, open_regular, read_lines
from sealpoint.evidence.note import VerifierKey, decode_base64
from sealpoint.merkle import HASH_BYTES, leaf_hash, make_inclusion_proof, root_of_proof

HEADER: Final = "c2sp.org/tlog-proof@v1"
MAX_HASHES: Final = 64


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof of inclusion.

    Attributes:
        index: Number of the entry, from 0.
        hashes: The hashes beside its path, 32 bytes each, that of the sibling first.
        checkpoint: The signed note.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    def __bytes__(self) -> bytes:
        lines = [HEADER, f"index {self.index}", *(base64.b64encode(one).decode() for one in self.hashes), ""]
        return "\n".join([*lines, ""]).encode() + self.checkpoint

    @classmethod
    def parse(cls, data: bytes) -> Proof:
        """Parse a proof. Nothing is verified; extra data of other tools is ignored.

        Raises:
            NoteError: If it is no proof.
        """
        head, separator, checkpoint = data.partition(b"\n\n")
        try:
            first, *lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise NoteError("the proof has other characters than ASCII") from None
        if first != HEADER or not separator:
            raise NoteError(f"a proof begins with {HEADER}, and this with {excerpt(first)}")
        if lines and lines[0].startswith("extra "):
            lines = lines[1:]
        if not lines or not lines[0].startswith("index ") or len(lines) > 1 + MAX_HASHES:
            raise NoteError("the proof does not say the index of an entry and its hashes")
        hashes = tuple(decode_base64(line, HASH_BYTES, "a hash of the proof") for line in lines[1:])
        return cls(parse_decimal(lines[0].removeprefix("index ")), hashes, checkpoint)

    def verify(self, line: bytes, key: VerifierKey) -> Checkpoint:
        """Return the checkpoint in which a line is an entry.

        Args:
            line: The line of the entry, without its newline.
            key: The ledger's verifier key, from a source that the reader trusts.

        Raises:
            NoteError: If the line is not the entry of this number, or the checkpoint is of another ledger.
            SignatureError: If the key has not signed the checkpoint.
        """
        checkpoint = open_checkpoint(self.checkpoint, key)
        try:
            root = root_of_proof(leaf_hash(line), self.index, checkpoint.size, self.hashes)
        except ValueError as error:
            raise NoteError(f"the proof is not one of this checkpoint: {error}") from None
        if root != checkpoint.root:
            hint = "compare the line, without its newline, and the number of the entry"
            raise NoteError(f"the line is not entry {self.index} of {checkpoint.origin}", hint=hint)
        return checkpoint


def make_proof(folder: Path, seq: int) -> tuple[bytes, Proof]:
    """Return the line of an entry, and the proof that it is in a ledger. The line is read as it is stored.

    Args:
        folder: Of the ledger.
        seq: Number of the entry, from 0.

    Raises:
        LedgerMissingError: If there is no ledger.
        LedgerTamperedError: If the entries are not those of the checkpoint.
        NoteError: If the ledger has no such entry, or its checkpoint is not valid.
    """
    files = Folder(folder)
    note, key = files.read_note(), files.read_key()
    checkpoint = open_checkpoint(note, key)
    if not 0 <= seq < checkpoint.size:
        hint = f"its entries are 0 to {checkpoint.size - 1}"
        raise NoteError(f"the ledger has no entry {seq}", hint=hint)
    with open_regular(files.entries) as stream:
        line = next(islice(read_lines(stream, checkpoint.size), seq, None), b"")
        stream.seek(0)
        try:
            hashes = make_inclusion_proof(read_lines(stream, checkpoint.size), seq, checkpoint.size)
            proof = Proof(seq, hashes, note)
            proof.verify(line, key)
        except (NoteError, ValueError):
            problem = f"entry {seq} cannot be proven: the entries are not those of the checkpoint"
            raise LedgerTamperedError(problem) from None
    return line, proof
