"""SECURITY.md is one page, whose tables name claims; docs/claims.md has each claim and its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.claims import PAGE, ROOT, files, marked, marks, render, sections

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
MAX_BYTES = 9_000
CLAIMS = {name: claim for section in sections() for name, claim in section.claims.items()}
TESTS = marked()
CITED = re.compile(r"\[([a-z]\d+)\]")

ATTACKERS = [
    "reads the file",
    "writes the file",
    "holds a backup",
    "holds an old key",
    "runs in the process",
]
ASSETS = ["values", "type and row of a value", "metadata and ids", "keys", "presence and order of rows"]
LAYER_2 = ["reads the file", "writes the file", "the same, with heads"]


def table(heading: str) -> list[list[str]]:
    """Cells of the first table of a section, line by line, without the rule under its head."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if set("".join(row)) != {"-"}]


def cells(heading: str) -> list[str]:
    return [cell for row in table(heading)[1:] for cell in row[1:]]


def test_security_page_is_short() -> None:
    assert len(TEXT.encode()) <= MAX_BYTES


def test_claims_page_is_what_the_marks_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: make claims"


def test_ids_are_those_of_one_claim() -> None:
    assert len(CLAIMS) == sum(len(section.claims) for section in sections())
    assert [name for name in CLAIMS if not CITED.fullmatch(f"[{name}]")] == []
    assert [name for name, claim in CLAIMS.items() if "|" in claim.text or "\n" in claim.text] == []


def test_each_claim_has_a_test() -> None:
    assert CLAIMS.keys() - TESTS.keys() == set()


def test_each_mark_has_a_claim() -> None:
    assert {name: TESTS[name] for name in TESTS.keys() - CLAIMS.keys()} == {}


def test_each_mark_is_found() -> None:
    """None is on a method, in a variable or on a whole module: `make claims` would not see it."""
    for path, text in files().items():
        if ROOT / path != Path(__file__):
            arguments = re.findall(r"\bmark\.claim\(([^)]*)\)", text)
            assert len(arguments) == len(re.findall(r"\bmark\.claim\b", text)), path
            assert re.findall(r'"(\w+)"', " ".join(arguments)) == [name for _, name in marks(text)], path


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_marks_are_read_from_the_text(kind: str) -> None:
    for decorators in ("@pytest.mark.claim('a1', 'b1')\n@other", "@other()\n@pytest.mark.claim('a1', 'b1')"):
        assert [*marks(f"{decorators}\n{kind} test_it(): ...\n")] == [("test_it", "a1"), ("test_it", "b1")]
    assert [*marks(f"@pytest.mark.other('a1')\n{kind} test_it(): ...\n")] == []


def test_each_marked_function_is_run() -> None:
    names = [name for path, text in files().items() for name, _ in marks(text)]
    assert names
    assert [name for name in names if not name.startswith("test_")] == []


def test_modules_that_hold_claims_exist() -> None:
    named = {module for claim in CLAIMS.values() for module in claim.modules}
    source = ROOT / "src" / "sealpoint"
    assert {name for name in named if not (source / f"{name}.py").is_file()} == set()


def test_the_table_is_attackers_by_assets() -> None:
    head, *rows = table("The serializer alone")
    assert head[1:] == ASSETS
    assert [row[0] for row in rows] == ATTACKERS
    assert {len(row) for row in rows} == {len(head)}
    named = {name for cell in cells("The serializer alone") for name in CITED.findall(cell)}
    assert named == sections()[0].claims.keys()


def test_the_table_of_sealed_saver_is_assets_by_attackers() -> None:
    head, *rows = table("SealedSaver")
    assert head[1:] == LAYER_2
    assert len(rows) >= 7
    assert {len(row) for row in rows} == {len(head)}


@pytest.mark.parametrize("heading", ["The serializer alone", "SealedSaver"])
def test_every_cell_names_a_claim(heading: str) -> None:
    found = cells(heading)
    assert [cell for cell in found if not CITED.search(cell)] == []
    assert [cell for cell in found if not re.match(r"(held|partly|not|parts held) ", cell)] == []
    held = [CITED.findall(cell) for cell in found if cell.startswith("held")]
    assert [names for names in held if not any(CLAIMS[name].by for name in names)] == [], "only limits"


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/threat-model.md"])
def test_each_id_is_a_claim(name: str) -> None:
    named = CITED.findall((ROOT / name).read_text(encoding="utf-8"))
    assert named
    assert {each for each in named if each not in CLAIMS} == set()
