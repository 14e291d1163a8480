"""The write-ahead log: frames of pages, checked by salts and a running checksum.

Source: https://www.sqlite.org/fileformat2.html, section 4.

    header   magic u32, version u32, page size u32, checkpoints u32, salts 2 x u32, checksum 2 x u32
    frame    page u32, pages after a commit u32 or 0, salts 2 x u32, checksum 2 x u32, the page
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from fuzz.sqlitefile.format import FormatError

HEADER_BYTES: Final = 32
FRAME_BYTES: Final = 24
LITTLE_MAGIC: Final = 0x377F0682
VERSION: Final = 3007000

Sum = tuple[int, int]


class Frame(NamedTuple):
    """A frame that is valid: which page it holds, and how many the file has after it, if it commits."""

    page: int
    commit_pages: int
    content: bytes


def checksum(data: bytes, before: Sum, order: str) -> Sum:
    """Go on with a checksum over a multiple of 8 bytes; ``order`` is ``<`` or ``>``."""
    one, two = before
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def frames(log: bytes) -> Iterator[Frame]:
    """Yield the valid frames of a log; none if its header is not valid.

    Raises:
        FormatError: If the log is of another version, which SQLite refuses to open.
    """
    if len(log) < HEADER_BYTES:
        return
    magic, version, page_bytes, *_ = struct.unpack(">8I", log[:HEADER_BYTES])
    order = "<" if magic == LITTLE_MAGIC else ">"
    running = checksum(log[:24], (0, 0), order)
    sizes = 512 <= page_bytes <= 65536 and not page_bytes & page_bytes - 1
    if magic & ~1 != LITTLE_MAGIC or not sizes or running != struct.unpack(">2I", log[24:32]):
        return
    if version != VERSION:
        raise FormatError("a log of another version")
    salts = log[16:24]
    for at in range(HEADER_BYTES, len(log) - FRAME_BYTES - page_bytes + 1, FRAME_BYTES + page_bytes):
        head, content = log[at : at + FRAME_BYTES], log[at + FRAME_BYTES : at + FRAME_BYTES + page_bytes]
        running = checksum(head[:8] + content, running, order)
        page, commit_pages = struct.unpack(">2I", head[:8])
        if head[8:16] != salts or page == 0 or running != struct.unpack(">2I", head[16:24]):
            return
        yield Frame(page, commit_pages, content)


def committed(log: bytes) -> tuple[dict[int, bytes], int]:
    """Return the latest content of each page up to the last commit, and how many pages the file has then."""
    pages: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    count = 0
    for frame in frames(log):
        pending[frame.page] = frame.content
        if frame.commit_pages:
            pages |= pending
            pending, count = {}, frame.commit_pages
    return {number: content for number, content in pages.items() if number <= count}, count


def append_frame(log: bytes, page: int, content: bytes, commit_pages: int) -> bytes:
    """Return a log with one more frame, which is valid if all before it are."""
    magic, _, page_bytes, *_ = struct.unpack(">8I", log[:HEADER_BYTES])
    size = FRAME_BYTES + page_bytes
    log = log[: HEADER_BYTES + (len(log) - HEADER_BYTES) // size * size]
    last = log[-size:][16:24] if len(log) > HEADER_BYTES else log[24:32]
    before: Sum = struct.unpack(">2I", last)
    head = struct.pack(">2I", page, commit_pages)
    ends = checksum(head + content, before, "<" if magic == LITTLE_MAGIC else ">")
    return log + head + log[16:24] + struct.pack(">2I", *ends) + content
