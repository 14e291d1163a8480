"""What the pages about deployment show: blocks by the file that their first line names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """The kind and the text of each block of a page."""
    return FENCE.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))


def block(page: str, name: str) -> str:
    """The block of a page whose first line names a file."""
    (found,) = [text for _, text in blocks(page) if text.startswith(f"# {name}\n")]
    return found


def commands(page: str) -> list[str]:
    """The commands of a page, in order."""
    consoles = [text for kind, text in blocks(page) if kind == "console"]
    return [line[2:] for text in consoles for line in text.splitlines() if line.startswith("$ ")]
