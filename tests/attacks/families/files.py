"""Files that are damaged, and writers that are killed."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.attacks.case import Case, Forge, Read, Reading, Scene
from tests.attacks.sides import opened
from tests.attacks.stores import at, checkpoint, honest

Damage = Callable[[Path], None]


def _sealed(saver: Any) -> list[Any]:
    """Return what is sealed of all checkpoints: no seal covers metadata, parents and names."""
    return [
        (found.checkpoint, sorted(map(repr, (value for _, _, value in found.pending_writes or ()))))
        for found in saver.list(None)
    ]


def _case(name: str, damage: Damage) -> Case:
    """Make a case of which nothing comes back but what was stored; rows may be missing."""

    def forge(scene: Scene) -> Read:
        path, serde, expected = honest(scene, _sealed, sealed=True)
        values = {text for _, texts in expected for text in texts}
        damage(path)

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                found = _sealed(saver)
            stored = [checkpoint for checkpoint, _ in expected]
            whole = all(one in stored and values.issuperset(texts) for one, texts in found)
            return Reading(found, whole)

        return read

    return Case("files", name, forge)


def _cut(size: float) -> Damage:
    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(size * len(data)) if size < 1 else int(size)])

    return damage


def _put(offset: int, data: bytes) -> Damage:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[offset : offset + len(data)] = data
        path.write_bytes(content)

    return damage


def _noise(seed: int, count: int, first: int = 0) -> Damage:
    def damage(path: Path) -> None:
        source = random.Random(seed)
        content = bytearray(path.read_bytes())
        for _ in range(count):
            content[source.randrange(first, len(content))] = source.randrange(256)
        path.write_bytes(content)

    return damage


def _zero_page(number: int) -> Damage:
    return _put(number * 4096, bytes(4096))


def _swap_pages(first: int, second: int) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
        pages[first], pages[second] = pages[second], pages[first]
        path.write_bytes(b"".join(pages))

    return damage


def _beside(suffix: str, data: bytes) -> Damage:
    def damage(path: Path) -> None:
        path.with_name(path.name + suffix).write_bytes(data)

    return damage


def _instead(data: bytes) -> Damage:
    def damage(path: Path) -> None:
        path.write_bytes(data)

    return damage


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def damaged() -> Iterator[Case]:
    """Pages, headers and journals."""
    for size in (1, 15, 16, 99, 100, 512, 4095, 4096, 4097, 0.5, 0.75, 0.99):
        yield _case(f"cut to {size}", _cut(size))
    for label, data in (
        ("nothing", b""),
        ("text", b"SELECT * FROM checkpoints;" * 100),
        ("zeros", bytes(8192)),
        ("the header alone", b"SQLite format 3\0"),
        ("the header and zeros", b"SQLite format 3\0" + bytes(8176)),
        ("gzip", b"\x1f\x8b\x08" + bytes(4096)),
        ("0xff", b"\xff" * 8192),
    ):
        yield _case(f"replaced by {label}", _instead(data))
    yield _case("a directory", _directory)
    yield _case("a pipe", _pipe)
    yield _case("a link to itself", _loop)
    for label, offset, data in (
        ("magic", 0, b"SQLite format 4\0"),
        ("page size 0", 16, b"\0\0"),
        ("page size 1", 16, b"\0\1"),
        ("page size 513", 16, b"\2\1"),
        ("page size 512", 16, b"\2\0"),
        ("write version 9", 18, b"\x09"),
        ("read version 9", 19, b"\x09"),
        ("reserved bytes", 20, b"\xff"),
        ("fractions", 21, b"\0\0\0"),
        ("page count", 28, b"\xff\xff\xff\xff"),
        ("no pages", 28, b"\0\0\0\0"),
        ("free list", 32, b"\0\0\0\2\0\0\0\x09"),
        ("schema format", 44, b"\0\0\0\x63"),
        ("encoding", 56, b"\0\0\0\x09"),
        ("encoding UTF-16", 56, b"\0\0\0\2"),
        ("vacuum", 52, b"\0\0\0\x09\0\0\0\1"),
        ("root page type", 100, b"\0"),
        ("root page is inner", 100, b"\x05"),
        ("root page has many cells", 103, b"\xff\xff"),
        ("root page content", 105, b"\0\1"),
        ("first cell", 108, b"\xff\xff"),
        ("first cell at 0", 108, b"\0\0"),
    ):
        yield _case(f"header: {label}", _put(offset, data))
    for page in range(1, 6):
        yield _case(f"page {page} zeroed", _zero_page(page))
        yield _case(
            f"page {page} an inner page", _put(page * 4096, b"\x05\0\0\0\1\x0f\xf0\0\0\0\0\2\x0f\xf0")
        )
        yield _case(
            f"page {page} an inner index page of itself",
            _put(page * 4096, b"\x02\0\0\0\1\x0f\xf0\0" + (page + 1).to_bytes(4, "big") + b"\x0f\xf0"),
        )
        yield _case(f"page {page} full of cells", _put(page * 4096 + 3, b"\x07\xff"))
    for first, second in ((1, 2), (1, 3), (2, 3), (2, 4), (3, 4)):
        yield _case(f"pages {first} and {second} swapped", _swap_pages(first, second))
    for seed in range(24):
        yield _case(f"noise {seed}", _noise(seed, 1 + 4 * seed))
        yield _case(f"noise {seed} behind page 1", _noise(seed, 1 + 20 * seed, 4096))
    noise = random.Random(1).randbytes(20_000)
    magic = b"\x37\x7f\x06\x82\x00\x2d\xe2\x18\x00\x00\x10\x00"
    for label, suffix, data in (
        ("a log of noise", "-wal", noise),
        ("a log with a header and noise", "-wal", magic + noise),
        ("an endless log", "-wal", (magic + bytes(20)) * 1000),
        ("an index of the log of noise", "-shm", noise * 2),
        ("a journal of noise", "-journal", noise),
        (
            "a journal with a header and noise",
            "-journal",
            b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\xff\xff\xff\xff" + noise,
        ),
    ):
        yield _case(label, _beside(suffix, data))


def killed() -> Iterator[Case]:
    """Writers that are killed: what is read later is whole."""
    for number in range(6):
        yield Case("files", f"killed in the middle of writing, {number + 1}", _killed(0.01 + 0.02 * number))


def _killed(seconds: float) -> Forge:
    def forge(scene: Scene) -> Read:
        path, serde, _ = honest(scene, _sealed, sealed=True)
        pid = os.fork()
        if pid == 0:
            with opened(scene.side, path, serde) as saver:
                for number in range(1_000_000):
                    config = saver.put(at("k"), checkpoint(f"k{number:06}", n=number), {"step": number}, {})
                    saver.put_writes(
                        config, [(f"c{index}", [number, "x" * 500]) for index in range(20)], "task"
                    )
            os._exit(0)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

        def read() -> Reading:
            with closing(sqlite3.connect(path)) as connection:
                counts = connection.execute(
                    "SELECT count(*) FROM writes WHERE thread_id = 'k' GROUP BY checkpoint_id "
                    "HAVING count(*) != 20"
                ).fetchall()
            with opened(scene.side, path, serde) as saver:
                found = list(saver.list(at("k")))
            whole = not counts and all(
                item.checkpoint["channel_values"] == {"n": int(item.checkpoint["id"][1:])} for item in found
            )
            return Reading(found, whole)

        return read

    return forge


def families() -> Iterator[Case]:
    """All cases of this module."""
    yield from damaged()
    yield from killed()
