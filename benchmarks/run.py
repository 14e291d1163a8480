"""Entry point of `make bench`: the same as `python -m benchmarks` at the top of the repository."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":  # and not in the processes that a subject starts
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    runpy.run_module("benchmarks", run_name="__main__")
