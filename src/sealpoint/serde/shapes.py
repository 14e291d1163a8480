"""Shapes: what the fields of LangChain's messages and documents must be in unauthenticated bytes.

The constructors accept more than they write: content of any type is turned into text by
``repr``, text in four places is parsed as JSON, and every wrong item costs a kilobyte of
error. Here the fields that LangChain looks into have exactly the types that it writes.
The fields that it only stores (``artifact``, values of metadata, further fields) may
hold any value.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from sealpoint.serde.guards import RefusedError, require_json_depth
from sealpoint.serde.limits import (
    MAX_FIELDS,
    MAX_JSON_DEPTH,
    MAX_JSON_ELEMENTS,
    MAX_PARTIAL_JSON_CHARS,
    MAX_RAW_TOOL_CALLS,
)

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
_ITEM: Final[dict[str, Types]] = {
    "namespace": _LIST,
    "key": _TEXT,
    "created_at": _TEXT,
    "updated_at": _TEXT,
}
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
    """What the JSON within the strings of one value may still have, of the value that this thread reads.

    Attributes:
        elements: Elements; ``None`` while no value is read.
    """

    elements: int | None = None

    def run(self, elements: int, read: Callable[[], Any]) -> Any:
        """Return what ``read`` returns, with a budget of its own."""
        before, self.elements = self.elements, elements
        try:
            return read()
        finally:
            self.elements = before

    def spend(self, text: str) -> None:
        """Charge one text that LangChain will parse, before it is parsed."""
        # Counts characters within strings too. An exact count would need the parser, whose cost this bounds.
        elements = text.count(",") + text.count(":") + text.count("[") + text.count("{")
        left = (MAX_JSON_ELEMENTS if self.elements is None else self.elements) - elements
        if left < 0:
            raise RefusedError("the JSON in its strings has too many elements")
        if self.elements is not None:
            self.elements = left
        if elements:
            require_json_depth(text, MAX_JSON_DEPTH)


json_budget: Final = JsonBudget()


def require_message(fields: Any) -> None:
    """Refuse fields of a message that LangChain does not write, or could not read in bounded time."""
    _require_fields(fields, _MESSAGE)
    content = fields.get("content")
    if type(content) is list and not _BLOCKS.issuperset(map(type, content)):
        raise RefusedError("its content is not text, or a list of text and dicts")


def require_ai_message(fields: Any) -> None:
    """Refuse what `require_message` does, other shapes of calls and usage, and JSON in raw tool calls."""
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
    """Refuse fields as `require_ai_message` does, and JSON in tool calls of a streamed message."""
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
    _require_short_partial_json(partial)


def require_document(fields: Any) -> None:
    """Refuse fields of a document that LangChain would convert."""
    _require_fields(fields, _DOCUMENT)


def require_item(fields: Any) -> None:
    """Refuse fields of an item of a store that LangGraph would convert."""
    _require_fields(fields, _ITEM)
    if not _TEXT.issuperset(map(type, fields.get("namespace", ()))):
        raise RefusedError("its namespace is not made of text")


def _require_fields(fields: Any, types: dict[str, Types]) -> None:
    if type(fields) is not dict or len(fields) > MAX_FIELDS:
        raise RefusedError("it is not made from its fields")
    for name, value in fields.items():
        if name in types and type(value) not in types[name]:
            raise RefusedError(f"its {name} is not of a type that is written there")


def _require_records(records: Any, types: dict[str, Types], where: str) -> None:
    """Refuse all but dicts, known fields of another type, and names of fields that are not text."""
    for record in records:
        if type(record) is not dict:
            raise RefusedError(f"its {where} are not dicts")
        for name, value in record.items():
            if name in types:
                if type(value) not in types[name]:
                    raise RefusedError(f"its {where} have a field of another type than is written there")
            elif type(name) is not str:
                raise RefusedError(f"its {where} have keys that are not text")


def _require_calls(calls: Any, types: dict[str, Types], where: str) -> None:
    """Refuse records as `_require_records` does, and calls that lack a field that is always written."""
    _require_records(calls, types, where)
    if not all(map(_OF_EACH_CALL.issubset, calls)):
        raise RefusedError(f"its {where} lack a name, arguments or an id")


def _raw_arguments(fields: dict[str, Any]) -> list[str]:
    """Return the texts that LangChain will parse as the arguments of a provider's own tool calls.

    It looks there only if the message has no tool calls in LangChain's form.
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


def _require_short_partial_json(texts: list[str]) -> None:
    left = MAX_PARTIAL_JSON_CHARS
    for text in texts:
        json_budget.spend(text)
        left -= 0 if _is_json(text) else len(text)
        if left < 0:
            raise RefusedError("the arguments of its tool calls are not JSON, and long")


def _is_json(text: str) -> bool:
    """Whether a text is JSON as LangChain takes it, which is with line feeds in strings."""
    try:
        json.loads(text, strict=False)
    except ValueError:
        return False
    return True


def is_same_item(item: Any, fields: dict[str, Any]) -> bool:
    """Whether the times of an item are those that its fields spell."""
    times = item.created_at, item.updated_at
    texts: list[str] = [time.isoformat() for time in times]
    return texts == [fields["created_at"], fields["updated_at"]]


def is_same_document(document: Any, fields: Iterable[str]) -> bool:
    """Whether a document has all the fields that were stored."""
    return set(fields) <= set(vars(document))
