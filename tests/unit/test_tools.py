"""The tools of this repository: the sample of the broad tests, statistics of benchmarks, fuzzing."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.pairs import Change, interval_rank
from fuzz.targets import try_one
from tests.support.runs.extent import Extent, sample


def test_what_fuzzing_has_found_is_read_or_refused() -> None:
    found = sorted((Path(__file__).parents[1] / "corpus").glob("*/*"))
    assert found
    for path in found:
        try_one(path.parent.name, path.read_bytes())  # a KeyError if the folder names no target


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


# --- the sample of the broad tests: few cases, and in them each value of each parameter -----------


def item(name: str, marker: pytest.MarkDecorator | None = None, **params: object) -> pytest.Item:
    """Stand in for a collected test."""
    mark = marker and marker.mark

    def closest(wanted: str) -> pytest.Mark | None:
        return mark if mark and mark.name == wanted else None

    case = "-".join(map(str, params.values()))
    stand_in = SimpleNamespace(nodeid=f"test_x.py::{name}[{case}]", get_closest_marker=closest)
    stand_in.callspec = SimpleNamespace(params=params)
    return cast(pytest.Item, stand_in)


def test_only_broad_tests_are_sampled_and_no_costly_one_runs() -> None:
    broad = pytest.mark.broad
    both = [item("both", broad(), saver=saver, script=[script]) for saver, script in product("abc", "xy")]
    one = [item("one", broad("saver"), saver=saver, size=size) for saver, size in product("ab", "123")]
    third = [item("long", broad(every=3), size=size) for size in range(7)]
    other = [*(item("other", size=size) for size in "123"), item("single", broad())]
    costly = item("slow", pytest.mark.costly)
    kept, left_out = sample([*both, *one, *third, *other, costly])
    assert kept == [both[0], both[3], both[4], one[0], one[3], *third[::3], *other]
    assert len(left_out) == 3 + 4 + 4 + 1
    assert sample([costly], costly=True)[0] == [costly]


def test_long_tables_are_thinned_for_older_versions() -> None:
    long, short = ([item("a", size=size) for size in range(many)] for many in (9, 8))
    both = [item("both", pytest.mark.broad(), saver=saver) for saver in "abcdefghi"]
    assert sample([*long, *both], Extent.THIN)[0] == [*long[::4], *both]
    assert sample(short, Extent.THIN)[0] == short
    assert sample(long, Extent.SAMPLE)[0] == long


def test_a_marker_that_names_another_parameter_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="has no parameter server"):
        sample([item("misnamed", pytest.mark.broad("server"), saver="a")])
