"""The whole table against sealpoint, honest values beside it, and the proof that outcomes are seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.classifier import EXPECTED
from tests.support.runs.extent import by_extent

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(900)  # two thousand processes, each of which may take its five seconds


# The everyday run takes one attack of 32, and few generated files; SEALPOINT_TESTS=all takes all attacks,
# and `make attacks` all files, too.
EVERY, FILES = by_extent(32, 1), by_extent(6, 150)


def run(table: str, every: int = 1, *more: str) -> list[dict[str, Any]]:
    """Run a table against sealpoint, in a process that is small and quick to fork."""
    command = [sys.executable, "-m", "tests.attacks", "--json", "--side", "sealpoint", "--table", table]
    command += ["--every", str(every), "--files", str(FILES), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def outcomes(rows: list[dict[str, Any]], *wanted: str) -> list[str]:
    """The cases that ended in one of the ways, a line each."""
    return [
        f"{row['sealpoint']['outcome']}: {row['family']}: {row['name']}: {row['sealpoint']['detail']}"
        for row in rows
        if row["sealpoint"]["outcome"] in wanted
    ]


@pytest.fixture(scope="module")
def attacks() -> list[dict[str, Any]]:
    return run("attacks", EVERY)


@pytest.mark.claim("f7")
def test_nothing_is_executed_crashed_or_silent(attacks: list[dict[str, Any]]) -> None:
    failures = outcomes(attacks, "executed", "crashed", "silent")
    assert not failures, "\n".join(failures)


def test_every_attack_is_forged(attacks: list[dict[str, Any]]) -> None:
    failures = outcomes(attacks, "unforged")
    assert not failures, "\n".join(failures)


def test_cases_have_names_of_their_own(attacks: list[dict[str, Any]]) -> None:
    names = Counter((row["family"], row["name"]) for row in attacks)
    assert [name for name, times in names.items() if times > 1] == []


def test_honest_values_come_back_whole() -> None:
    """A reader that refuses everything would pass the table too."""
    rows = run("controls", by_extent(8, 1))
    failures = outcomes(rows, "executed", "crashed", "silent", "refused", "unforged")
    assert not failures, "\n".join(failures)


@pytest.mark.costly
def test_every_outcome_is_seen() -> None:
    """Readers that are made to fall for attacks are found out, each in its way."""
    seen = {row["name"]: row["sealpoint"]["outcome"] for row in run("classifier", 1, "--seconds", "1")}
    assert seen == {**EXPECTED, "cannot be forged": "unforged"}
