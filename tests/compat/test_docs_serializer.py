"""docs/serializer.md tells every difference that the tests know; its code is run by test_docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.test_signatures import DIFFERENCES

PAGE = (Path(__file__).parents[2] / "docs" / "serializer.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", ["sealpoint.serde.jsonplus", "sealpoint.serde.encrypted"])
def test_the_page_has_every_difference_of_signatures(module: str) -> None:
    for difference in DIFFERENCES[module]:
        named = "InvalidModuleError" if "InvalidModuleError" in difference else difference.split()[-1]
        assert ("EXT_..." if named.startswith("EXT_") else named) in PAGE, difference


@pytest.mark.parametrize(
    "told",
    [
        "numpy arrays of objects",
        "`init=False`",
        "sets of tuples",
        "enums with tuples",
        "root models",
        "subclasses of datetime",
        "alias",
        "`InitVar`",
        "class inside another class",
        "strict mode",
        "forbids the fields that it computes",
    ],
)
def test_the_page_has_every_difference_of_values(told: str) -> None:
    """One phrase for each kind in test_serde_differences."""
    assert told in PAGE
