"""Runs the program, and changes a key file in the middle: ``-m tests.cli.meddling ACT FILE OTHER WORDS``.

ACT is done once, right before the program renames or removes FILE for the first time, or at the change that
its table below names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealpoint.admin.cli.app import run

MATERIAL = bytes(range(200, 232))


def write(file: Path, _: Path) -> None:
    file.touch(0o600)
    file.write_bytes(MATERIAL)


def swap(file: Path, _: Path) -> None:
    real = file.rename(file.with_name("real"))
    file.symlink_to(real.name)


ACTS: dict[str, Callable[[Path, Path], object]] = {
    "replaced": lambda file, other: other.replace(file),
    "linked": lambda file, _: os.link(file, file.with_name("linked")),
    "moved": lambda file, _: file.rename(file.with_name("moved")),
    "removed": lambda file, _: file.unlink(),
    "swapped for a link": swap,
    "appears": write,
    "appears again": write,
}
ENDINGS = {"appears": ".keys.toml.new", "appears again": ".old"}


def meddle(act: str, file: Path, other: Path) -> None:
    """Have ``act`` done right before the change."""
    done = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if done or event not in ("os.rename", "os.remove"):
            return
        if str(arguments[0]).endswith(ENDINGS.get(act, str(file))):
            done = True
            ACTS[act](file, other)

    sys.addaudithook(hook)


if __name__ == "__main__":
    meddle(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    sys.exit(run(sys.argv[4:]))
