"""Guards: what the arguments of the safe types must be, when the bytes come from a stranger.

The constructors of the standard library take more than LangGraph ever writes, and some of
it is a trap: a pattern that takes minutes to compile, a set whose members all have one
hash. A guard refuses such arguments before the constructor sees them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from types import FrameType
from typing import Any, Final, NamedTuple

from sealpoint.errors import LimitError
from sealpoint.serde.encode import (
    KEYWORD_ARGUMENTS,
    METHOD,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.jsontext import require_bounded

MAX_PATTERN_CHARS: Final = 1000
_KEPT_PATTERNS: Final = 128
MAX_PATTERN_STEPS: Final = 50_000
"""Lines of Python that the compiler of patterns may run. A wide range that ignores case takes millions."""

MAX_DECIMAL_CHARS: Final = 1000
MAX_DECIMAL_EXPONENT: Final = 6144
"""The largest exponent of decimal128 (IEEE 754-2019, table 3.6)."""

MAX_SAME_HASH: Final = 64
"""How many members may share a hash: (-1, -1), (-1, -2), ... do by nature, thousands only by intent."""

MAX_PARTS: Final = 1000
MAX_NAME_CHARS: Final = 1000
MAX_JSON_DEPTH: Final = 64
MAX_PARTIAL_JSON_CHARS: Final = 256

_INTERRUPT_FIELDS: Final = {"value", "id", "interrupt_id", "ns", "resumable", "response_schema", "when"}
_TIME_FIELDS: Final = {"hour", "minute", "second", "microsecond", "tzinfo", "fold"}
_KNOWN_FLAGS: Final = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")

Guard = Callable[[Any], None]


class RefusedError(ValueError):
    """Arguments are refused, for a reason that holds nothing of them."""


def require_members(members: Any) -> None:
    """Refuse members of a set that fall together, or that were made to share a hash.

    Members of one hash are each compared with all others. Lists count as the tuples they were.

    Raises:
        RefusedError: If over `MAX_SAME_HASH` share one, two are equal, or ``members`` is not a list.
        TypeError: If one has no hash.
    """
    _check(isinstance(members, list), "it is not made from a list")
    hashed = as_tuple(members)
    most = Counter(map(hash, hashed)).most_common(1)
    _check(not most or most[0][1] <= MAX_SAME_HASH, "its members share a hash")
    _check(len(set(hashed)) == len(hashed), "a member stands there twice")


def as_tuple(value: Any) -> Any:
    """Make tuples of lists, all the way down, which is what they were if they are to be hashed."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def _check(condition: bool, reason: str) -> None:
    if not condition:
        raise RefusedError(reason)


def _text(limit: int) -> Guard:
    return lambda value: _check(
        isinstance(value, str) and len(value) <= limit, "it is not made from short text"
    )


def _integers(count: int) -> Guard:
    def guard(arguments: Any) -> None:
        _check(
            isinstance(arguments, list)
            and len(arguments) == count
            and all(type(item) is int for item in arguments),
            f"it is not made from {count} whole numbers",
        )

    return guard


def _timedelta(arguments: Any) -> None:
    _integers(3)(arguments)
    _, seconds, microseconds = arguments
    _check(0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000, "it is not in its normal form")


def _decimal(text: Any) -> None:
    _text(MAX_DECIMAL_CHARS)(text)
    exponent = re.search(r"[eE]([+-]?\d+)$", text.strip().replace("_", ""))  # as the class reads it
    _check(not exponent or abs(int(exponent[1])) <= MAX_DECIMAL_EXPONENT, "its exponent is out of range")


def _path(parts: Any) -> None:
    _check(isinstance(parts, list) and len(parts) <= MAX_PARTS, "it has too many parts")
    for part in parts:
        _check(
            isinstance(part, str) and len(part) <= MAX_NAME_CHARS and "\0" not in part,
            "a part is no file name",
        )
    _check(
        any(kind(*parts).parts == tuple(parts) for kind in (PurePosixPath, PureWindowsPath)),
        "its parts are not the parts of a path",
    )


def _list(arguments: Any) -> None:
    _check(isinstance(arguments, list), "it is not made from a list")


def _time(arguments: Any) -> None:
    _check(isinstance(arguments, dict) and arguments.keys() == _TIME_FIELDS, "it is not made from its fields")
    _integers(5)([arguments[field] for field in sorted(_TIME_FIELDS - {"tzinfo"})])


def _timezone(arguments: Any) -> None:
    _check(
        isinstance(arguments, list) and list(map(type, arguments)) in ([timedelta], [timedelta, str]),
        "it is not made from an offset and a name",
    )


def _zone(key: Any) -> None:
    _check(
        isinstance(key, str) and len(key) <= 64 and bool(_ZONE.fullmatch(key)),
        "it is not the key of a time zone",
    )


def _pattern(arguments: Any) -> None:
    _check(isinstance(arguments, list) and len(arguments) == 2, "it is not made from a pattern and flags")
    pattern, flags = arguments
    _check(isinstance(pattern, str | bytes) and len(pattern) <= MAX_PATTERN_CHARS, "its pattern is too long")
    _check(type(flags) is int and not flags & ~_KNOWN_FLAGS, "its flags are not known")
    compile_within(pattern, flags, MAX_PATTERN_STEPS)


