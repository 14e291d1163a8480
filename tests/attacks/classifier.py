"""Readers that are made to fall for an attack, to prove that every outcome is seen."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, NoReturn
from unittest.mock import patch

from fuzz.sqlitefile import honest
from fuzz.sqlitefile.commands import Ended, Place, UndocumentedError
from fuzz.sqlitefile.edits import add_loot
from fuzz.sqlitefile.forged import Forged
from fuzz.sqlitefile.format import SqliteFile
from tests.attacks.blobs import in_thread
from tests.attacks.case import Case, Forge, Outcome, Read, Reading, Scene
from tests.attacks.families.names import TOUCH, WRITE
from tests.attacks.maintenance import reading


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

# --- commands -----------------------------------------------------------------------------------


def _ends(code: int) -> Callable[[Place], Ended]:
    return lambda _: Ended(code, "{}", "")


def _reports_less(place: Place) -> Ended:
    share = {"table": "checkpoints", "kind": "sealed", "key_id": "k1", "rows": 1}
    return Ended(0, json.dumps({"databases": [{"shares": [share]}]}), "")


def _writes(place: Place) -> Ended:
    place.path.write_bytes(place.path.read_bytes()[:-512])
    return Ended(3, "", "")


def _runs_a_trigger(place: Place) -> Ended:
    with closing(sqlite3.connect(place.path)) as connection, connection:
        connection.execute("INSERT INTO loot VALUES ('ran')")
    return Ended(3, "", "")


def _ends_as_a_bug(_: Place) -> Ended:
    raise UndocumentedError("exit code 1")


_COMMANDS: Final[dict[str, tuple[Outcome, Callable[[Place], Ended]]]] = {
    "a command refuses": (Outcome.REFUSED, _ends(4)),
    "a command ends with 1": (Outcome.CRASHED, _ends_as_a_bug),
    "a command never ends": (Outcome.CRASHED, lambda _: _spin()),
    "a command counts too few rows": (Outcome.SILENT, _reports_less),
    "a command changes what it reads": (Outcome.SILENT, _writes),
    "a command runs a trigger": (Outcome.EXECUTED, _runs_a_trigger),
}


def _command(run: Callable[[Place], Ended]) -> Forge:
    def forge(scene: Scene) -> Read:
        file = SqliteFile(honest.make(honest.SHAPES[0]).data)
        add_loot(file)
        read = reading(scene, Forged(file.to_bytes(), b"", ()), ["status"])

        def patched() -> Reading:
            with patch.object(Place, "run", lambda place, *arguments: run(place)):
                return read()

        return patched

    return forge


EXPECTED: Final = {name: outcome for name, (outcome, _) in (_READERS | _COMMANDS).items()}


def _unforgeable(_: Scene) -> Read:
    raise AssertionError("it cannot be made")


def cases() -> Iterator[Case]:
    """One case a reader, and one that cannot be forged."""
    for name, (_, reader) in _READERS.items():
        yield Case("classifier", name, lambda _, reader=reader: reader)  # type: ignore[misc]
    for name, (_, run) in _COMMANDS.items():
        yield Case("classifier", name, _command(run), shared=False)
    yield Case("classifier", "cannot be forged", _unforgeable)
