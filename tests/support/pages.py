"""What a page of the documentation shows: its fenced blocks, and the commands of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        kind: What it says after the fence.
        text: What is between the fences.
        line: Number of the first line of that.
        shown: The block right below with what it prints, if there is one.
    """

    kind: str
    text: str
    line: int
    shown: str | None


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for fence, below in zip(found, [*found, None][1:], strict=True):
        adjacent = below and below[1] in {"text", "output"} and not text[fence.end() : below.start()].strip()
        shown = below[2] if below and adjacent else None
        yield Block(fence[1], fence[2], text.count("\n", 0, fence.start(2)) + 1, shown)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what it is shown to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def require_shown(shown: str, printed: str, where: str) -> None:
    """Compare what a page shows with what was printed."""
    pattern = ".*?".join(map(re.escape, shown.strip().split("...")))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{where} shows\n{shown}\nand not\n{printed}"
