"""Files that `fuzz.sqlitefile` forges page by page, the same ones in each run, and all commands on each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from fuzz.sqlitefile.commands import NAMES
from fuzz.sqlitefile.forged import forge
from tests.attacks.case import Case, Forge, Read, Scene
from tests.attacks.maintenance import reading

FAMILY: Final = "generated"
FILES: Final = 600
"""With all of them `make attacks` takes a minute more."""


def _forge(script: bytes) -> Forge:
    def made(scene: Scene) -> Read:
        return reading(scene, forge(script), NAMES)

    return made


def families() -> Iterator[Case]:
    """All cases of this module."""
    source = random.Random("sqlite_master")
    for number in range(FILES):
        script = source.randbytes(source.choice((6, 8, 10, 14)))
        yield Case(FAMILY, f"file {number} of {script.hex()}", _forge(script), shared=False)
