"""``kill -9`` in the middle of every move, and many moves at once: the ring is the old one or the new one.

SEALPOINT_KILLS is how many moves are killed at a moment of chance. From 100 on each kind of move is also
killed before every single change that it makes to the files, else before a few of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealpoint.admin.keys.destroy import destroy_key
from sealpoint.admin.keys.edit import change_state, create_ring, key_file, promote_key, stage_key
from sealpoint.admin.keys.wrapping import find_left_files
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import OutputError
from sealpoint.keys.ringfile import read_ring_entries
from tests.faults.mover import MOVES, step

KILLS = int(os.environ.get("SEALPOINT_KILLS", "12"))
MOVER = Path(__file__).with_name("mover.py")
ENOUGH = 60  # more changes than any move makes
FEW = 3


class Mover:
    """One process that forks those that move; they are cheap, and there are many."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def begin(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def hear(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def run(self, *words: object) -> list[str]:
        """Run a whole round, and return how its processes ended."""
        self.begin(*words)
        gone, *codes = self.hear()
        assert gone == "gone"
        return codes


WRAPPERS = "".join(
    f"""
[[wrapper]]
id = "{wrapper_id}"
kind = "command"
wrap = ["base64"]
unwrap = ["base64", "-d"]
"""
    for wrapper_id in "wv"
)


@pytest.fixture(scope="module")
def mover() -> Iterator[Mover]:
    with running() as found:
        yield found


