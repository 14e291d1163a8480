"""Programs that run beside a test: started, ready, and ended with it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


class Program:
    """A program that is ready.

    Attributes:
        ready: The match of what it said.
        log: The lines that it has printed.
        pid: Its process.
    """

    def __init__(self, process: subprocess.Popen[str], pattern: str) -> None:
        self.pid, self.log = process.pid, list[str]()
        assert process.stdout is not None
        for line in process.stdout:
            self.log.append(line)
            if found := re.search(pattern, line):
                self.ready = found
                break
        else:
            raise AssertionError(f"{process.args!r} has ended:\n{''.join(self.log)}")
        # Its pipe is read to the end: otherwise it would wait.
        self._reader = Thread(target=self.log.extend, args=(process.stdout,), daemon=True)
        self._reader.start()


@contextmanager
def running(words: Sequence[str], pattern: str, *, folder: Path, env: Mapping[str, str]) -> Iterator[Program]:
    """Start a program, and yield when a line of its output matches; end it afterwards."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            program = Program(process, pattern)
            yield program
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
