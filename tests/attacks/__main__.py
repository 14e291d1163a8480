"""Run the table against sealpoint and LangGraph's strict mode: ``python -m tests.attacks``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from tests.attacks import report, sandbox
from tests.attacks.case import Case, Outcome
from tests.attacks.families import generated
from tests.attacks.sides import LangGraph, Sealpoint, Side
from tests.attacks.table import TABLES

_SIDES: Final[dict[str, Side]] = {side.name: side for side in (Sealpoint(), LangGraph())}


def main() -> int:
    """Run, print, and return 1 if anything against sealpoint was executed, crashed or silent."""
    options = _options()
    os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads would take address space, each in every child
    sandbox.load()
    cases = [case for case in TABLES[options.table]() if options.family in (None, case.family)]
    generated_cases = [case for case in cases if case.family == generated.FAMILY]
    cases = [case for case in cases if case.family != generated.FAMILY][:: options.every]
    cases += generated_cases[: options.files]
    sides = [side for side in _SIDES.values() if options.side in (None, side.name)]
    results = {side.name: _run(cases, side, options) for side in sides}
    _print(cases, results, options)
    return 1 if report.failed(results.get("sealpoint", {}).values()) else 0


def _run(cases: list[Case], side: Side, options: argparse.Namespace) -> dict[Case, sandbox.Result]:
    chosen = [case for case in cases if case.shared or side.name == "sealpoint"]
    return {result.case: result for result in sandbox.run(chosen, side, options.jobs, options.seconds)}


def _print(cases: list[Case], results: report.Results, options: argparse.Namespace) -> None:
    if options.json:
        _say(report.as_json(cases, results))
        return
    for line in report.listing(cases, results) if options.cases else ():
        _say(line)
    for line in report.table(cases, results):
        _say(line)
    for result in report.failed(results.get("sealpoint", {}).values()):
        _say(f"{result.outcome}: {result.case.family}: {result.case.name}: {result.detail}")
    for side, found in results.items():
        for result in found.values():
            if result.outcome is Outcome.UNFORGED:
                _say(f"unforged for {side}: {result.case.family}: {result.case.name}: {result.detail}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--cases", action="store_true", help="list every case with its outcomes")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--side", choices=_SIDES, help="attack one of the two only")
    parser.add_argument("--family", help="run the cases of one family only")
    parser.add_argument("--table", choices=TABLES, default="attacks", help="what to run")
    parser.add_argument("--every", type=int, default=1, help="run one case of so many")
    parser.add_argument("--files", type=int, default=generated.FILES, help="run so many generated files")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--seconds", type=int, default=sandbox.SECONDS, help="end a case after so many")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
