"""Takes samples for `benchmarks.pairs`, in a process of its own, with the code of one checkout.

Run by path, with the checkout as its first argument: the benchmarks and the package are imported
from there. It answers on standard output, a JSON document a line: a case's name and peers; then a
sample for each name of a peer that it reads, until it reads an empty line; ``null`` at the end.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def main(checkout: str, subject: str, quick: bool) -> None:
    """Walk through the cases of a subject, and sample the peers that are asked for."""
    sys.path[:1] = [checkout, str(Path(checkout, "src"))]
    harness = import_module("benchmarks.harness")
    module = import_module(f"benchmarks.{subject}")
    with TemporaryDirectory() as folder:
        for case in module.cases(harness.Options(Path(folder), quick)):
            _send({"case": case.name, "peers": [*case.peers]})
            while peer := sys.stdin.readline().rstrip("\n"):
                _send(case.peers[peer]())
    _send(None)


def _send(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], quick=sys.argv[3] == "quick")
