"""Ledgers for tests: a signer whose key is public, entries, and a ledger of some of them."""

from __future__ import annotations

from pathlib import Path

from sealpoint.admin.evidence import Checkpoint, Entry, Ledger
from sealpoint.admin.evidence.note import KeySigner

ORIGIN = "example.org/agents"
SIGNER = KeySigner(ORIGIN, bytes(range(32)))
OTHER_SIGNER = KeySigner(ORIGIN, bytes(range(32, 64)))
RUN = "0b2a1a0e-2d8a-4b0a-9d35-1b9a3f0e7a55"


def make_entry(event: str = "key.stage", outcome: str = "done", run: str = RUN) -> Entry:
    return Entry(
        at="2026-11-22T15:00:00Z",
        run=run,
        event=event,
        outcome=outcome,
        actor={"account": "sealpoint", "uid": 1000, "host": "agents-1"},
        tool="sealpoint 0.1.0",
        ring={"digest": "sha256:" + "0" * 64, "active": "k26a"},
        subject={"key": "k26a"},
    )


def add(ledger: Ledger, *events: str) -> Checkpoint:
    """Add entries, each as a process of its own would."""
    for event in events:
        with Ledger(ledger.folder.path, ledger.signer).writing(make_entry()) as writer:
            writer.add(make_entry(event))
    with ledger.writing(make_entry()) as writer:
        return writer.state.head


def make_ledger(folder: Path, entries: int = 5, signer: KeySigner = SIGNER) -> Ledger:
    """A ledger with so many entries, each of another event."""
    Ledger.create(folder, signer, make_entry("ledger.init"))
    ledger = Ledger(folder, signer)
    add(ledger, *(f"event.{number}" for number in range(1, entries)))
    return ledger
