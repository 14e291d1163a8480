"""Every regular expression of the package takes time in proportion to its input.

The expressions are found in the source. The inputs are made from each expression: short
repeated units of the characters that it tells apart, with a beginning and an end that
make it start over. Time is counted in the steps of a model.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import sealpoint
from sealpoint.postgres import _REFUSALS
from tests.unit.backtracking import MOST_STEPS, Search, steps

SOURCE: Final = Path(sealpoint.__file__).parent
METHODS: Final = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
IMPORTED: Final = re.compile(r"^\s*(import re$|from re import |import re as )", re.MULTILINE)
LENGTH: Final = 24
FEW_STEPS_A_CHARACTER: Final = 5
"""One that tries every pair takes more for each, as each is tried with half of the others."""

MOST_STEPS_A_CHARACTER: Final = 100
"""For an expression whose input is bounded."""

TABLE: Final = "refusal.words"
"""How the expressions of a table are named where they are used."""

BOUNDED: Final = {"maintenance/audit.py:_LABEL": 48}
"""The characters of an input that a length check before the expression lets through."""


class Use(NamedTuple):
    """An expression, and the method that it is used with."""

    name: str
    pattern: str
    flags: int
    method: str


def uses() -> Iterator[Use]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if IMPORTED.search(text):
            yield from _uses_in(path.relative_to(SOURCE).as_posix(), ast.parse(text))


def _uses_in(place: str, tree: ast.Module) -> Iterator[Use]:
    named: dict[str, tuple[str, int]] = {}
    nodes = [*ast.walk(tree)]
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_call(node.value, "re", ("compile",)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            assert isinstance(target, ast.Name)
            assert isinstance(node.value, ast.Call)
            named[target.id] = _arguments(node.value)
    used_by_name = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    for name in named.keys() - used_by_name:
        yield Use(f"{place}:{name}", *named[name], "fullmatch")
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, owner = node.func.attr, node.func.value
        if _is_call(node, "re", METHODS):
            if ast.unparse(node.args[0]) == TABLE:
                yield from (Use(f"{place}:{node.lineno}", row.words, 0, method) for row in _REFUSALS)
            else:
                yield Use(f"{place}:{node.lineno}", *_arguments(node), method)
        elif method in METHODS and isinstance(owner, ast.Name) and owner.id in named:
            yield Use(f"{place}:{owner.id}", *named[owner.id], method)


def _is_call(node: ast.AST | None, owner: str, methods: tuple[str, ...]) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == owner
        and node.func.attr in methods
    )


def _arguments(call: ast.Call) -> tuple[str, int]:
    """Return the pattern and the flags, which are written as constants of ``re``."""
    flags = [eval(ast.unparse(node), {"re": re}) for node in call.args[1:] if "re." in ast.unparse(node)]  # noqa: S307
    pattern = _pattern(call.args[0])
    return pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern, int(flags[0]) if flags else 0


def _pattern(node: ast.expr) -> Any:
    """Return a pattern, with a letter for each text that is put into it at run time, which is escaped."""
    if not isinstance(node, ast.JoinedStr):
        return ast.literal_eval(node)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)


def _characters(pattern: str) -> list[str]:
    """Return one character of each kind that an expression tells apart, and one that it does not."""
    plain = re.sub(r"\\[AZbBdDsSwW]|\(\?[a-zA-Z:!=<]+|\{[\d,]+\}", "", pattern)
    literal = set(re.sub(r"\\(.)", r"\1", plain)) & set("\"'\\[]{}()+-.,:/@%=?&<>|e_\0\n")
    if r"\0" in pattern:
        literal.add("\0")
    return [*sorted(literal), "a", "0", " "]


def hostile(pattern: str, length: int) -> Iterator[str]:
    """Make inputs: a start, a unit of one or two characters again and again, and an end."""
    characters = _characters(pattern)
    words = [word for word in re.findall(r"[A-Z]{3,}", pattern) if not pattern.startswith("[")]
    units = [*characters, *map("".join, itertools.permutations(characters, 2)), *words]
    starts = ["", *characters, *(word + " " for word in words)]
    for unit, start in itertools.product(units, starts):
        yield start + unit * (length // len(unit)) + "\x01"


def grows_too_fast(use: Use) -> str | None:
    """Return the input for which twice the length takes over 2.5 times as many steps."""
    length = BOUNDED.get(use.name, LENGTH)
    if use.name in BOUNDED:  # no input is longer, so that no use may take more
        worst = max(hostile(use.pattern, length), key=lambda text: _steps(use, text))
        return worst if _steps(use, worst) > length * MOST_STEPS_A_CHARACTER else None
    for text, twice in zip(hostile(use.pattern, length), hostile(use.pattern, 2 * length), strict=True):
        if (long := _steps(use, twice)) > FEW_STEPS_A_CHARACTER * len(twice) and (
            long > MOST_STEPS or long > 2.5 * _steps(use, text)
        ):
            return text
    return None


def _steps(use: Use, text: str) -> int:
    return steps(use.pattern, use.flags, use.method, text)


USES: Final[list[Use]] = sorted(uses(), key=attrgetter("name", "method"))


@pytest.mark.broad(every=4)
@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.name} {use.method}")
def test_an_expression_takes_time_in_proportion_to_its_input(use: Use) -> None:
    assert grows_too_fast(use) is None
    assert differing(use) is None, "the steps are those of another search"


BAD: Final = [
    (r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', "finditer"),  # was in this package, and took 20 s for 80 KB
    (r"(a+)+b", "match"),
    (r"(a|a)*b", "fullmatch"),
    (r"a*a*b", "match"),
    (r".*=", "finditer"),
    (r"-{1,1000}x", "search"),
    (r"(?!.*x)a", "findall"),
]


@pytest.mark.parametrize(("pattern", "method"), BAD)
def test_one_that_does_not_is_found(pattern: str, method: str) -> None:
    assert grows_too_fast(Use("", pattern, 0, method)) is not None


def differing(use: Use) -> str | None:
    """Return an input on which the model finds something else; without its end, so that more match, too."""
    pattern, once = re.compile(use.pattern, use.flags), use.method in ("match", "fullmatch", "search")
    for text in itertools.chain.from_iterable((text, text[:-1]) for text in hostile(use.pattern, 8)):
        match = getattr(pattern, use.method if once else "match")(text)
        wanted = [match] if once else pattern.finditer(text)
        if Search(use.pattern, use.flags, text, reduced=False).spans(use.method) != [
            found.span() for found in wanted if found
        ]:
            return text
    return None


def test_all_expressions_are_found() -> None:
    """Each compiled one has a name, except for two that are made at run time."""
    calls = sum(len(re.findall(r"\bre\.compile\(", path.read_text())) for path in SOURCE.rglob("*.py"))
    made_at_run_time = 2  # those of the safe type and of the scrub, whose input is a database of this machine
    assert len({use.name for use in uses() if not use.name[-1].isdigit()}) == calls - made_at_run_time
