"""How much of the broad tests runs: a fixed sample every day and in ``.ci/run``; all before a release.

``SEALPOINT_TESTS`` is ``sample`` (the default), ``all``, or ``exhaustive``, for which ``make attacks`` and
``make matrix`` run even more. With ``thin`` long tables are sampled too: for older versions of Python and of
packages, beside a run of the sample with the newest.

A test marked ``broad`` runs a sample of its cases, in which each value of each of its parameters occurs, or
only of the parameters that the marker names: ``@pytest.mark.broad("saver")``. With ``every=8`` the sample has
the first of each eight cases, whatever their values are. A test marked ``costly`` is in the sample only if
``-m`` asks for it. One that is named by its id, as in ``pytest tests/a.py::test_b``, runs with all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any, Final

import pytest

VARIABLE: Final = "SEALPOINT_TESTS"


class Extent(IntEnum):
    """How much runs; each includes those before it."""

    THIN = -1
    SAMPLE = 0
    ALL = 1
    EXHAUSTIVE = 2


def extent(name: str) -> Extent:
    """Return the extent of a name, which is the value of the environment variable."""
    try:
        return Extent[name.upper()]
    except KeyError:
        names = ", ".join(each.name.lower() for each in Extent)
        raise pytest.UsageError(f"{VARIABLE} is {name!r}, and not one of {names}") from None


_LONG: Final = 8  # cases; longer tables are thinned
_THINNED: Final = 4  # the first of so many cases is kept
EXTENT: Final = extent(os.environ.get(VARIABLE) or "sample")


def by_extent(sample: int, all_: int, exhaustive: int | None = None) -> int:
    """Return the number for the extent of this run; for ``exhaustive`` that of ``all`` if none is given."""
    return (sample, all_, all_ if exhaustive is None else exhaustive)[max(EXTENT, Extent.SAMPLE)]


def covering(cases: Sequence[Iterable[object]]) -> set[int]:
    """Return the places of few cases in which each value of all of them occurs; the same ones each time."""
    values = [frozenset(case) for case in cases]
    missing, chosen = frozenset[object]().union(*values), set[int]()
    while missing:
        best = max(range(len(values)), key=lambda place: len(values[place] & missing))
        chosen.add(best)
        missing -= values[best]
    return chosen


def is_sample(arguments: Iterable[str], of: Extent = EXTENT) -> bool:
    """Whether a run of pytest with these arguments runs the sample."""
    return of <= Extent.SAMPLE and not any("::" in argument for argument in arguments)


def sample(
    items: Sequence[pytest.Item], of: Extent = EXTENT, *, costly: bool = False
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divide collected tests into those that the sample has, with or without costly ones, and the others."""
    kept, left_out = list[pytest.Item](), list[pytest.Item]()
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        family = list(group)
        chosen = _chosen(family, of, costly)
        for place, item in enumerate(family):
            (kept if place in chosen else left_out).append(item)
    return kept, left_out


def _chosen(family: Sequence[pytest.Item], of: Extent, costly: bool) -> set[int]:
    """Return the places of the cases of one test that the sample has."""
    if not costly and family[0].get_closest_marker("costly") is not None:
        return set()
    marker = family[0].get_closest_marker("broad")
    if marker is None:
        is_long = of is Extent.THIN and len(family) > _LONG
        return set(range(0, len(family), _THINNED if is_long else 1))
    if every := marker.kwargs.get("every"):
        return set(range(0, len(family), every))
    return covering([_values(item, marker.args) for item in family]) or {0}


def _values(item: pytest.Item, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the values of a case's parameters as texts, since not all of them can be hashed."""
    call = getattr(item, "callspec", None)
    params: dict[str, Any] = {} if call is None else call.params
    if unknown := set(names) - params.keys():
        raise pytest.UsageError(f"{item.nodeid} has no parameter {', '.join(sorted(unknown))}")
    return [(name, repr(value)) for name, value in params.items() if not names or name in names]
