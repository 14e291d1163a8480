"""Runs ``rotator.py`` and hears what its processes say; and the databases they work on."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.results.events import Failure, Progress
from sealpoint.serde import EncryptedSerializer
from tests.faults.rotator import BATCH, at, make_checkpoint, make_cipher
from tests.support.databases.sealed import Place

CHECKPOINTS = 150
BATCHES = -(-CHECKPOINTS // BATCH.rows) + -(-2 * CHECKPOINTS // BATCH.rows)
"""How many a run over all that `make` writes takes, at least."""

ROTATOR = Path(__file__).with_name("rotator.py")
Values = dict[Place, tuple[str, bytes]]


class Rotator:
    """The process that forks the others."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def begin(self, *acts: str) -> None:
        assert self.process.stdin is not None
        print(*acts, sep=";", file=self.process.stdin, flush=True)

    def hear(self) -> list[str]:
        """Wait for the next line, and return its words."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process is gone"
        return line.split()

    def run(self, *acts: str) -> list[list[str]]:
        """Let acts end well, and return all that they said."""
        self.begin(*acts)
        said = []
        while (words := self.hear())[0] != "gone":
            said.append(words)
        assert words[1:] == ["0"] * len(acts)
        return said

    def kill(self, act: str, path: Path | str, argument: str, batches: int, seconds: float) -> bool:
        """Kill an act so long after so many batches; return whether it had not come to its end."""
        said = self.run(f"doomed {path} {batches} {seconds} {act} {argument}")
        assert said[-1][0] == "killed"
        assert [words[0] for words in said[:-1]] in ([], ["done"])
        return said[-1][1] == "True" and len(said) == 1


@contextmanager
def rotator(*before: str) -> Iterator[Rotator]:
    """Start the process that forks the others; at the end it goes by itself."""
    command = [*before, sys.executable, str(ROTATOR)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        running = Rotator(process)
        assert running.hear() == ["ready"]
        yield running


def make(path: Path, key: str | None, mode: str = "wal", checkpoints: int = CHECKPOINTS) -> None:
    """Let LangGraph write a database: sealed under a key, or not at all."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        saver = Theirs(connection, serde=EncryptedSerializer(make_cipher(key))) if key else Theirs(connection)
        for number in range(checkpoints):
            config = saver.put(at("thread"), make_checkpoint(f"{number:06}", number), {}, {})
            saver.put_writes(config, [("n", number), ("text", "x" * 500)], "task")
        connection.execute(f"PRAGMA journal_mode = {mode}")


def rerun(path: Path, key: str, *, allow_plaintext: bool) -> tuple[int, int]:
    """Go over everything to the end; return how many values were moved, and how many failed."""
    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        events = list(rotate(store, make_cipher(key), allow_plaintext=allow_plaintext, batch=BATCH))
        assert outstanding(store, key) == []
    moved = max((event.changed for event in events if isinstance(event, Progress)), default=0)
    return moved, sum(isinstance(event, Failure) for event in events)


def copy(source: Path, path: Path, mode: str = "delete") -> None:
    """Copy a database over another, with whatever hung on that."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(path)) as other:
        one.backup(other)
        other.execute(f"PRAGMA journal_mode = {mode}")
