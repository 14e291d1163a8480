"""Processes that make moves on a ring file. Reads one round a line, forks a process for each part of it.

    die RING MOVE ID NUMBER     one move, killed right before what it does NUMBERth to the files
    forever RING                moves without a pause; says `pid NUMBER` when it begins
    together RING MOVE:ID ...   one process for each, all at the same moment

Says `gone` and how each ended: 0, or minus the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit  # noqa: F401 -- before the fork: only what a move does itself is to be counted

from sealpoint.admin.keys import edit, wrapping
from sealpoint.admin.keys.destroy import destroy_key
from sealpoint.crypto import KeyState
from sealpoint.errors import HeldError
from sealpoint.keys.ringfile import read_ring_entries

MOVES: dict[str, Callable[[Path, str], object]] = {
    "init": edit.create_ring,
    "generate": edit.stage_key,
    "promote": edit.promote_key,
    "disable": partial(edit.change_state, state=KeyState.DISABLED),
    "enable": partial(edit.change_state, state=KeyState.DECRYPT_ONLY),
    "destroy": destroy_key,
    "wrap": lambda ring, key_id: wrapping.wrap_key(ring, key_id, "w"),
    "rewrap": lambda ring, key_id: wrapping.rewrap_keys(ring, [key_id], "v"),
    "destroy-wrapped": destroy_key,
    "generate-wrapped": lambda ring, key_id: edit.stage_key(ring, key_id, "w"),
}
CHANGES = {f"os.{name}" for name in ("rename", "link", "remove", "symlink", "mkdir", "chmod", "chown")}
NEXT = {KeyState.STAGED: "promote", KeyState.DECRYPT_ONLY: "disable", KeyState.DISABLED: "destroy"}


def die_before(folder: str, number: int) -> None:
    """Have this process killed right before the ``number``th change in a folder, opening files among them."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in CHANGES or event == "fcntl.flock" or (event == "open" and folder in str(arguments[0])):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def die(ring: Path, move: str, key_id: str, number: str) -> None:
    die_before(str(ring.parent), int(number))
    MOVES[move](ring, key_id)


def say(*words: object) -> None:
    """Write a line in one piece, past every buffer."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def forever(ring: Path) -> None:
    """Take each key through its life; whatever was left undone is what is done next."""
    say("pid", os.getpid())
    while True:
        step(ring)


def step(ring: Path) -> None:
    for entry in read_ring_entries(ring):
        if entry.state in NEXT:
            MOVES[NEXT[entry.state]](ring, entry.id)
            return
    edit.stage_key(ring)


def once(ring: Path, part: str, gate: int) -> None:
    """Wait for the others; then make a move, again as long as another holds the ring."""
    move, _, key_id = part.partition(":")
    os.read(gate, 1)
    while True:
        try:
            MOVES[move](ring, key_id)
        except HeldError:
            os.sched_yield()
        else:
            return


def fork(act: Callable[..., None], *arguments: Any) -> int:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            act(*arguments)
            code = 0
        finally:
            os._exit(code)
    return pid


def begin(kind: str, ring: Path, parts: list[str]) -> list[int]:
    if kind == "die":
        return [fork(die, ring, *parts)]
    if kind == "forever":
        return [fork(forever, ring)]
    gate, opener = os.pipe()
    pids = [fork(once, ring, part, gate) for part in parts]
    os.write(opener, b"x" * len(pids))
    os.close(gate)
    os.close(opener)
    return pids


def main() -> None:
    for line in sys.stdin:
        kind, ring, *parts = line.split()
        pids = begin(kind, Path(ring), parts)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        say("gone", *codes)


if __name__ == "__main__":
    main()
