"""The prefix swap of a program's text: what sealpoint has comes from it, all else from LangGraph."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec

_THEIRS = "langgraph.checkpoint"
_BRIDGE = "sealpoint.langgraph"


def has(module: str, name: str) -> bool:
    """Whether sealpoint has the counterpart of a name of LangGraph's."""
    ours = module.replace(_THEIRS, "sealpoint", 1)
    try:
        return find_spec(ours) is not None and hasattr(import_module(ours), name)
    except ModuleNotFoundError:
        return False


def swapped(text: str) -> str:
    """Return a program with its imports under the prefix swap, and the names of loggers.

    A program that compiles graphs takes savers from the bridge: LangGraph accepts no others.

    A name that sealpoint lacks, such as a private one, is still imported from LangGraph: the tests that
    use it are left out by name, and the others of the file run.
    """
    lines = text.splitlines()
    compiles = "START, StateGraph" in text
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(found, key=lambda node: -node.lineno):
        module = node.module or ""
        if module.startswith(_THEIRS):
            ours = [each for each in node.names if has(module, each.name)]
            theirs = [each for each in node.names if each not in ours]
            bridged = compiles and all(hasattr(import_module(_BRIDGE), each.name) for each in ours)
            swap = _BRIDGE if bridged else module.replace(_THEIRS, "sealpoint", 1)
            imports = [
                f"from {source} import {', '.join(map(ast.unparse, names))}"
                for source, names in ((swap, ours), (module, theirs))
                if names
            ]
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + "; ".join(imports)]
    return re.sub(rf'"{re.escape(_THEIRS)}\.', '"sealpoint.', "\n".join(lines))
