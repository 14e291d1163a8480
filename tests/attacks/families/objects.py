"""Messages, LangGraph's own types, and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.blobs import cases
from tests.attacks.case import Case
from tests.support.values.forge import ext, named, pack

MESSAGES: Final = "langchain_core.messages"
BAD_JSON: Final = '{"a": "' + "\\u0041" * 60_000


def _message(module: str, kind: str, /, **fields: Any) -> bytes:
    return pack(named(5, f"{MESSAGES}.{module}", kind, fields, "model_validate_json"))


def _chunks(*arguments: Any) -> list[dict[str, Any]]:
    return [
        {"name": "n", "args": text, "id": "1", "index": 0, "type": "tool_call_chunk"} for text in arguments
    ]


def _calls(arguments: Any) -> dict[str, Any]:
    return {
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "n", "arguments": arguments}}]
    }


def messages() -> Iterator[Case]:
    """LangChain's messages, with fields that are slow, wrong or not theirs."""
    slow = "strict strict-thread"
    for label, arguments in (
        ("half a string of 360 kB", BAD_JSON),
        ("200,000 open lists", "[" * 200_000),
        ("200,000 open objects", '{"a":' * 200_000),
        ("400,000 quotes", '"' * 400_000),
        ("400,000 backslashes", "\\" * 400_000),
        ("open strings", '{"a' * 100_000),
        ("digits", "1" * 5_000),
        ("an object of a million spaces", "{" + " " * 1_000_000),
    ):
        whole = _message("ai", "AIMessageChunk", content="", tool_call_chunks=_chunks(arguments))
        yield from cases("messages", f"chunks: {label}", whole, readers=slow)
        extra = _message("ai", "AIMessage", content="", additional_kwargs=_calls(arguments))
        yield from cases("messages", f"calls: {label}", extra, readers=slow, honest=_any)
    many = _message(
        "ai", "AIMessageChunk", content="", tool_call_chunks=_chunks(*['{"a": "' + "b" * 50] * 60_000)
    )
    yield from cases("messages", "60,000 chunks of half an object", many, honest=_any)
    blocks = [{"type": "text", "text": "x"}] * 100_000
    yield from cases(
        "messages",
        "100,000 blocks",
        _message("ai", "AIMessage", content="", content_blocks=blocks),
        honest=_any,
    )
    for label, module, name, fields in (
        ("no content", "ai", "AIMessage", {}),
        ("content is a number", "ai", "AIMessage", {"content": 5}),
        ("content is nil", "human", "HumanMessage", {"content": None}),
        ("content is a map", "human", "HumanMessage", {"content": {"a": 1}}),
        ("content of numbers", "human", "HumanMessage", {"content": [1, 2]}),
        ("another type", "human", "HumanMessage", {"content": "x", "type": "ai"}),
        ("id is a map", "human", "HumanMessage", {"content": "x", "id": {"a": 1}}),
        ("name is a number", "human", "HumanMessage", {"content": "x", "name": 5}),
        ("extras are a list", "human", "HumanMessage", {"content": "x", "additional_kwargs": [1]}),
        ("metadata is text", "ai", "AIMessage", {"content": "x", "response_metadata": "x"}),
        ("usage is text", "ai", "AIMessage", {"content": "x", "usage_metadata": "x"}),
        ("usage is half", "ai", "AIMessage", {"content": "x", "usage_metadata": {"input_tokens": 1}}),
        (
            "usage of text",
            "ai",
            "AIMessage",
            {"content": "x", "usage_metadata": {"input_tokens": "a", "output_tokens": 1, "total_tokens": 1}},
        ),
        ("calls are text", "ai", "AIMessage", {"content": "x", "tool_calls": "x"}),
        (
            "calls without a name",
            "ai",
            "AIMessage",
            {"content": "x", "tool_calls": [{"args": {}, "id": "1"}]},
        ),
        (
            "calls with text for arguments",
            "ai",
            "AIMessage",
            {"content": "x", "tool_calls": [{"name": "n", "args": "{}", "id": "1"}]},
        ),
        ("chunks are a map", "ai", "AIMessageChunk", {"content": "x", "tool_call_chunks": {"a": 1}}),
        ("a place in the chunks", "ai", "AIMessageChunk", {"content": "x", "chunk_position": "first"}),
        ("blocks are a number", "ai", "AIMessage", {"content": "x", "content_blocks": 5}),
        ("no id of a call", "tool", "ToolMessage", {"content": "x"}),
        ("the id of a call is a list", "tool", "ToolMessage", {"content": "x", "tool_call_id": [1]}),
        (
            "a status of its own",
            "tool",
            "ToolMessage",
            {"content": "x", "tool_call_id": "1", "status": "owned"},
        ),
        (
            "content that is written as its repr",
            "tool",
            "ToolMessage",
            {"content": [[1]], "tool_call_id": "1"},
        ),
        ("content of bytes", "human", "HumanMessage", {"content": b"x"}),
        ("other content beside it", "human", "HumanMessage", {"content": "x", "content_blocks": ["y"]}),
        (
            "JSON in bytes",
            "ai",
            "AIMessage",
            {
                "content": "",
                "additional_kwargs": {"tool_calls": [{"function": {"name": "f", "arguments": b"{}"}}]},
            },
        ),
        (
            "half an object in a provider's call",
            "ai",
            "AIMessageChunk",
            {
                "content": "",
                "additional_kwargs": {
                    "tool_calls": [{"function": {"name": "f", "arguments": "{" + "x" * 20_000}}]
                },
            },
        ),
        ("100,000 wrong items", "human", "HumanMessage", {"content": [1] * 100_000}),
        ("no role", "chat", "ChatMessage", {"content": "x"}),
        ("no name", "function", "FunctionMessage", {"content": "x"}),
        ("content to remove", "modifier", "RemoveMessage", {"id": "1", "content": "x"}),
        ("nothing to remove", "modifier", "RemoveMessage", {}),
        ("no type", "base", "BaseMessage", {"content": "x"}),
    ):
        yield from cases("messages", f"{name}: {label}", _message(module, name, **fields))
    odd_fields: tuple[tuple[str, Any], ...] = (
        ("a list", [1]),
        ("text", "x"),
        ("nil", None),
        ("a number", 5),
        ("numbers for names", {1: 2}),
    )
    for label, fields in odd_fields:
        blob = pack(named(5, f"{MESSAGES}.ai", "AIMessage", fields, "model_validate_json"))
        yield from cases("messages", f"AIMessage: its fields are {label}", blob)
    by_code: tuple[tuple[int, Any], ...] = (
        (1, [5]),
        (1, []),
        (1, ["x", "y", "z"]),
        (0, 5),
        (2, {"content": 5}),
        (4, {"content": 5}),
    )
    for code, fields in by_code:
        blob = pack(named(code, f"{MESSAGES}.ai", "AIMessage", fields))
        yield from cases("messages", f"AIMessage by {code} from {fields}", blob)
    for label, fields in (
        ("no content", {}),
        ("a number for content", {"page_content": 5}),
        ("text for metadata", {"page_content": "x", "metadata": "y"}),
        ("a type", {"page_content": "x", "type": "Evil"}),
    ):
        blob = pack(named(5, "langchain_core.documents.base", "Document", fields, "model_validate_json"))
        yield from cases("messages", f"Document: {label}", blob)


