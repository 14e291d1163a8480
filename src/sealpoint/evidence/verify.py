"""Checks of a ledger: its signer, each of its entries, earlier heads of it, and its documents.

Reads only, and without a lock, so that a copy can be checked by any account.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sealpoint.errors import EntryError, LedgerMissingError, NoteError, SignatureError
from sealpoint.evidence.checkpoint import Checkpoint, open_checkpoint, read_pin
from sealpoint.evidence.entry import MAX_BYTES, read_members
from sealpoint.evidence.folder import Folder, digest_of, read_lines
from sealpoint.evidence.note import VerifierKey
from sealpoint.evidence.recovery import is_next
from sealpoint.maintenance.result import Reason
from sealpoint.merkle import Tree

_TRIES: Final = 10
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")
BEGUN: Final = "begun"


@dataclass(slots=True)
class Verdict:
    """What a check of a ledger found.

    Attributes:
        checkpoint: The signed head; ``None`` if it is missing or not valid.
        problems: A sentence for each reason that refutes.
        reasons: Why the ledger is not shown to be whole.
        pins: How many pins it agrees with.
        documents: How many documents it has.
        unended: How many runs have begun and are not recorded to have ended.
    """

    checkpoint: Checkpoint | None = None
    problems: list[str] = field(default_factory=list)
    reasons: set[Reason] = field(default_factory=set)
    pins: int = 0
    documents: int = 0
    unended: int = 0

    def add(self, reason: Reason, problem: str) -> None:
        """Record what refutes the ledger."""
        self.reasons.add(reason)
        self.problems.append(problem)


def verify_ledger(folder: Path, key: VerifierKey | None = None, pins: Sequence[bytes] = ()) -> Verdict:
    """Check a ledger.

    Args:
        folder: Its folder, or a copy.
        key: Its verifier key, from a source that the reader trusts. Without one the key beside the entries is
            used, and the result is not proven: the entries could be all of another signer.
        pins: Earlier heads that were kept elsewhere, as files or lines, see `read_pin`. Without one the
            result is not proven: entries could be missing at the end, or all be written anew by the signer.

    Raises:
        LedgerMissingError: If there is no ledger, or no key was given and none is beside it.
        NoteError: If a pin is none, or is of another ledger.
        SignatureError: If a pin is a file that the key has not signed.
    """
    files = Folder(folder)
    files.require()
    known = files.read_key() if key is None else key
    heads = [read_pin(data, known) for data in pins]
    for _ in range(_TRIES):
        try:
            note = files.read_note()
        except LedgerMissingError:
            note = b""
        verdict = _verify(files, note, known, heads)
        if not verdict.problems or _is_unchanged(files, note):
            break  # else another process has added an entry meanwhile
    if key is None:
        verdict.reasons.add(Reason.SIGNER_NOT_GIVEN)
    if not any(head.size for head in heads):  # a pin of no entries agrees with every ledger
        verdict.reasons.add(Reason.PIN_NOT_GIVEN)
    return verdict


def _is_unchanged(files: Folder, note: bytes) -> bool:
    try:
        return files.read_note() == note
    except LedgerMissingError:
        return True


def _verify(files: Folder, note: bytes, key: VerifierKey, pins: Sequence[Checkpoint]) -> Verdict:
    verdict = Verdict()
    try:
        verdict.checkpoint = open_checkpoint(note, key)
    except SignatureError as error:
        verdict.add(Reason.SIGNER_WRONG, str(error))
    except NoteError as error:
        verdict.add(Reason.LEDGER_BROKEN, f"the checkpoint is not valid: {error}")
    if verdict.checkpoint is not None:
        _verify_entries(files, verdict, verdict.checkpoint, key, pins)
    return verdict


def _verify_entries(
    files: Folder, verdict: Verdict, checkpoint: Checkpoint, key: VerifierKey, pins: Sequence[Checkpoint]
) -> None:
    tree, runs, documents = Tree(), set[str](), set[str]()
    wanted, roots = {pin.size for pin in pins}, {0: tree.root()}
    try:
        with files.entries.open("rb") as stream:
            for line in read_lines(stream, checkpoint.size):
                members = read_members(line, tree.size)
                (runs.add if members["outcome"] == BEGUN else runs.discard)(members["run"])
                if members["documents"]:
                    documents.update(map(str, members["documents"]))
                tree.add(line)
                if tree.size in wanted:
                    roots[tree.size] = tree.root()
            tail = stream.read(MAX_BYTES + 2)
    except FileNotFoundError:
        tail = b""
    except EntryError as error:
        verdict.add(Reason.LEDGER_BROKEN, str(error))
        return
    verdict.unended = len(runs)
    if tree.size < checkpoint.size:
        problem = f"there are {tree.size} entries, and the checkpoint was signed for {checkpoint.size}"
        verdict.add(Reason.LEDGER_BROKEN, problem)
    elif tree.root() != checkpoint.root:
        verdict.add(Reason.LEDGER_BROKEN, "the entries are not those that the checkpoint was signed for")
    elif tail:
        _check_tail(files, verdict, tail, tree, key)
    if not checkpoint.size:
        verdict.reasons.add(Reason.NO_ENTRIES)
    _compare_pins(verdict, checkpoint, pins, roots)
    _verify_documents(files, verdict, documents)


def _check_tail(files: Folder, verdict: Verdict, tail: bytes, tree: Tree, key: VerifierKey) -> None:
    """Distinguish an entry whose writing has begun from lines that the signer did not begin."""
    new = files.read_new(key)
    if is_next(tail, tree, new) or (new is not None and new.size == tree.size + 1):
        verdict.reasons.add(Reason.APPEND_UNFINISHED)
    else:
        verdict.add(Reason.LEDGER_BROKEN, "there are lines after the entries that the checkpoint covers")


def _compare_pins(
    verdict: Verdict, checkpoint: Checkpoint, pins: Sequence[Checkpoint], roots: dict[int, bytes]
) -> None:
    for pin in pins:
        if pin.size > checkpoint.size:
            problem = f"the pin has {pin.size} entries, and the ledger {checkpoint.size}: it was put back"
            verdict.add(Reason.LEDGER_DIFFERS, problem)
        elif roots.get(pin.size) != pin.root:
            verdict.add(Reason.LEDGER_DIFFERS, f"the first {pin.size} entries are not those of the pin")
        else:
            verdict.pins += 1


def _verify_documents(files: Folder, verdict: Verdict, documents: set[str]) -> None:
    for digest in sorted(documents):
        try:  # a name of any other form is no digest
            same = _DIGEST.fullmatch(digest) and digest_of(files.document(digest).read_bytes()) == digest
        except OSError:
            same = False
        if same:
            verdict.documents += 1
        else:
            verdict.add(Reason.DOCUMENTS_MISSING, f"document {digest} is missing, or was changed")
