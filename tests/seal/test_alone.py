"""The core stands alone: what it imports, what that loads, and how much of it there is to read."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import sealpoint.seal

FOLDER: Final = Path(sealpoint.seal.__file__).parent
MODULES: Final = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")

MOST_LINES: Final = 3_500
MOST_MODULES: Final = 18

# The modules of the package that the core loads: its own, and these. The last two are the package's face.
BELOW: Final = {"sealpoint.errors", "sealpoint.forks", "sealpoint", "sealpoint.ondemand"}
OF_OS: Final = {"getrandom", "urandom", "register_at_fork"}

# Modules of the standard library that open files, wait, or run beside the caller.
NOT_PURE: Final = {
    *("asyncio", "concurrent", "glob", "importlib", "io", "logging", "mmap", "multiprocessing", "pathlib"),
    *("select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading"),
    *("time", "urllib", "weakref"),
}
# In memory alone: a buffer that is returned without a copy.
OF_IO: Final = {"BytesIO"}

SCRIPT: Final = """
import importlib, json, sys
before = {*sys.modules}
for name in json.loads(sys.argv[1]):
    importlib.import_module(f"sealpoint.seal.{name}")
print(json.dumps(sorted({*sys.modules} - before)))
"""


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import of a file, also of those inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_what_is_pure(path: Path) -> None:
    for module, name in imports(path):
        top = module.partition(".")[0]
        if top == "sealpoint":
            assert module.startswith("sealpoint.seal.") or module in BELOW, module
        elif top == "os":
            assert name in OF_OS, name
        elif top == "io":
            assert name in OF_IO, name
        else:
            assert top == "cryptography" or (top in sys.stdlib_module_names - NOT_PURE), module


def test_the_core_loads_itself() -> None:
    names = [path.stem for path in MODULES]
    words = [sys.executable, "-c", SCRIPT, json.dumps(names)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    own = {name for name in json.loads(done.stdout) if name.partition(".")[0] == "sealpoint"}
    assert own == {"sealpoint.seal", *(f"sealpoint.seal.{name}" for name in names), *BELOW}
    foreign = {name.partition(".")[0] for name in json.loads(done.stdout)} - sys.stdlib_module_names
    assert foreign <= {"sealpoint", "cryptography", "_cffi_backend", "_openssl"}


def test_the_core_is_read_in_two_days() -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FOLDER.glob("*.py"))
    assert lines <= MOST_LINES
    assert len(MODULES) <= MOST_MODULES
