"""A hold on a file: one at a time among processes and threads, gone with the process that has it."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from sealpoint.admin.keys.lock import SUFFIX, holding
from sealpoint.errors import HeldError, OutputError, StoppedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    path.touch()
    return path


def test_one_holds_and_others_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name: a relative path, or a link to the file. Nothing is left behind."""
    link = path.with_name("link.db")
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    with holding(path):
        for name in (path, Path("x.db"), Path(f"../{path.parent.name}/x.db"), link):
            with pytest.raises(HeldError, match=r"x\.db"), holding(name):
                pass
        with pytest.raises(KeyError), holding(path.with_name("y.db")):
            raise KeyError
    assert {*path.parent.iterdir()} == {path, link}


@pytest.mark.claim("u11")
def test_a_hold_keeps_other_processes_away_and_dies_with_its_own(path: Path) -> None:
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        with holding(path):
            os.write(go, b"x")
            signal.pause()
    os.read(ready, 1)
    with pytest.raises(HeldError), holding(path):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for end in (ready, go):
        os.close(end)
    assert path.with_name(path.name + SUFFIX).exists()
    with holding(path):
        pass
    assert [*path.parent.iterdir()] == [path]


def test_a_hold_on_a_file_that_was_taken_away_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder before us lets go between our opening the file and our locking it."""
    lock, flock = path.with_name(path.name + SUFFIX), fcntl.flock
    before = [lock.unlink]

    def late(descriptor: int, operation: int) -> None:
        while before:
            before.pop()()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with holding(path):
        assert not before
        with pytest.raises(HeldError), holding(path):
            pass


@pytest.mark.claim("u10")
def test_no_link_is_followed(path: Path) -> None:
    """Somebody may have put one there to have a file made elsewhere. Nor is a missing folder made."""
    target = path.with_name("target")
    path.with_name(path.name + SUFFIX).symlink_to(target)
    with pytest.raises(StoppedError), holding(path):
        pass
    assert not target.exists()
    with pytest.raises(StoppedError), holding(path.parent / "missing" / "x.db"):
        pass
    with pytest.raises(OutputError, match="too long"), holding(path.with_name("n" * 242)):
        pass
