"""What the figures have to be. One table: at most this ratio, or at least so many a second.

A target is a promise that `--check` enforces; a goal is where a later release should be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from benchmarks.harness import Result
from benchmarks.peers import (
    HEADS,
    INVENTORY,
    LG,
    PACKED,
    ROTATE,
    SEALED,
    SEALED_STRICT,
    SEALED_XAES,
    SERIALIZER,
    STRICT,
    WHOLE,
    WHOLE_XAES,
    WRITE_BACK,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What one figure has to be.

    Attributes:
        case: Of which case.
        peer: Of which peer.
        against: The peer that it is compared with, if that is not the case's reference.
        target: The ratio that is promised, at most.
        goal: The ratio that a later release should have, at most.
        rate: How many a second are promised, at least. It is a figure of this machine.
    """

    case: str
    peer: str
    target: float | None = None
    goal: float | None = None
    rate: int | None = None
    against: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bound, and what was measured."""

    bound: Bound
    ratio: float
    seconds: float

    @property
    def target_met(self) -> bool:
        if self.bound.rate is not None:
            return 1 / self.seconds >= self.bound.rate
        return self.bound.target is None or self.ratio <= self.bound.target

    @property
    def goal_met(self) -> bool:
        return self.bound.goal is None or self.ratio <= self.bound.goal


BOUNDS: Final = (
    Bound("1 KB state, dumps", SEALED, target=0.10, goal=0.06),
    Bound("1 KB state, loads", SEALED, target=0.10, goal=0.06),
    Bound("1 KB state, dumps", SEALED_XAES, goal=0.02),
    Bound("1 KB state, loads", SEALED_XAES, goal=0.025),
    Bound("50 messages, dumps", SEALED, target=0.50, goal=0.17),
    Bound("50 messages, loads", SEALED, target=0.50, goal=0.32),
    Bound("50 new messages, loads", SEALED, target=0.50, goal=0.32),
    Bound("500 messages, dumps", SEALED, goal=0.26),
    Bound("500 messages, loads", SEALED, goal=0.38),
    Bound("pydantic state, dumps", SEALED, goal=0.45),
    Bound("pydantic state, loads", SEALED, goal=0.57),
    Bound("mixed scalars, dumps", SEALED, goal=0.26),
    Bound("mixed scalars, loads", SEALED, target=0.60),
    Bound("numpy 1 MB, dumps", SEALED, goal=0.18),
    Bound("numpy 1 MB, loads", SEALED, target=0.25),
    Bound("bytes 16 MB, dumps", SEALED, goal=0.14),
    Bound("bytes 16 MB, loads", SEALED, goal=0.14),
    *(
        Bound(f"{value}, {act}", SEALED, target=1.0, against=LG)
        for value in ("50 messages", "500 messages", "pydantic state", "mixed scalars")
        for act in ("dumps", "loads")
    ),
    Bound("50 new messages, loads", SEALED, target=1.0, against=LG),
    Bound("50 messages, unsealed", STRICT, target=1.25),
    Bound("500 messages, unsealed", STRICT, target=1.25),
    Bound("mixed scalars, unsealed", STRICT, target=1.25),
    Bound("500 messages, sealed", SEALED_STRICT, target=1.05),
    Bound("small rows", INVENTORY, rate=40_000),
    Bound("get_tuple, 50 messages", SEALED, goal=0.22),
    Bound("list(limit=10)", SEALED, goal=0.26),
    Bound("list(limit=100)", SEALED, goal=0.33),
    Bound("list(limit=100)", SEALED_XAES, target=0.25),
    Bound("put, 50 messages", SEALED, goal=0.32),
    Bound("put_writes of 3", SEALED, goal=0.10),
    Bound("put_writes of 3", SEALED_XAES, target=0.10),
    Bound("delta walk, 1,000 x 8 KB", SEALED, target=0.10, goal=0.06),
    Bound("delta walk, 1,000 x 8 KB", SEALED_XAES, target=0.06),
    Bound("delta walk, 10,000 x 1 KB", SEALED, target=0.12, goal=0.09),
    Bound("list without a namespace, 10,000 checkpoints", SEALED, goal=0.11),
    Bound("list(None, limit=10), 1,000 threads", SEALED, goal=0.08),
    Bound("get_tuple by length", f"{SEALED}, 10,000", target=1.3),
    Bound("list(limit=10) by length", f"{SEALED}, 10,000", target=1.3),
    Bound("memory of list, to 10,000 checkpoints", "10,000", target=0.05),
    Bound("8 threads, one saver, 50 messages", SEALED, target=1.0),
    Bound("4 processes, one file, 50 messages", SEALED, target=1.0),
    Bound("8 threads, one saver, 1 KB state", SEALED_XAES, target=1.25),
    Bound("4 processes, one file, 1 KB state", SEALED_XAES, target=1.15),
    Bound("graph of 100 supersteps", SEALED, target=0.50, goal=0.47),
    Bound("graph of 100 supersteps", SEALED, goal=1.0, against=LG),
    Bound("SQLite, graph of 100 supersteps", WHOLE_XAES, target=1.10),
    Bound("Postgres, graph of 100 supersteps", WHOLE_XAES, target=1.15),
    Bound("SQLite, graph of 100 supersteps", WHOLE_XAES, target=1.16, against=SERIALIZER),
    Bound("Postgres, graph of 100 supersteps", WHOLE_XAES, target=1.18, against=SERIALIZER),
    Bound("SQLite, put of 1 KB", WHOLE_XAES, target=1.45, against=SERIALIZER),
    Bound("Postgres, put of 1 KB", WHOLE_XAES, target=1.39, against=SERIALIZER),
    Bound("SQLite, get_tuple", WHOLE_XAES, target=1.34, against=SERIALIZER),
    Bound("Postgres, get_tuple", WHOLE_XAES, target=1.48, against=SERIALIZER),
    Bound("SQLite file, put with heads", HEADS, target=1.1),
    Bound("SQLite file, get_tuple with heads", HEADS, target=1.15),
    Bound("Postgres, put with heads", HEADS, target=1.5),
    Bound("Postgres, get_tuple with heads", HEADS, target=1.35),
    Bound("SQLite, conversations", PACKED, target=0.45),
    Bound("Postgres, conversations", PACKED, target=0.65),
    *(
        Bound(f"{kind}, {content}", PACKED, target=1.0, against=WHOLE)
        for kind in ("SQLite", "Postgres")
        for content in ("conversations", "pydantic", "documents", "embeddings")
    ),
    Bound("SQLite, 100 supersteps compressed", PACKED, target=1.15),
    Bound("rotation, a row", ROTATE, target=1 / 35),
    Bound("rotation, against cp and fsync", ROTATE, goal=7.0),
    Bound("rotation, against cp and fsync", ROTATE, goal=2.0, against=WRITE_BACK),
    Bound("import of the saver", "sealpoint", target=1 / 3),
)


def judge(results: Iterable[Result]) -> list[Verdict]:
    """Return a verdict for each bound that was measured."""
    by_case = {result.case: result for result in results}
    return [_verdict(bound, by_case[bound.case]) for bound in BOUNDS if bound.case in by_case]


def _verdict(bound: Bound, result: Result) -> Verdict:
    ratio = result.ratio(bound.peer, bound.against or result.reference)
    return Verdict(bound, ratio, result.medians[bound.peer])
