"""The rules of the house that no linter knows; CONTRIBUTING.md gives their reasons."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import sealpoint

ROOT = Path(sealpoint.__file__).parent
GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"

MAX_LINES = 350
PICKLE_USERS = {"sealpoint.serde.jsonplus"}
EXTRAS = {"cli", "langgraph"}  # all other modules are core
FOREIGN = {
    "langgraph",
    "langchain",
    "langchain_core",
    "numpy",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
}


def module_name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
PACKAGES = [name for name, path in MODULES.items() if path.name == "__init__.py"]
CORE = [name for name in MODULES if not EXTRAS.intersection(name.split("."))]


def parsed(name: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    """Top names of everything that a module imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def assigned(tree: ast.Module) -> set[str]:
    """Every name that a module assigns."""
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


@pytest.mark.parametrize("name", MODULES)
def test_module_says_what_it_is(name: str) -> None:
    assert ast.get_docstring(parsed(name))


@pytest.mark.parametrize("name", MODULES)
def test_module_is_short(name: str) -> None:
    lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES


@pytest.mark.parametrize("name", MODULES)
def test_module_leaves_pickle_alone(name: str) -> None:
    """Unpickling runs what the bytes name: one module may, when its caller asks for it."""
    picklers = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
    found = picklers & imported(parsed(name))
    assert not found or name in PICKLE_USERS


@pytest.mark.parametrize("name", CORE)
def test_core_module_names_no_langgraph(name: str) -> None:
    """Not even inside a function: the bridge is the one module that imports LangGraph."""
    assert not {"langgraph", "langchain", "langchain_core"} & imported(parsed(name))


@pytest.mark.parametrize("name", PACKAGES)
def test_package_lists_its_face(name: str) -> None:
    """What is public is written down; the linter keeps the list sorted and without unknown names."""
    assert "__all__" in assigned(parsed(name))


@pytest.mark.parametrize("name", PACKAGES)
def test_package_has_what_it_lists(name: str) -> None:
    package = import_module(name)
    assert [each for each in getattr(package, "__all__", ()) if not hasattr(package, each)] == []


def test_core_loads_nothing_foreign() -> None:
    """The whole core in a fresh process: nobody pays for an extra that is not used."""
    code = f"import sys, {', '.join(CORE)}; print(*({FOREIGN!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()


def test_package_is_typed() -> None:
    """Without this file no type checker reads the annotations."""
    assert (ROOT / "py.typed").is_file()


def test_guide_has_every_layer() -> None:
    """Its list of layers is the one that import-linter checks, from the top down."""
    settings = tomllib.loads((GUIDE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    checked = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = GUIDE.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert [line.split("  ")[0] for line in listed.splitlines()] == checked


def test_guide_names_modules_that_exist() -> None:
    """The table "Where a change goes" sends nobody to a module that was moved."""
    rows = [line.split("|") for line in GUIDE.read_text(encoding="utf-8").splitlines()]
    table = [row for row in rows if len(row) == 5]
    modules = {path for row in table for path in re.findall(r"`([\w/]+\.py)`", row[2])}
    tests = {path for row in table for path in re.findall(r"`(tests/[\w/.]+)`", row[3])}
    assert modules
    assert tests
    assert {path for path in modules if not (ROOT / path).is_file()} == set()
    assert {path for path in tests if not (GUIDE.parent / path).exists()} == set()
