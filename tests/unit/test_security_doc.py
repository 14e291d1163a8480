"""SECURITY.md names tests for what it claims: they exist, and its table has no empty cell."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

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
    """Names of the functions at the top of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def table() -> list[list[str]]:
    """Cells of the threat model, line by line, without the rule under its head."""
    _, _, section = TEXT.partition("## Threat model\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if set("".join(row)) != {"-"}]


def cells() -> list[str]:
    return [cell for row in table()[1:] for cell in row[1:]]


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_a_named_test_exists(path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"{path} is named in SECURITY.md and does not exist"
    assert name in functions(path), f"{path}::{name} is named in SECURITY.md and does not exist"


def test_the_table_is_attackers_by_assets() -> None:
    head, *rows = table()
    assert head[1:] == ASSETS
    assert [row[0] for row in rows] == ATTACKERS
    assert {len(row) for row in rows} == {len(head)}


def test_every_cell_is_judged_and_shown() -> None:
    for cell in cells():
        assert re.match(r"(held|partly|not) \[", cell), (
            f"{cell!r} is not 'held', 'partly' or 'not' with a note"
        )


def test_every_note_is_there_and_names_a_test() -> None:
    used = {note for cell in cells() for note in re.findall(r"\[([a-z]\d+)\]", cell)}
    assert used == NOTES.keys()
    for note, text in NOTES.items():
        assert re.search(REFERENCE, text), f"note {note} names no test"


def test_no_test_is_named_in_another_form() -> None:
    """A test named without its file, or across a line break, would not be checked here."""
    assert "test_" not in re.sub(REFERENCE, "", TEXT)
