"""A ledger whose writers are killed at any step, and one that many write at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sealpoint.evidence import verify_ledger
from tests.faults.test_rotation_room import can_mount
from tests.support.ledgers import SIGNER, make_ledger

ROOT = Path(__file__).parents[2]
WRITERS = 4
ENTRIES = 25

WRITE = """
import sys
from pathlib import Path
from sealpoint.evidence import Ledger
from tests.support.ledgers import SIGNER, add
add(Ledger(Path(sys.argv[1]), SIGNER), *(f"{sys.argv[2]}.{number}" for number in range(int(sys.argv[3]))))
"""

FILL = """
import subprocess, sys
from pathlib import Path
from sealpoint.errors import StoppedError
from sealpoint.evidence import Ledger, verify_ledger
from tests.support.ledgers import SIGNER, add, make_ledger
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
