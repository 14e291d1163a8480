"""This checkout against another commit of it: what a change costs, in interleaved pairs.

Each side runs its own benchmarks on its own code in a process of its own. A round takes one sample
of each side, the order changing from round to round; a ratio is this checkout's sample divided by the
other's. Shown are the median of the ratios and its 95 % interval, which comes from the order of the
ratios alone (the binomial test for a median), so nothing is assumed about their distribution.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from benchmarks.peers import COPY, FLOOR, LANGGRAPHS, SCRIPT, VALIDATION, WRITE_BACK

ROOT: Final = Path(__file__).resolve().parents[1]
ROUNDS: Final = 21
SUBJECTS: Final = ("saver", "lengths", "throughput", "graph", "rotation", "untrusted", "writes")
LIMITS: Final = {"untrusted": 1.15}
LIMIT: Final = 1.05
CONFIDENCE: Final = 0.95
_NOT_OURS: Final = frozenset((*LANGGRAPHS, COPY, FLOOR, SCRIPT, VALIDATION, WRITE_BACK))


@dataclass(frozen=True, slots=True)
class Change:
    """What one peer of one case gave: the ratios of this checkout to the other, ascending."""

    subject: str
    case: str
    peer: str
    ratios: tuple[float, ...]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median."""
        rank = interval_rank(len(self.ratios))
        return self.ratios[rank], self.ratios[-1 - rank]

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval lies above the subject's limit."""
        return self.interval[0] > LIMITS.get(self.subject, LIMIT)


def interval_rank(count: int) -> int:
    """Return how many of ``count`` sorted ratios lie below the interval of their median, and as many above.

    The median is outside if at most so many of ``count`` coin tosses show heads, or tails.
    """
    rank, outside = -1, 0.0
    while rank < (count - 1) // 2 and outside + 2 * comb(count, rank + 1) / 2**count <= 1 - CONFIDENCE:
        rank += 1
        outside += 2 * comb(count, rank) / 2**count
    return max(rank, 0)


class _Side:
    """A worker process on one checkout."""

    def __init__(self, checkout: Path, subject: str, *, quick: bool) -> None:
        worker = [sys.executable, str(ROOT / "benchmarks" / "worker.py")]
        self._process = subprocess.Popen(
            [*worker, str(checkout), subject, "quick" if quick else "full"],
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, text: str) -> None:
        """Send one line."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the next document.

        Raises:
            SystemExit: If the worker has ended; it has said why on standard error.
        """
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise SystemExit("error: a worker has ended")
        return json.loads(line)

    def sample(self, peer: str) -> float:
        """Return one sample of a peer."""
        self.ask(peer)
        return float(self.answer())


def compare(subject: str, sides: tuple[_Side, _Side], rounds: int) -> Iterator[Change]:
    """Yield what each of our peers in each case gave; the first of the two sides is this checkout."""
    while True:
        cases = [side.answer() for side in sides]
        if cases[0] is None or cases[1] is None or cases[0]["case"] != cases[1]["case"]:
            if cases[0] != cases[1]:
                print(f"{subject}: the two commits go on with different cases", file=sys.stderr)
            return
        for peer in cases[0]["peers"]:
            if peer not in _NOT_OURS and peer in cases[1]["peers"]:
                print(f"{subject}: {cases[0]['case']}: {peer}", file=sys.stderr)
                yield Change(subject, cases[0]["case"], peer, _ratios(sides, peer, rounds))
        for side in sides:
            side.ask("")


def _ratios(sides: tuple[_Side, _Side], peer: str, rounds: int) -> tuple[float, ...]:
    ratios = []
    for number in range(rounds):
        order = sides if number % 2 == 0 else sides[::-1]
        samples = {side: side.sample(peer) for side in order}
        ratios.append(samples[sides[0]] / samples[sides[1]])
    return tuple(sorted(ratios))


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Give a folder that holds the files of a commit."""
    with TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def as_text(changes: Sequence[Change]) -> str:
    """Return a table in Markdown."""
    lines = ["| case | peer | ratio | 95 % interval | |", "| --- | --- | --- | --- | --- |"]
    for change in changes:
        low, high = change.interval
        verdict = "SLOWER" if change.is_slower else ""
        ratio = f"{median(change.ratios):.3f}"
        lines.append(f"| {change.case} | {change.peer} | {ratio} | {low:.3f} to {high:.3f} | {verdict} |")
    return "\n".join(lines)


def main() -> int:
    """Return the exit code: 1 if ``--check`` is given and something has become slower than its limit."""
    parser = argparse.ArgumentParser(prog="benchmarks.pairs", description="This checkout against a commit.")
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, help=f"by default {', '.join(SUBJECTS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="shorter threads and smaller files")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    arguments = parser.parse_args()
    changes: list[Change] = []
    with checked_out(arguments.base) as base:
        for subject in arguments.subjects:
            quick = arguments.quick
            with _Side(ROOT, subject, quick=quick) as ours, _Side(base, subject, quick=quick) as theirs:
                changes += compare(subject, (ours, theirs), arguments.rounds)
    print(as_text(changes))
    return int(arguments.check and any(change.is_slower for change in changes))


if __name__ == "__main__":
    sys.exit(main())
