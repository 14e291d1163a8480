"""What a `decrypt` that is ended by a signal leaves: nothing, or something that the next command names."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Ended, Run
from tests.support.databases.sealed import values_of, write

ROOT = Path(__file__).parents[2]
HALTING = [sys.executable, "-m", "tests.cli.halting"]


@pytest.fixture
def path(tmp_path: Path, keys: Path) -> Path:
    """A database with all its values under k1, and a ring that opens them."""
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    return path


def partials(out: Path) -> list[Path]:
    return list(out.parent.glob(".*partial*"))


@contextmanager
def met_in_the_middle(path: Path, out: Path, number: signal.Signals) -> Iterator[subprocess.Popen[str]]:
    """A decrypt that a signal meets after its first batch, with opened values on the disk."""
    told, tell = os.pipe()
    wait, go = os.pipe()
    command = [*HALTING, str(tell), str(wait), "decrypt", str(path), "--out", str(out)]
    with subprocess.Popen(
        command, cwd=ROOT, pass_fds=(tell, wait), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(tell)
        os.close(wait)
        assert os.read(told, 1) == b"."
        assert partials(out)
        process.send_signal(number)
        os.close(go)
        yield process
    os.close(told)


@pytest.mark.broad(every=3)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_signal_leaves_nothing_opened(path: Path, tmp_path: Path, number: signal.Signals) -> None:
    before = {file.name for file in tmp_path.iterdir()}
    with met_in_the_middle(path, tmp_path / "new.db", number) as process:
        ended = Ended(0, *process.communicate())
    assert process.returncode == Exit.STOPPED
    assert ended.err.startswith(f"{number.name}: ending after this batch")
    assert ended.out.startswith(f"no copy was made; {path} is unchanged\n")
    assert {file.name for file in tmp_path.iterdir() if file.suffix not in {".db-wal", ".db-shm"}} == before


def test_closed_terminal_leaves_nothing_opened(path: Path, tmp_path: Path) -> None:
    """The whole of what a terminal does that is closed: SIGHUP, and errors for all that is drawn to it."""
    told, tell = os.pipe()
    wait, go = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        for descriptor in (tell, wait):
            os.set_inheritable(descriptor, True)
        os.chdir(ROOT)
        words = [str(tell), str(wait), "decrypt", str(path), "--out", str(tmp_path / "new.db")]
        os.execv(sys.executable, [*HALTING, *words])  # noqa: S606
    os.close(tell)
    os.close(wait)
    assert os.read(told, 1) == b"."
    assert partials(tmp_path / "new.db")
    os.close(terminal)
    os.close(go)
    _, status = os.waitpid(child, 0)
    os.close(told)
    assert os.waitstatus_to_exitcode(status) == Exit.STOPPED
    assert partials(tmp_path / "new.db") == []
    assert not (tmp_path / "new.db").exists()


COMMANDS: dict[str, Callable[[Path], list[object]]] = {
    "status": lambda path: ["status", path],
    "audit": lambda path: ["audit", path],
    "types": lambda path: ["types", path],
    "inspect": lambda path: ["inspect", path],
    "trial": lambda path: ["trial", path],
    "scrub": lambda path: ["scrub", path],
    "verify": lambda path: ["verify", path],
    "rotate": lambda path: ["rotate", path],
    "rotate --apply": lambda path: ["rotate", path, "--apply"],
    "decrypt": lambda path: ["decrypt", path, "--out", path.with_name("another.db")],
    "keys disable": lambda path: ["keys", "disable", "k1", "--db", path],
    "keys destroy": lambda path: ["keys", "destroy", "k1", "--db", path, "--yes"],
    "keys promote": lambda path: ["keys", "promote", "k2", "--db", path],
}


@pytest.mark.claim("u15")
def test_every_command_names_what_a_killed_decrypt_left(run: Run, path: Path, tmp_path: Path) -> None:
    """With advice that can be pasted, and that removes it; a link leads to it as well."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link.db").symlink_to(path)
    with met_in_the_middle(path, tmp_path / "new.db", signal.SIGKILL) as process:
        process.communicate()
    (left,) = partials(tmp_path / "new.db")
    for name, words in COMMANDS.items():
        for place in (path, elsewhere / "link.db"):
            ended = run(*words(place))
            assert ended.err.count(f"warning: {left} was left by a `decrypt` that was killed") == 1, (
                name,
                ended,
            )
    (hint,) = set(re.findall(r"^hint: .*: (rm .*)$", ended.err, re.MULTILINE))
    subprocess.run(shlex.split(hint), check=True)
    assert "warning" not in run("status", path).err


def test_the_same_decrypt_again_removes_what_it_left(run: Run, path: Path, tmp_path: Path) -> None:
    with met_in_the_middle(path, tmp_path / "new.db", signal.SIGKILL) as process:
        process.communicate()
    ended = run("decrypt", path, "--out", tmp_path / "new.db")
    assert (ended.code, "warning" in ended.err, partials(tmp_path / "new.db")) == (Exit.DONE, False, [])
    assert len(values_of(tmp_path / "new.db")) == len(values_of(path))


def test_what_an_earlier_version_left_is_named(run: Run, path: Path, tmp_path: Path) -> None:
    left = tmp_path / ".new.db.partial"
    left.write_bytes(path.read_bytes())
    assert f"warning: {left} was left by" in run("status", path).err
