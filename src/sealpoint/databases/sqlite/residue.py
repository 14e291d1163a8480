"""How much of a SQLite file no statement reads: its free pages, its slack, its log and its journal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sealpoint.databases.rows import Residue
from sealpoint.databases.sqlite import slack
from sealpoint.databases.sqlite.checked import CheckedFile
from sealpoint.errors import SourceError
from sealpoint.keys.command import run_command

_LEAST_SECONDS: Final = 5.0
_BYTES_PER_SECOND: Final = 1_000_000  # valid files take a fiftieth of the time


def residue(file: CheckedFile, path: Path) -> Residue:
    """Return how much of a file no statement reads.

    Args:
        file: The open file. Without a log, no other process writes to it meanwhile.
        path: Its path.
    """
    path = path.resolve()  # SQLite looks for the log beside the file itself
    with file.reading() as cursor:
        (free,) = cursor.execute("PRAGMA main.freelist_count").fetchone()
        (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
        log, journal = (_size(path.with_name(path.name + suffix)) for suffix in ("-wal", "-journal"))
        return Residue(free * page_bytes, log, journal, _slack(path, file.size_bytes(cursor)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _slack(path: Path, size_bytes: int) -> int | None:
    """Return the slack of a file; ``None`` if it cannot be parsed in the time for its size."""
    seconds = _LEAST_SECONDS + size_bytes / _BYTES_PER_SECOND
    try:
        return int(run_command((sys.executable, "-IS", slack.__file__, str(path)), seconds))
    except (SourceError, ValueError):
        return None
