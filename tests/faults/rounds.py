"""Runs rounds of ``writer.py`` and hears what its processes say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WRITER = Path(__file__).with_name("writer.py")


class Rounds:
    """One process that forks the others; those are cheap, and there are many."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def begin(self, path: Path, *names: str) -> None:
        """Let a process begin for each name, all at the same moment."""
        assert self.process.stdin is not None
        print(path, *names, file=self.process.stdin, flush=True)

    def hear(self) -> list[str]:
        """Wait for the next line, and return its words."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def run(self, path: Path, *names: str) -> None:
        """Do a whole round, in which every process ends well."""
        self.begin(path, *names)
        assert self.hear() == ["gone", *"0" * len(names)]


@contextmanager
def rounds(act: str) -> Iterator[Rounds]:
    """Start the process that forks the others; at the end it goes by itself."""
    command = [sys.executable, str(WRITER), act]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Rounds(process)
