"""Runs each case in a process of its own, under limits, and tells how it ended.

The parent has loaded everything before: a child is a fork of it and begins at once. The
child says over a pipe that it has forged, when the clock starts, and then what it read.
What it does not live to say, the parent sees from how it died.
"""

from __future__ import annotations

import gc
import json
import math
import os
import reprlib
import resource
import selectors
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealpoint.admin.cli.app import program
from tests.attacks import canaries
from tests.attacks.case import Case, Outcome, Scene
from tests.attacks.sides import Side

SECONDS: Final = 5
MEMORY_BYTES: Final = 1 << 30
_FORGE_SECONDS: Final = 60
_PATIENCE_SECONDS: Final = 30
_MESSAGE_CHARS: Final = 1500  # names, twice 200 characters of each, and what is said about them
_LOG_BYTES: Final = 64 * 1024
_MODULES: Final = (
    "ipaddress",
    "langchain_core.documents",
    "langchain_core.messages",
    "langgraph.store.base",
    "langgraph.types",
    "numpy",
    "sealpoint.serde.inert",
    "tomlkit",
    "typer._adapters",
    "typer._click.decorators",
)


class Result(NamedTuple):
    """How a case ended."""

    case: Case
    outcome: Outcome
    detail: str
    seconds: float


@dataclass(slots=True)
class _Child:
    case: Case
    side: Side
    pid: int
    pipe: int
    directory: Path
    started: float
    seconds: int
    forged: bool = False
    timed_out: bool = False
    extended: int = 0
    computed: float = 0
    said: bytearray = field(default_factory=bytearray)

    @property
    def deadline(self) -> float:
        return self.started + (self.seconds if self.forged else _FORGE_SECONDS) + self.extended

    def starves(self) -> bool:
        """Whether a child that is late computes, on a machine that is busy; then it is given more time.

        What it may compute in all is limited by itself, so that one which never ends gets no more.
        """
        computed = _cpu_seconds(self.pid)
        if computed < self.computed + 0.02 or self.extended >= _PATIENCE_SECONDS:
            return False
        self.computed, self.extended = computed, self.extended + 1
        return True

    def listen(self) -> bool:
        """Take in what the child says; return whether it has more to say."""
        said = os.read(self.pipe, 1 << 16)
        if said and not self.forged:
            self.forged, self.started, said = True, time.monotonic(), said[1:]
            self.said += said
            return True
        self.said += said
        return bool(said)


def run(cases: Iterable[Case], side: Side, jobs: int = 2, seconds: int = SECONDS) -> Iterator[Result]:
    """Run ``cases`` against ``side``, ``jobs`` at a time, each for ``seconds`` at most, and yield results."""
    _warm(side)
    gc.freeze()  # children need not copy what they will not change
    waiting = iter(cases)
    with tempfile.TemporaryDirectory() as directory, selectors.DefaultSelector() as selector:
        canaries.place(Path(directory))
        while True:
            while len(selector.get_map()) < jobs and (case := next(waiting, None)):
                child = _start(case, side, seconds)
                selector.register(child.pipe, selectors.EVENT_READ, child)
            children: list[_Child] = [key.data for key in selector.get_map().values()]
            if not children:
                return
            now = time.monotonic()
            for key, _ in selector.select(max(0, min(child.deadline for child in children) - now)):
                if not key.data.listen():
                    selector.unregister(key.fd)
                    yield _end(key.data)
            for key in selector.get_map().values():
                child = key.data
                if time.monotonic() > child.deadline and not child.starves():
                    child.timed_out = True
                    os.kill(child.pid, signal.SIGKILL)


