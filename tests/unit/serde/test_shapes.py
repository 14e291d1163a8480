"""LangChain's messages from untrusted bytes: honest fields are read, what would be converted is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import langchain_core.messages as lc
import ormsgpack
import pytest
from langchain_core.documents import Document

from sealpoint.errors import UnbuildableValueError
from sealpoint.serde import Allowlist, JsonPlusSerializer
from sealpoint.serde.decode import Decoder
from sealpoint.serde.limits import MAX_JSON_DEPTH, MAX_PARTIAL_JSON_CHARS, MAX_RAW_TOOL_CALLS, Limits
from tests.support.costs import peak_of
from tests.support.forge import named, record

strict = JsonPlusSerializer(allowed_msgpack_modules=None)
trusting = Decoder(Allowlist())

AI = "langchain_core.messages.ai.AIMessage"
CHUNK = "langchain_core.messages.ai.AIMessageChunk"
HUMAN = "langchain_core.messages.human.HumanMessage"
TOOL = "langchain_core.messages.tool.ToolMessage"
TOOL_CHUNK = "langchain_core.messages.tool.ToolMessageChunk"
CHAT = "langchain_core.messages.chat.ChatMessage"
DOCUMENT = "langchain_core.documents.base.Document"

CALL = {"name": "f", "args": {"a": [1, None, {"b": 2.5}]}, "id": "call_1", "type": "tool_call"}
OBJECT = '{"a": [1, {"b": "x,y"}]}'
USAGE = {
    "input_tokens": 3,
    "output_tokens": 4,
    "total_tokens": 7,
    "input_token_details": {"cache_read": 1, "flex_read": 2},
    "output_token_details": {"reasoning": 1},
}


def message(target: str, fields: Any, code: int = 5) -> tuple[str, bytes]:
    module, _, name = target.rpartition(".")
    return record(code, module, name, fields, *(["model_validate_json"] if code == 5 else []))


def raw_calls(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"tool_calls": [{"id": "1", "type": "function", "index": 0, "function": function}]}


HONEST = {
    "text": lc.HumanMessage("hello", id="1", name="ada"),
    "empty": lc.AIMessage(""),
    "a further field": lc.AIMessage("", example=False, custom={"a": [1, 2]}),
    "content of openai": lc.HumanMessage(
        [{"type": "text", "text": "x"}, "y", {"type": "image_url", "image_url": {"url": "data:,"}}]
    ),
    "content of anthropic": lc.AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "index": 1},
            {"type": "text", "text": "x", "citations": [{"start": 1, "end": None}]},
        ]
    ),
    "content of bedrock, with bytes": lc.HumanMessage(
        [{"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}]
    ),
    "tool calls": lc.AIMessage("", tool_calls=[CALL], response_metadata={"logprobs": [{"a": [1.5]}]}),
    "invalid tool calls": lc.AIMessage(
        "", invalid_tool_calls=[{"name": None, "args": "{", "id": "1", "error": "x"}]
    ),
    "usage": lc.AIMessage("", usage_metadata=USAGE),
    "raw tool calls": lc.AIMessage("", additional_kwargs=raw_calls(OBJECT)),
    "raw tool calls that are no JSON": lc.AIMessage("", additional_kwargs=raw_calls("{" * 100)),
    "raw tool calls, as objects": lc.AIMessage("", additional_kwargs=raw_calls({"a": 1})),
    "a function call": lc.AIMessage("", additional_kwargs={"function_call": {"arguments": "["}}),
    "chunk": lc.AIMessageChunk(
        content="", tool_call_chunks=[{"name": "f", "args": OBJECT * 1, "id": "1", "index": 0}]
    ),
    "chunk of long JSON": lc.AIMessageChunk(
        content="",
        tool_call_chunks=[{"name": "f", "args": json.dumps({"a": "b" * 9999}), "id": "1", "index": 0}],
    ),
    "chunk with a line feed": lc.AIMessageChunk(
        content="",
        tool_call_chunks=[{"name": "f", "args": '{"a": "' + "b\n" * 999 + '"}', "id": None, "index": None}],
    ),
    "chunk of a part": lc.AIMessageChunk(
        content="", tool_call_chunks=[{"name": None, "args": '{"a": "b', "id": None, "index": 1}]
    ),
    "last chunk": lc.AIMessageChunk(
        content=[{"type": "server_tool_call_chunk", "name": "f", "args": OBJECT, "id": "1", "index": 0}],
        response_metadata={"output_version": "v1"},
        chunk_position="last",
    ),
    "tool": lc.ToolMessage("42", tool_call_id="1", status="error"),
    "tool of blocks": lc.ToolMessage([{"type": "text", "text": "x"}, "y"], tool_call_id="1"),
    "tool with an artifact": lc.ToolMessage(
        "x", tool_call_id="1", artifact=Document(page_content="y", metadata={"a": {1, 2}})
    ),
    "system": lc.SystemMessage("x", additional_kwargs={"__openai_role__": "developer"}),
    "chat": lc.ChatMessage(content="x", role="user"),
    "function": lc.FunctionMessage(content="x", name="f"),
    "remove": lc.RemoveMessage(id="1"),
    "human chunk": lc.HumanMessageChunk(content="x"),
    "document": Document(page_content="x", id="1", metadata={"a": [1, b"2"]}),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_message_is_read(name: str) -> None:
    """As it was, and as the ring's own bytes are read."""
    kind, data = strict.dumps_typed(HONEST[name])
    found = strict.loads_typed((kind, data))
    assert found == trusting.decode(data)
    assert strict.dumps_typed(found) == (kind, data)


