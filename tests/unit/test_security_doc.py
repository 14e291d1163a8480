"""SECURITY.md names tests for what it claims: they exist, and its table has no empty cell."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
REFERENCE = r"`(tests/[\w/]+\.py)::(\w+)`"
NAMED = sorted(set(re.findall(REFERENCE, TEXT)))
NOTES = dict(re.findall(r"^- \[([a-z]\d+)\] (.+)$", TEXT, re.MULTILINE))

ATTACKERS = [
    "reads the file",
    "writes the file",
    "holds a backup",
    "holds an old key",
    "runs in the process",
]
ASSETS = ["values", "type and row of a value", "metadata and ids", "keys", "presence and order of rows"]


@cache
def functions(path: str) -> frozenset[str]:
    """Names of the functions at the top of a file; none if it does not exist."""
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def table() -> list[list[str]]:
    """Cells of the threat model, line by line, without the rule under its head."""
    _, _, section = TEXT.partition("## Threat model\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if set("".join(row)) != {"-"}]


def test_each_named_test_exists() -> None:
    assert NAMED
    missing = [f"{path}::{name}" for path, name in NAMED if name not in functions(path)]
    assert missing == [], "named in SECURITY.md"


def test_the_table_is_attackers_by_assets() -> None:
    head, *rows = table()
    assert head[1:] == ASSETS
    assert [row[0] for row in rows] == ATTACKERS
    assert {len(row) for row in rows} == {len(head)}


def test_every_cell_is_judged_by_a_note_that_names_a_test() -> None:
    cells = [cell for row in table()[1:] for cell in row[1:]]
    assert [cell for cell in cells if not re.match(r"(held|partly|not) \[", cell)] == []
    assert {note for cell in cells for note in re.findall(r"\[([a-z]\d+)\]", cell)} == NOTES.keys()
    assert [note for note, text in NOTES.items() if not re.search(REFERENCE, text)] == []


def test_no_test_is_named_in_another_form() -> None:
    """A test named without its file, or across a line break, would not be checked here."""
    assert "test_" not in re.sub(REFERENCE, "", TEXT)