@contextmanager
def running() -> Iterator[Mover]:
    command = [sys.executable, str(MOVER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Mover(process)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ring that has a key for each move."""
    ring = tmp_path_factory.mktemp("ring") / "keys.toml"
    create_ring(ring, "k1")
    for key_id in ("k2", "k3", "k4"):
        stage_key(ring, key_id)
    for key_id in ("k2", "k3", "k4"):
        promote_key(ring, key_id)
    change_state(ring, "k3", KeyState.DISABLED)
    stage_key(ring, "k5")
    ring.write_text(ring.read_text() + WRAPPERS)
    stage_key(ring, "k8", "w")
    return ring.parent


def moments() -> Iterable[int]:
    """Before which changes to kill."""
    return range(1, ENOUGH) if KILLS >= 100 else sorted(random.sample(range(1, 22), FEW))


STEPS = {
    "generate": ("k6", "k6 staged"),
    "promote": ("k5", "k5 active"),
    "disable": ("k2", "k2 disabled"),
    "enable": ("k3", "k3 decrypt-only"),
    "destroy": ("k3", "k3 destroyed"),
    "destroy-wrapped": ("k8", "k8 destroyed w"),
    "generate-wrapped": ("k6", "k6 staged w"),
    "wrap": ("k4", "k4 active w"),
    "rewrap": ("k8", "k8 staged v"),
}


def states(ring: Path) -> set[str]:
    """Of each key, and its wrapper."""
    found = ((one.id, one.state.value, one.wrapper or "") for one in read_ring_entries(ring))
    return {" ".join(parts).rstrip() for parts in found}


def names(ring: Path) -> set[str]:
    """Every file below the ring's folder; the .gitignore that each folder of keys has is whole."""
    ignored = ring.parent / "keys.d" / ".gitignore"
    assert ignored.read_text() == "*\n"
    return {
        str(path.relative_to(ring.parent))
        for path in ring.parent.rglob("*")
        if not (path.is_dir() or path == ignored)
    }


def expected_names(ring: Path) -> set[str]:
    """The ring and the key files of its keys: nothing that a move left behind."""
    entries = read_ring_entries(ring)
    gone = ("removed", "gone-before")
    live = [entry.id for entry in entries if entry.source == "file" and entry.material not in gone]
    return {ring.name, *(f"keys.d/{key_id}.key" for key_id in live)}


def repeat(move: Callable[[Path, str], object], ring: Path, key_id: str) -> None:
    """Move again; if a killed command has left its file, remove that first, as the hint says."""
    file = key_file(ring, key_id)
    named = {one.partition(" ")[0] for one in states(ring)} if ring.exists() else set()
    if file.exists() and key_id not in named:
        with pytest.raises(OutputError, match=str(file)):
            move(ring, key_id)
        file.unlink()
    move(ring, key_id)


@pytest.mark.broad(every=3)
@pytest.mark.parametrize("move", STEPS)
def test_killed_within_a_move(tmp_path: Path, prepared: Path, mover: Mover, move: str) -> None:
    """The ring loads and is the old one or the new one; the move run again completes it and cleans up.

    A key file that no entry names is left to the user: the move names it.
    """
    key_id, done = STEPS[move]
    for number in moments():
        ring = Path(shutil.copytree(prepared, tmp_path / str(number))) / "keys.toml"
        old, text = states(ring), ring.read_bytes()
        (code,) = mover.run("die", ring, move, key_id, number)
        KeyRing.load(ring).load_material()  # and all of it is what it was, by the check values
        now = states(ring)
        assert ring.read_bytes() == text or (done in now and len(now - old) <= 2), number
        # An id that is taken is not made twice, and a wrapped key is not wrapped: it is wrapped again.
        is_once = move.startswith("generate") or (move == "wrap" and not find_left_files(ring))
        if not (is_once and done in now):
            repeat(MOVES[move], ring, key_id)
        assert done in states(ring)
        stage_key(ring, "k7")  # the next new key sweeps what an entry names by now
        assert names(ring) == expected_names(ring), number
        if code == "0":
            break
        assert code == str(-signal.SIGKILL)
    assert number < ENOUGH - 1


def test_killed_while_the_ring_is_made(tmp_path: Path, mover: Mover) -> None:
    """There is none, and making it again makes it; or there is a whole one."""
    for number in moments():
        ring = tmp_path / str(number) / "keys.toml"
        (code,) = mover.run("die", ring, "init", "k1", number)
        if not ring.exists():
            repeat(create_ring, ring, "k1")
        assert repr(KeyRing.load(ring)) == "KeyRing(k1 active)"
        stage_key(ring, "k2")
        assert names(ring) == expected_names(ring), number
        if code == "0":
            break
    assert number < ENOUGH - 1


def test_killed_at_any_moment(tmp_path: Path, mover: Mover) -> None:
    """One ring, moved on without a pause and killed again and again: it loads, and goes on from there."""
    ring, chance = tmp_path / "keys.toml", random.Random()
    create_ring(ring)
    for _ in range(KILLS):
        mover.begin("forever", ring)
        word, pid = mover.hear()
        assert word == "pid"
        time.sleep(chance.uniform(0, 0.05))  # not to wait for anything: any moment will do
        os.kill(int(pid), signal.SIGKILL)
        assert mover.hear() == ["gone", str(-signal.SIGKILL)]
        assert KeyRing.load(ring).active_id
    for entry in read_ring_entries(ring):
        if entry.state.value == "destroyed":
            destroy_key(ring, entry.id)  # as whoever's `destroy` was killed would do
    for _ in range(4):
        step(ring)  # ends whatever was begun
    stage_key(ring, "last")
    left = names(ring) - expected_names(ring)
    assert expected_names(ring) <= names(ring)
    assert all(re.fullmatch(r"keys\.d/k[0-9]{2}[a-z]+-[0-9a-f]{4}\.key", name) for name in left), left
    assert len(read_ring_entries(ring)) > 2  # it did get on meanwhile


def test_moves_at_once_lose_nothing(tmp_path: Path, mover: Mover) -> None:
    """New keys and promotions from many processes: every one is in the file, and one key is active."""
    ring = tmp_path / "keys.toml"
    create_ring(ring, "k0")
    made = [f"k{number}" for number in range(1, 7)]
    assert mover.run("together", ring, *(f"generate:{key_id}" for key_id in made)) == ["0"] * len(made)
    assert states(ring) == {"k0 active", *(f"{key_id} staged" for key_id in made)}
    assert mover.run("together", ring, *(f"promote:{key_id}" for key_id in made)) == ["0"] * len(made)
    active = KeyRing.load(ring).require_active().id
    assert active in made
    others = {"k0", *made} - {active}
    assert states(ring) == {f"{active} active", *(f"{key_id} decrypt-only" for key_id in others)}
    assert names(ring) == expected_names(ring)