def _cpu_seconds(pid: int) -> float:
    """Return how long a process has computed; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _warm(side: Side) -> None:
    """Import what children would import each for itself."""
    side.strict().dumps_typed({"a": 1})
    side.sealing().dumps_typed({"a": 1})
    with closing(sqlite3.connect(":memory:")) as connection:
        side.saver(connection, side.strict()).setup()


def _start(case: Case, side: Side, seconds: int) -> _Child:
    directory = Path(tempfile.mkdtemp(prefix="attack-"))
    pipe, speaking = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(pipe)
            _live(case, Scene(side, directory, directory / "marker"), speaking, seconds)
        except Exception:  # noqa: BLE001 -- an attack that cannot be made; the parent shows the last line
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    os.close(speaking)
    return _Child(case, side, pid, pipe, directory, time.monotonic(), seconds)


def _end(child: _Child) -> Result:
    """Bury a child, and say how its case ended."""
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    seconds = time.monotonic() - child.started
    marked = (child.directory / "marker").exists()
    log = (child.directory / "log").stat().st_size
    outcome, detail = _classify(child, status, marked, log)
    shutil.rmtree(child.directory, ignore_errors=True)
    return Result(child.case, outcome, detail, seconds)


def _classify(child: _Child, status: int, marked: bool, log: int) -> tuple[Outcome, str]:
    if marked:
        return Outcome.EXECUTED, "the marker was written"
    if not child.forged:
        return Outcome.UNFORGED, "it took too long" if child.timed_out else _last_line(child.directory)
    if child.timed_out:
        return Outcome.CRASHED, f"over {child.seconds} s"
    if os.WIFSIGNALED(status):
        return Outcome.CRASHED, signal.Signals(os.WTERMSIG(status)).name
    if not child.said:
        return (
            Outcome.CRASHED,
            f"it ended with status {os.waitstatus_to_exitcode(status)}: {_last_line(child.directory)}",
        )
    outcome, detail = json.loads(child.said)
    if child.side.quiet and log > _LOG_BYTES and outcome != Outcome.EXECUTED:
        return Outcome.CRASHED, f"it logged {log} bytes"
    return Outcome(outcome), detail


def _last_line(directory: Path) -> str:
    """Return the last line of what a child wrote before it ended."""
    lines = (directory / "log").read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "without a word"


# --- in the child -------------------------------------------------------------------------------


def _live(case: Case, scene: Scene, pipe: int, seconds: int) -> None:
    with (scene.directory / "log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ[canaries.VARIABLE] = str(scene.marker)
    read = case.forge(scene)
    os.write(pipe, b"\n")
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    acts = canaries.watch(scene.directory)
    outcome, detail = _judge(read, scene.side)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if acts:
        outcome, detail = Outcome.EXECUTED, f"{acts[0]} was called"
    os.write(pipe, json.dumps([outcome, detail[:300]]).encode())
    os._exit(0)


def _judge(read: Any, side: Side) -> tuple[Outcome, str]:
    try:
        value, whole = read()
    except Exception as error:  # noqa: BLE001 -- whatever it raises is what is asked for
        return _judge_error(error, side)
    except BaseException as error:  # noqa: BLE001 -- a panic of an extension module, or an exit
        return Outcome.CRASHED, type(error).__name__
    return (Outcome.INERT if whole else Outcome.SILENT), _brief(value)


def _judge_error(error: Exception, side: Side) -> tuple[Outcome, str]:
    name = type(error).__name__
    if not side.refuses(error):
        return Outcome.CRASHED, f"{name}: {str(error)[:150]}"
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    if side.quiet and (len(text) > _MESSAGE_CHARS or not text.replace("\n", "").isprintable()):
        return Outcome.CRASHED, f"{name} with a message of {len(text)} characters: {text[:100]!r}"
    if "MemoryError" in text:
        return Outcome.CRASHED, f"{name}: over 1 GiB, and caught"
    return Outcome.REFUSED, f"{name}: {text.partition(chr(10))[0][:150]}"


class _Brief(reprlib.Repr):
    def repr_instance(self, x: Any, level: int) -> str:
        """Name the type alone: what was read may be too large, too deep or half built."""
        return f"<{type(x).__name__}>"


def _brief(value: object) -> str:
    return f"{type(value).__name__} {_Brief().repr(value)}"[:200]


def load() -> None:
    """Import what values are made of, and build the commands: children would need it each for itself."""
    for name in _MODULES:
        import_module(name)
    program()
