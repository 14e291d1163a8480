"""The rules of the package that no linter knows; CONTRIBUTING.md gives their reasons."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import sealpoint

ROOT = Path(sealpoint.__file__).parent
GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"

MAX_LINES = 600
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
FILLED = {  # dataclasses that change while values are counted or read, by the function that made them
    "Adoption",
    "Constructor",
    "Inventory",
    "Opening",
    "Outcome",
    "Part",
    "Pass",
    "Owner",
    "Recorded",
    "Report",
    "State",
    "_Found",
    "_Names",
    "_Tally",
}
THEMSELVES = {"InlineSource", "Key"}  # equal to themselves alone: == would compare material in varying time


def module_name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def test_modules_are_short() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    too_long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert too_long.keys() <= {"sealpoint.errors"}  # a list of classes, which have no order of their own


def test_core_loads_nothing_foreign() -> None:
    """The whole core in a fresh process: no application pays for an extra that it does not use."""
    core = [name for name in MODULES if not EXTRAS.intersection(name.split("."))]
    code = f"import sys, {', '.join(core)}; print(*({FOREIGN!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()


def test_package_is_typed() -> None:
    """Without this file no type checker reads the annotations."""
    assert (ROOT / "py.typed").is_file()


def dataclasses_of_the_package() -> dict[str, Any]:
    modules = [import_module(name) for name in MODULES if not name.endswith("__main__")]
    classes = [cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)]
    return {
        cls.__name__: cls
        for cls in classes
        if dataclasses.is_dataclass(cls) and cls.__module__.startswith("sealpoint")
    }


def test_dataclasses_do_not_change_and_are_compared_by_their_fields() -> None:
    classes = dataclasses_of_the_package()
    frozen = {name for name, cls in classes.items() if cls.__dataclass_params__.frozen}
    assert classes.keys() - frozen == FILLED
    assert {name for name in frozen if "__slots__" not in vars(classes[name])} == set()
    assert {name for name in frozen if classes[name].__eq__ is object.__eq__} == THEMSELVES


def test_defaults_of_dataclasses_can_be_hashed() -> None:
    """A class with another default, such as a mapping proxy, cannot be imported on Python 3.11."""
    classes = dataclasses_of_the_package().values()
    assert len({field.default for cls in classes for field in dataclasses.fields(cls)}) > 1


def test_guide_has_every_layer() -> None:
    """Its list of layers is the one that import-linter checks, from the top down."""
    settings = tomllib.loads((GUIDE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    checked = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    listed = GUIDE.read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert [line.split("  ")[0] for line in listed.splitlines()] == checked


def test_guide_names_modules_that_exist() -> None:
    """The table "Typical changes" names no module that was moved; NAME stands for a new one."""
    table = GUIDE.read_text(encoding="utf-8").partition("## Typical changes\n")[2].partition("\n## ")[0]
    modules = re.findall(r"`([\w/]+\.py)`", table)
    assert modules
    assert {path for path in modules if "NAME" not in path and not (ROOT / path).is_file()} == set()
