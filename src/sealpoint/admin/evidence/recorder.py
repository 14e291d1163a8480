"""Recorder: enters what a command does into the ledger, before it begins and when it has ended."""

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
    """What a command is about to do."""

    begin: str
    end: str
    subject: Mapping[str, Any] = field(default_factory=dict)
    waived: Sequence[str] = ()
    # Written before the entry of the beginning, which names them.
    documents: Sequence[bytes] = ()


class Recorder:
    """Records one run of one command.

    Attributes:
        documents: Digests of the documents of its beginning.
    """

    documents: Sequence[str] = ()

    def __init__(self, ring: RingFile, table: LedgerTable, run: Result, act: Act) -> None:
        self._file, self._act = ring.origin.path, act
        self._ring = describe_ring(ring.entries)
        self._ids = {entry.id for entry in ring.entries}
        folder = Folder(table.folder)
        folder.require()
        if folder.documents.is_symlink() or not folder.documents.is_dir():  # the end is recorded with one
            raise LedgerTamperedError(f"{folder.documents} is not a folder, as it is in each ledger")
        self._ledger = Ledger(table.folder, open_signer(table, folder.read_key()))
        self._template = make_template(run, self._ring)

    def begin(self) -> None:
        """Record that the command begins. When this returns, that is on the disk.

        A ring that differs from that of the last entry was changed by hand, or by a run that has not yet
        recorded its end; this is recorded first, with such runs.
        """
        act = self._act
        with self._ledger.writing(self._now()) as writer:
            # Again, while no other command can record: one may have changed it since it was read.
            self._ids = self._read_ring()
            template = self._now()
            self._record_drift(writer, template)
            self.documents = documents = [writer.add_document(data) for data in act.documents]
            begun = replace(template, event=act.begin, outcome=BEGUN, subject=act.subject, waived=act.waived)
            writer.add(replace(begun, documents=documents))

    def end(self, outcome: str, code: int, result: Result | None) -> Checkpoint:
        """Record how the command has ended, and return the new head."""
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
        """Read the ring again, and return its ids.

        If it cannot be read, it is as before: the next run finds out whether it has changed.
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
    """Return the last runs of commands that change rings, of which no end is recorded."""
    runs = dict[str, None]()
    for _, members in folder.read_entries(size):
        if members["event"].startswith(CHANGES):
            if members["outcome"] == BEGUN:
                runs[members["run"]] = None
            else:
                runs.pop(members["run"], None)
    return [*runs][-_MAX_RUNS:]


def make_template(run: Result, ring: Mapping[str, Any] | None) -> Entry:
    """Return an entry of a run, of which event and outcome are still to be set."""
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
    """Create the ledger that a ring file names; its first entry describes the ring.

    If the ring file names a file as the signer that does not exist, a new signing key is written to it.
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
