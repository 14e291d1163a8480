"""How deep a value may be that is written: no process crashes, and what is written can be read.

An encoder and a decoder recurse, so that a value that is too deep for the stack is a crash and no error.
Each test works in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PREPARE = """
import sys
from collections import deque
from sealpoint.errors import NestingError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.sample_types import Point

def nest(count, wrap, value=None):
    for _ in range(count):
        value = wrap(value)
    return value

def lists(value):
    return nest(250, lambda inner: [inner], value)

def dicts(value):
    return nest(250, lambda inner: {"a": inner}, value)

def outcome(value, **options):
    serde = EncryptedSerializer.from_key(bytes(32), serde=JsonPlusSerializer(**options))
    try:
        stored = serde.dumps_typed(value)
    except NestingError:
        return "refused"
    serde.loads_typed(stored)
    return "read"
"""
RAISED = "sys.setrecursionlimit(1_000_000)\n"


def run(program: str) -> str:
    """Return what a program prints; one that is killed by a signal fails."""
    ended = subprocess.run(
        [sys.executable, "-c", PREPARE + program], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-500:])
    return ended.stdout.strip()


@pytest.mark.broad
@pytest.mark.parametrize(
    "value",
    [
        "nest(20_000, lambda inner: deque([inner]))",
        "nest(20_000, Point)",
        "nest(20_000, lambda inner: (frozenset([inner]),))",
        "nest(300, lambda inner: Point(dicts(inner)))",
        "nest(100, lambda inner: deque([lists(inner)]))",
    ],
)
def test_a_value_too_deep_for_the_stack_is_an_error(value: str) -> None:
    """Not as pickle either, which recurses too. Python 3.12 limits calls from C, and that limit is fixed."""
    assert run(f"{RAISED}print(outcome({value}, pickle_fallback=True))") == "refused"


@pytest.mark.parametrize(
    "value",
    [
        "nest(5000, Point)",
        "nest(5000, lambda inner: deque([inner]))",
        "nest(300, lambda inner: deque([lists(inner)]))",  # Python's own limit counts the objects alone
    ],
)
def test_a_value_too_deep_for_the_usual_recursion_limit_is_named_as_such(value: str) -> None:
    """It was an error of the type of the innermost object, which is supported."""
    assert run(f"print(outcome({value}))") == "refused"


def test_a_value_that_only_pickle_takes_may_be_too_deep_for_it() -> None:
    assert run("print(outcome(nest(100_000, lambda inner: [inner], 1j), pickle_fallback=True))") == "refused"


@pytest.mark.parametrize(
    "value",
    ["nest(450, lambda inner: Point([{'a': (inner,)}]))", "nest(30, lambda inner: deque([lists(inner)]))"],
)
def test_what_langgraph_writes_and_we_can_read_is_written(value: str) -> None:
    assert run(f"print(outcome({value}))") == "read"


def test_a_deep_value_that_fits_the_stack_is_written_if_recursion_is_allowed() -> None:
    assert run(f"{RAISED}print(outcome(nest(700, Point)))") == "read"


def test_each_value_begins_at_the_top() -> None:
    """Many deep values after each other, and beside each other, are as one."""
    deep = "[nest(400, Point), nest(400, lambda inner: deque([inner]))] * 20"
    assert run(f"print({{outcome({deep}) for _ in range(5)}})") == "{'read'}"