@pytest.mark.parametrize("code", [4, 5])
def test_messages_of_both_kinds_are_read(code: int) -> None:
    assert strict.loads_typed(message(HUMAN, {"content": "x"}, code)) == lc.HumanMessage("x")
    with pytest.raises(UnbuildableValueError):
        strict.loads_typed(message(TOOL, {"content": [5], "tool_call_id": "1"}, code))


DEQUE = named(0, "collections", "deque", [{"args": "["}])
SET = named(0, "builtins", "set", ["x"])
DEEP = "[" * (MAX_JSON_DEPTH + 1)
LONG = "{" + "x" * MAX_PARTIAL_JSON_CHARS
UUID = named(0, "uuid", "UUID", "0" * 32)


def chunks(*texts: Any) -> dict[str, Any]:
    return {
        "content": "",
        "tool_call_chunks": [{"name": "f", "args": text, "id": "1", "index": 0} for text in texts],
    }


def last(block: dict[str, Any]) -> dict[str, Any]:
    return {"content": [block], "chunk_position": "last", "response_metadata": {"output_version": "v1"}}


CONVERTED: dict[str, tuple[str, Any]] = {
    "content: a number": (TOOL, {"content": 5, "tool_call_id": "1"}),
    "content: a dict": (TOOL, {"content": {"a": 1}, "tool_call_id": "1"}),
    "content: bytes": (HUMAN, {"content": b"x"}),
    "content: a deque": (HUMAN, {"content": DEQUE}),
    "content: a set": (TOOL, {"content": SET, "tool_call_id": "1"}),
    "content: a list in a list": (TOOL, {"content": [["x"]], "tool_call_id": "1"}),
    "content: a number in a list": (TOOL_CHUNK, {"content": [5], "tool_call_id": "1"}),
    "content: an object in a list": (TOOL, {"content": [UUID], "tool_call_id": "1"}),
    "content: bytes in a list": (HUMAN, {"content": [b"x"]}),
    "content, and other content": (
        HUMAN,
        {"content": "x", "content_blocks": [{"type": "text", "text": "y"}]},
    ),
    "id: a number": (HUMAN, {"content": "", "id": 5}),
    "id: an object": (HUMAN, {"content": "", "id": UUID}),
    "name: bytes": (HUMAN, {"content": "", "name": b"x"}),
    "role: bytes": (CHAT, {"content": "", "role": b"x"}),
    "tool_call_id: a number": (TOOL, {"content": "", "tool_call_id": 5}),
    "tool_call_id: an object": (TOOL, {"content": "", "tool_call_id": UUID}),
    "additional_kwargs: a list": (AI, {"content": "", "additional_kwargs": [["a", 1]]}),
    "response_metadata: text": (AI, {"content": "", "response_metadata": "x"}),
    "tool_calls: a deque": (AI, {"content": "", "tool_calls": DEQUE}),
    "tool_calls: text": (AI, {"content": "", "tool_calls": ["x"]}),
    "tool_calls: name of bytes": (AI, {"content": "", "tool_calls": [CALL | {"name": b"f"}]}),
    "tool_calls: id of a number": (AI, {"content": "", "tool_calls": [CALL | {"id": 1}]}),
    "tool_calls: args of a list": (AI, {"content": "", "tool_calls": [CALL | {"args": [["a", 1]]}]}),
    "tool_calls: args by number": (AI, {"content": "", "tool_calls": [CALL | {"args": {1: 2}}]}),
    "invalid_tool_calls: bytes": (
        AI,
        {"content": "", "invalid_tool_calls": [{"name": b"f", "args": "", "id": "1", "error": None}]},
    ),
    "tool_calls: a part": (AI, {"content": "", "tool_calls": [{"name": "f", "id": "1"}]}),
    "invalid_tool_calls: empty": (AI, {"content": "", "invalid_tool_calls": [{}]}),
    "invalid_tool_calls of a chunk: empty": (CHUNK, {"content": "", "invalid_tool_calls": [{}]}),
    "chunks: empty": (CHUNK, {"content": "", "tool_call_chunks": [{}]}),
    "usage_metadata: text": (AI, {"content": "", "usage_metadata": USAGE | {"input_tokens": "3"}}),
    "usage_metadata: by number": (AI, {"content": "", "usage_metadata": USAGE | {1: 3}}),
    "usage_metadata: details": (
        AI,
        {"content": "", "usage_metadata": USAGE | {"input_token_details": {"audio": b"1"}}},
    ),
    "raw calls: a deque": (AI, {"content": "", "additional_kwargs": {"tool_calls": DEQUE}}),
    "raw calls: text": (AI, {"content": "", "additional_kwargs": {"tool_calls": "x"}}),
    "raw calls: bytes": (AI, {"content": "", "additional_kwargs": raw_calls(b"[1]")}),
    "raw calls: deep": (AI, {"content": "", "additional_kwargs": raw_calls(DEEP)}),
    "raw calls: too many": (
        AI,
        {"content": "", "additional_kwargs": {"tool_calls": [{}] * (MAX_RAW_TOOL_CALLS + 1)}},
    ),
    "raw calls: a list for a function": (
        AI,
        {"content": "", "additional_kwargs": {"tool_calls": [{"function": ["name", "arguments"]}]}},
    ),
    "raw calls of a chunk: partial": (CHUNK, {"content": "", "additional_kwargs": raw_calls(LONG)}),
    "raw calls of a chunk: deep": (CHUNK, {"content": "", "additional_kwargs": raw_calls(DEEP)}),
    "raw calls of a chunk: bytes": (CHUNK, {"content": "", "additional_kwargs": raw_calls(b"[")}),
    "chunks: bytes": (CHUNK, chunks(b"[")),
    "chunks: a deque": (CHUNK, {"content": "", "tool_call_chunks": DEQUE}),
    "chunks: partial": (CHUNK, chunks(LONG)),
    "chunks: partial together": (CHUNK, chunks(*[LONG[:100]] * 3)),
    "chunks: deep": (CHUNK, chunks(DEEP)),
    "chunks: deep, and whole": (CHUNK, chunks(DEEP + "]" * len(DEEP))),
    "chunks: an index of text": (
        CHUNK,
        {"content": "", "tool_call_chunks": [{"name": "f", "args": "", "id": "1", "index": "0"}]},
    ),
    "server call: deep": (CHUNK, last({"type": "server_tool_call", "args": DEEP + "]" * len(DEEP)})),
    "document: content of bytes": (DOCUMENT, {"page_content": b"x"}),
    "document: id of a number": (DOCUMENT, {"page_content": "x", "id": 5}),
    "document: metadata of a list": (DOCUMENT, {"page_content": "x", "metadata": [["a", 1]]}),
    "document: a field that is dropped": (DOCUMENT, {"page_content": "x", "score": 1}),
    "many fields": (HUMAN, {"content": "", **{str(number): number for number in range(1001)}}),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_would_be_converted_is_refused_before_it_is(name: str) -> None:
    """With a reason of this package's own, and not after pydantic has looked at it."""
    with pytest.raises(UnbuildableValueError) as caught:
        strict.loads_typed(message(*CONVERTED[name]))
    assert not any(word in str(caught.value) for word in ("ValidationError", "TypeError", "KeyError"))


def test_messages_of_legacy_rows_have_the_same_shapes() -> None:
    envelope = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"]}
    for content, passes in (("x", True), ([["x"]], False)):
        row = json.dumps({**envelope, "kwargs": {"content": content, "tool_call_id": "1"}}).encode()
        if passes:
            assert strict.loads_typed(("json", row)).content == "x"
        else:
            with pytest.raises(UnbuildableValueError):
                strict.loads_typed(("json", row))


# --- work ----------------------------------------------------------------------------------------


def many(target: str, fields: Any, count: int) -> bytes:
    ext = ormsgpack.unpackb(message(target, fields)[1], ext_hook=ormsgpack.Ext)
    return ormsgpack.packb([ext] * count)


@pytest.mark.parametrize("target", [AI, CHUNK])
def test_the_json_in_all_strings_of_a_value_is_counted_together(target: str) -> None:
    """As elements of the value itself are; the next value starts anew."""
    kwargs = raw_calls(json.dumps({"a": [0] * 1000}))
    limited = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(elements=3600))
    data = many(target, {"content": "", "additional_kwargs": kwargs}, 3)
    for _ in range(5):
        assert len(limited.loads_typed(("msgpack", data))) == 3
    with pytest.raises(UnbuildableValueError, match="elements"):
        limited.loads_typed(("msgpack", many(target, {"content": "", "additional_kwargs": kwargs}, 4)))


