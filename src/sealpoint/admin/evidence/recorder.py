"""Recorder: writes the begin and end entries of a command to the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.evidence.folder import CHANGES, Entry, Folder
from sealpoint.admin.evidence.ledger import Ledger, Writer, require_new
from sealpoint.admin.evidence.note import (
    Checkpoint,
    VerifierKey,
    make_signing_key,
    open_checkpoint,
    open_signer,
)
from sealpoint.admin.keys.change import describe_ring
from sealpoint.admin.results.result import BEGUN, Result
from sealpoint.errors import KeyRingError, LedgerTamperedError
from sealpoint.keys.entry import LedgerTable
from sealpoint.keys.ringfile import RingFile
from sealpoint.utc import now

_MAX_RUNS: Final = 100


@dataclass(frozen=True, slots=True)
class Act:
    """What the ledger entries of a command record about the command."""

    begin: str
    end: str
    subject: Mapping[str, Any] = field(default_factory=dict)
    waived: Sequence[str] = ()
    # JSON files, written before the begin entry, which names their digests.
    documents: Sequence[bytes] = ()


class Recorder:
    """Writes the ledger entries of one run of a command.

    Attributes:
        documents: Digests of the JSON files that the begin entry names.
    """

    documents: Sequence[str] = ()

    def __init__(self, ring: RingFile, table: LedgerTable, run: Result, act: Act) -> None:
        self._file, self._act = ring.origin.path, act
        self._ring = describe_ring(ring.entries)
        self._ids = {entry.id for entry in ring.entries}
        folder = Folder(table.folder)
        folder.require()
        if folder.documents.is_symlink() or not folder.documents.is_dir():  # the end entry needs it
            raise LedgerTamperedError(f"{folder.documents} must be a folder, and not a link")
        self._ledger = Ledger(table.folder, open_signer(table, folder.read_key()))
        self._template = make_template(run, self._ring)

    def begin(self) -> None:
        """Write the begin entry. When this returns, the entry is fsynced.

        If the ring differs from the ring in the last entry, the ring file was changed by hand, or by a run
        without an end entry. An entry ``ring.drift`` first records the difference, and names such runs.
        """
        act = self._act
        with self._ledger.writing(self._now()) as writer:
            # Read the ring again with the ledger locked: another command may have changed the ring.
            self._ids = self._read_ring()
            template = self._now()
            self._record_drift(writer, template)
            self.documents = documents = [writer.add_document(data) for data in act.documents]
            begun = replace(template, event=act.begin, outcome=BEGUN, subject=act.subject, waived=act.waived)
            writer.add(replace(begun, documents=documents))

    def end(self, outcome: str, code: int, result: Result | None) -> Checkpoint:
        """Write the end entry, and return the new head of the ledger."""
        act = self._act
        with self._ledger.writing(self._now()) as writer:
            made = sorted(self._read_ring() - self._ids)
            template = self._now()
            documents, counts, subject = [], {}, dict(act.subject)
            if subject.get("key", "") is None and len(made) == 1:
                subject["key"] = made[0]
            if result is not None:
                subject |= result.stated
                documents = [writer.add_document(json.dumps(result.evidence(), indent=2).encode() + b"\n")]
                counts = result.counts
            entry = replace(template, event=act.end, outcome=outcome, exit=code, counts=counts)
            return writer.add(replace(entry, subject=subject, waived=act.waived, documents=documents))

    def _record_drift(self, writer: Writer, template: Entry) -> None:
        last = writer.state.last
        if last is None or last.ring is None or self._ring is None or last.ring == self._ring:
            return
        subject: dict[str, Any] = {"was": last.ring.get("digest")}
        if during := _unended(self._ledger.folder, writer.state.head.size):
            subject["during"] = during
        writer.add(replace(template, event="ring.drift", outcome="found", subject=subject))

    def _read_ring(self) -> set[str]:
        """Read the ring file again, and return the key ids.

        If the file cannot be read, assume that it is unchanged: the next run detects a change.
        """
        try:
            ring = RingFile(self._file)
        except KeyRingError:
            return self._ids
        self._ring = describe_ring(ring.entries)
        return {entry.id for entry in ring.entries}

    def _now(self) -> Entry:
        return replace(self._template, at=now(), ring=self._ring)


def _unended(folder: Folder, size: int) -> list[str]:
    """Return the UUIDs of the last runs that could change the ring, and have no end entry."""
    runs = dict[str, None]()
    for _, members in folder.read_entries(size):
        if members["event"].startswith(CHANGES):
            if members["outcome"] == BEGUN:
                runs[members["run"]] = None
            else:
                runs.pop(members["run"], None)
    return [*runs][-_MAX_RUNS:]


def make_template(run: Result, ring: Mapping[str, Any] | None) -> Entry:
    """Return a ledger entry with the facts of a run, whose event and outcome are still empty."""
    head = run.head()
    account = head["account"]
    return Entry(
        at=now(),
        run=run.run,
        event="",
        outcome="",
        actor={"account": account["name"], "host": head["host"], "uid": account["uid"]},
        tool=f"sealpoint {head['versions']['sealpoint']}",
        ring=ring,
    )


def create_ledger(
    table: LedgerTable, ring: RingFile, run: Result, *, vkey: str | None, previous: Path | None
) -> tuple[Checkpoint, Path | None]:
    """Create the ledger configured in a ring file; its first entry describes the ring.

    If the signer is a file that does not exist, a new signing key is written to this file. Returns the head,
    and the path of the new signing key or ``None``.
    """
    require_new(table.folder)
    made = make_signing_key(table)
    signer = open_signer(table, None if vkey is None else VerifierKey.parse(vkey))
    subject: dict[str, Any] = {"vkey": str(signer.key)}
    if previous is not None:
        folder = Folder(previous)
        note, key = folder.read_note(), folder.read_key()
        open_checkpoint(note, key)
        subject["previous"] = {"checkpoint": note.decode(), "vkey": str(key)}
    template = make_template(run, describe_ring(ring.entries))
    entry = replace(template, event="ledger.init", outcome="done", exit=0, subject=subject)
    return Ledger.create(table.folder, signer, entry), made
