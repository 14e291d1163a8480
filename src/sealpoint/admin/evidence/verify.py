"""Verification of a ledger, and proofs that an entry is in a ledger, which can be checked without the ledger.

Verifies the signature, all ledger entries, pins and documents. Files are only read, without a lock, so that
any account can verify a copy. A proof is a text with these lines:

    c2sp.org/tlog-proof@v1
    index           number of the entry, from 0
    hashes          of the siblings on the path to the root, lowest first, base64, one per line
                    an empty line
    checkpoint      the signed head of the ledger, as the signer wrote it

The entry itself is not part of the proof: the reader already has its line. Source: C2SP tlog-proof.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.evidence.folder import (
    MAX_ENTRY_BYTES,
    Folder,
    open_regular,
    read_lines,
    read_members,
)
from sealpoint.admin.evidence.note import (
    Checkpoint,
    VerifierKey,
    decode_base64,
    open_checkpoint,
    parse_decimal,
    read_pin,
)
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.result import BEGUN
from sealpoint.errors import LedgerMissingError, LedgerTamperedError, NoteError, SignatureError, excerpt
from sealpoint.merkle import HASH_BYTES, Tree, leaf_hash, make_inclusion_proof, root_of_proof

_TRIES: Final = 10


class Verdict:
    """The result of verifying a ledger.

    Attributes:
        key: Verifier key given by the reader; otherwise the key in the folder.
        note: Stored bytes of the signed head; empty if the file cannot be read.
        checkpoint: The parsed head; ``None`` without a valid signature.
        problems: A sentence for each reason that refutes the ledger.
        reasons: Reasons why the ledger is not proven to be complete and unchanged.
        pins: Number of given pins that match the ledger.
        documents: Number of files in the folder ``documents`` that match their digests.
        unended: Number of runs with a begin entry but no end entry.

    Made by `verify_ledger` from the ledger's ``files``, a verifier ``key``, and the earlier heads ``pins``.
    """

    def __init__(self, files: Folder, key: VerifierKey, pins: Sequence[Checkpoint]) -> None:
        self._files, self.key, self._pins = files, key, pins
        self.note, self.problems, self.reasons = b"", list[str](), set[Reason]()
        self.pins = self.documents = self.unended = 0
        self.checkpoint: Checkpoint | None = None
        try:
            self.note = files.read_note()
            self.checkpoint = open_checkpoint(self.note, key)
        except SignatureError as error:
            self._refute(Reason.SIGNER_WRONG, str(error))
        except NoteError as error:
            self._refute(Reason.LEDGER_BROKEN, f"the checkpoint is not valid: {error}")
        except (LedgerMissingError, LedgerTamperedError) as error:
            self._refute(Reason.LEDGER_BROKEN, str(error))
        else:
            self._check_entries(self.checkpoint)

    def _refute(self, reason: Reason, problem: str) -> None:
        self.reasons.add(reason)
        self.problems.append(problem)

    def _check_entries(self, checkpoint: Checkpoint) -> None:
        tree, documents, begun = Tree(), set[str](), set[str]()
        wanted, roots = {pin.size for pin in self._pins}, {0: tree.root()}
        tail = b""
        try:
            with open_regular(self._files.entries) as stream:
                for line in read_lines(stream, checkpoint.size):
                    members = read_members(line, tree.size)
                    (begun.add if members["outcome"] == BEGUN else begun.discard)(members["run"])
                    documents.update(map(str, members["documents"]))
                    tree.add(line)
                    if tree.size in wanted:
                        roots[tree.size] = tree.root()
                tail = stream.read(MAX_ENTRY_BYTES + 2)
        except FileNotFoundError:
            pass
        except LedgerTamperedError as error:
            self._refute(Reason.LEDGER_BROKEN, str(error))
            return
        finally:
            self.unended = len(begun)
        self._compare_head(tree, checkpoint, tail)
        self._compare_pins(checkpoint, roots)
        for digest in sorted(documents):
            if self._files.has_document(digest):
                self.documents += 1
            else:
                self._refute(Reason.DOCUMENTS_MISSING, f"document {digest} is missing or was changed")

    def _compare_head(self, tree: Tree, checkpoint: Checkpoint, tail: bytes) -> None:
        if not checkpoint.size:
            self.reasons.add(Reason.NO_ENTRIES)
        if tree.size < checkpoint.size:
            self._refute(
                Reason.LEDGER_BROKEN,
                f"there are {tree.size} entries, but the checkpoint was signed for {checkpoint.size}",
            )
        elif tree.root() != checkpoint.root:
            self._refute(Reason.LEDGER_BROKEN, "the entries do not match the signed checkpoint")
        elif tail and self._files.read_next(self.key, tree.size, tail):
            self.reasons.add(Reason.APPEND_UNFINISHED)
        elif tail:
            self._refute(Reason.LEDGER_BROKEN, "there are lines after the entries of the checkpoint")

    def _compare_pins(self, checkpoint: Checkpoint, roots: Mapping[int, bytes]) -> None:
        for pin in self._pins:
            if pin.size > checkpoint.size:
                self._refute(
                    Reason.LEDGER_DIFFERS,
                    f"the pin has {pin.size} entries, but the ledger only {checkpoint.size}: an older copy",
                )
            elif roots.get(pin.size) != pin.root:
                self._refute(Reason.LEDGER_DIFFERS, f"the first {pin.size} entries do not match the pin")
            else:
                self.pins += 1


def verify_ledger(folder: Path, key: VerifierKey | None = None, pins: Sequence[bytes] = ()) -> Verdict:
    """Verify a ledger: its signature, all entries and documents, and that the ledger continues the pins.

    Args:
        folder: Folder of the ledger, or a copy of the folder.
        key: Verifier key of the ledger, from a source that the reader trusts. Without it, the key in the
            folder is used, and the result is not proven: another signer could have written all entries.
        pins: Earlier heads that were kept elsewhere, as files or lines, see `read_pin`. Without a pin, the
            result is not proven: the last entries could be missing, or the signer could have rewritten all.

    Raises:
        LedgerMissingError: If there is no ledger, or no key was given and the folder has no key.
        LedgerTamperedError: If no key was given, and the key in the folder is not in a regular file.
        NoteError: If a pin is not valid, or belongs to another ledger.
        SignatureError: If a pin is a file without a valid signature of the key.
    """
    files = Folder(folder)
    files.require()
    known = files.read_key() if key is None else key
    heads = [read_pin(data, known) for data in pins]
    for _ in range(_TRIES):
        verdict = Verdict(files, known, heads)
        if not verdict.problems or _is_unchanged(files, verdict.note):
            break  # else read again: a process has added an entry meanwhile
    if key is None:
        verdict.reasons.add(Reason.SIGNER_NOT_GIVEN)
    if not any(head.size for head in heads):  # a pin with no entries matches every ledger
        verdict.reasons.add(Reason.PIN_NOT_GIVEN)
    return verdict


def _is_unchanged(files: Folder, note: bytes) -> bool:
    try:
        return files.read_note() == note
    except (LedgerMissingError, LedgerTamperedError):
        return True


def read_verified(folder: Path, verdict: Verdict) -> Iterator[dict[str, Any]]:
    """Yield the entries of a verified ledger; add a reason to the verdict if it was changed meanwhile."""
    head, tree = verdict.checkpoint, Tree()
    with suppress(LedgerTamperedError, FileNotFoundError):  # `verify_ledger` reported the cause
        for line, entry in Folder(folder).read_entries(head.size if head else 0):
            tree.add(line)
            yield entry
    if head is not None and tree.root() != head.root:  # replaced since the verification
        verdict.reasons.add(Reason.LEDGER_BROKEN)


HEADER: Final = "c2sp.org/tlog-proof@v1"
MAX_HASHES: Final = 64


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that an entry is in a ledger.

    Attributes:
        index: Number of the entry, from 0.
        hashes: The 32-byte sibling hashes on the path from the entry to the root, lowest first.
        checkpoint: Signed head of the ledger, which contains the root.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: bytes

    def __bytes__(self) -> bytes:
        lines = [HEADER, f"index {self.index}", *(base64.b64encode(one).decode() for one in self.hashes), ""]
        return "\n".join([*lines, ""]).encode() + self.checkpoint

    @classmethod
    def parse(cls, data: bytes) -> Proof:
        """Parse a proof without verifying it. Extra data of other tools is ignored.

        Args:
            data: Contents of the file.

        Raises:
            NoteError: If the data is not a proof.
        """
        head, separator, checkpoint = data.partition(b"\n\n")
        try:
            first, *lines = head.decode("ascii").split("\n")
        except UnicodeDecodeError:
            raise NoteError("the proof has non-ASCII characters") from None
        if first != HEADER or not separator:
            raise NoteError(f"a proof begins with {HEADER}, but this begins with {excerpt(first)}")
        if lines and lines[0].startswith("extra "):
            lines = lines[1:]
        if not lines or not lines[0].startswith("index ") or len(lines) > 1 + MAX_HASHES:
            raise NoteError("the proof lacks the index of an entry, or hashes")
        hashes = tuple(decode_base64(line, HASH_BYTES, "a hash of the proof") for line in lines[1:])
        return cls(parse_decimal(lines[0].removeprefix("index ")), hashes, checkpoint)

    def verify(self, line: bytes, key: VerifierKey) -> Checkpoint:
        """Verify that a line is an entry of the ledger; return the ledger's head from the proof.

        Args:
            line: Line of the entry, without its newline.
            key: Verifier key of the ledger, from a source that the reader trusts.

        Raises:
            NoteError: If the line is not the entry of the proof, or the proof is of another ledger.
            SignatureError: If the signed head has no valid signature of the key.
        """
        checkpoint = open_checkpoint(self.checkpoint, key)
        try:
            root = root_of_proof(leaf_hash(line), self.index, checkpoint.size, self.hashes)
        except ValueError as error:
            raise NoteError(f"the proof does not match its checkpoint: {error}") from None
        if root != checkpoint.root:
            raise NoteError(
                f"the line is not entry {self.index} of {checkpoint.origin}",
                hint="compare the line, without its newline, and the number of the entry",
            )
        return checkpoint


def make_proof(folder: Path, seq: int) -> tuple[bytes, Proof]:
    """Return the stored line of the entry ``seq``, and the proof that the entry is in the ledger."""
    files = Folder(folder)
    note, key = files.read_note(), files.read_key()
    checkpoint = open_checkpoint(note, key)
    if not 0 <= seq < checkpoint.size:
        raise NoteError(f"the ledger has no entry {seq}", hint=f"its entries are 0 to {checkpoint.size - 1}")
    with open_regular(files.entries) as stream:
        line = next(islice(read_lines(stream, checkpoint.size), seq, None), b"")
        stream.seek(0)
        try:
            hashes = make_inclusion_proof(read_lines(stream, checkpoint.size), seq, checkpoint.size)
            proof = Proof(seq, hashes, note)
            proof.verify(line, key)
        except (NoteError, ValueError):
            raise LedgerTamperedError(
                f"entry {seq} cannot be proven: the entries do not match the checkpoint"
            ) from None
    return line, proof
