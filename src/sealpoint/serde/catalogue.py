"""Rules: how the safe types are written, and what tells that one came back as it was stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sealpoint.serde.arguments import address_text
from sealpoint.serde.codes import (
    KEYWORD_ARGUMENTS,
    METHOD,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.guards import (
    Guard,
    integers,
    require_decimal,
    require_interrupt,
    require_list,
    require_members,
    require_parts,
    require_pattern,
    require_time,
    require_timedelta,
    require_timezone,
    require_zone,
    short_text,
)
from sealpoint.serde.shapes import (
    is_same_document,
    is_same_item,
    require_ai_chunk,
    require_ai_message,
    require_document,
    require_item,
    require_message,
)


class Rule(NamedTuple):
    """How LangGraph writes a type.

    Attributes:
        codes: Codes of the extensions that hold its arguments; more than one if LangGraph
            changed it.
        guard: Checks them.
        is_same: Whether the object is written as the arguments that it was made from. Asked
            where the constructor takes other spellings of one value.
    """

    codes: tuple[int, ...]
    guard: Guard | None = None
    is_same: Callable[[Any, Any], bool] | None = None


def _is_same_decimal(number: Any, text: str) -> bool:
    # A context may write the exponent with a small letter.
    return str(number).replace("e", "E") == text.replace("e", "E")


def _is_same_address(address: Any, text: str) -> bool:
    # Python 3.13 writes what follows in another form than 3.11.
    return address_text(address) == text or text.startswith("::ffff:")


def _is_same_pattern(pattern: Any, arguments: list[Any]) -> bool:
    # A pattern of text has the flag UNICODE, whether it was given or not.
    return pattern.flags in (arguments[1], arguments[1] | re.UNICODE)


def _is_same_send(send: Any, arguments: list[Any]) -> bool:
    return len(arguments) == 2 or bool(send.timeout == arguments[2])


_V2: Final = (PYDANTIC_V2, PYDANTIC_V1)
_MESSAGES: Final = {
    "base": "BaseMessage BaseMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "modifier": "RemoveMessage",
    "system": "SystemMessage SystemMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
}

RULES: Final[dict[tuple[str, str], Rule]] = {
    ("builtins", "frozenset"): Rule((SINGLE_ARGUMENT,), require_members),
    ("builtins", "set"): Rule((SINGLE_ARGUMENT,), require_members),
    ("collections", "deque"): Rule((SINGLE_ARGUMENT,), require_list),
    ("datetime", "date"): Rule((POSITIONAL_ARGUMENTS,), integers(3)),
    ("datetime", "datetime"): Rule(
        (METHOD,), short_text(64), lambda moment, text: bool(moment.isoformat() == text)
    ),
    ("datetime", "time"): Rule((KEYWORD_ARGUMENTS,), require_time),
    ("datetime", "timedelta"): Rule((POSITIONAL_ARGUMENTS,), require_timedelta),
    ("datetime", "timezone"): Rule((POSITIONAL_ARGUMENTS,), require_timezone),
    ("decimal", "Decimal"): Rule((SINGLE_ARGUMENT,), require_decimal, _is_same_decimal),
    ("re", "compile"): Rule((POSITIONAL_ARGUMENTS,), require_pattern, _is_same_pattern),
    ("uuid", "UUID"): Rule(
        (SINGLE_ARGUMENT,), short_text(64), lambda uuid, text: text in (uuid.hex, str(uuid))
    ),
    ("zoneinfo", "ZoneInfo"): Rule((SINGLE_ARGUMENT,), require_zone),
    **{
        ("ipaddress", f"IPv{version}{kind}"): Rule((SINGLE_ARGUMENT,), short_text(64), _is_same_address)
        for version in (4, 6)
        for kind in ("Address", "Interface", "Network")
    },
    **{
        (home, f"{kind}Path"): Rule(
            (POSITIONAL_ARGUMENTS,), require_parts, lambda path, parts: path.parts == tuple(parts)
        )
        for home in ("pathlib", "pathlib._local")
        for kind in ("", "Posix", "Windows")
    },
    **{
        ("langgraph.types", name): Rule((KEYWORD_ARGUMENTS,))
        for name in ("Command", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
    },
    ("langgraph.types", "Interrupt"): Rule((KEYWORD_ARGUMENTS,), require_interrupt),
    ("langgraph.types", "Send"): Rule((POSITIONAL_ARGUMENTS,), None, _is_same_send),
    ("langgraph.store.base", "GetOp"): Rule((KEYWORD_ARGUMENTS,)),
    ("langgraph.store.base", "Item"): Rule((PYDANTIC_V1,), require_item, is_same_item),
    ("langchain_core.documents.base", "Document"): Rule(_V2, require_document, is_same_document),
    ("langchain_core.messages.ai", "AIMessage"): Rule(_V2, require_ai_message),
    ("langchain_core.messages.ai", "AIMessageChunk"): Rule(_V2, require_ai_chunk),
    **{
        (f"langchain_core.messages.{home}", name): Rule(_V2, require_message)
        for home, names in _MESSAGES.items()
        for name in names.split()
    },
}
"""How the types are written that every strict serializer rebuilds, by (module, name)."""
