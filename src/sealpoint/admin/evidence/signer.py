"""Signers: what signs the head of a ledger. Its key is the ledger's own, and belongs to no agent.

Checkpoints: the size and the root of a ledger, as signed by its key.

    origin          name of the ledger, and of the key that signs
    size            number of entries, decimal
    root            base64 of the root, see `sealpoint.merkle`

Source: C2SP tlog-checkpoint.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealpoint.admin.evidence.note import VerifierKey, decode_base64, format_note, open_note, require_name
from sealpoint.crypto.signing import SIGNATURE_BYTES, SigningKey, is_signed
from sealpoint.errors import LedgerSignerError, NoteError, excerpt
from sealpoint.keys.files import fsync_path, write_private
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import CommandSource, FileSource, run_command
from sealpoint.keys.state import KEY_BYTES
from sealpoint.merkle import HASH_BYTES, Tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sealpoint.keys.entry import LedgerTable


_MAX_DIGITS: Final = 19  # 2^63 - 1


class KeySigner(SigningKey):
    """Signs with a private key that this process has read.

    Attributes:
        key: The key that verifies its signatures.
    """

    def __init__(self, origin: str, seed: bytes) -> None:
        super().__init__(seed)
        self.key: Final = VerifierKey(require_name(origin), self.public)


class CommandSigner:
    """Signs by a command, which reads the text and prints the signature, raw or in base64.

    Attributes:
        key: The key that verifies its signatures.
    """

    def __init__(self, argv: Sequence[str], key: VerifierKey) -> None:
        self._argv = tuple(argv)
        self.key: Final = key

    def sign(self, text: bytes, /) -> bytes:
        """Return a signature over ``text``, 64 bytes."""
        signature = run_command(self._argv, text=text)
        if len(signature) != SIGNATURE_BYTES:
            with suppress(ValueError):
                signature = base64.b64decode(signature.strip(), validate=True)
        if not is_signed(self.key.public, signature, text):
            raise LedgerSignerError(f"the command that signs printed no signature of {self.key}")
        return signature


Signer = KeySigner | CommandSigner


def open_signer(table: LedgerTable, key: VerifierKey | None) -> Signer:
    """Return the signer that a ring file names."""
    source = table.signer
    if source is None:
        raise LedgerSignerError(
            "[ledger] of the ring file names no signer",
            hint='add signer = { file = "ledger.key" } to it, as the account that may read the signing key',
        )
    if isinstance(source, CommandSource):
        if key is None:
            raise LedgerSignerError(
                "the key of the command that signs is not known",
                hint="give its public key: sealpoint ledger init --vkey NAME+ID+KEY",
            )
        return CommandSigner(source.argv, key)
    material = parse_material(source.read(table.base), f"signer {source.location}")
    signer = KeySigner(table.origin, material)
    if key is not None and key != signer.key:
        raise LedgerSignerError(f"the ledger belongs to {key}, and the signer is {signer.key}")
    return signer


def make_signing_key(table: LedgerTable) -> Path | None:
    """Write a new signing key to the file that a ring file names, if it names a file that does not exist."""
    if not isinstance(table.signer, FileSource):
        return None
    file = table.base / table.signer.location
    if os.path.lexists(file):
        return None
    write_private(file, base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
    fsync_path(file.parent)
    return file


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
    """Return a checkpoint that a key has signed."""
    checkpoint = Checkpoint.parse(open_note(note, key))
    if checkpoint.origin != key.name:
        raise NoteError(f"the checkpoint is of {excerpt(checkpoint.origin)}, and the key of {key.name}")
    return checkpoint


def read_pin(data: bytes, key: VerifierKey) -> Checkpoint:
    """Return a pin: an earlier checkpoint as a file, or as the one line that commands print.

    The line is not signed: it is worth as much as the place where it was kept.
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
    """Return a number of decimal digits without a leading zero."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS or (text[0] == "0" and text != "0"):
        raise NoteError(f"{excerpt(text)} is not a number of entries")
    return int(text)
