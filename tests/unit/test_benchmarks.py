"""The statistics of the benchmarks."""

from __future__ import annotations

from itertools import product

import pytest

from benchmarks.pairs import Change, interval_rank


@pytest.mark.parametrize(("count", "rank"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (21, 5)])
def test_rank_of_the_interval(count: int, rank: int) -> None:
    """As in the published tables of the sign test."""
    assert interval_rank(count) == rank


@pytest.mark.parametrize("count", [6, 9, 12])
def test_the_interval_holds_the_median(count: int) -> None:
    """Of all ways in which samples lie above and below the median, at most 5 % leave it outside."""
    rank = interval_rank(count)
    outside = sum(not rank < sum(above) < count - rank for above in product((0, 1), repeat=count))
    assert outside <= 0.05 * 2**count
    wider = sum(not rank + 1 < sum(above) < count - rank - 1 for above in product((0, 1), repeat=count))
    assert wider > 0.05 * 2**count


def test_a_change_is_slower_only_with_its_whole_interval() -> None:
    """One fast pair in twenty-one decides nothing; six do."""
    ratios = tuple(sorted([1.0] * 5 + [1.06] * 16))
    assert Change("saver", "put", "sealed", ratios).is_slower
    assert not Change("saver", "put", "sealed", tuple(sorted([1.0] * 6 + [1.06] * 15))).is_slower
    assert not Change("untrusted", "list", "strict", ratios).is_slower