@lru_cache(_KEPT_PATTERNS)  # a saver reads the same patterns again and again
def compile_within(pattern: str | bytes, flags: int, steps: int) -> re.Pattern[Any]:
    """Compile a pattern, and give up after ``steps`` lines of the compiler, which is written in Python.

    Raises:
        ValueError: If it takes more, or is not a pattern.
    """
    left = steps

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RefusedError("its pattern takes too long to compile")
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        return re.compile(pattern, flags)
    except re.error:
        raise RefusedError("it is not a pattern") from None
    finally:
        sys.settrace(tracer)


def _message(fields: Any) -> None:
    """Refuse arguments of a tool call that are nested too deeply, or take LangChain long to complete.

    Its parser of partial JSON, which a streamed message holds, takes time in the square of the length.
    """
    if not isinstance(fields, dict):
        return
    texts = [chunk.get("args") for chunk in _records(fields.get("tool_call_chunks"))]
    partial = sum(len(text) for text in texts if isinstance(text, str) and not _is_json(text))
    _check(partial <= MAX_PARTIAL_JSON_CHARS, "the arguments of its tool calls are not JSON, and long")
    extra = fields.get("additional_kwargs")
    calls = _records(extra.get("tool_calls") if isinstance(extra, dict) else None)
    texts += [function.get("arguments") for function in _records([call.get("function") for call in calls])]
    for text in texts:
        if isinstance(text, str):
            require_json_depth(text, MAX_JSON_DEPTH)


def _is_json(text: str) -> bool:
    require_json_depth(text, MAX_JSON_DEPTH)
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _records(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def require_json_depth(text: str, depth: int) -> None:
    """Refuse JSON that is nested over ``depth`` deep, without recursion.

    Raises:
        ValueError: If it is.
    """
    try:
        require_bounded(text.encode("utf-8", "surrogatepass"), depth, elements=len(text))
    except LimitError as error:
        raise RefusedError(str(error)) from None


def _interrupt(fields: Any) -> None:
    """Refuse a field that the class would drop; it takes the names of older releases."""
    _check(
        isinstance(fields, dict) and fields.keys() <= _INTERRUPT_FIELDS, "it has a field that it never had"
    )


class Rule(NamedTuple):
    """How LangGraph writes a type.

    Attributes:
        code: Code of the extension that holds its arguments.
        guard: Checks them.
    """

    code: int
    guard: Guard | None = None


RULES: Final[dict[tuple[str, str], Rule]] = {
    ("builtins", "frozenset"): Rule(SINGLE_ARGUMENT, require_members),
    ("builtins", "set"): Rule(SINGLE_ARGUMENT, require_members),
    ("collections", "deque"): Rule(SINGLE_ARGUMENT, _list),
    ("datetime", "date"): Rule(POSITIONAL_ARGUMENTS, _integers(3)),
    ("datetime", "datetime"): Rule(METHOD, _text(64)),
    ("datetime", "time"): Rule(KEYWORD_ARGUMENTS, _time),
    ("datetime", "timedelta"): Rule(POSITIONAL_ARGUMENTS, _timedelta),
    ("datetime", "timezone"): Rule(POSITIONAL_ARGUMENTS, _timezone),
    ("decimal", "Decimal"): Rule(SINGLE_ARGUMENT, _decimal),
    ("re", "compile"): Rule(POSITIONAL_ARGUMENTS, _pattern),
    ("uuid", "UUID"): Rule(SINGLE_ARGUMENT, _text(64)),
    ("zoneinfo", "ZoneInfo"): Rule(SINGLE_ARGUMENT, _zone),
    **{
        ("ipaddress", f"IPv{version}{kind}"): Rule(SINGLE_ARGUMENT, _text(64))
        for version in (4, 6)
        for kind in ("Address", "Interface", "Network")
    },
    **{
        (home, f"{kind}Path"): Rule(POSITIONAL_ARGUMENTS, _path)
        for home in ("pathlib", "pathlib._local")
        for kind in ("", "Posix", "Windows")
    },
    **{
        ("langgraph.types", name): Rule(KEYWORD_ARGUMENTS)
        for name in ("Command", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
    },
    ("langgraph.types", "Interrupt"): Rule(KEYWORD_ARGUMENTS, _interrupt),
    ("langgraph.types", "Send"): Rule(POSITIONAL_ARGUMENTS),
    ("langgraph.store.base", "GetOp"): Rule(KEYWORD_ARGUMENTS),
    ("langgraph.store.base", "Item"): Rule(PYDANTIC_V1),
    ("langchain_core.messages.ai", "AIMessage"): Rule(PYDANTIC_V2, _message),
    ("langchain_core.messages.ai", "AIMessageChunk"): Rule(PYDANTIC_V2, _message),
}
"""How the types are written that every strict serializer rebuilds, by (module, name)."""
