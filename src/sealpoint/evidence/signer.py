"""Signers: what signs the head of a ledger. Its key is the ledger's own, and belongs to no agent."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sealpoint.crypto.signing import SIGNATURE_BYTES, SigningKey, is_signed
from sealpoint.errors import LedgerSignerError
from sealpoint.evidence.note import VerifierKey, require_name
from sealpoint.keys.command import run_command
from sealpoint.keys.files import fsync_path, write_private
from sealpoint.keys.ids import KEY_BYTES
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import CommandSource, FileSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sealpoint.keys.ledgertable import LedgerTable


class Signer(Protocol):
    """Signs the checkpoints of a ledger."""

    @property
    def key(self) -> VerifierKey:
        """The key that verifies its signatures."""

    def sign(self, text: bytes, /) -> bytes:
        """Return a signature over ``text``, 64 bytes.

        Raises:
            LedgerSignerError: If it is not one of `key`.
            KeyRingError: If the signing key is not available.
        """


class KeySigner:
    """Signs with a private key that this process has read."""

    def __init__(self, origin: str, seed: bytes) -> None:
        """Make a signer.

        Args:
            origin: Name of the ledger.
            seed: The private key, 32 bytes.

        Raises:
            NoteError: If the origin is no name.
        """
        self._key = SigningKey(seed)
        self.key: Final = VerifierKey(require_name(origin), self._key.public)

    def sign(self, text: bytes, /) -> bytes:
        """Return a signature over ``text``, 64 bytes."""
        return self._key.sign(text)


class CommandSigner:
    """Signs by a command, which reads the text and prints the signature, raw or in base64."""

    def __init__(self, argv: Sequence[str], key: VerifierKey) -> None:
        """Make a signer.

        Args:
            argv: Program and arguments; no shell.
            key: The key that verifies its signatures.
        """
        self._argv = tuple(argv)
        self.key: Final = key

    def sign(self, text: bytes, /) -> bytes:
        """Return a signature over ``text``, 64 bytes.

        Raises:
            LedgerSignerError: If the command prints no signature, or one of another key.
            SourceError: If the command fails, or does not end in time.
        """
        signature = _parse_signature(run_command(self._argv, text=text))
        if signature is None or not is_signed(self.key.public, signature, text):
            raise LedgerSignerError(f"the command that signs printed no signature of {self.key}")
        return signature


def _parse_signature(output: bytes) -> bytes | None:
    if len(output) == SIGNATURE_BYTES:
        return output
    try:
        return base64.b64decode(output.strip(), validate=True)
    except ValueError:
        return None


def open_signer(table: LedgerTable, key: VerifierKey | None) -> Signer:
    """Return the signer that a ring file names.

    Args:
        table: What the ring file says.
        key: The ledger's verifier key, if it is known: that of a command must be given.

    Raises:
        LedgerSignerError: If the ring file names none, or one with another key than ``key``.
        NoteError: If the origin is no name.
        KeyRingError: If the signing key is not available.
    """
    source = table.signer
    if source is None:
        hint = 'add signer = { file = "ledger.key" } to it, as the account that may read the signing key'
        raise LedgerSignerError("[ledger] of the ring file names no signer", hint=hint)
    if isinstance(source, CommandSource):
        if key is None:
            hint = "give its public key: sealpoint ledger init --vkey NAME+ID+KEY"
            raise LedgerSignerError("the key of the command that signs is not known", hint=hint)
        return CommandSigner(source.argv, key)
    material = parse_material(source.read(table.base), f"signer {source.location}")
    signer = KeySigner(table.origin, material)
    if key is not None and key != signer.key:
        raise LedgerSignerError(f"the ledger belongs to {key}, and the signer is {signer.key}")
    return signer


def make_signing_key(table: LedgerTable) -> Path | None:
    """Write a new signing key to the file that a ring file names, if it names a file that does not exist.

    Returns:
        The new file, or ``None``.

    Raises:
        StoppedError: If it cannot be written.
    """
    if not isinstance(table.signer, FileSource):
        return None
    file = table.base / table.signer.location
    if os.path.lexists(file):
        return None
    write_private(file, base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
    fsync_path(file.parent)
    return file
