"""``make claims``: writes docs/claims.md, the claims of claims.toml with the tests that are marked with them.

A test names its claims: ``@pytest.mark.claim("b1")``. Tests are parsed and not imported, so this needs
nothing but Python.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "claims.md"
TABLE: Final = Path(__file__).with_suffix(".toml")

INTRODUCTION: Final = """\
# Claims and their tests

Each claim on the security of sealpoint, what holds it, and the tests that show it.
[SECURITY.md](../SECURITY.md) and the [threat model](threat-model.md) refer to claims by id.
*Held by* names modules of `src/sealpoint`; **limit** means that nothing holds it, and the tests show that.

`make claims` writes this page from `tests/support/claims.toml` and from the tests, which are marked
`@pytest.mark.claim(ID)`. A test fails if the page differs, if a claim has no test, or if a mark has no claim.
"""
HEAD: Final = "| id | claim | held by | tests |\n|---|---|---|---|\n"


class Claim(NamedTuple):
    """One row of the page.

    Attributes:
        text: The claim, as Markdown.
        by: Modules of src/sealpoint, or names with a capital letter; none if it is a limit.
    """

    text: str
    by: tuple[str, ...]

    @property
    def modules(self) -> list[str]:
        """Those of ``by`` that are modules of the package."""
        return [name for name in self.by if name[0].islower()]


class Section(NamedTuple):
    """A section of the page."""

    title: str
    about: str
    claims: dict[str, Claim]


def sections() -> list[Section]:
    """Return the table of claims."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))["section"]
    return [
        Section(
            section["title"],
            section.get("about", ""),
            {name: Claim(each["claim"], tuple(each["by"])) for name, each in section["claims"].items()},
        )
        for section in found
    ]


def marks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each mark of a file of tests: the name of the test and the id of a claim."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.claim":
                    yield from ((node.name, ast.literal_eval(argument)) for argument in decorator.args)


def files() -> dict[str, str]:
    """Return every file of tests by its path in the repository."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def marked() -> dict[str, list[str]]:
    """Return the tests of each claim that is marked: ``tests/FILE.py::NAME``, sorted by file."""
    tests: dict[str, list[str]] = {}
    for path, text in files().items():
        for name, claim in marks(text):
            tests.setdefault(claim, []).append(f"{path}::{name}")
    return tests


def render() -> str:
    """Return the page."""
    tests = marked()
    page = INTRODUCTION
    for section in sections():
        page += f"\n## {section.title}\n\n" + (f"{section.about}\n\n" if section.about else "") + HEAD
        for name, claim in section.claims.items():
            by = ", ".join(f"`{each}`" if each in claim.modules else each for each in claim.by) or "**limit**"
            shown = ", ".join(f"`{test}`" for test in tests.get(name, []))
            page += f"| {name} | {claim.text} | {by} | {shown} |\n"
    return page


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
