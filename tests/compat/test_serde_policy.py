"""Allowlists against LangGraph's: the same types are safe, and raw gives what LangGraph gives."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import uuid
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs

from sealpoint.errors import BlockedTypeError
from sealpoint.serde import SAFE_TYPES, JsonPlusSerializer
from tests.support.sample_types import Color, Frozen, Model, Named, Point
from tests.support.values.forge import record
from tests.support.values.samples import SAMPLES, alike


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_the_safe_types_are_langgraphs() -> None:
    """Asked type by type: what strict LangGraph gives as bare arguments is not safe there."""
    strict = Theirs(allowed_msgpack_modules=None)
    allowing = Theirs(allowed_msgpack_modules=SAFE_TYPES)
    for module, name in SAFE_TYPES:
        for code, argument in ((0, "x"), (2, {}), (1, [])):
            row = record(code, module, name, argument)
            assert repr(strict.loads_typed(row)) == repr(allowing.loads_typed(row)), (module, name)


def test_no_type_of_langgraphs_is_missing_from_the_safe_ones() -> None:
    """Every sample that strict LangGraph rebuilds, strict sealpoint rebuilds; it raises for the others."""
    ours, theirs = JsonPlusSerializer(allowed_msgpack_modules=None), Theirs(allowed_msgpack_modules=None)
    free = Theirs(allowed_msgpack_modules=True)
    for name, value in SAMPLES.items():
        row = theirs.dumps_typed(value)
        if alike(theirs.loads_typed(row), free.loads_typed(row)):
            assert alike(ours.loads_typed(row), theirs.loads_typed(row)), name
        else:
            with pytest.raises(BlockedTypeError):
                ours.loads_typed(row)


@pytest.mark.parametrize("name", SAMPLES)
def test_raw_is_what_strict_langgraph_gives(name: str) -> None:
    ours = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
    theirs = Theirs(allowed_msgpack_modules=None)
    row = theirs.dumps_typed(SAMPLES[name])
    assert alike(ours.loads_typed(row), theirs.loads_typed(row))


@pytest.mark.parametrize(
    "allowed",
    [
        None,
        [],
        [Point],
        [("tests.support.sample_types", "Point"), Color],
        {("tests.support.sample_types", "Model"), ("tests.support.sample_types", "Frozen")},
        True,
    ],
    ids=["none", "empty", "class", "mixed", "set", "any"],
)
@pytest.mark.parametrize(
    "value", [Point(1), Color.RED, Named(1), Frozen(1), Model(a=1), uuid.UUID(int=1)], ids=repr
)
def test_an_allowlist_means_the_same_to_both(allowed: Any, value: Any) -> None:
    ours = JsonPlusSerializer(allowed_msgpack_modules=allowed, on_blocked="raw")
    theirs = Theirs(allowed_msgpack_modules=allowed)
    row = theirs.dumps_typed(value)
    assert alike(ours.loads_typed(row), theirs.loads_typed(row))


def test_with_msgpack_allowlist_means_the_same_to_both() -> None:
    row = Theirs().dumps_typed([Point(1), Color.RED])
    for allowed in (None, [Color], True):
        ours = JsonPlusSerializer(allowed_msgpack_modules=allowed, on_blocked="raw")
        theirs = Theirs(allowed_msgpack_modules=allowed)
        for extra in ([], [Point], [("tests.support.sample_types", "Point")]):
            one, other = ours.with_msgpack_allowlist(extra), theirs.with_msgpack_allowlist(extra)
            assert (one is ours) == (other is theirs), (allowed, extra)
            assert alike(one.loads_typed(row), other.loads_typed(row)), (allowed, extra)


def test_the_environment_means_the_same_to_both() -> None:
    """LangGraph reads it at import, so in a process of its own that imports it again and again."""
    script = """
import os, sys
from sealpoint.serde import JsonPlusSerializer
from tests.support.values.forge import record
row = record(2, "fractions", "Fraction", {"numerator": 1})
seen = set()
for text in ("1", "true", "True", "YES", "on", "0", "", " true", "2"):
    os.environ["LANGGRAPH_STRICT_MSGPACK"] = text
    for name in [name for name in sys.modules if name.startswith("langgraph")]:
        del sys.modules[name]
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
    ours = JsonPlusSerializer(on_blocked="raw").loads_typed(row)
    assert ours == Theirs().loads_typed(row), (text, ours)
    seen.add(type(ours).__name__)
assert seen == {"Fraction", "dict"}, seen
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_name_in_more_than_two_parts_is_ours_alone() -> None:
    """LangGraph takes it without a word, and it allows nothing there."""
    parts = ("tests", "support", "sample_types", "Point")
    row = Theirs().dumps_typed(Point(1))
    assert JsonPlusSerializer(allowed_msgpack_modules=[parts]).loads_typed(row) == Point(1)
    assert Theirs(allowed_msgpack_modules=[parts]).loads_typed(row) != Point(1)
