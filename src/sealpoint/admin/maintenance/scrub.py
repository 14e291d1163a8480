"""Scrubbing: removal of old ciphertext from a SQLite file and its log, with a final search.

An update leaves old contents in free pages, in unused space of other pages, and in the WAL or a journal.
VACUUM rewrites the file without them, and a TRUNCATE checkpoint empties the WAL. Then the files are searched
for fragments of old values. Released blocks of the file system or the disk, copies and backups cannot be
reached.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.base.place import encode_value
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.crypto.suites import SUITES
from sealpoint.crypto.tag import FLAGS, is_sealed, key_id_of
from sealpoint.errors import ScrubError

# 24 bytes of ciphertext do not repeat by chance. Each fragment costs a search through the whole file.
FRAGMENT_BYTES: Final = 24
MAX_FRAGMENTS: Final = 32
_MIN_DIFFERENT: Final = 8  # bytes of a fragment that was not sealed
_BYTES_PER_SECOND: Final = 50_000_000  # of a VACUUM; disks differ by a factor of ten
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_LONGEST_BYTES: Final = 256  # more than any fragment or tag, so that none is missed between two chunks


class Traces:
    """Fragments of old values to search for later: a sample with the same probability for each value.

    `add` is passed to `rotate` as ``before_change``.
    """

    def __init__(self) -> None:
        self.fragments: list[bytes] = []
        self._seen = 0
        self._random = random.Random(0)  # noqa: S311 -- a sample; nothing depends on its being secret

    def add(self, cell: Cell) -> None:
        """Possibly keep a fragment from the middle of a value."""
        value = cell.value
        if cell.is_item and is_sealed(cell.tag) and isinstance(value, bytes):
            value = encode_value(value).encode()  # as it stands in the file
        if not isinstance(value, bytes) or len(value) < FRAGMENT_BYTES:
            return
        middle = (len(value) - FRAGMENT_BYTES) // 2
        fragment = value[middle : middle + FRAGMENT_BYTES]
        if not is_sealed(cell.tag) and _may_stay(fragment, cell):
            return
        self._seen += 1
        # Reservoir sampling, because the number of values is not known in advance: the n-th value is kept
        # with the probability MAX_FRAGMENTS / n.
        place = len(self.fragments)
        if place == MAX_FRAGMENTS:
            place = self._random.randrange(self._seen)
            if place >= MAX_FRAGMENTS:
                return
        self.fragments[place : place + 1] = [fragment]


def _may_stay(fragment: bytes, cell: Cell) -> bool:
    """Whether a fragment of readable bytes may be found elsewhere: as an id of the row, or as filling."""
    ids = (str(part).encode(errors="replace") for part in cell.where.key)
    return len({*fragment}) < _MIN_DIFFERENT or any(fragment in each for each in ids)


class Scrubbed(NamedTuple):
    """What a scrub found."""

    searched_bytes: int
    fragments: int
    # Old ciphertext or old tags, as file and offset.
    found: tuple[tuple[str, int], ...]
    # The longest time that writers waited.
    lock_seconds: float = 0.0


class Forecast(NamedTuple):
    """The expected effect of a scrub on users of a database."""

    size_bytes: int
    lock_seconds: float
    # Those that have the database open, as far as the system shows.
    processes: tuple[str, ...]


def forecast(path: Path) -> Forecast:
    """Estimate how long a scrub locks a SQLite file, and find the processes that will wait."""
    size, path = 0, path.resolve()
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            size += path.with_name(path.name + suffix).stat().st_size
    return Forecast(size, size / _BYTES_PER_SECOND, _processes(path))


def scrub(path: Path, ring: KeyRing, traces: Iterable[bytes] = ()) -> Scrubbed:
    """Rewrite the file without its old contents, empty its log, and search both.

    Writers wait from the beginning until the log is empty, and so do readers of a file without a WAL.
    """
    with closing(SqliteRows(path, writable=True)) as store:
        start = perf_counter()
        is_empty = store.vacuum()
        lock_seconds = perf_counter() - start
        if not is_empty:
            names = _processes(path)
            readers = f"{' and '.join(names)} still read it" if names else "another connection still reads it"
            error = ScrubError(f"the log of {path} cannot be emptied: {readers}")
            error.lock_seconds = lock_seconds
            raise error
        live = frozenset(filter(None, (key_id_of(count.tag) for count in store.count())))
    fragments = tuple(traces)
    size, found = 0, set[tuple[str, int]]()
    path = path.resolve()  # SQLite has its log next to the target of a link
    for file in (path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")):
        with suppress(FileNotFoundError):  # the last process that closes the database removes the log
            size += file.stat().st_size
            found.update((file.name, place) for place in _search(file, _old_tags(ring, live), fragments))
    return Scrubbed(size, len(fragments), tuple(sorted(found)), lock_seconds)


def _old_tags(ring: KeyRing, live: frozenset[str]) -> re.Pattern[bytes] | None:
    """Return a pattern of tags of keys without rows; ``live`` are the keys with rows."""
    flags = "".join(rf"(?:\.{flag})?" for flag in FLAGS)
    retired = [key.id for key in ring.keys if key.state is not KeyState.ACTIVE and key.id not in live]
    if not retired:
        return None
    # The end is looked at only if one id is the beginning of another: random bytes may follow the tag.
    end = "(?![a-z0-9.-])"
    ids = "|".join(
        re.escape(key_id) + (end if any(other.startswith(key_id) for other in live) else "")
        for key_id in retired
    )
    return re.compile(rf"\+(?:{'|'.join(sorted(SUITES))}){flags}@(?:{ids})".encode())


def _search(file: Path, tags: re.Pattern[bytes] | None, fragments: tuple[bytes, ...]) -> Iterator[int]:
    """Yield the positions of old contents in a file, one of each kind per chunk."""
    place, tail = 0, b""
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            data = tail + chunk
            start = place - len(tail)
            yield from (start + hit for fragment in fragments if (hit := data.find(fragment)) >= 0)
            if tags is not None and (match := tags.search(data)):
                yield start + match.start()
            place += len(chunk)
            tail = data[-_LONGEST_BYTES:]


def _processes(path: Path) -> tuple[str, ...]:
    names, file = [], path.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):
            if any(link.readlink() == file for link in (process / "fd").iterdir()):
                names.append(f"process {process.name} ({(process / 'comm').read_text().strip()})")
    return tuple(sorted(names))
