"""What fuzzing has found is read or refused now, see ``fuzz.targets``."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.targets import TARGETS, try_one

CORPUS = Path(__file__).parents[1] / "corpus"
FOUND = {f"{path.parent.name}/{path.name}": path for path in sorted(CORPUS.glob("*/*"))}


def test_every_finding_is_of_a_target() -> None:
    assert {path.parent.name for path in FOUND.values()} <= TARGETS.keys()


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_read_or_refused(name: str) -> None:
    path = FOUND[name]
    try_one(path.parent.name, path.read_bytes())
