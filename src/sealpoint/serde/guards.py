"""Guards: checks of the arguments of the safe types in unauthenticated bytes.

The constructors of the standard library accept more than LangGraph ever writes, including attacks: a
pattern that takes minutes to compile, a set whose members all share a hash. A guard refuses such arguments
before the constructor is called.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import PurePosixPath, PureWindowsPath
from types import FrameType
from typing import Any, Final

from sealpoint.errors import LimitError
from sealpoint.serde.jsontext import require_bounded
from sealpoint.serde.limits import (
    DAY_SECONDS,
    MAX_DECIMAL_CHARS,
    MAX_DECIMAL_EXPONENT,
    MAX_FIELDS,
    MAX_JSON_DEPTH,
    MAX_JSON_ELEMENTS,
    MAX_LEARNED_PATTERNS,
    MAX_NAME_CHARS,
    MAX_PARTIAL_JSON_CHARS,
    MAX_PARTS,
    MAX_PATTERN_CHARS,
    MAX_PATTERN_STEPS,
    MAX_RAW_TOOL_CALLS,
    MAX_SAME_HASH,
    MAX_SHORT_CHARS,
    SECOND_MICROSECONDS,
)

_INTERRUPT_FIELDS: Final = {"value", "id", "interrupt_id", "ns", "resumable", "response_schema", "when"}
TIME_FIELDS: Final = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")  # as they are written
# DEBUG is not among them: it prints the compiled pattern to stdout.
_KNOWN_FLAGS: Final = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)
# Excluding dots excludes ".." and data files such as ``zone.tab``.
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")

_RANDOMIZED: Final = frozenset((str, bytes))  # the types whose hash depends on the process

Guard = Callable[[Any], None]


class RefusedError(ValueError):
    """Raised for refused arguments; the message contains no part of the arguments."""


def require_members(members: Any) -> None:
    """Refuse members of a set if two are equal, or if they were chosen to collide in a hash table.

    A set compares all members with the same hash. Lists are compared as the tuples that they were.
    """
    _check(isinstance(members, list), "its argument is not a list")
    hashed = as_tuple(members)
    is_text = _RANDOMIZED.issuperset(map(type, hashed))
    from sealpoint.serde.probing import SET_BEHIND, are_spread  # for a set that no key authenticated

    _check(
        is_text or are_spread(hashed, 4 * len(hashed), SET_BEHIND),
        "its members were chosen to be slow to look up",
    )
    most = Counter(map(hash, hashed)).most_common(1)
    _check(not most or most[0][1] <= MAX_SAME_HASH, "too many of its members share a hash")
    # Only after the check of hashes: a set compares all members that share one.
    _check(len(set(hashed)) == len(hashed), "a member occurs twice")


def as_tuple(value: Any) -> Any:
    """Convert lists to tuples, recursively: lists that are hashed were tuples when they were stored."""
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


def accepting(condition: Callable[[Any], bool], reason: str) -> Guard:
    """Return a guard that accepts values that meet a condition, and refuses others with ``reason``."""
    return lambda arguments: _check(condition(arguments), reason)


def integers(count: int) -> Guard:
    """Return a guard that accepts a list of ``count`` integers."""
    types, reason = [int] * count, f"its arguments are not {count} whole numbers"
    return lambda arguments: _check(type(arguments) is list and [*map(type, arguments)] == types, reason)


require_date: Final = integers(3)
_require_five: Final = integers(5)


def require_timedelta(arguments: Any) -> None:
    """Refuse days, seconds and microseconds that are not in the normal form of a ``timedelta``."""
    require_date(arguments)
    _, seconds, microseconds = arguments
    _check(
        0 <= seconds < DAY_SECONDS and 0 <= microseconds < SECOND_MICROSECONDS, "it is not in its normal form"
    )


_require_decimal_text: Final = short_text(MAX_DECIMAL_CHARS)


def require_decimal(text: Any) -> None:
    """Refuse anything but short text whose exponent, if it has one, is an integer within bounds."""
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
    """Refuse arguments that are not the parts of a path."""
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


require_list: Final = accepting(lambda value: isinstance(value, list), "its argument is not a list")
require_timezone: Final = accepting(
    lambda value: isinstance(value, list) and [*map(type, value)] in ([timedelta], [timedelta, str]),
    "its arguments are not an offset and a name",
)
# A key could lead out of the folder of time zones.
require_zone: Final = accepting(
    lambda key: isinstance(key, str) and len(key) <= MAX_SHORT_CHARS and bool(_ZONE.fullmatch(key)),
    "its argument is not the name of a time zone",
)
# The class would drop an unknown field. Names of older releases are accepted.
require_interrupt: Final = accepting(
    lambda fields: isinstance(fields, dict) and fields.keys() <= _INTERRUPT_FIELDS, "it has an unknown field"
)


def require_time(arguments: Any) -> None:
    """Refuse arguments that are not the six fields of a ``time``."""
    _check(
        isinstance(arguments, dict) and arguments.keys() == {*TIME_FIELDS}, "its arguments are not its fields"
    )
    _require_five([value for field, value in arguments.items() if field != "tzinfo"])


def require_pattern(arguments: Any) -> None:
    """Refuse a pattern that is long or slow to compile, and unknown flags."""
    _check(isinstance(arguments, list) and len(arguments) == 2, "its arguments are not a pattern and flags")
    pattern, flags = arguments
    _check(isinstance(pattern, str | bytes) and len(pattern) <= MAX_PATTERN_CHARS, "its pattern is too long")
    _check(type(flags) is int and not flags & ~_KNOWN_FLAGS, "its flags are not known")
    compile_within(pattern, flags, MAX_PATTERN_STEPS)


@lru_cache(MAX_LEARNED_PATTERNS)  # a saver reads the same patterns again and again
def compile_within(pattern: str | bytes, flags: int, steps: int) -> re.Pattern[Any]:
    """Compile a regular expression; refuse one that takes over ``steps`` lines of Python's compiler."""
    left = steps

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "call" and str(frame.f_globals.get("__name__")).partition(".")[0] != "re":
            return None  # a callback of the garbage collector, say, which an error would cut short
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
        raise RefusedError("its pattern is not a valid regular expression") from None
    finally:
        sys.settrace(tracer)


