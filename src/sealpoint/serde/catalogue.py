"""Catalogue of the safe types: one row per type with all its properties.

By default a strict serializer rebuilds only these types. The encoder uses a row to write objects, the
decoder to check their arguments, and the check of untrusted bytes to find costly types.
"""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import re
import zoneinfo
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from sealpoint.serde.codes import (
    KEYWORD_ARGUMENTS,
    METHOD,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.fast import scalars
from sealpoint.serde.guards import (
    Guard,
    is_same_document,
    is_same_item,
    require_ai_chunk,
    require_ai_message,
    require_date,
    require_decimal,
    require_document,
    require_interrupt,
    require_item,
    require_list,
    require_members,
    require_message,
    require_parts,
    require_pattern,
    require_time,
    require_timedelta,
    require_timezone,
    require_zone,
    short_text,
)
from sealpoint.serde.limits import MAX_SHORT_CHARS

Builder = Callable[[Any], Any]
Encoder = Callable[[Any, int], Any]
FastBuild = Callable[[Any, Builder], Builder]


class SafeType(NamedTuple):
    """One row of the catalogue.

    Attributes:
        codes: Codes of the extensions that contain its arguments. The first is written; others are those of
            earlier LangGraph versions.
        guard: Checks arguments from unauthenticated bytes.
        is_same: Whether an object is written as the arguments that it was created from. Set if the
            constructor accepts several forms of one value.
        written: A class whose instances are written as their arguments, including subclasses, and the
            function that returns the arguments. ``None`` if objects are written by their methods or fields.
        called: Module and name that are written, if they are not those of the class.
        fast_build: Makes a fast builder from the class and the guarded general builder.
        fast_write: Makes a fast encoder from the class and the general encoder.
        costly: The field of `Limits` with the maximum number in a value, if objects take long to build.
    """

    codes: tuple[int, ...]
    guard: Guard | None = None
    is_same: Callable[[Any, Any], bool] | None = None
    written: tuple[type, Callable[[Any], Any]] | None = None
    called: tuple[str, str] | None = None
    fast_build: FastBuild | None = None
    fast_write: Callable[[type, Encoder], Encoder] | None = None
    costly: str | None = None


def _time_arguments(time: datetime.time) -> dict[str, Any]:
    return {
        "hour": time.hour,
        "minute": time.minute,
        "second": time.second,
        "microsecond": time.microsecond,
        "tzinfo": time.tzinfo,
        "fold": time.fold,
    }


def _is_same_decimal(number: Any, text: str) -> bool:
    # A context may write the exponent in lower case.
    return str(number) == text or str(number).replace("e", "E") == text.replace("e", "E")


def _is_same_address(address: Any, text: str) -> bool:
    # Python 3.13 writes the following in another form than 3.11.
    return str(address) == text or text.startswith("::ffff:")


def _is_same_pattern(pattern: Any, arguments: list[Any]) -> bool:
    # A text pattern always has the flag UNICODE.
    return pattern.flags in (arguments[1], arguments[1] | re.UNICODE)


def _is_same_send(send: Any, arguments: list[Any]) -> bool:
    return len(arguments) == 2 or bool(send.timeout == arguments[2])


def _set(base: type, guard: Guard, fast_build: FastBuild | None = None) -> SafeType:
    return SafeType((SINGLE_ARGUMENT,), guard, written=(base, tuple), fast_build=fast_build)


def _message(guard: Guard, costly: str | None = None) -> SafeType:
    return SafeType((PYDANTIC_V2, PYDANTIC_V1), guard, costly=costly)


_PATH: Final = SafeType(
    (POSITIONAL_ARGUMENTS,),
    require_parts,
    lambda path, parts: path.parts == tuple(parts),
    written=(pathlib.Path, attrgetter("parts")),
    fast_build=scalars.path,
)
_ADDRESSES: Final = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)
_MESSAGES: Final = {
    "base": "BaseMessage BaseMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "modifier": "RemoveMessage",
    "system": "SystemMessage SystemMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
}

