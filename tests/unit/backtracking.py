"""A model of how ``re`` searches, which counts its steps: a clock on a busy machine measures the others, too.

The model walks the tree of the parser, tries the alternatives in the order of ``re``, and goes back as ``re``
does. A step is an attempt to match one node at one place. It lacks the optimizations of ``re``, so that the
count is an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

_parser: Final[Any] = import_module("re._parser")
_compiler: Final[Any] = import_module("re._compiler")

MOST_STEPS: Final = 20_000
LARGEST_BOUND: Final = 64
"""A larger bound of a repetition counts as none: within it the time grows as without it."""
BOUND: Final = 4
"""What a smaller bound is reduced to; the time changes by a factor only, and short inputs suffice."""

Node = tuple[Any, Any]


class TooManyStepsError(Exception):
    """The limit of steps is reached."""


class Search:
    """One use of an expression on a text.

    Attributes:
        steps: How many steps have been made.
    """

    def __init__(self, pattern: str, flags: int, text: str, *, reduced: bool = True) -> None:
        self.steps = 0
        self._tree = _parsed(pattern, flags)
        self._text = text
        self._is_reduced = reduced

    def spans(self, method: str) -> list[tuple[int, int]]:
        """Return what a method of ``re`` finds; all matches for those that go on after the first."""
        found, at, length = list[tuple[int, int]](), 0, len(self._text)
        while at <= length:
            ends = self._sequence(self._tree, at)
            end = next((end for end in ends if method != "fullmatch" or end == length), None)
            if end is not None:
                found.append((at, end))
            if method in ("match", "fullmatch") or (found and method == "search"):
                break
            at = at + 1 if end is None else max(end, at + 1)
        return found

    def _sequence(self, nodes: Sequence[Node], at: int, index: int = 0) -> Iterator[int]:
        """Yield where nodes that follow one another end, the preferred end first."""
        if index == len(nodes):
            yield at
            return
        for end in self._node(nodes[index], at):
            yield from self._sequence(nodes, end, index + 1)

    def _node(self, node: Node, at: int) -> Iterator[int]:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManyStepsError
        name, argument = str(node[0]), node[1]
        if name == "BRANCH":
            for branch in argument[1]:
                yield from self._sequence(branch, at)
        elif name == "SUBPATTERN":
            yield from self._sequence(argument[-1], at)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            yield from self._repeat(argument, at, 0, lazy=name == "MIN_REPEAT")
        elif name == "POSSESSIVE_REPEAT":
            yield from _first(self._repeat(argument, at, 0, lazy=False))
        elif name == "ATOMIC_GROUP":
            yield from _first(self._sequence(argument, at))
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from self._look(argument, at, wanted=name == "ASSERT")
        elif match := _single(self._tree, node).match(self._text, at):
            yield match.end()

    def _repeat(self, argument: Any, at: int, count: int, *, lazy: bool) -> Iterator[int]:
        least, most, nodes = argument
        if self._is_reduced:
            least = min(least, BOUND)
            most = min(most, BOUND) if most <= LARGEST_BOUND else _parser.MAXREPEAT
        if lazy and count >= least:
            yield at
        if count < most:
            for end in self._sequence(nodes, at):
                if end > at or count < least:  # an empty match is not repeated
                    yield from self._repeat(argument, end, count + 1, lazy=lazy)
        if not lazy and count >= least:
            yield at

    def _look(self, argument: Any, at: int, *, wanted: bool) -> Iterator[int]:
        direction, nodes = argument
        if direction < 0:
            raise NotImplementedError("the model does not look behind")
        if (next(self._sequence(nodes, at), None) is not None) == wanted:
            yield at


def steps(pattern: str, flags: int, method: str, text: str) -> int:
    """Return how many steps a use takes, and one more than the limit if it takes more."""
    search = Search(pattern, flags, text)
    try:
        search.spans(method)
    except TooManyStepsError:
        return MOST_STEPS + 1
    return search.steps


def _first(ends: Iterator[int]) -> Iterator[int]:
    first = next(ends, None)
    if first is not None:
        yield first


@cache
def _parsed(pattern: str, flags: int) -> Any:
    return _parser.parse(pattern, flags)


_SINGLE: Final[dict[tuple[int, int], tuple[Node, re.Pattern[str]]]] = {}


def _single(tree: Any, node: Node) -> re.Pattern[str]:
    """Return an expression for one character or position, made once; the node is kept, and so is its id."""
    key = id(tree), id(node)
    if key not in _SINGLE:
        _SINGLE[key] = node, _compiler.compile(_parser.SubPattern(tree.state, [node]))
    return _SINGLE[key][1]