def _any(_: object) -> bool:
    return True


def tasks() -> Iterator[Case]:
    """The types of langgraph.types, with arguments they do not take."""
    forged: tuple[tuple[str, int, Any], ...] = (
        ("Send", 1, []),
        ("Send", 1, ["node"]),
        ("Send", 1, ["node", 1, "timeout"]),
        ("Send", 1, ["node", 1, -5]),
        ("Send", 1, ["node", 1, 2, 3]),
        ("Send", 1, "ab"),
        ("Send", 1, {"node": "a", "arg": 1}),
        ("Send", 0, "node"),
        ("Send", 2, {"node": "a", "arg": 1, "evil": 2}),
        ("Interrupt", 2, {}),
        ("Interrupt", 2, {"value": 1, "evil": 2}),
        ("Interrupt", 2, [1]),
        ("Interrupt", 2, {1: 2}),
        ("Command", 2, {"evil": 1}),
        ("Command", 2, "x"),
        ("Command", 1, [1, 2, 3, 4, 5]),
        ("PregelTask", 2, {}),
        ("PregelTask", 2, {"id": "1"}),
        ("PregelTask", 0, "x"),
        ("PregelTask", 1, list(range(20))),
        ("StateSnapshot", 2, {"values": 1}),
        ("StateSnapshot", 1, []),
        ("Overwrite", 2, {"evil": 1}),
        ("TimeoutPolicy", 2, {"evil": 1}),
    )
    for name, code, argument in forged:
        blob = pack(named(code, "langgraph.types", name, argument))
        yield from cases("tasks", f"{name} by {code} from {argument}", blob)
    stored: tuple[tuple[str, Any], ...] = (
        ("Item", {"value": {}}),
        ("Item", {"namespace": 5, "key": "k", "value": {}, "created_at": "x", "updated_at": "y"}),
        (
            "Item",
            {
                "namespace": ["a"],
                "key": "k",
                "value": {},
                "created_at": "yesterday",
                "updated_at": "2024-01-01T00:00:00",
            },
        ),
        ("Item", {"evil": 1}),
        ("GetOp", {"evil": 1}),
        ("GetOp", {}),
    )
    for name, argument in stored:
        for code in (2, 4):
            blob = pack(named(code, "langgraph.store.base", name, argument))
            yield from cases("tasks", f"{name} by {code} from {argument}"[:80], blob)


