"""Scrubbing: removes old values from a SQLite file and its log, and searches both for remains.

An update leaves old contents in free pages, in unused space of other pages, and in the WAL or a journal.
VACUUM rewrites the file without old contents, and a TRUNCATE checkpoint empties the WAL. Then the files are
searched for fragments of old values. Scrubbing does not reach released blocks of the file system or disk,
copies and backups.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.sqlite.rows import Find, SqliteRows
from sealpoint.admin.results.tags import key_id_of
from sealpoint.errors import ScrubError
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.keys import KeyState
from sealpoint.seal.places import encode_value
from sealpoint.seal.suites import SUITES
from sealpoint.seal.tag import FLAGS, is_sealed

# Equal fragments of 24 bytes of ciphertext do not occur by chance. Each costs a search of the whole file.
FRAGMENT_BYTES: Final = 24
MAX_FRAGMENTS: Final = 32
_MIN_DIFFERENT: Final = 8  # least number of different bytes in an unsealed fragment
_BYTES_PER_SECOND: Final = 50_000_000  # speed of a VACUUM; disks differ by a factor of ten
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_LONGEST_BYTES: Final = 256  # longer than any fragment or tag; chunks overlap by it
_PARTS: Final = (4, 1, 7, 2, 6, 3, 5, 0, 8)  # positions of fragments, in eighths of a value
_TAG: Final = b""  # marks a tag of an old key in results

_Cell = tuple[str, bool | None]  # see `SqliteRows.search`


class Sample(NamedTuple):
    """Byte fragments of an old value: the first is searched for, or the next if readable text has it."""

    fragments: tuple[bytes, ...]
    is_sealed: bool


class Traces:
    """A random sample of fragments of old values, to search for later. Each value has the same probability.

    Pass `add` to `rotate` as ``before_change``.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._seen = 0
        self._random = random.Random(0)  # noqa: S311 -- a sample; nothing depends on its being secret

    def add(self, cell: Cell) -> None:
        """Add fragments of a value to the random sample, if the value is drawn."""
        value = cell.value
        if cell.is_item and is_sealed(cell.tag) and isinstance(value, bytes):
            value = encode_value(value).encode()  # the bytes in the file
        if not isinstance(value, bytes) or len(value) < FRAGMENT_BYTES:
            return
        room, sealed = len(value) - FRAGMENT_BYTES, is_sealed(cell.tag)
        places = dict.fromkeys(room * part // 8 for part in _PARTS)
        each = (value[place : place + FRAGMENT_BYTES] for place in places)
        fragments = (fragment for fragment in each if sealed or not _may_stay(fragment, cell))
        if (first := next(fragments, None)) is None:
            return
        self._seen += 1
        # Reservoir sampling, as the number of values is not known in advance: the n-th value is kept with
        # probability MAX_FRAGMENTS / n.
        place = len(self.samples)
        if place == MAX_FRAGMENTS:
            place = self._random.randrange(self._seen)
            if place >= MAX_FRAGMENTS:
                return
        self.samples[place : place + 1] = [Sample((first, *fragments), sealed)]


def _may_stay(fragment: bytes, cell: Cell) -> bool:
    """Whether an unsealed fragment may also occur outside of old values: in an id, or as padding."""
    ids = (str(part).encode(errors="replace") for part in cell.where.key)
    return len({*fragment}) < _MIN_DIFFERENT or any(fragment in each for each in ids)


class Scrubbed(NamedTuple):
    """The result of a scrub."""

    searched_bytes: int
    fragments: int
    # Old ciphertext or old tags, as file and offset.
    found: tuple[tuple[str, int], ...]
    # Longest time that writers waited.
    lock_seconds: float = 0.0
    # Tables and columns in which old content was found.
    columns: tuple[str, ...] = ()
    # Other tables and columns that contain old text as readable values: such text need not be a remain.
    readable: tuple[str, ...] = ()
    # Number of sampled values that were not searched for: columns in ``readable`` contain them in full.
    unsearched: int = 0


class Forecast(NamedTuple):
    """The expected effect of a scrub on users of a database."""

    size_bytes: int
    lock_seconds: float
    # Processes that have the database open, as far as the system shows.
    processes: tuple[str, ...]


def forecast(path: Path) -> Forecast:
    """Estimate how long a scrub locks a SQLite file, and find the processes that will wait."""
    size, path = 0, path.resolve()
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            size += path.with_name(path.name + suffix).stat().st_size
    return Forecast(size, size / _BYTES_PER_SECOND, _processes(path))


def scrub(path: Path, ring: KeyRing, samples: Sequence[Sample] = ()) -> Scrubbed:
    """Rewrite the file without old contents, empty its log, and search both for remains.

    If a column that is readable by design also contains a fragment, a hit does not show that an old value
    remains. So another fragment of the same value is searched for, which no such column contains.

    Writers wait from the beginning until the log is empty, and so do readers of a file without a WAL.
    """
    with closing(SqliteRows(path, writable=True)) as store:
        start = perf_counter()
        is_empty = store.vacuum()
        lock_seconds = perf_counter() - start
        if not is_empty:
            names = _processes(path)
            readers = " and ".join(names) or "another connection"
            error = ScrubError(f"the log of {path} cannot be emptied: the file is still read by {readers}")
            error.lock_seconds = lock_seconds
            raise error
        live = frozenset(filter(None, (key_id_of(count.tag) for count in store.count())))
    return _search(path, _old_tags(ring, live), samples)._replace(lock_seconds=lock_seconds)


def _search(path: Path, tags: re.Pattern[bytes] | None, samples: Sequence[Sample]) -> Scrubbed:
    """Search a file and its log; after a hit, search all tables for the columns that contain the fragment."""
    size, found = _search_files(path, _finder(tags, [sample.fragments[0] for sample in samples]))
    met = [sample for sample in samples if sample.fragments[0] in found]
    columns, readable, again, stands = set[str](), set[str](), list[bytes](), dict[bytes, set[_Cell]]()
    if found:
        with closing(SqliteRows(path)) as store:
            find = _finder(tags, [fragment for sample in met for fragment in sample.fragments])
            for needle, label, is_readable in store.search(find):
                stands.setdefault(needle, set()).add((label, is_readable))
        columns.update(label for label, _ in stands.get(_TAG, ()))
    for fragments, sealed in met:
        cells = set[_Cell]().union(*(stands.get(fragment, ()) for fragment in fragments))
        # Old ciphertext in any table is a remain, and so is old text in an unsealed value.
        is_left = sealed or any(is_readable is False for _, is_readable in cells)
        rest = [fragment for fragment in fragments if is_left or fragment not in stands]
        again += rest[:1]
        named = columns if is_left else readable
        named.update(label for label, is_readable in cells if not (is_readable and rest))
    if found:
        _, found = _search_files(path, _finder(tags, again))
    places, unsearched = sorted(set().union(*found.values())), len(met) - len(again)
    names = tuple(sorted(columns)), tuple(sorted(readable))
    return Scrubbed(size, len(samples) - unsearched, tuple(places), 0.0, *names, unsearched)


def _old_tags(ring: KeyRing, live: frozenset[str]) -> re.Pattern[bytes] | None:
    """Return a regular expression for tags of keys without rows; ``live`` are the ids of keys with rows."""
    flags = "".join(rf"(?:\.{flag})?" for flag in FLAGS)
    retired = [key.id for key in ring.keys if key.state is not KeyState.ACTIVE and key.id not in live]
    if not retired:
        return None
    # The end of an id is matched only if another id begins with it: random bytes may follow a tag.
    end = "(?![a-z0-9.-])"
    ids = "|".join(
        re.escape(key_id) + (end if any(other.startswith(key_id) for other in live) else "")
        for key_id in retired
    )
    return re.compile(rf"\+(?:{'|'.join(sorted(SUITES))}){flags}@(?:{ids})".encode())


def _finder(tags: re.Pattern[bytes] | None, fragments: Sequence[bytes]) -> Find:
    """Return a function that yields the first position in bytes of each fragment, and of any of the tags."""

    def find(data: bytes) -> Iterator[tuple[bytes, int]]:
        yield from ((each, place) for each in fragments if (place := data.find(each)) >= 0)
        if tags is not None and (match := tags.search(data)):
            yield _TAG, match.start()

    return find


def _search_files(path: Path, find: Find) -> tuple[int, dict[bytes, set[tuple[str, int]]]]:
    """Return the size of a file and its log, and the positions of hits, one per fragment and chunk."""
    size, found = 0, dict[bytes, set[tuple[str, int]]]()
    path = path.resolve()  # SQLite keeps the log next to a link's target
    for file in (path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")):
        place, tail = 0, b""
        # The log may be missing: the last process that closes the database removes it.
        with suppress(FileNotFoundError), file.open("rb") as stream:
            size += file.stat().st_size
            while chunk := stream.read(_CHUNK_BYTES):
                data, start = tail + chunk, place - len(tail)
                for needle, hit in find(data):
                    found.setdefault(needle, set()).add((file.name, start + hit))
                place += len(chunk)
                tail = data[-_LONGEST_BYTES:]
    return size, found


def _processes(path: Path) -> tuple[str, ...]:
    names, file = [], path.resolve()
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):
            if any(link.readlink() == file for link in (process / "fd").iterdir()):
                names.append(f"process {process.name} ({(process / 'comm').read_text().strip()})")
    return tuple(sorted(names))
