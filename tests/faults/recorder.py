"""Kills writers of a ledger between any two steps, and checks what is left; run by ``test_ledger.py``.

    python -m tests.faults.recorder FOLDER KILLS SEED

A step is a call of the operating system that changes a file. A writer is a forked process that ends itself
before or after such a call, or halfway through a write. No time is involved.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sealpoint.admin.evidence import Ledger, verify_ledger
from tests.support.keys.ledgers import SIGNER, make_entry, make_ledger

STEPS = ("open", "fsync", "write", "replace", "unlink", "truncate", "ftruncate")
MOST_STEPS = 40


class Fault:
    """Ends the process at one of the steps."""

    def __init__(self, at: int, chance: random.Random) -> None:
        self.left, self.chance = at, chance
        for name in STEPS:
            setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TRUNC):
                return genuine(*arguments, **options)
            self.left -= 1
            if self.left:
                return genuine(*arguments, **options)
            act = self.chance.choice(("before", "after", "halfway"))
            if act == "halfway" and name == "write":
                data = bytes(arguments[1])
                genuine(arguments[0], data[: self.chance.randrange(len(data))])
            elif act != "before":
                genuine(*arguments, **options)
            os._exit(9)

        return call


def killed(folder: Path, event: str, at: int, seed: int) -> tuple[bool, bool]:
    """Add an entry in a process that ends at a step: whether it was killed, and whether it said "done"."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        say = os.write
        Fault(at, random.Random(seed))
        try:
            with Ledger(folder, SIGNER).writing(make_entry()) as writer:
                writer.add(make_entry(event))
                say(theirs, b"done")
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 -- of a fork, which must not return
            say(2, f"{error!r}\n".encode())
            os._exit(1)
    os.close(theirs)
    said = os.read(ours, 9)
    os.close(ours)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, 9}, code
    return code == 9, said == b"done"


def main(folder: Path, kills: int, seed: int) -> None:
    """Kill so many writers, one after the other; every few of them another one adds an entry."""
    make_ledger(folder)
    chance, count, pins, durable = random.Random(seed), 0, list[bytes](), set[str]()
    at = 0
    while count < kills:
        at = at % MOST_STEPS + 1
        event = f"event.{count}.{at}"
        was_killed, said_done = killed(folder, event, at, chance.randrange(1 << 30))
        count += was_killed
        if said_done:
            durable.add(event)
        if not was_killed:
            at = 0  # it has no more steps
        verdict = verify_ledger(folder, SIGNER.key, pins[-3:])
        assert not verdict.problems, (at, verdict)
        if chance.random() < 0.5:  # else the recovery of the next one is killed as well
            with Ledger(folder, SIGNER).writing(make_entry()) as writer:
                head = writer.add(replace(make_entry("after"), counts={"kills": count}))
            pins.append(head.line.encode())
            verdict = verify_ledger(folder, SIGNER.key, pins[-3:])
            assert not verdict.reasons, (at, verdict)
    text = (folder / "entries.jsonl").read_text(encoding="ascii")
    lost = [event for event in durable if f'"{event}"' not in text]
    assert not lost, lost
    print("kills", count, "recovered", text.count("ledger.recovered"), "durable", len(durable))  # noqa: T201 -- to the test


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
