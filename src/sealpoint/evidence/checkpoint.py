"""Checkpoints: the size and the root of a ledger, as signed by its key.

    origin          name of the ledger, and of the key that signs
    size            number of entries, decimal
    root            base64 of the root, see `sealpoint.merkle`

Source: C2SP tlog-checkpoint.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sealpoint.errors import NoteError, excerpt
from sealpoint.evidence.note import VerifierKey, decode_base64, format_note, open_note, require_name
from sealpoint.merkle import HASH_BYTES, Tree

if TYPE_CHECKING:
    from sealpoint.evidence.signer import Signer

_MAX_DIGITS: Final = 19  # 2^63 - 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a ledger.

    Attributes:
        origin: Name of the ledger.
        size: Number of entries.
        root: Root over them, 32 bytes.
    """

    origin: str
    size: int
    root: bytes

    @classmethod
    def of(cls, origin: str, tree: Tree) -> Checkpoint:
        """Return the head of a ledger with these entries."""
        return cls(origin, tree.size, tree.root())

    @property
    def text(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @property
    def line(self) -> str:
        """Origin, size and root on one line: a pin to keep elsewhere."""
        return self.text.strip().replace("\n", " ")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Parse the text of a checkpoint. Lines below the three are ignored, as its specification says.

        Raises:
            NoteError: If it is not the text of a checkpoint.
        """
        origin, size, root, *_ = [*text.split("\n"), "", "", ""]
        if not text.endswith("\n") or not root:
            raise NoteError("a checkpoint has three lines: origin, size and root")
        return cls(require_name(origin), parse_decimal(size), decode_base64(root, HASH_BYTES, "the root"))

    def sign(self, signer: Signer) -> bytes:
        """Return the checkpoint as a signed note.

        Raises:
            LedgerSignerError: If the signature is not one of the signer's key.
            KeyRingError: If the signing key is not available.
        """
        return format_note(self.text, signer.key, signer.sign(self.text.encode()))


def open_checkpoint(note: bytes, key: VerifierKey) -> Checkpoint:
    """Return a checkpoint that a key has signed.

    Raises:
        NoteError: If it is no checkpoint, or one of a ledger with another name.
        SignatureError: If the key has not signed it.
    """
    checkpoint = Checkpoint.parse(open_note(note, key))
    if checkpoint.origin != key.name:
        raise NoteError(f"the checkpoint is of {excerpt(checkpoint.origin)}, and the key of {key.name}")
    return checkpoint


def read_pin(data: bytes, key: VerifierKey) -> Checkpoint:
    """Return a pin: an earlier checkpoint as a file, or as the one line that commands print.

    The line is not signed: it is worth as much as the place where it was kept.

    Raises:
        NoteError: If it is neither, or is of a ledger with another name.
        SignatureError: If it is a file, and the key has not signed it.
    """
    lines = data.strip().split(b"\n")
    if len(lines) > 1:
        return open_checkpoint(data, key)
    words = lines[0].decode(errors="replace").split(" ")
    if len(words) != 3:
        raise NoteError("a pin is a checkpoint, or one line: ORIGIN SIZE ROOT")
    pin = Checkpoint.parse("\n".join([*words, ""]))
    if pin.origin != key.name:
        raise NoteError(f"the pin is of {excerpt(pin.origin)}, and the ledger is {key.name}")
    return pin


def parse_decimal(text: str) -> int:
    """Return a number of decimal digits without a leading zero.

    Raises:
        NoteError: If it is none, or is not below 10^19.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS or (text[0] == "0" and text != "0"):
        raise NoteError(f"{excerpt(text)} is not a number of entries")
    return int(text)
