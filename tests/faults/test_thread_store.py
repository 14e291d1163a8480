"""Thread stores without room, without permission, and beside processes that are killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.threads import Head, Kind, Spot, SqliteThreadStore
from tests.faults.test_rotation_room import can_mount

HEAD = Head(Spot("t", "", "000001"), Kind.PUT, b"x" * 16)
MOUNTED = ("unshare", "--user", "--map-root-user", "--mount")

SAY = """
import ctypes, os, subprocess, sys
from contextlib import closing
from sealpoint.errors import SealpointError
from sealpoint.threads import Head, Kind, Spot, SqliteThreadStore
path = sys.argv[1]
def head(number):
    return Head(Spot("t" * 200, "", f"{number:06}"), Kind.PUT, b"x" * 16)
def say(name, call):
    try:
        call()
        print(name, "done", flush=True)
    except SealpointError as error:
        print(name, type(error).__name__, error, flush=True)
"""

FULL = """
disk, size = os.path.join(os.path.dirname(path), "disk"), int(sys.argv[2])
os.mkdir(disk)
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
path = os.path.join(disk, "heads.db")
store = None
def fill():
    global store
    store = SqliteThreadStore(path, create=True)
    for number in range(10_000):
        store.append([head(number)])
say("fill", fill)
if store:
    last = store.newest("t" * 200, "").heads[-1:]
    say("append", lambda: store.append([head(99_999)]))
    assert store.newest("t" * 200, "").heads[-1:] == last
subprocess.run(["mount", "-o", f"remount,size={64 << 20}", disk], check=True)
with closing(SqliteThreadStore(path, create=True)) as store:
    store.append([head(99_999)])
    events = [event.seq for event in store.events(1 << 40)]
    assert events == [*range(1, len(events) + 1)]
    print("left", *sorted(name for name in os.listdir(disk) if name.startswith(".")))
"""

READ_ONLY = """
folder = os.path.dirname(path)
subprocess.run(["mount", "--bind", folder, folder], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
say("create", lambda: SqliteThreadStore(path + "2", create=True))
def use():
    with closing(SqliteThreadStore(path)) as store:
        say("newest", lambda: print(len(store.newest("t", "").heads)))
        say("writable", store.require_writable)
        say("append", lambda: store.append([head(2)]))
say("open", use)
"""

WITHOUT_RIGHTS = """
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
if sys.argv[2:] == ["drop"]:
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-c", sys.orig_argv[2], path, "dropped"])
say("create", lambda: SqliteThreadStore(path + "2", create=True))
def use():
    with closing(SqliteThreadStore(path)) as store:
        say("writable", store.require_writable)
        say("append", lambda: store.append([head(2)]))
say("open", use)
"""

APPENDING = """
import sys
from sealpoint.threads import Head, Kind, Spot, SqliteThreadStore
store = SqliteThreadStore(sys.argv[1], timeout=60)
for number in range(int(sys.argv[2]), 1_000_000):
    store.append([Head(Spot("t", "", f"{number:06}"), Kind.PUT, b"x" * 16)])
    print(number, flush=True)
"""


def run(*words: object, before: tuple[str, ...] = ()) -> list[list[str]]:
    """What a process says, by words."""
    command = [*before, sys.executable, "-c", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=2) for line in done.stdout.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one event, in a folder of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with closing(SqliteThreadStore(folder / "heads.db", create=True)) as store:
        store.append([HEAD])
    return folder / "heads.db"


@pytest.mark.broad(every=2)
@pytest.mark.skipif(not can_mount(), reason="this system does not let a test mount a disk")
@pytest.mark.parametrize("pages", [2, 8, 12, 16, 20, 60])
def test_full_disk(tmp_path: Path, pages: int) -> None:
    """However much room there was: an error that says so, nothing lost, and it goes on with more room."""
    said = run(SAY + FULL, tmp_path / "x", pages * 4096, before=MOUNTED)
    assert said[0][:2] == ["fill", "ThreadStoreFullError"]
    assert "disk is full" in said[0][2]
    for words in said[1:-1]:
        assert words[:2] in (["append", "ThreadStoreFullError"], ["append", "done"])
    assert said[-1] == ["left"]


@pytest.mark.skipif(not can_mount(), reason="this system does not let a test mount a disk")
@pytest.mark.parametrize("log", ["moved", "left"])
def test_file_on_a_disk_that_is_mounted_read_only(path: Path, log: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM heads").fetchone()
        if log == "moved":
            connection.close()
        said = run(SAY + READ_ONLY, path, before=MOUNTED)
    assert said[0][:2] == ["create", "ThreadStoreError"]
    errors = {words[0]: words[1] for words in said[1:] if len(words) > 1}
    if "open" in errors and errors["open"] != "done":
        assert errors["open"] == "ThreadStoreError"
    else:
        assert errors["writable"] == errors["append"] == "ThreadStoreError"


@pytest.mark.parametrize("forbidden", ["file", "folder"])
def test_account_that_may_not_write(path: Path, forbidden: str) -> None:
    """Root may write everything; so the process gives up that right first."""
    if forbidden == "file":
        path.chmod(0o400)
    else:
        path.parent.chmod(0o500)
    try:
        said = run(SAY + WITHOUT_RIGHTS, path, "drop")
    finally:
        path.parent.chmod(0o700)
    assert said[0][:2] == ["create", "done" if forbidden == "file" else "ThreadStoreError"]
    errors = {words[1] for words in said[1:]}
    assert errors - {"done"} == {"ThreadStoreError"}
    path.chmod(0o600)
    with closing(SqliteThreadStore(path)) as store:
        assert [*store.heads()] == [HEAD]


def test_killed_processes_lose_nothing_that_they_reported(path: Path) -> None:
    """The log of SQLite survives its processes: each event that was appended is there, and none is half."""
    last = 0
    for _ in range(10):
        command = [sys.executable, "-c", APPENDING, str(path), str(last + 2)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = int(line)
                if last % 29 == 0:
                    break
            process.send_signal(signal.SIGKILL)
            last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
        with closing(SqliteThreadStore(path)) as store:
            (head,) = store.newest("t", "").heads
            events = [event.seq for event in store.events(1 << 40)]
        assert last <= int(head.spot.checkpoint_id) <= last + 1
        assert events == [*range(1, len(events) + 1)]
        last = int(head.spot.checkpoint_id)
