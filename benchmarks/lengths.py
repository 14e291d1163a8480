"""How cost grows with the length of a thread, of checkpoints of 1 KB, and with the number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.chains import config, fill
from benchmarks.harness import Case, Options, Sampler, timed
from benchmarks.payloads import payload
from benchmarks.peers import LG, LG_ENC, PLAIN, SEALED, Saver, savers
from benchmarks.saver import Act, case, get_tuple, listing, walk

LENGTHS: Final = (100, 1_000, 10_000)
THREADS: Final = 1_000
CHECKPOINTS_EACH: Final = 10
NAMES: Final = (LG, LG_ENC, PLAIN, SEALED)


def cases(options: Options) -> Iterator[Case]:
    """Threads of three lengths in one file first; then a thousand, each of ten checkpoints of 8 KB."""
    lengths = tuple(length // 10 for length in LENGTHS) if options.quick else LENGTHS
    threads = THREADS // 10 if options.quick else THREADS
    state = payload("1 KB state")
    with savers(options.folder, NAMES) as opened:
        for saver in opened.values():
            for length in lengths:
                fill(saver, str(length), length, state, state["plan"], writes=1)
        yield from _by_length(opened, lengths)
        longest = lengths[-1]
        anywhere: Any = {"configurable": {"thread_id": str(longest)}}
        name = f"list without a namespace, {longest:,} checkpoints"
        yield case(name, opened, listing(anywhere, 10), rounds=9)
        yield case(f"delta walk, {longest:,} x 1 KB", opened, walk(str(longest), longest), rounds=3)
    yield from _many_threads(options.folder / "many", threads)


def _many_threads(folder: Path, threads: int) -> Iterator[Case]:
    folder.mkdir()
    state = {"messages": payload("50 messages")["messages"][:10]}
    with savers(folder, NAMES) as opened:
        for saver in opened.values():
            for thread in range(threads):
                fill(saver, str(thread), CHECKPOINTS_EACH, state, "done", writes=1)
        yield case(f"list(None, limit=10), {threads:,} threads", opened, listing(None, 10), rounds=9)


def _by_length(opened: Mapping[str, Saver], lengths: tuple[int, ...]) -> Iterator[Case]:
    """Compare each saver at the longest thread with itself at the shortest, and with the others."""
    for length in lengths:
        yield case(f"get_tuple, thread of {length:,}", opened, get_tuple(str(length)))
        yield case(f"list(limit=10), thread of {length:,}", opened, listing(config(str(length)), 10))
    for name, act in (("get_tuple", get_tuple), ("list(limit=10)", _list_ten)):
        peers: dict[str, Sampler] = {
            f"{peer}, {length:,}": timed(act(str(length))(opened[peer]))
            for peer in (LG, SEALED)
            for length in (lengths[0], lengths[-1])
        }
        yield Case(f"{name} by length", peers, f"{SEALED}, {lengths[0]:,}")


def _list_ten(thread: str) -> Act:
    return listing(config(thread), 10)
