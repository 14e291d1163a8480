"""What must be filled in before a release, since only the owner of the repository knows it.

Each such place has one of these strings, and RELEASING.md lists the files.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

PLACEHOLDERS: Final = {
    "0" * 40: "the hash of an action's commit",
    "OWNER/sealpoint": "the address of the repository",
}
FILES: Final = (".github", "docs", "*.md", "pyproject.toml")
EXPLAINED_IN: Final = ("RELEASING.md", "CONTRIBUTING.md")


def left(root: Path) -> dict[str, set[str]]:
    """Return which placeholders are left in the files that git knows, by the name of the file."""
    words = ["git", "ls-files", "-z", "--", *FILES]
    listed = subprocess.run(words, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
    pattern = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
    names = [name for name in listed.split("\0")[:-1] if name not in EXPLAINED_IN]
    texts = {name: (root / name).read_text(encoding="utf-8", errors="replace") for name in names}
    return {name: found for name, text in texts.items() if (found := {*pattern.findall(text)})}
