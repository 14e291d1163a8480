"""Forged databases: an honest one, and the edits that a byte string names.

The first byte chooses the honest database, the second whether its log is edited, too. Each
edit takes one byte for its name, and as many as it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from fuzz.sqlitefile import wal
from fuzz.sqlitefile.choices import Choices
from fuzz.sqlitefile.edits import EDITS
from fuzz.sqlitefile.format import FormatError, SqliteFile
from fuzz.sqlitefile.honest import SHAPES, Shape, make

MAX_EDITS: Final = 6
MAX_PAGES: Final = 4096


class Forged(NamedTuple):
    """A database: its file, its write-ahead log, and what was done to it."""

    data: bytes
    log: bytes
    edits: tuple[str, ...]


def forge(script: bytes, shapes: Sequence[Shape] = SHAPES) -> Forged:
    """Make the database that a byte string stands for. None stands for the first honest one."""
    choices = Choices(script)
    honest = make(choices.one(shapes))
    log, where = honest.log, choices.number(3)
    file = _merged(honest.data, log) if log and where == 0 else SqliteFile(honest.data)
    before = [bytes(page) for page in file.pages]
    done: list[str] = []
    while not choices.is_over and len(done) < MAX_EDITS and len(file.pages) < MAX_PAGES:
        edit = choices.one(EDITS)
        done.append(edit.__name__)
        with suppress(FormatError, IndexError, OverflowError, UnicodeDecodeError):
            edit(file, choices)
    if log and where == 0:  # the edits stand in the log, as a writer would leave them
        return Forged(honest.data, _logged(log, before, file), tuple(done))
    if log and where == 1:
        log = _damaged(log, choices)
        done.append("damaged log")
    return Forged(file.to_bytes(), log, tuple(done))


def _merged(data: bytes, log: bytes) -> SqliteFile:
    """Return a file with its log applied."""
    file = SqliteFile(data)
    pages, count = wal.committed(log)
    for number in range(1, count + 1):
        if number > len(file.pages):
            file.pages.append(bytearray(file.page_bytes))
        if number in pages:
            file.pages[number - 1] = bytearray(pages[number])
    return file


def _logged(log: bytes, before: list[bytes], file: SqliteFile) -> bytes:
    changed = [
        number
        for number, page in enumerate(file.pages, 1)
        if number > len(before) or bytes(page) != before[number - 1]
    ]
    for number in changed:
        commit = len(file.pages) if number == changed[-1] else 0
        log = wal.append_frame(log, number, bytes(file.pages[number - 1]), commit)
    return log


def _damaged(log: bytes, choices: Choices) -> bytes:
    how, place = choices.number(4), choices.number(len(log))
    if how == 0:
        return log[:place]
    if how == 1:  # salts that are stale from some frame on
        size = wal.FRAME_BYTES + int.from_bytes(log[8:12], "big")
        at = wal.HEADER_BYTES + place // size * size + 8
        return log[:at] + bytes(8) + log[at + 8 :]
    if how == 2:
        return log + log[wal.HEADER_BYTES : place]
    return log[:place] + bytes((log[place] ^ 1 + choices.number(255),)) + log[place + 1 :]
