"""The sample of the broad tests: few cases, and in them each value of each parameter."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.extent import Extent, covering, extent, is_sample, sample


def item(name: str, *broad: str, marked: bool = True, **params: object) -> pytest.Item:
    """Stand in for a collected test."""
    return marked_item(name, pytest.mark.broad(*broad).mark if marked else None, **params)


def marked_item(name: str, marker: pytest.Mark | None, **params: object) -> pytest.Item:
    """Stand in for a collected test with a marker."""
    case = "-".join(map(str, params.values()))

    def closest(wanted: str) -> pytest.Mark | None:
        return marker if marker is not None and marker.name == wanted else None

    stand_in = SimpleNamespace(nodeid=f"test_x.py::{name}[{case}]", get_closest_marker=closest)
    stand_in.callspec = SimpleNamespace(params=params)
    return cast(pytest.Item, stand_in)


def test_each_value_occurs_in_few_cases() -> None:
    cases = list(product("abcd", "12345", "xy"))
    chosen = [cases[place] for place in sorted(covering(cases))]
    assert set().union(*chosen) == set().union(*cases)
    assert len(chosen) == 5


def test_it_is_the_same_each_time() -> None:
    cases = list(product("abcd", "12345"))
    assert covering(cases) == covering(cases)


@pytest.mark.parametrize(("name", "wanted"), [("sample", Extent.SAMPLE), ("ALL", Extent.ALL)])
def test_an_extent_has_a_name(name: str, wanted: Extent) -> None:
    assert extent(name) is wanted


def test_another_name_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="'most', and not one of sample, all, exhaustive"):
        extent("most")


def test_only_broad_tests_are_sampled() -> None:
    both = [item("both", saver=saver, script=[script]) for saver, script in product("abc", "xy")]
    one = [item("one", "saver", saver=saver, size=size) for saver, size in product("ab", "123")]
    other = [item("other", marked=False, size=size) for size in "123"]
    kept, left_out = sample([*both, *one, *other])
    assert kept == [both[0], both[3], both[4], one[0], one[3], *other]
    assert len(left_out) == 12 + 3 - len(kept)


def test_one_of_so_many_runs() -> None:
    cases = [marked_item("long", pytest.mark.broad(every=3).mark, size=size) for size in range(7)]
    assert sample(cases)[0] == cases[::3]


def test_a_costly_test_is_not_in_the_sample() -> None:
    costly, other = marked_item("slow", pytest.mark.costly.mark), marked_item("quick", None)
    assert sample([costly, other]) == ([other], [costly])


def test_a_test_without_parameters_runs() -> None:
    single = [item("single")]
    assert sample(single) == (single, [])


def test_a_marker_that_names_another_parameter_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="has no parameter server"):
        sample([item("misnamed", "server", saver="a")])


@pytest.mark.parametrize(
    ("of", "argument", "wanted"),
    [
        (Extent.SAMPLE, "tests/unit", True),
        (Extent.SAMPLE, "tests/a.py::test_b", False),
        (Extent.ALL, "tests", False),
    ],
)
def test_all_run_where_all_or_one_is_asked_for(of: Extent, argument: str, wanted: bool) -> None:
    assert is_sample([argument], of) is wanted
