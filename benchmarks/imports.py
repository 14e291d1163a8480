"""Import of the saver, each time in a fresh process, from compiled modules as after an installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from benchmarks.harness import Case, Options, Sampler

_LANGGRAPH: Final = "LangGraph"
_SEALPOINT: Final = "sealpoint"
_SCRIPT: Final = "from time import perf_counter as t; start = t(); import {0}; print(t() - start)"


def cases(options: Options) -> Iterator[Case]:
    """Make one case; what the interpreter itself needs is not part of it."""
    del options
    with tempfile.TemporaryDirectory() as compiled:
        peers = {
            _LANGGRAPH: _importing("langgraph.checkpoint.sqlite", compiled),
            _SEALPOINT: _importing("sealpoint.sqlite", compiled),
        }
        for sample in peers.values():
            sample()  # compiles the modules, whatever the environment says about writing them
        yield Case("import of the saver", peers, _LANGGRAPH, rounds=11)


def _importing(module: str, compiled: str) -> Sampler:
    command = [sys.executable, "-c", _SCRIPT.format(module)]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    return lambda: float(
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    )