# --- fields of LangChain's messages and documents -------------------------------------------------

# The constructors accept more than they write: content of any type is turned into text by ``repr``, text
# in four places is parsed as JSON, and every wrong item costs a kilobyte of error. Here the fields that
# LangChain looks into have exactly the types that it writes. The fields that it only stores (``artifact``,
# values of metadata, further fields) may hold any value.

_NONE: Final[type] = type(None)
_TEXT: Final = frozenset((str,))
_OPTIONAL_TEXT: Final[frozenset[type]] = frozenset((str, _NONE))
_DICT: Final = frozenset((dict,))
_LIST: Final = frozenset((list,))
_BLOCKS: Final = frozenset((str, dict))
_NUMBER: Final = frozenset((int, float))
_JSON: Final[frozenset[type]] = frozenset((str, int, float, bool, _NONE, list, dict))

Types = frozenset[type]

_MESSAGE: Final[dict[str, Types]] = {
    "content": frozenset((str, list)),
    "additional_kwargs": _DICT,
    "response_metadata": _DICT,
    "type": _TEXT,
    "name": _OPTIONAL_TEXT,
    "id": _OPTIONAL_TEXT,
    "role": _TEXT,
    "tool_call_id": _TEXT,
    "status": _TEXT,
    "tool_calls": _LIST,
    "invalid_tool_calls": _LIST,
    "tool_call_chunks": _LIST,
    "usage_metadata": frozenset((dict, _NONE)),
    "chunk_position": _OPTIONAL_TEXT,
    "content_blocks": frozenset(),  # no type: a constructor would take them in place of the content
}
_DOCUMENT: Final[dict[str, Types]] = {
    "page_content": _TEXT,
    "metadata": _DICT,
    "id": _OPTIONAL_TEXT,
    "type": _TEXT,
}
_ITEM: Final[dict[str, Types]] = {"namespace": _LIST, "key": _TEXT, "created_at": _TEXT, "updated_at": _TEXT}
_TOOL_CALL: Final[dict[str, Types]] = {"name": _TEXT, "args": _DICT, "id": _OPTIONAL_TEXT}
_INVALID_CALL: Final[dict[str, Types]] = dict.fromkeys(("name", "args", "id", "error"), _OPTIONAL_TEXT)
_CALL_CHUNK: Final[dict[str, Types]] = {
    **dict.fromkeys(("name", "args", "id"), _OPTIONAL_TEXT),
    "index": frozenset((int, _NONE)),
}
_RAW_CALL: Final[dict[str, Types]] = {
    "function": frozenset((dict, _NONE)),
    "id": _OPTIONAL_TEXT,
    "index": frozenset((int, _NONE)),
}
_RAW_FUNCTION: Final[dict[str, Types]] = {"name": _OPTIONAL_TEXT, "arguments": _JSON}
_DETAILS: Final = ("input_token_details", "output_token_details")
_USAGE: Final[dict[str, Types]] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), _NUMBER),
    **dict.fromkeys(_DETAILS, _DICT),
}
_USAGE_DETAILS: Final[dict[str, Types]] = dict.fromkeys(
    ("audio", "cache_creation", "cache_read", "reasoning"), _NUMBER
)
# LangChain would fill in what is missing: an empty dict of one byte would take 600 bytes.
_OF_EACH_CALL: Final = frozenset(("name", "args", "id"))
_PARSED: Final = ("tool_calls", "invalid_tool_calls", "tool_call_chunks")


