"""Readers that are made to fall for an attack, to prove that every outcome is seen."""

from __future__ import annotations

import ctypes
import logging
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from tests.attacks.blobs import in_thread
from tests.attacks.case import Case, Outcome, Read, Reading, Scene
from tests.attacks.families.names import TOUCH, WRITE


def _done(value: Any = None) -> Reading:
    return Reading(value, whole=True)


def _recur(depth: int = 0) -> int:
    return _recur(depth + 1) + 1


def _deep_in_c() -> Reading:
    import ormsgpack

    value = b"\xc0"
    for _ in range(2000):
        value = ormsgpack.packb(ormsgpack.Ext(1, value))

    def hook(_: int, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=hook)

    return _done(hook(1, value))


def _wait() -> NoReturn:
    while True:
        threading.Event().wait()


def _spin() -> NoReturn:
    while True:
        pass


def _refuse(text: str) -> NoReturn:
    from sealpoint.errors import DecodeError

    raise DecodeError(text)


def _log() -> Reading:
    for number in range(10_000):
        logging.getLogger("sealpoint").warning("record %d", number)
    return _done()


def _catch() -> NoReturn:
    try:
        bytearray(2 << 30)
    except MemoryError as error:
        _refuse(type(error).__name__)
    raise AssertionError


_READERS: Final[dict[str, tuple[Outcome, Callable[[], Any]]]] = {
    "imports what is named": (Outcome.EXECUTED, lambda: _done(__import__("canary"))),
    "imports a package of it": (Outcome.EXECUTED, lambda: _done(__import__("canary_package.inner"))),
    "runs a shell": (Outcome.EXECUTED, lambda: _done(os.system(TOUCH))),  # noqa: S605
    "runs a program": (Outcome.EXECUTED, lambda: _done(subprocess.run(["true"], check=False))),
    "evaluates": (Outcome.EXECUTED, lambda: _done(eval(WRITE))),  # noqa: S307
    "unpickles": (Outcome.EXECUTED, lambda: _done(pickle.loads(pickle.dumps(os.getcwd)))),
    "executes, and then refuses": (Outcome.EXECUTED, lambda: (eval(WRITE), _refuse("late"))),  # noqa: S307
    "executes, and then dies": (Outcome.EXECUTED, lambda: (eval(WRITE), os.abort())),  # noqa: S307
    "reads memory that is not there": (Outcome.CRASHED, lambda: _done(ctypes.string_at(0))),
    "recurs in C in a small stack": (Outcome.CRASHED, in_thread(_deep_in_c)),
    "aborts": (Outcome.CRASHED, os.abort),
    "is killed": (Outcome.CRASHED, lambda: signal.raise_signal(signal.SIGKILL)),
    "ends with a status of 0": (Outcome.CRASHED, lambda: os._exit(0)),
    "exits": (Outcome.CRASHED, sys.exit),
    "waits for ever": (Outcome.CRASHED, _wait),
    "computes for ever": (Outcome.CRASHED, _spin),
    "takes 2 GiB": (Outcome.CRASHED, lambda: _done(bytearray(2 << 30))),
    "takes 2 GiB, and says that it refused": (Outcome.CRASHED, _catch),
    "recurs": (Outcome.CRASHED, _recur),
    "raises TypeError": (Outcome.CRASHED, lambda: len(5)),  # type: ignore[arg-type]
    "makes bad SQL": (Outcome.CRASHED, lambda: sqlite3.connect(":memory:").execute("SELECT '")),
    "refuses at length": (Outcome.CRASHED, lambda: _refuse("x" * 10_000)),
    "refuses with control characters": (Outcome.CRASHED, lambda: _refuse("\x1b[2J")),
    "logs without end": (Outcome.CRASHED, _log),
    "returns nothing": (Outcome.SILENT, lambda: Reading(None, whole=False)),
    "returns a part": (Outcome.SILENT, lambda: Reading([1], whole=[1] == [1, 2])),
    "returns plain data": (Outcome.INERT, lambda: _done([1, 2])),
    "refuses": (Outcome.REFUSED, lambda: _refuse("no")),
}

EXPECTED: Final = {name: outcome for name, (outcome, _) in _READERS.items()}


def _unforgeable(_: Scene) -> Read:
    raise AssertionError("it cannot be made")


def cases() -> Iterator[Case]:
    """One case a reader, and one that cannot be forged."""
    for name, (_, reader) in _READERS.items():
        yield Case("classifier", name, lambda _, reader=reader: reader)  # type: ignore[misc]
    yield Case("classifier", "cannot be forged", _unforgeable)
