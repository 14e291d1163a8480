"""Each public name stays where it is, whatever was imported before, and its class keeps its own name.

public_names.txt lists those of docs/api.md as they were before modules moved: module, name, and of a class
the ``__module__`` and ``__qualname__``, by which pickles and messages name it. Lines are added, never edited.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

NAMES: Final = Path(__file__).with_name("public_names.txt")
FIRST: Final = {
    "nothing": "",
    "all modules": """
for found in pkgutil.walk_packages(sealpoint.__path__, "sealpoint."):
    if found.name != "sealpoint.__main__":
        importlib.import_module(found.name)
""",
}
SCRIPT: Final = """
import importlib, logging, pkgutil, sys, types
import sealpoint

{first}
for line in open({names!r}, encoding="utf-8"):
    module, name, home, qualified = line.split()
    face = importlib.import_module(module)
    assert name in dir(face), line
    found = getattr(face, name)
    assert not isinstance(found, types.ModuleType), line  # a module may have the name of its function
    is_class = isinstance(found, type)
    assert (found.__module__, found.__qualname__) == (home, qualified) if is_class else home == "-", line
assert "sealpoint.crypto" in logging.root.manager.loggerDict
"""


@pytest.mark.parametrize("first", FIRST)
def test_public_names(first: str) -> None:
    script = SCRIPT.format(first=FIRST[first], names=str(NAMES))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_name_that_a_face_does_not_have() -> None:
    for face in ("sealpoint", "sealpoint.base", "sealpoint.threads", "sealpoint.langgraph"):
        script = f"import {face}; {face}.Unknown"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert f"AttributeError: module '{face}' has no attribute 'Unknown'" in done.stderr
