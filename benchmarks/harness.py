"""Measuring peers against each other: interleaved in one process, medians over rounds.

Only ratios in one run hold on a machine that does other things too. So every round takes one
sample of each peer, in an order that shifts by one, and a ratio is the median over the
rounds of the quotients within a round.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final, Protocol, TypeVar

Sampler = Callable[[], float]
"""Takes one sample: seconds for one operation, or bytes."""

Item = TypeVar("Item")

SAMPLE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Options:
    """What a subject may ask about a run.

    Attributes:
        folder: Empty at the start of a subject, and removed with all in it at its end.
        quick: Whether a rough answer soon is wanted.
    """

    folder: Path
    quick: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that every peer does.

    Attributes:
        name: What it is, e.g. ``1 KB state, dumps``.
        peers: How to sample each of them, by name.
        reference: The peer that the others are compared with.
        rounds: How many samples of each.
        unit: What a sample is: ``s`` or ``bytes``.
    """

    name: str
    peers: Mapping[str, Sampler]
    reference: str
    rounds: int = 15
    unit: str = "s"


class Subject(Protocol):
    """A module of this package: its docstring says what it measures."""

    __doc__: str | None

    def cases(self, options: Options) -> Iterator[Case]:
        """Make the cases one after the other, so that only one is in memory at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a case gave: the samples of each round, by peer."""

    subject: str
    case: str
    reference: str
    unit: str
    rounds: tuple[dict[str, float], ...]

    @property
    def medians(self) -> dict[str, float]:
        """Median over the rounds, by peer."""
        return {peer: median(samples[peer] for samples in self.rounds) for peer in self.rounds[0]}

    @property
    def ratios(self) -> dict[str, float]:
        """Ratio to the reference, by peer."""
        return {peer: self.ratio(peer, self.reference) for peer in self.rounds[0]}

    def ratio(self, peer: str, against: str) -> float:
        """Return the median over the rounds of the quotients within a round."""
        return median(samples[peer] / samples[against] for samples in self.rounds)


def timed(call: Callable[[], object], loops: int | None = None) -> Sampler:
    """Return a sampler of ``call``, in seconds of the processor: nothing here waits for a disk.

    A machine that does other things too stops a sample now and then, which a clock would count.

    Args:
        call: The operation. It is run once at first, so that caches are filled.
        loops: How often a sample repeats it; without it, as often as 20 ms hold. Peers
            that leave something behind get a number, so that all leave equally much.
    """
    call()
    if loops is None:
        start = process_time()
        call()
        loops = max(1, int(SAMPLE_SECONDS / max(process_time() - start, 1e-7)))
    times = range(loops)

    def sample() -> float:
        start = process_time()
        for _ in times:
            call()
        return (process_time() - start) / len(times)

    return sample


def timed_once_each(prepare: Callable[[], Sequence[Item]], act: Callable[[Item], object]) -> Sampler:
    """Return a sampler of ``act`` on items that are made for the sample, and used once."""

    def sample() -> float:
        items = prepare()
        start = process_time()
        for item in items:
            act(item)
        return (process_time() - start) / len(items)

    sample()
    return sample


def measure(subject: str, case: Case, *, quick: bool) -> Result:
    """Take the samples of a case."""
    names = list(case.peers)
    rounds = []
    gc.collect()
    for number in range(min(case.rounds, 3) if quick else case.rounds):
        shift = number % len(names)
        rounds.append({name: case.peers[name]() for name in names[shift:] + names[:shift]})
    return Result(subject, case.name, case.reference, case.unit, tuple(rounds))
