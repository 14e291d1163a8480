"""Cases about commands: a forged file, a command, and what `fuzz.sqlitefile` reads from the pages.

An answer is silent if the command ends with 0, or the saver without an error, and it is not the
one of the pages; executed, if a forged trigger ran, whatever came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from fuzz.sqlitefile import honest
from fuzz.sqlitefile.commands import (
    DOCUMENTED,
    DONE,
    NAMES,
    READING,
    UndocumentedError,
    WrongAnswerError,
    check,
)
from fuzz.sqlitefile.forged import Forged
from fuzz.sqlitefile.format import SqliteFile, encode_record
from sealpoint.errors import MaintenanceError
from tests.attacks.case import Case, Read, Reading, Scene

ONE_OLD_KEY: Final = honest.Shape(4096, ("k2",), 12)
TWO_KEYS: Final = honest.Shape(4096, ("k1", "k2"), 12)

READERS: Final = tuple(READING)
COUNTERS: Final = ("status --only", "audit", "keys disable --db", "keys destroy --db", "rotate", "decrypt")
"""Commands that an answer about the whole database rests on."""

Tamper = Callable[[SqliteFile], None]


class RefusedError(MaintenanceError):
    """A command ended with another code than 0."""


def cases(
    family: str,
    name: str,
    tamper: Tamper,
    commands: Iterable[str] = NAMES,
    shape: honest.Shape = TWO_KEYS,
) -> Iterator[Case]:
    """Make one case a command.

    Args:
        family: Family of the cases.
        name: What is done to the file.
        tamper: Does it to the pages.
        commands: Names of `fuzz.sqlitefile.commands.NAMES`.
        shape: The honest database before that.
    """
    for command in commands:
        yield Case(family, f"{name} [{command}]", _forge(name, tamper, command, shape), shared=False)


def _forge(name: str, tamper: Tamper, command: str, shape: honest.Shape) -> Callable[[Scene], Read]:
    def forge(scene: Scene) -> Read:
        file = SqliteFile(honest.make(shape).data)
        tamper(file)
        return reading(scene, Forged(file.to_bytes(), b"", (name,)), [command])

    return forge


def reading(scene: Scene, forged: Forged, commands: Iterable[str]) -> Read:
    """Return the reading of a forged file by commands: whole, if what they say is right."""
    folder = scene.directory / "place"
    folder.mkdir()

    def read() -> Reading:
        try:
            codes = dict(check(forged, folder, commands))
        except UndocumentedError as error:
            lines = [line for line in str(error).splitlines() if not line.startswith(("error:", "hint:"))]
            raise RuntimeError(lines[-1]) from None
        except WrongAnswerError as error:
            return Reading(" ".join([*error.__notes__, str(error).partition("\n")[0]]), whole=False)
        finally:
            mark_if_run(scene, folder)
        if not any(code in (DONE, None) for code in codes.values()):
            raise RefusedError(f"exit codes {sorted(set(codes.values()) & DOCUMENTED)}")  # type: ignore[type-var]
        return Reading(codes, whole=True)

    return read


def mark_if_run(scene: Scene, folder: Path) -> None:
    """Leave the marker if a forged trigger has written the row that it was given for that."""
    ran = encode_record(["ran"])
    for path in (*folder.glob("*.db"), *folder.glob("*.db-wal")):
        if ran in path.read_bytes():
            scene.marker.write_text("a trigger ran", encoding="ascii")
