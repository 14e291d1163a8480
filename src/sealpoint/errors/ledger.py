"""Errors of ledgers, and of the signed notes and proofs that belong to them."""

from __future__ import annotations

from sealpoint.errors.root import SealpointError


class LedgerError(SealpointError):
    """A ledger cannot be used."""


class LedgerMissingError(LedgerError, FileNotFoundError):
    """There is no ledger where the ring file says, or the ring file names none."""

    hint = "if there was one, restore its folder from a copy; a new one is created by `sealpoint ledger init`"


class LedgerTamperedError(LedgerError, ValueError):
    """The entries of a ledger and its signed checkpoint do not belong together."""

    hint = (
        "keep the folder as it is, and compare it with a copy: nothing is recorded in it until its files are"
        " restored, and no recorded command runs"
    )


class LedgerSignerError(LedgerError):
    """This account cannot sign for a ledger: the signing key is missing, or is not the ledger's."""

    hint = (
        "run this as the account that holds the ledger's signing key; a new signer has a new ledger:"
        " sealpoint ledger init --previous DIR"
    )


class EntryError(LedgerError, ValueError):
    """A line is not an entry of a ledger, or an entry would be too long."""


class NoteError(LedgerError, ValueError):
    """Text is not a signed note, a checkpoint, a proof or a verifier key."""

    hint = "copy the file as a whole, with its last newline"


class SignatureError(NoteError):
    """A note has no valid signature of the given verifier key."""

    hint = "compare the verifier key with the one that was noted when the ledger was created"
