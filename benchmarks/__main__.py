"""Run the subjects and print what they gave."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.harness import Options, Result, Subject, measure
from benchmarks.picture import draw
from benchmarks.report import as_json, as_text
from benchmarks.targets import judge

SUBJECTS: Final = (
    "serializer",
    "untrusted",
    "saver",
    "lengths",
    "throughput",
    "memory",
    "graph",
    "sealed",
    "heads",
    "rotation",
    "imports",
    "size",
    "store",
)


def main() -> int:
    """Return the exit code: 1 if ``--check`` is given and a target was not met."""
    arguments = _arguments()
    results = [result for name in arguments.subjects or SUBJECTS for result in _run(name, arguments.quick)]
    print(as_json(results) if arguments.json else as_text(results))
    if arguments.svg:
        draw(results, arguments.svg)
    return int(arguments.check and not all(verdict.target_met for verdict in judge(results)))


def _arguments() -> Any:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Speed against LangGraph's own, as ratios in one run."
    )
    parser.add_argument(
        "subjects", nargs="*", metavar="subject", help=f"{', '.join(SUBJECTS)}; all of them if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="three rounds, and shorter threads")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw a picture too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is not met")
    arguments = parser.parse_args()
    for name in arguments.subjects:
        if name not in SUBJECTS:
            parser.error(f"no subject {name!r}; there are {', '.join(SUBJECTS)}")
    return arguments


def _run(name: str, quick: bool) -> Iterator[Result]:
    subject: Subject = import_module(f"benchmarks.{name}")
    with TemporaryDirectory() as folder:
        for case in subject.cases(Options(Path(folder), quick)):
            print(f"{name}: {case.name}", file=sys.stderr)
            yield measure(name, case, quick=quick)


if __name__ == "__main__":
    sys.exit(main())
