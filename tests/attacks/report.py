"""What the runs of one table show: as text, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.attacks.case import FAILURES, Case, Outcome
from tests.attacks.sandbox import Result

Results = Mapping[str, Mapping[Case, Result]]
"""Results by case, by side. A case without a counterpart is not there."""


def count(results: Iterable[Result | None]) -> Counter[str]:
    """Count outcomes; ``None`` counts as n/a."""
    return Counter("n/a" if result is None else str(result.outcome) for result in results)


def failed(results: Iterable[Result]) -> list[Result]:
    """Return what must not be, worst first."""
    order = list(Outcome)
    return sorted(
        (one for one in results if one.outcome in FAILURES), key=lambda one: order.index(one.outcome)
    )


def table(cases: Sequence[Case], sides: Results) -> Iterator[str]:
    """Write family x outcome, a group of columns a side, and the totals."""
    columns = [*(str(outcome) for outcome in Outcome if outcome != Outcome.UNFORGED), "n/a"]
    yield f"{'':14} {'cases':>6}" + "".join(f" | {side:^{9 * len(columns)}}" for side in sides)
    yield f"{'family':14} {'':>6}" + f" | {''.join(f'{column:>9}' for column in columns)}" * len(sides)
    families = list(dict.fromkeys(case.family for case in cases))
    for family in [*families, "total"]:
        members = [case for case in cases if family in (case.family, "total")]
        line = f"{family:14} {len(members):>6}"
        for results in sides.values():
            counts = count(results.get(case) for case in members)
            none = "-" if counts["n/a"] == len(members) else "."  # it has nothing of the kind
            line += " | " + "".join(f"{counts[column] or none:>9}" for column in columns)
        yield line


def listing(cases: Iterable[Case], sides: Results) -> Iterator[str]:
    """Write a line a case."""
    for case in cases:
        outcomes = [result.outcome if (result := results.get(case)) else "n/a" for results in sides.values()]
        yield "".join(f"{outcome:10}" for outcome in outcomes) + f"{case.family}: {case.name}"


def as_json(cases: Iterable[Case], sides: Results) -> str:
    """Write everything that is known."""
    return json.dumps(
        [
            {
                "family": case.family,
                "name": case.name,
                **{side: _fields(results.get(case)) for side, results in sides.items()},
            }
            for case in cases
        ],
        indent=1,
    )


def _fields(result: Result | None) -> dict[str, object] | None:
    if result is None:
        return None
    return {"outcome": result.outcome, "detail": result.detail, "seconds": round(result.seconds, 3)}
