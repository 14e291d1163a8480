"""The figures that matter most as one picture, for docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Result
from benchmarks.peers import LG, LG_ENC, SEALED

ROWS: Final = {
    "1 KB state, dumps": "write a value: state of 1 KB",
    "1 KB state, loads": "read it",
    "50 messages, dumps": "write a value: 50 messages, 40 KB",
    "50 messages, loads": "read it",
    "numpy 1 MB, dumps": "write a value: numpy array, 1 MB",
    "numpy 1 MB, loads": "read it",
    "put, 50 messages": "put: a checkpoint of 50 messages",
    "put_writes of 3": "put_writes: three small writes",
    "get_tuple, 50 messages": "get_tuple: the latest checkpoint",
    "list(limit=10)": "list: ten checkpoints",
    "list without a namespace, 10,000 checkpoints": "list: ten out of 10,000, any namespace",
    "delta walk, 1,000 x 8 KB": "delta channel: 1,000 steps back",
    "graph of 100 supersteps": "a whole graph: 100 supersteps",
}
"""Which cases it shows, and what it calls them."""

_TEXT: Final = "#1f2328"
_QUIET: Final = "#59636e"
_OURS: Final = "#0f766e"
_THEIRS: Final = "#d8dee4"


def draw(results: Iterable[Result], path: Path) -> None:
    """Write an SVG: the same bytes for the same figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    measured = {result.case: result for result in results}
    shown = [(measured[case], label) for case, label in ROWS.items() if case in measured]
    if not shown:
        raise SystemExit(f"error: the picture shows other cases: {', '.join(ROWS)}")
    with mpl.rc_context({"svg.hashsalt": "sealpoint", "font.size": 10, "text.color": _TEXT}):
        figure = Figure(figsize=(9, 1.5 + 0.34 * len(shown)), facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        for place, (result, _) in enumerate(shown):
            _row(axes, place, result)
        _frame(axes, [label for _, label in shown])
        title = "Encrypted checkpoints: sealpoint beside LangGraph. Shorter is faster."
        figure.suptitle(title, x=0.015, ha="left", fontweight="bold")
        figure.legend(loc="outside lower left", ncols=3, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _row(axes: Any, place: int, result: Result) -> None:
    """One bar for LangGraph, as long as 1, and in front of it one for sealpoint."""
    ratio, plain = result.ratio(SEALED, LG_ENC), min(result.ratio(LG, LG_ENC), 1)
    names = ("LangGraph, encrypted", "sealpoint, sealed", "LangGraph, not encrypted")
    theirs, ours, clear = names if place == 0 else (None, None, None)
    axes.barh(place, 1, height=0.7, color=_THEIRS, label=theirs)
    axes.barh(place, ratio, height=0.7, color=_OURS, label=ours)
    axes.plot(
        plain,
        place,
        "D",
        color=_TEXT,
        markeredgecolor="white",
        markersize=7,
        label=clear,
        zorder=3,
        clip_on=False,
    )
    faster = 1 / ratio
    axes.text(1.02, place, f"{faster:.0f}x" if faster >= 9.95 else f"{faster:.1f}x", va="center")


def _frame(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.9)
    axes.set_xlim(0, 1.13)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.axvline(1, color=_QUIET, linewidth=1)
    axes.text(1.02, -0.8, "faster", color=_QUIET, va="center")
    axes.set_xlabel("time taken, where LangGraph with its EncryptedSerializer takes 1", color=_QUIET)
    axes.tick_params(length=0, colors=_TEXT)
    for spine in axes.spines.values():
        spine.set_visible(False)
