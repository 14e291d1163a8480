"""Results as tables in Markdown, or as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby
from typing import Any

from benchmarks.harness import Result
from benchmarks.peers import LEGEND
from benchmarks.targets import Verdict, judge

_PACKAGES = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "pycryptodome",
    "cryptography",
    "ormsgpack",
)


def as_json(results: Sequence[Result]) -> str:
    """Return everything that was measured."""
    return json.dumps(
        {
            "versions": _versions(),
            "results": [
                {
                    "subject": result.subject,
                    "case": result.case,
                    "unit": result.unit,
                    "medians": result.medians,
                    "reference": result.reference,
                    "ratios": result.ratios,
                }
                for result in results
            ],
            "bounds": [
                {**asdict(verdict.bound), "ratio": verdict.ratio, "target_met": verdict.target_met}
                for verdict in judge(results)
            ],
        },
        indent=2,
    )


def as_text(results: Sequence[Result]) -> str:
    """Return a table a subject, the table of targets, and what the names mean."""
    parts = [", ".join(f"{name} {number}" for name, number in _versions().items())]
    for subject, group in groupby(results, key=lambda result: result.subject):
        parts.append(f"## {subject}\n\n{_times(list(group))}")
    verdicts = judge(results)
    if verdicts:
        parts.append(f"## targets\n\n{_verdicts(verdicts)}")
    seen = {peer for result in results for peer in result.medians}
    parts.append("\n".join(f"{name}: {text}" for name, text in LEGEND.items() if name in seen))
    return "\n\n".join(parts)


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version()} | {name: version(name) for name in _PACKAGES}


def _times(results: Sequence[Result]) -> str:
    """Return a table for each run of cases with the same peers."""
    groups = groupby(results, key=lambda result: (result.reference, *result.medians))
    return "\n\n".join(_times_of_peers(list(group)) for _, group in groups)


def _times_of_peers(results: Sequence[Result]) -> str:
    peers = list(results[0].medians)
    rows = [[result.case, *_cells(result)] for result in results]
    return _table([f"median (ratio to {results[0].reference})", *peers], rows)


def _cells(result: Result) -> Iterator[str]:
    ratios = result.ratios
    for peer, value in result.medians.items():
        measured = _time(value) if result.unit == "s" else f"{value / 1e6:.3g} MB"
        yield f"{measured} ({_ratio(ratios[peer])})"


def _verdicts(verdicts: Iterable[Verdict]) -> str:
    rows = [
        [
            verdict.bound.case,
            verdict.bound.peer + (f" to {verdict.bound.against}" if verdict.bound.against else ""),
            f"{verdict.ratio:.3f}" if verdict.bound.rate is None else f"{1 / verdict.seconds:,.0f}/s",
            _target(verdict),
            _judged(verdict.bound.goal, verdict.goal_met),
        ]
        for verdict in verdicts
    ]
    return _table(["case", "peer", "measured", "target", "goal"], rows)


def _target(verdict: Verdict) -> str:
    if verdict.bound.rate is None:
        return _judged(verdict.bound.target, verdict.target_met)
    return f"{verdict.bound.rate:,}/s {'met' if verdict.target_met else 'NOT MET'}"


def _judged(limit: float | None, met: bool) -> str:
    return "" if limit is None else f"{_ratio(limit)} {'met' if met else 'NOT MET'}"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )
