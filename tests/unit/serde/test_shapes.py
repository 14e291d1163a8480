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
from sealpoint.serde.guards import json_budget
from sealpoint.serde.limits import MAX_JSON_DEPTH, MAX_PARTIAL_JSON_CHARS, MAX_RAW_TOOL_CALLS, Limits
from tests.support.values.forge import named, record

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


def chunk(args: str, name: str | None = "f", call_id: str | None = "1", index: int | None = 0) -> Any:
    call: Any = {"name": name, "args": args, "id": call_id, "index": index}
    return lc.AIMessageChunk(content="", tool_call_chunks=[call])


HONEST = {
    "content of openai": lc.HumanMessage([{"type": "image_url", "image_url": {"url": "data:,"}}, "y"]),
    "tool calls": lc.AIMessage("", tool_calls=[CALL], response_metadata={"logprobs": [{"a": [1.5]}]}),
    "invalid tool calls": lc.AIMessage(
        "", invalid_tool_calls=[{"name": None, "args": "{", "id": "1", "error": "x"}]
    ),
    "usage": lc.AIMessage("", usage_metadata=USAGE),
    "raw tool calls": lc.AIMessage("", additional_kwargs=raw_calls(OBJECT)),
    "raw tool calls, as many as may be": lc.AIMessage(
        "", additional_kwargs={"tool_calls": [{"function": None}] * MAX_RAW_TOOL_CALLS}
    ),
    "chunk": chunk(OBJECT),
    "chunk with a line feed": chunk('{"a": "' + "b\n" * 999 + '"}', call_id=None, index=None),
    "chunk of a part": chunk('{"a": "b', name=None, call_id=None),
    "chunk of as long a part as may be": chunk('{"a": "'.ljust(MAX_PARTIAL_JSON_CHARS, "b")),
    "last chunk": lc.AIMessageChunk(
        content=[{"type": "server_tool_call_chunk", "name": "f", "args": OBJECT, "id": "1", "index": 0}],
        response_metadata={"output_version": "v1"},
        chunk_position="last",
    ),
    "tool of blocks": lc.ToolMessage([{"type": "text", "text": "x"}, "y"], tool_call_id="1", status="error"),
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
LONG = "{" + "x" * MAX_PARTIAL_JSON_CHARS  # one character too many
UUID = named(0, "uuid", "UUID", "0" * 32)


DEFAULTS = {
    **{target: {"content": ""} for target in (AI, CHUNK, HUMAN, CHAT)},
    **{target: {"content": "", "tool_call_id": "1"} for target in (TOOL, TOOL_CHUNK)},
    DOCUMENT: {"page_content": "x"},
}


def chunks(*texts: Any) -> dict[str, Any]:
    return {"tool_call_chunks": [{"name": "f", "args": text, "id": "1", "index": 0} for text in texts]}


def last(block: dict[str, Any]) -> dict[str, Any]:
    return {"content": [block], "chunk_position": "last", "response_metadata": {"output_version": "v1"}}


CONVERTED: list[tuple[str, dict[str, Any]]] = [
    *((TOOL, {"content": content}) for content in (5, {"a": 1}, SET, [["x"]], [UUID])),
    *((HUMAN, {"content": content}) for content in (b"x", DEQUE, [b"x"])),
    (TOOL_CHUNK, {"content": [5]}),
    (HUMAN, {"content": "x", "content_blocks": [{"type": "text", "text": "y"}]}),
    *((HUMAN, {"id": wrong}) for wrong in (5, UUID)),
    (HUMAN, {"name": b"x"}),
    (HUMAN, {str(number): number for number in range(1001)}),
    (CHAT, {"role": b"x"}),
    *((TOOL, {"tool_call_id": wrong}) for wrong in (5, UUID)),
    (AI, {"additional_kwargs": [["a", 1]]}),
    (AI, {"response_metadata": "x"}),
    *((AI, {"tool_calls": calls}) for calls in (DEQUE, ["x"], [{"name": "f", "id": "1"}])),
    *((AI, {"tool_calls": [CALL | wrong]}) for wrong in ({"name": b"f"}, {"id": 1}, {5: 1})),
    *((AI, {"tool_calls": [CALL | {"args": wrong}]}) for wrong in ([["a", 1]], {1: 2})),
    (AI, {"invalid_tool_calls": [{"name": b"f", "args": "", "id": "1", "error": None}]}),
    *((target, {"invalid_tool_calls": [{}]}) for target in (AI, CHUNK)),
    *((AI, {"usage_metadata": USAGE | wrong}) for wrong in ({"input_tokens": "3"}, {1: 3})),
    *((AI, {"usage_metadata": USAGE | {part: {"audio": b"1"}}}) for part in (*USAGE,)[3:]),
    *((AI, {"additional_kwargs": {"tool_calls": calls}}) for calls in (DEQUE, "x")),
    *((AI, {"additional_kwargs": raw_calls(wrong)}) for wrong in (b"[1]", DEEP)),
    (AI, {"additional_kwargs": {"tool_calls": [{}] * (MAX_RAW_TOOL_CALLS + 1)}}),
    (AI, {"additional_kwargs": {"tool_calls": [{"function": ["name", "arguments"]}]}}),
    *((CHUNK, {"additional_kwargs": raw_calls(wrong)}) for wrong in (LONG, DEEP, b"[")),
    *((CHUNK, chunks(*texts)) for texts in ([b"["], [LONG], [LONG[:100]] * 3, [DEEP])),
    (CHUNK, chunks(DEEP + "]" * len(DEEP))),
    (CHUNK, {"tool_call_chunks": DEQUE}),
    (CHUNK, {"tool_call_chunks": [{}]}),
    (CHUNK, {"tool_call_chunks": [{"name": "f", "args": "", "id": "1", "index": "0"}]}),
    (CHUNK, last({"type": "server_tool_call", "args": DEEP + "]" * len(DEEP)})),
    (DOCUMENT, {"page_content": b"x"}),
    (DOCUMENT, {"id": 5}),
    (DOCUMENT, {"metadata": [["a", 1]]}),
    (DOCUMENT, {"score": 1}),  # a field that would be dropped
]


@pytest.mark.claim("f15")
@pytest.mark.parametrize(
    ("target", "fields"), CONVERTED, ids=lambda part: ascii(part).partition(" at 0x")[0][:60]
)
def test_what_would_be_converted_is_refused_before_it_is(target: str, fields: dict[str, Any]) -> None:
    """With a reason of this package's own, and not after pydantic has looked at it."""
    with pytest.raises(UnbuildableValueError) as caught:
        strict.loads_typed(message(target, DEFAULTS[target] | fields))
    assert not any(word in str(caught.value) for word in ("ValidationError", "TypeError", "KeyError"))


# --- work ----------------------------------------------------------------------------------------


def many(target: str, fields: Any, count: int) -> bytes:
    ext = ormsgpack.unpackb(message(target, fields)[1], ext_hook=ormsgpack.Ext)
    return ormsgpack.packb([ext] * count)


@pytest.mark.parametrize("target", [AI, CHUNK])
def test_the_json_in_all_strings_of_a_value_is_counted_together(target: str) -> None:
    """As elements of the value itself are; the next value starts anew."""
    kwargs = raw_calls(json.dumps({"a": [0] * 1000}))  # 999 commas, a colon, and two brackets
    data = many(target, {"content": "", "additional_kwargs": kwargs}, 3)
    within = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(elements=3 * 1002))
    beyond = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(elements=3 * 1002 - 1))
    for _ in range(5):
        assert len(within.loads_typed(("msgpack", data))) == 3
        with pytest.raises(UnbuildableValueError, match="elements"):
            beyond.loads_typed(("msgpack", data))
    assert json_budget.elements is None


_IN_A_THREAD = """
import sys, threading
from tests.unit.serde.test_shapes import DEEPEST, strict
import langchain_core.messages.ai

def run():
    for name, row in DEEPEST.items():
        strict.loads_typed(row)
        print(name, "read")

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


WHOLE = '{"a":' + "[" * (MAX_JSON_DEPTH - 1) + "]" * (MAX_JSON_DEPTH - 1) + "}"
DEEPEST = {
    name: message(target, DEFAULTS[target] | fields)
    for name, target, fields in (
        ("raw", AI, {"additional_kwargs": raw_calls(WHOLE)}),
        ("chunk", CHUNK, chunks(WHOLE, "[" * MAX_JSON_DEPTH)),
        ("server", CHUNK, last({"type": "server_tool_call", "args": WHOLE})),
        ("dumped", CHUNK, {"tool_calls": [CALL | {"args": {"a": nested(50)}}]}),
        ("tool", TOOL, {"content": [{"a": nested(50)}], "artifact": nested(50)}),
    )
}


def test_no_message_overflows_a_small_stack() -> None:
    done = subprocess.run([sys.executable, "-c", _IN_A_THREAD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.splitlines() == [f"{name} read" for name in DEEPEST]