WIDE = {
    "content of numbers": (HUMAN, {"content": [1] * 100_000}),
    "content of numbers for a tool": (TOOL, {"content": [1] * 100_000, "tool_call_id": "1"}),
    "calls without fields": (AI, {"content": "", "tool_calls": [{"name": 5}] * 20_000}),
    "calls of numbers": (AI, {"content": "", "tool_calls": [5] * 100_000}),
    "arguments by number": (
        AI,
        {"content": "", "tool_calls": [CALL | {"args": dict.fromkeys(range(50_000))}]},
    ),
    "chunks of numbers": (CHUNK, {"content": "", "tool_call_chunks": [{"index": "x"}] * 20_000}),
    "raw calls of numbers": (
        AI,
        {
            "content": "",
            "additional_kwargs": {"tool_calls": [{"function": {"name": 5, "arguments": "{}"}}] * 20_000},
        },
    ),
    "usage by number": (AI, {"content": "", "usage_metadata": dict.fromkeys(range(50_000))}),
    "fields by number": (HUMAN, dict.fromkeys(range(50_000))),
    "elements in a string": (
        AI,
        {"content": "", "additional_kwargs": raw_calls("[" + "0," * 3_000_000 + "0]")},
    ),
}


@pytest.mark.broad
@pytest.mark.parametrize("on_blocked", ["raise", "raw"])
@pytest.mark.parametrize("name", WIDE)
def test_what_is_refused_takes_no_more_memory_than_what_is_read(name: str, on_blocked: Any) -> None:
    """An error of pydantic has a kilobyte for each item that is wrong."""
    data = message(*WIDE[name])
    reader = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked=on_blocked)

    def read() -> None:
        if on_blocked == "raise":
            with pytest.raises(UnbuildableValueError):
                reader.loads_typed(data)
        else:
            reader.loads_typed(data)

    assert peak_of(read) < 1_000_000 + 80 * len(data[1])