def arrays() -> Iterator[Case]:
    """Arrays that hold pointers, or do not have the size they say."""
    eight = bytes(8)
    dtypes: tuple[Any, ...] = (
        "|O", "|O8", "O", ">O", "object", "|V8", "|V0", "V", "void", "i4,i4", "O,i4", "(2,2)i4", "2i4",
        "{'a': 'O'}", "|T16", "T", "a8", "c", "?", "p", "P", "i", "<i3", "<f16", "<f3", "|b9", "|u1\0",
        "", "<", "<i", "i8 ",
        "\uff49\uff18", "<M8[evil]", "<M8[99999999999999s]", "<m8[1000000000000000000000Y]", "x" * 1_000_000,
        "<U1000000000", "|S999999999", "numpy.int64", "str", "datetime64", [["a", "O"]], ["<i4"], None, 5,
        b"<i8", {"names": ["a"], "formats": ["O"]},
    )  # fmt: skip
    for dtype in dtypes:
        blob = pack(ext(6, [dtype, [1], "C", eight]))
        yield from cases("arrays", f"dtype {ascii(dtype)[:40]}", blob)
    shapes: tuple[Any, ...] = (
        [-1], [-2, -4], [2], [0], [], [1, 1, 2], [2**32, 2**32], [2**62, 4], [2**63, 2], [0, 2**62],
        [2**62, 0, 2**62], [1] * 33, [1] * 65, [1] * 1_000_000, [1.0], [True], ["1"], [None], [[1]], 1,
        "1", None, {"a": 1}, [2**40], [3, -1],
    )  # fmt: skip
    for number, shape in enumerate(shapes):
        blob = pack(ext(6, ["<i8", shape, "C", eight]))
        yield from cases("arrays", f"shape {number}: {str(shape)[:40]}", blob)
    for label, payload in (
        ("seven bytes", ["<i8", [1], "C", bytes(7)]),
        ("no bytes", ["<i8", [1], "C", b""]),
        ("bytes as text", ["<i8", [1], "C", "\0" * 8]),
        ("bytes as a list", ["<i8", [1], "C", [0] * 8]),
        ("bytes nil", ["<i8", [0], "C", None]),
        ("bytes as a number", ["<i8", [1], "C", 8]),
        ("order K", ["<i8", [1], "K", eight]),
        ("order A", ["<i8", [1], "A", eight]),
        ("order nil", ["<i8", [1], None, eight]),
        ("order 5", ["<i8", [1], 5, eight]),
        ("order CC", ["<i8", [1], "CC", eight]),
        ("no order", ["<i8", [1], eight]),
        ("five parts", ["<i8", [1], "C", eight, 1]),
        ("a map", {"dtype": "<i8", "shape": [1], "order": "C", "data": eight}),
        ("text", "abcd"),
        ("nil", None),
        ("a number", 5),
        ("items of no size", ["|S0", [10**12], "C", b""]),
        ("text of no size", ["<U0", [10**12], "C", b""]),
        ("text of no size, huge", ["<U0", [2**62, 2**62], "C", b""]),
        ("no size, many dimensions", ["|S0", [2**31] * 20, "C", b""]),
        ("a million dimensions of no size", ["|S0", [0] * 1_000_000, "C", b""]),
    ):
        yield from cases("arrays", label, pack(ext(6, payload)))
    for depth in (3, 60):
        inner: Any = eight
        for _ in range(depth):
            inner = ext(6, ["|u1", [1], "C", inner])
        yield from cases("arrays", f"{depth} arrays for bytes", pack(inner), readers="strict inert")


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (messages, tasks, arrays):
        yield from family()