class JsonBudget(threading.local):
    """Number of JSON elements that the strings in the value read by this thread may still contain."""

    elements: int | None = None  # `None` while no value is read

    def run(self, elements: int, read: Callable[[], Any]) -> Any:
        """Call ``read`` with a new budget, and return the result."""
        before, self.elements = self.elements, elements
        try:
            return read()
        finally:
            self.elements = before

    def spend(self, text: str) -> None:
        """Subtract the elements of a text from the budget, before LangChain parses the text."""
        # Counts characters within strings too. An exact count would need the parser, whose cost this bounds.
        elements = text.count(",") + text.count(":") + text.count("[") + text.count("{")
        left = (MAX_JSON_ELEMENTS if self.elements is None else self.elements) - elements
        if left < 0:
            raise RefusedError("the JSON in its strings has too many elements")
        if self.elements is not None:
            self.elements = left
        if elements:
            try:
                require_bounded(text.encode("utf-8", "surrogatepass"), MAX_JSON_DEPTH, elements=len(text))
            except LimitError as error:
                raise RefusedError(str(error)) from None


json_budget: Final = JsonBudget()


def require_message(fields: Any) -> None:
    """Refuse fields of a message that LangChain does not write, or that could take unbounded time to read."""
    _require_fields(fields, _MESSAGE)
    content = fields.get("content")
    if type(content) is list and not _BLOCKS.issuperset(map(type, content)):
        raise RefusedError("its content is not text, or a list of text and dicts")


def require_ai_message(fields: Any) -> None:
    """Refuse what `require_message` refuses, unknown forms of tool calls and usage, and raw JSON calls."""
    _require_ai_fields(fields)
    if fields.get("additional_kwargs"):
        for text in _raw_arguments(fields):
            json_budget.spend(text)