def test_a_message_in_a_message_does_not_grow_with_each_level() -> None:
    """The content of a tool was the ``repr`` of what was in it, which doubles with each level."""
    inner: Any = "'\"" * 20
    for _ in range(8):
        fields = {"content": [inner], "tool_call_id": "1"}
        inner = ormsgpack.Ext(
            5,
            ormsgpack.packb(["langchain_core.messages.tool", "ToolMessage", fields, "model_validate_json"]),
        )
    with pytest.raises(UnbuildableValueError):
        strict.loads_typed(("msgpack", ormsgpack.packb(inner)))


_IN_A_THREAD = """
import sys, threading
from tests.unit.serde.test_shapes import DEEPEST, strict
import langchain_core.messages.ai

def run():
    for name, row in DEEPEST.items():
        try:
            strict.loads_typed(row)
            print(name, "read")
        except Exception as error:
            print(name, type(error).__name__)

threading.stack_size(256 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _deepest() -> dict[str, tuple[str, bytes]]:
    whole = '{"a":' + "[" * (MAX_JSON_DEPTH - 1) + "]" * (MAX_JSON_DEPTH - 1) + "}"
    very_deep = "[" * 100_000
    fields = {
        "raw": (AI, {"content": "", "additional_kwargs": raw_calls(whole)}),
        "chunk": (CHUNK, chunks(whole, "[" * MAX_JSON_DEPTH)),
        "server": (CHUNK, last({"type": "server_tool_call", "args": whole})),
        "dumped": (CHUNK, {"content": "", "tool_calls": [CALL | {"args": {"a": nested(50)}}]}),
        "tool": (TOOL, {"content": [{"a": nested(50)}], "tool_call_id": "1", "artifact": nested(50)}),
        "deep-raw": (AI, {"content": "", "additional_kwargs": raw_calls(very_deep)}),
        "deep-raw-chunk": (CHUNK, {"content": "", "additional_kwargs": raw_calls(very_deep)}),
        "deep-bytes": (AI, {"content": "", "additional_kwargs": raw_calls(very_deep.encode())}),
        "deep-chunk": (CHUNK, chunks(very_deep)),
        "deep-server": (CHUNK, last({"type": "server_tool_call", "args": very_deep})),
    }
    return {name: message(*parts) for name, parts in fields.items()}


DEEPEST = _deepest()


def test_no_message_overflows_a_small_stack() -> None:
    done = subprocess.run([sys.executable, "-c", _IN_A_THREAD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    outcomes = dict(line.split() for line in done.stdout.splitlines())
    assert outcomes == {
        name: "UnbuildableValueError" if name.startswith("deep-") else "read" for name in DEEPEST
    }
