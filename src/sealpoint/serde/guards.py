"""Guards: checks of the arguments of the safe types in unauthenticated bytes.

The constructors of the standard library accept more than LangGraph ever writes, including attacks: a
pattern that takes minutes to compile, a set whose members all share a hash. A guard refuses such arguments
before the constructor is called.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from types import FrameType
from typing import Any, Final

from sealpoint.errors import LimitError
from sealpoint.serde.jsontext import require_bounded
from sealpoint.serde.limits import (
    DAY_SECONDS,
    MAX_DECIMAL_CHARS,
    MAX_DECIMAL_EXPONENT,
    MAX_LEARNED_PATTERNS,
    MAX_NAME_CHARS,
    MAX_PARTS,
    MAX_PATTERN_CHARS,
    MAX_PATTERN_STEPS,
    MAX_SAME_HASH,
    MAX_SHORT_CHARS,
    SECOND_MICROSECONDS,
)

_INTERRUPT_FIELDS: Final = {"value", "id", "interrupt_id", "ns", "resumable", "response_schema", "when"}
_TIME_FIELDS: Final = {"hour", "minute", "second", "microsecond", "tzinfo", "fold"}
# DEBUG is not among them: it prints the compiled pattern to stdout.
_KNOWN_FLAGS: Final = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)
# Excluding dots excludes ".." and data files such as ``zone.tab``.
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")

Guard = Callable[[Any], None]


class RefusedError(ValueError):
    """Arguments are refused; the message contains no part of them."""


def require_members(members: Any) -> None:
    """Refuse members of a set that are equal, or that were made to share a hash.

    Members with the same hash are each compared with all others. Lists count as the tuples they were.
    """
    _check(isinstance(members, list), "its argument is not a list")
    hashed = as_tuple(members)
    most = Counter(map(hash, hashed)).most_common(1)
    _check(not most or most[0][1] <= MAX_SAME_HASH, "its members share a hash")
    # Only after the check of hashes: a set compares all members that share one.
    _check(len(set(hashed)) == len(hashed), "a member occurs twice")


def as_tuple(value: Any) -> Any:
    """Convert lists to tuples, recursively: if they are hashed, they were tuples."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def _check(condition: bool, reason: str) -> None:
    if not condition:
        raise RefusedError(reason)


def short_text(limit: int) -> Guard:
    """Return a guard that accepts text of at most ``limit`` characters."""

    def guard(value: Any) -> None:
        if type(value) is not str or len(value) > limit:
            raise RefusedError("its argument is not short text")

    return guard


def integers(count: int) -> Guard:
    """Return a guard that accepts a list of ``count`` integers."""
    types, reason = [int] * count, f"it is not made from {count} whole numbers"
    return lambda arguments: _check(type(arguments) is list and [*map(type, arguments)] == types, reason)


require_date: Final = integers(3)
_require_five: Final = integers(5)


def require_timedelta(arguments: Any) -> None:
    """Refuse days, seconds and microseconds that are not in their normal form."""
    require_date(arguments)
    _, seconds, microseconds = arguments
    _check(
        0 <= seconds < DAY_SECONDS and 0 <= microseconds < SECOND_MICROSECONDS, "it is not in its normal form"
    )


_require_decimal_text: Final = short_text(MAX_DECIMAL_CHARS)


def require_decimal(text: Any) -> None:
    """Refuse anything but short text, and exponents that are not an integer or are out of range."""
    _require_decimal_text(text)
    # Decimal accepts underscores, surrounding spaces and digits of other scripts. So does int(), but a
    # pattern of ASCII digits would not recognise such an exponent.
    _, mark, exponent = text.upper().rpartition("E")
    if not mark:
        return
    try:
        size = abs(int(exponent))
    except ValueError:
        raise RefusedError("its exponent is not an integer") from None
    _check(size <= MAX_DECIMAL_EXPONENT, "its exponent is out of range")


def require_parts(parts: Any) -> None:
    """Refuse parts that are not the parts of a path."""
    _check(isinstance(parts, list) and len(parts) <= MAX_PARTS, "it has too many parts")
    for part in parts:
        _check(
            isinstance(part, str) and len(part) <= MAX_NAME_CHARS and "\0" not in part,
            "a part is not a file name",
        )
    _check(
        # The constructor would split "a/../../b". Both separators: a guard does not receive the class.
        any(kind(*parts).parts == tuple(parts) for kind in (PurePosixPath, PureWindowsPath)),
        "its parts are not the parts of a path",
    )


def require_list(arguments: Any) -> None:
    """Refuse everything but a list."""
    _check(isinstance(arguments, list), "its argument is not a list")


def require_time(arguments: Any) -> None:
    """Refuse everything but the six fields of a time."""
    _check(isinstance(arguments, dict) and arguments.keys() == _TIME_FIELDS, "it is not made from its fields")
    _require_five([value for field, value in arguments.items() if field != "tzinfo"])


def require_timezone(arguments: Any) -> None:
    """Refuse everything but an offset, or an offset and a name."""
    _check(
        isinstance(arguments, list) and list(map(type, arguments)) in ([timedelta], [timedelta, str]),
        "it is not made from an offset and a name",
    )


def require_zone(key: Any) -> None:
    """Refuse a key that could lead out of the folder of time zones."""
    _check(
        isinstance(key, str) and len(key) <= MAX_SHORT_CHARS and bool(_ZONE.fullmatch(key)),
        "it is not the key of a time zone",
    )


def require_pattern(arguments: Any) -> None:
    """Refuse a pattern that is long or slow to compile, and unknown flags."""
    _check(isinstance(arguments, list) and len(arguments) == 2, "it is not made from a pattern and flags")
    pattern, flags = arguments
    _check(isinstance(pattern, str | bytes) and len(pattern) <= MAX_PATTERN_CHARS, "its pattern is too long")
    _check(type(flags) is int and not flags & ~_KNOWN_FLAGS, "its flags are not known")
    compile_within(pattern, flags, MAX_PATTERN_STEPS)


@lru_cache(MAX_LEARNED_PATTERNS)  # a saver reads the same patterns again and again
def compile_within(pattern: str | bytes, flags: int, steps: int) -> re.Pattern[Any]:
    """Compile a pattern, at most for ``steps`` executed lines of the compiler, which is written in Python."""
    left = steps

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise RefusedError("its pattern takes too long to compile")
        return count

    # ``re`` has no timeout, and its compiler visits each character of a range that ignores case.
    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        return re.compile(pattern, flags)
    except re.error:
        raise RefusedError("it is not a pattern") from None
    finally:
        sys.settrace(tracer)


def require_json_depth(text: str, depth: int) -> None:
    """Refuse JSON that is nested over ``depth`` levels deep, without recursion."""
    try:
        require_bounded(text.encode("utf-8", "surrogatepass"), depth, elements=len(text))
    except LimitError as error:
        raise RefusedError(str(error)) from None


def require_interrupt(fields: Any) -> None:
    """Refuse a field that the class would drop; names of older releases are accepted."""
    _check(isinstance(fields, dict) and fields.keys() <= _INTERRUPT_FIELDS, "it has an unknown field")
