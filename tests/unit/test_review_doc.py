"""docs/review.md names the modules that a reviewer reads, their sizes, and what holds each of them."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import pytest

import sealpoint.seal
from tests.support.claims import ROOT, sections
from tests.vectors.releases import FOLDER, RELEASES
from tests.vectors.test_formats import FORMATS

PAGE: Final = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")
SOURCE: Final = ROOT / "src" / "sealpoint"
TESTS: Final = ROOT / "tests"
MAX_BYTES: Final = 12_000
MOST_OFF: Final = 0.05  # how far the number of lines of a module may be from the one on the page

UNITS: Final = {
    "The core": "The core, in two days",
    "unauthenticated": "Second unit: bytes that no key authenticated",
    "procedures": "Third unit: procedures",
}


class Row(NamedTuple):
    """One row of a table."""

    unit: str
    module: str
    lines: int
    claims: list[str]
    tests: list[str]
    vectors: list[str]


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows() -> list[Row]:
    """All rows of the tables of modules."""
    found = []
    for unit, heading in UNITS.items():
        for line in section(heading).splitlines():
            if named := re.match(r"\| `([\w/]+)` \(([\d,]+)\) \|", line):
                *_, claims, held = (cell.strip() for cell in line.strip("|").split("|"))
                tests, _, vectors = held.partition(";")
                found.append(
                    Row(
                        unit,
                        named[1],
                        int(named[2].replace(",", "")),
                        claims.split(),
                        re.findall(r"`([^`]+)`", tests),
                        re.findall(r"`([^`]+)`", vectors),
                    )
                )
    return found


ROWS: Final = rows()
EACH: Final = pytest.mark.parametrize("row", ROWS, ids=[row.module for row in ROWS])


def test_the_page_is_short() -> None:
    assert len(PAGE.encode()) <= MAX_BYTES


def test_each_module_of_the_core_has_one_row() -> None:
    modules = [f"seal/{path.stem}" for path in (SOURCE / "seal").glob("*.py") if path.stem != "__init__"]
    assert sorted(row.module for row in ROWS if row.unit == "The core") == sorted(modules)


def test_each_unit_has_rows_and_no_module_two() -> None:
    assert {row.unit for row in ROWS} == UNITS.keys()
    assert len({row.module for row in ROWS}) == len(ROWS)


@EACH
def test_the_number_of_lines_is_about_right(row: Row) -> None:
    lines = len((SOURCE / f"{row.module}.py").read_text(encoding="utf-8").splitlines())
    assert abs(row.lines - lines) <= MOST_OFF * lines, lines


@EACH
def test_the_claims_are_those_that_name_the_module(row: Row) -> None:
    claims = {name: claim for each in sections() for name, claim in each.claims.items()}
    assert row.claims == [name for name, claim in claims.items() if row.module in claim.modules]
    assert row.claims


@EACH
def test_the_tests_exist(row: Row) -> None:
    assert row.tests
    assert [name for name in row.tests if not (TESTS / f"{name}.py").is_file()] == []


@EACH
def test_the_vectors_exist(row: Row) -> None:
    for vector in row.vectors:
        name, _, part = vector.partition(" ")
        files = [file for release in RELEASES if (file := FOLDER / release / name).exists()]
        assert files, vector
        assert not part or any(json.loads(file.read_bytes()).get(part) for file in files), vector


@EACH
def test_the_vectors_of_its_formats_are_named(row: Row) -> None:
    mark = f"{row.module.replace('/', '.')}: "
    wanted = {vector for vector, marks in FORMATS.items() if any(each.startswith(mark) for each in marks)}
    assert wanted - {*row.vectors} == set()


def test_the_commands_run_every_test_of_the_core() -> None:
    commands = re.findall(r'\$ make test ARGS="(.*)"', section(UNITS["The core"]))
    paths = [ROOT / path for command in commands for path in command.split()]
    assert paths
    assert [path for path in paths if not path.exists()] == []
    named = {TESTS / f"{name}.py" for row in ROWS if row.unit == "The core" for name in row.tests}
    assert {file for file in named if not any(file.is_relative_to(path) for path in paths)} == set()


def test_every_module_and_test_that_is_named_exists() -> None:
    named = re.findall(r"`([a-z]+/[\w/]+)`", PAGE)
    assert named
    paths = {name: [SOURCE / f"{name}.py", TESTS / f"{name}.py", ROOT / name] for name in named}
    assert [name for name, tried in paths.items() if not any(path.exists() for path in tried)] == []


def test_one_sentence_tells_the_three_places_apart() -> None:
    about = " ".join((sealpoint.seal.__doc__ or "").split("\n\n")[1].split())
    assert about.startswith("`seal/` ")
    assert about in PAGE
