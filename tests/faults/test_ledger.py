"""A ledger whose writers are killed at any step, and one that many write at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from sealpoint.admin.evidence import Ledger, verify_ledger
from tests.faults.power import Disk, Killed
from tests.faults.test_rotation_room import can_mount
from tests.support.keys.ledgers import SIGNER, make_entry, make_ledger
from tests.support.runs.extent import by_extent

ROOT = Path(__file__).parents[2]
WRITERS = 4
ENTRIES = 25

WRITE = """
import sys
from pathlib import Path
from sealpoint.admin.evidence import Ledger
from tests.support.keys.ledgers import SIGNER, add
add(Ledger(Path(sys.argv[1]), SIGNER), *(f"{sys.argv[2]}.{number}" for number in range(int(sys.argv[3]))))
"""

FILL = """
import subprocess, sys
from pathlib import Path
from sealpoint.errors import StoppedError
from sealpoint.admin.evidence import Ledger, verify_ledger
from tests.support.keys.ledgers import SIGNER, add, make_ledger
disk = Path(sys.argv[1])
def mount(size, *more):
    options = ",".join([f"size={size}k", *more])
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], check=True)
mount(int(sys.argv[2]))
ledger = make_ledger(disk / "ledger", 1)
for number in range(10_000):
    pin = (disk / "ledger" / "checkpoint").read_bytes()
    try:
        add(ledger, f"event.{number}")
    except StoppedError as error:
        print(error)
        break
assert not verify_ledger(disk / "ledger", SIGNER.key, [pin]).problems
for _ in range(3):  # still full
    try:
        add(ledger, "still")
    except StoppedError:
        print("still")
mount(1_000, "remount")
add(ledger, "after")
assert not verify_ledger(disk / "ledger", SIGNER.key, [pin]).reasons
print("after", number)
"""


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kills", [30, pytest.param(1_000, marks=pytest.mark.soak)])
def test_kill_at_any_step_leaves_a_whole_ledger(tmp_path: Path, kills: int) -> None:
    """Every entry that was reported as written is there, each pin holds, and the next writer goes on."""
    command = [sys.executable, "-m", "tests.faults.recorder", str(tmp_path / "ledger"), str(kills), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:2] == ["kills", str(kills)]
    assert int(words[3]) > 0, "no kill tore an entry"


State = frozenset[tuple[str, bytes]]
Reported = tuple[tuple[str, ...], tuple[bytes, ...]]
UNFINISHED = {"torn": 3, "complete": 4}  # steps of a writer that was killed before


def follow(folder: Path, setup: str, kill: int, states: dict[State, Reported]) -> bool:
    """Let a writer be killed after so many steps, and two others add entries; whether it was killed.

    Args:
        folder: Of the ledger.
        setup: What happened before.
        kill: The steps.
        states: Gets what the files may be if power fails, with the events and heads reported before that.
    """
    events, pins = list[str](), [(folder / "checkpoint").read_bytes()]

    def look() -> None:
        for files in map(frozenset, (state.items() for state in disk.states())):
            known = states.get(files, ((), ()))
            states[files] = max(known, (tuple(events), tuple(pins)), key=lambda each: len(each[1]))

    def write(event: str, kill: int = -1) -> bool:
        disk.left = kill
        try:
            with Ledger(folder, SIGNER).writing(make_entry()) as writer:
                head = writer.add(make_entry(event))
        except Killed:
            return True
        events.append(event)
        pins.append(head.line.encode())
        look()
        return False

    with Disk(folder, look) as disk:
        if setup in UNFINISHED:
            assert write("a", UNFINISHED[setup])
        was_killed = write("b", kill)
        assert not write("c")
        assert not write("d")
    return was_killed


def require_whole(folder: Path, files: State, events: tuple[str, ...], pins: tuple[bytes, ...]) -> None:
    """Check files that a power failure has left: nothing reported is lost, and the next writer goes on."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o700)
    for name, content in files:
        (folder / name).write_bytes(content)
    assert not verify_ledger(folder, SIGNER.key, pins).problems, files
    with Ledger(folder, SIGNER).writing(make_entry()) as writer:
        head = writer.add(make_entry("next"))
    assert not verify_ledger(folder, SIGNER.key, [*pins, head.line.encode()]).reasons, files
    text = (folder / "entries.jsonl").read_text(encoding="ascii")
    assert all(f'"{event}"' in text for event in [*events, "next"]), files


@pytest.mark.costly
@pytest.mark.parametrize("setup", ["whole", "edge", "checkpoint.new", *UNFINISHED])
def test_power_failure_after_any_step_leaves_a_whole_ledger(tmp_path: Path, setup: str) -> None:
    """A writer is killed at any step, two others add entries, and power fails after any step of the three.

    Before, the ledger is whole, or one of its files is missing, or a writer was killed.
    """
    make_ledger(tmp_path / "ledger", 2)
    (tmp_path / "ledger" / setup).unlink(missing_ok=True)
    states = dict[State, Reported]()
    for kill in count(step=by_extent(8, 1)):
        folder = tmp_path / str(kill)
        shutil.copytree(tmp_path / "ledger", folder)
        if not follow(folder, setup, kill, states):
            break
    assert kill > 9
    for files, (events, pins) in states.items():
        require_whole(tmp_path / "after", files, events, pins)


@pytest.mark.costly
def test_many_writers_at_once(tmp_path: Path) -> None:
    """Each entry is there once, and those of one writer are in its order."""
    folder = tmp_path / "ledger"
    make_ledger(folder, 1)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, folder, str(name), str(ENTRIES)], cwd=ROOT)
        for name in range(WRITERS)
    ]
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    pin = (folder / "checkpoint").read_bytes()
    assert verify_ledger(folder, SIGNER.key, [pin]).reasons == set()
    events = [json.loads(line)["event"] for line in (folder / "entries.jsonl").read_bytes().splitlines()]
    assert len(events) == 1 + WRITERS * ENTRIES
    for name in range(WRITERS):
        own = [event for event in events if event.startswith(f"{name}.")]
        assert own == [f"{name}.{number}" for number in range(ENTRIES)]


@pytest.mark.skipif(not can_mount(), reason="this system allows no disk of its own to a process")
@pytest.mark.parametrize("kilobytes", [40, 48])
def test_full_disk_adds_nothing_and_goes_on_with_room(tmp_path: Path, kilobytes: int) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", FILL]
    done = subprocess.run(
        [*command, str(tmp_path), str(kilobytes)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *still, last = done.stdout.splitlines()
    assert first.endswith("No space left on device")
    assert still == ["still"] * 3
    assert int(last.removeprefix("after ")) > 3