def _require_ai_fields(fields: Any) -> None:
    require_message(fields)
    if calls := fields.get("tool_calls"):
        _require_calls(calls, _TOOL_CALL, "tool_calls")
        for call in calls:
            for name in call["args"]:
                if type(name) is not str:
                    raise RefusedError("its tool_calls have keys that are not text")
    if calls := fields.get("invalid_tool_calls"):
        _require_calls(calls, _INVALID_CALL, "invalid_tool_calls")
    if usage := fields.get("usage_metadata"):
        _require_records((usage,), _USAGE, "usage_metadata")
        for name in _DETAILS:
            if details := usage.get(name):
                _require_records((details,), _USAGE_DETAILS, "usage_metadata")


def require_ai_chunk(fields: Any) -> None:
    """Refuse what `require_ai_message` refuses, and long arguments of tool calls that are not JSON."""
    _require_ai_fields(fields)
    chunks = fields.get("tool_call_chunks") or []
    _require_calls(chunks, _CALL_CHUNK, "tool_call_chunks")
    partial = [text for chunk in chunks if (text := chunk.get("args"))]
    partial += _raw_arguments(fields)
    content = fields.get("content")
    for block in content if type(content) is list else ():
        # In the last chunk of a stream LangChain may parse the arguments of server tool calls in the content.
        if type(block) is dict and type(block.get("args")) is str:
            json_budget.spend(block["args"])
    left = MAX_PARTIAL_JSON_CHARS
    for text in partial:
        json_budget.spend(text)
        left -= 0 if _is_json(text) else len(text)
        if left < 0:
            raise RefusedError("the arguments of its tool calls are not JSON, and long")


def require_item(fields: Any) -> None:
    """Refuse fields of a LangGraph store item if they do not have the types that LangGraph writes."""
    _require_fields(fields, _ITEM)
    if not _TEXT.issuperset(map(type, fields.get("namespace", ()))):
        raise RefusedError("its namespace is not made of text")


def _require_fields(fields: Any, types: dict[str, Types]) -> None:
    if type(fields) is not dict or len(fields) > MAX_FIELDS:
        raise RefusedError("its arguments are not its fields")
    for name, value in fields.items():
        if name in types and type(value) not in types[name]:
            raise RefusedError(f"its {name} has an unexpected type")


def _require_records(records: Any, types: dict[str, Types], where: str) -> None:
    for record in records:
        if type(record) is not dict:
            raise RefusedError(f"its {where} are not dicts")
        for name, value in record.items():
            if name in types:
                if type(value) not in types[name]:
                    raise RefusedError(f"its {where} have a field of an unexpected type")
            elif type(name) is not str:
                raise RefusedError(f"its {where} have keys that are not text")


def _require_calls(calls: Any, types: dict[str, Types], where: str) -> None:
    _require_records(calls, types, where)
    if not all(map(_OF_EACH_CALL.issubset, calls)):
        raise RefusedError(f"its {where} lack a name, arguments or an id")


def _raw_arguments(fields: dict[str, Any]) -> list[str]:
    """Return the texts that LangChain would parse as the arguments of tool calls in a provider's own form.

    LangChain parses these only if the message has no tool calls in LangChain's form.
    """
    calls = fields.get("additional_kwargs", {}).get("tool_calls")
    if calls is None or any(map(fields.get, _PARSED)):
        return []
    where = "additional_kwargs.tool_calls"
    if type(calls) is not list or len(calls) > MAX_RAW_TOOL_CALLS:
        raise RefusedError(f"its {where} are not a list, or too many")
    _require_records(calls, _RAW_CALL, where)
    functions = [call["function"] for call in calls if call.get("function")]
    _require_records(functions, _RAW_FUNCTION, where)
    return [text for function in functions if type(text := function.get("arguments")) is str]


def _is_json(text: str) -> bool:
    """Whether a text is JSON for LangChain, which allows line feeds in strings."""
    try:
        json.loads(text, strict=False)
    except ValueError:
        return False
    return True


require_document: Final = partial(_require_fields, types=_DOCUMENT)


def is_same_item(item: Any, fields: dict[str, Any]) -> bool:
    """Whether both times of a store item are the same as in its stored fields."""
    return all(getattr(item, name).isoformat() == fields[name] for name in ("created_at", "updated_at"))