# Python 3.13 defines its paths in another module. A class comes before its base classes.
CATALOGUE: Final[dict[tuple[str, str], SafeType]] = {
    **{
        (module, f"{kind}Path"): _PATH
        for module in ("pathlib", "pathlib._local")
        for kind in ("", "Posix", "Windows")
    },
    ("re", "compile"): SafeType(
        (POSITIONAL_ARGUMENTS,),
        require_pattern,
        _is_same_pattern,
        written=(re.Pattern, attrgetter("pattern", "flags")),
        called=("re", "compile"),
        costly="patterns",
    ),
    ("uuid", "UUID"): SafeType(
        (SINGLE_ARGUMENT,),
        short_text(MAX_SHORT_CHARS),
        lambda uuid, text: text == uuid.hex or text == str(uuid),
        written=(UUID, attrgetter("hex")),
    ),
    ("decimal", "Decimal"): SafeType(
        (SINGLE_ARGUMENT,),
        require_decimal,
        _is_same_decimal,
        written=(Decimal, str),
    ),
    ("builtins", "set"): _set(set, require_members, scalars.members),
    ("builtins", "frozenset"): _set(frozenset, require_members, scalars.members),
    ("collections", "deque"): _set(deque, require_list),
    **{
        ("ipaddress", cls.__name__): SafeType(
            (SINGLE_ARGUMENT,),
            short_text(MAX_SHORT_CHARS),
            _is_same_address,
            written=(cls, str),
            fast_build=scalars.address_reader,
            fast_write=scalars.address_writer,
        )
        for cls in _ADDRESSES
    },
    ("datetime", "datetime"): SafeType(
        (METHOD,),
        short_text(MAX_SHORT_CHARS),
        # fromisoformat() also takes dates, weeks and "Z", which isoformat() does not write.
        lambda moment, text: bool(moment.isoformat() == text),
        written=(datetime.datetime, lambda moment: moment.isoformat()),
        fast_build=scalars.moment,
        fast_write=scalars.moment_writer,
    ),
    ("datetime", "timedelta"): SafeType(
        (POSITIONAL_ARGUMENTS,),
        require_timedelta,
        written=(datetime.timedelta, attrgetter("days", "seconds", "microseconds")),
    ),
    ("datetime", "date"): SafeType(
        (POSITIONAL_ARGUMENTS,),
        require_date,
        written=(datetime.date, attrgetter("year", "month", "day")),
    ),
    ("datetime", "time"): SafeType(
        (KEYWORD_ARGUMENTS,),
        require_time,
        written=(datetime.time, _time_arguments),
    ),
    ("datetime", "timezone"): SafeType(
        (POSITIONAL_ARGUMENTS,),
        require_timezone,
        # LangGraph calls this undocumented method: it returns a name only if the zone has one.
        written=(datetime.timezone, lambda zone: zone.__getinitargs__()),
    ),
    ("zoneinfo", "ZoneInfo"): SafeType(
        (SINGLE_ARGUMENT,),
        require_zone,
        written=(zoneinfo.ZoneInfo, attrgetter("key")),
    ),
    **{
        ("langgraph.types", name): SafeType((KEYWORD_ARGUMENTS,))
        for name in ("Command", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
    },
    ("langgraph.types", "Interrupt"): SafeType((KEYWORD_ARGUMENTS,), require_interrupt),
    ("langgraph.types", "Send"): SafeType((POSITIONAL_ARGUMENTS,), is_same=_is_same_send),
    ("langgraph.store.base", "GetOp"): SafeType((KEYWORD_ARGUMENTS,)),
    ("langgraph.store.base", "Item"): SafeType((PYDANTIC_V1,), require_item, is_same_item),
    ("langchain_core.documents.base", "Document"): SafeType(
        (PYDANTIC_V2, PYDANTIC_V1), require_document, is_same_document
    ),
    ("langchain_core.messages.ai", "AIMessage"): _message(require_ai_message),
    ("langchain_core.messages.ai", "AIMessageChunk"): _message(require_ai_chunk, "chunks"),
    **{
        (f"langchain_core.messages.{home}", name): _message(require_message)
        for home, names in _MESSAGES.items()
        for name in names.split()
    },
}
"""The safe types, by module and name."""
