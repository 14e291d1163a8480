"""One value and more of every type that the serializer knows, by name; and what makes two of them alike."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from typing import Any

import numpy as np
from langchain_core import messages as lc
from langchain_core.documents import Document
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from langgraph.store.base import GetOp, Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import SecretStr

from tests.compat import versions
from tests.support import sample_types as t

Samples = dict[str, Any]

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 678)  # noqa: DTZ001 -- naive is one of the kinds
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
HALF_PAST = dt.timezone(dt.timedelta(hours=5, minutes=30), "IST")
TOOL_CALL = {"name": "search", "args": {"q": [1, {"a": None}]}, "id": "call-1", "type": "tool_call"}

PLAIN: Samples = {
    "none": None,
    "bools": [True, False],
    "integers": [0, -1, 127, 128, 2**63, 2**64 - 1, -(2**63)],
    "floats": [0.0, -0.0, 1.5, float("inf"), float("nan")],
    "text": ["", "x", "é\0\u2028😀"],
    "surrogates": ["a\ud800b", "\udfff"],
    "bytes": b"ab",
    "bytearray": bytearray(b"ab"),
    "memoryview": memoryview(b"abc"),
    "bytes inside": {"a": b"x", "b": bytearray(b"y"), "m": memoryview(b"q")},
    "tuples": (1, (2, [3])),
    "keys": {1: 3, "a": 3, None: 1, 1.5: 2, b"b": 1, (1, (2,)): 5, t.MyStr("q"): 0},
    "keys that become text": {uuid.UUID(int=1): 2, NOW: 1, NOW.date(): 1, t.Color.RED: 3, t.Text.A: 4},
    "subclasses of builtins": [t.MyStr("x"), t.MyDict(a=1), t.MyList([1]), collections.Counter("aab")],
    "ordered": [collections.OrderedDict(b=1, a=2), collections.defaultdict(int, a=1)],
    "exceptions": [ValueError("boom", 1), KeyError("k"), KeyboardInterrupt(), StopIteration(3)],
}

STANDARD: Samples = {
    "set": [{1, 2.5}, {"a"}, {None}],
    "frozenset": frozenset({1}),
    "empty sets": [set(), frozenset(), t.MySet()],
    "set of frozensets": {frozenset({1}), frozenset({frozenset()})},
    "my set": t.MySet([1]),
    "deque": collections.deque([1, "a"]),
    "deque with an end": collections.deque([1, 2], maxlen=2),
    "my deque": t.MyDeque([1]),
    "datetime": NOW,
    "datetime utc": NOW.replace(tzinfo=dt.UTC),
    "datetime offset": NOW.replace(tzinfo=HALF_PAST),
    "datetime zone": NOW.replace(tzinfo=BERLIN),
    "datetime fold": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "datetime ends": [dt.datetime(1, 1, 1, tzinfo=dt.UTC), NOW.replace(year=9999, tzinfo=dt.UTC)],
    "date": NOW.date(),
    "my date": t.MyDate(2020, 2, 29),
    "time": NOW.time(),
    "time utc": NOW.time().replace(tzinfo=dt.UTC),
    "time zone": dt.time(1, 2, tzinfo=BERLIN, fold=1),
    "timedelta": [dt.timedelta(1, 2, 3), dt.timedelta.min, dt.timedelta.max, t.MyDelta(hours=-1)],
    "timezone": [dt.UTC, HALF_PAST, dt.timezone(dt.timedelta(seconds=-1))],
    "zone": BERLIN,
    "uuid": [uuid.UUID(int=5), t.MyUUID(int=2**127)],
    "decimal": [decimal.Decimal(text) for text in ("1.50", "-0", "1E+400", "NaN", "sNaN1", "-Infinity")],
    "my decimal": t.MyDecimal("1"),
    "path": [pathlib.Path("/a/b"), pathlib.Path(), pathlib.Path("a/../b"), t.MyPath("/x")],
    "ip": [ipaddress.ip_address("1.2.3.4"), ipaddress.ip_address("fe80::1%eth0")],
    "ip networks": [ipaddress.ip_network("1.2.3.0/24"), ipaddress.ip_network("::/64")],
    "ip interfaces": [ipaddress.ip_interface("1.2.3.4/24"), ipaddress.ip_interface("::1/64")],
    "regex": [re.compile("a+", re.IGNORECASE | re.DOTALL), re.compile(""), re.compile("(?a)x")],
    "regex bytes": re.compile(rb"\xff+", re.MULTILINE),
    "enums": [t.Color.RED, t.Number.ONE, t.Text.A, t.OldText.A, *t.Odd],
    "flags": [t.Flags.X, t.Flags.X | t.Flags.Y, t.Flags(0), t.IntFlags.X | t.IntFlags.Y, t.IntFlags(8)],
    "dataclass": t.Point(1),
    "dataclass nested": t.Point([t.Point({t.Frozen(1)}), "\ud800"], label="x"),
    "dataclass frozen": t.Frozen(1, inner=t.Frozen(2)),
    "dataclass keyword-only": t.KeywordOnly(x=1),
    "dataclass pydantic": t.Checked(1),
    "dataclass exception": t.FailureError(2),
    "named tuple": t.Named(1),
    "named tuple nested": t.Named(t.Named({1}), 3),
    "named tuple classic": t.Classic(1, [2]),
}

MODELS: Samples = {
    "model": t.Model(a=1),
    "model nested": t.Model(a=1, point=t.Point(2), model=t.Model(a=3, model=t.Model(a=4))),
    "model alias": t.Aliased(fooAlias=1),
    "model alias choices": t.ManyAliases.model_validate({"p": 1}),
    "model dumps aliases": t.DumpsAliases(fooAlias=4),
    "model root dict": t.RootDict({"a": 1}),
    "model roots": t.Roots(numbers=t.RootList([1]), table=t.RootDict({"a": 1})),
    "model secret": t.Secretive(password=SecretStr("hunter2")),
    "secret": SecretStr("hunter2"),
    "model private": t.Private(a=3),
    "model extra": t.Extra.model_validate({"a": 1, "zz": [1, {"b": 2}]}),
    "model frozen": t.FrozenModel(a=1),
    "model with init": t.WithInit(5),
    "model computed": t.Doubled(a=2),
    "model rich": t.Rich(color=t.Color.RED, pair=(1, "a"), numbers={1}, by_number={1: t.Color.BLUE}, at=NOW),
}
if sys.version_info < (3, 14):
    from pydantic.v1 import SecretStr as SecretStr1

    from tests.support.values import sample_types_v1 as v1

    MODELS |= {
        "v1 model": v1.Model1(a=1),
        "v1 nested": v1.Model1(a=1, model=v1.Model1(a=2)),
        "v1 alias": v1.Aliased1(fooAlias=1),
        "v1 alias by name": v1.ByName1.parse_obj({"foo": 4}),
        "v1 root": v1.Root1(__root__=[1]),
        "v1 roots": v1.Roots1(numbers=v1.Root1(__root__=[2])),
        "v1 secret": v1.Secretive1(password=SecretStr1("hunter2")),
        "v1 private": v1.Private1(a=3),
        "v1 extra": v1.Extra1.parse_obj({"a": 1, "z": 2}),
        "v1 frozen": v1.Frozen1(),
    }

MESSAGES: Samples = {
    "human": lc.HumanMessage("hi", id="1", name="ann"),
    "human blocks": lc.HumanMessage([{"type": "text", "text": "hi"}, "x"]),
    "ai": lc.AIMessage("x", response_metadata={"n": 1}, additional_kwargs={"k": [1]}),
    "ai tool calls": lc.AIMessage(
        "",
        tool_calls=[TOOL_CALL],
        invalid_tool_calls=[
            {"name": "b", "args": "{", "id": None, "error": "e", "type": "invalid_tool_call"},
        ],
        usage_metadata={
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_token_details": {"cache_read": 1},
        },
    ),
    "ai content blocks": lc.AIMessage(content_blocks=[{"type": "text", "text": "x"}]),
    "ai chunk": lc.AIMessageChunk(
        content="x",
        tool_call_chunks=[
            {"name": "a", "args": '{"q": 1}', "id": "1", "index": 0, "type": "tool_call_chunk"},
        ],
    ),
    "ai chunk last": lc.AIMessageChunk(content="x", chunk_position="last"),
    "system": lc.SystemMessage("be brief"),
    "tool": lc.ToolMessage("42", tool_call_id="call-1", artifact={"raw": {1, 2}}, status="error"),
    "function": lc.FunctionMessage(name="f", content="1"),
    "chat": lc.ChatMessage(role="critic", content="no"),
    "remove": lc.RemoveMessage(id="1"),
    "human chunk": lc.HumanMessageChunk(content="x"),
    "system chunk": lc.SystemMessageChunk(content="x"),
    "tool chunk": lc.ToolMessageChunk(content="x", tool_call_id="1"),
    "function chunk": lc.FunctionMessageChunk(name="f", content="x"),
    "chat chunk": lc.ChatMessageChunk(role="r", content="x"),
    "base": lc.BaseMessage(content="x", type="own"),
    "document": Document(page_content="text", metadata={"page": 1}, id="d1"),
}

GRAPH: Samples = {
    "send": Send("node", {"a": t.Point(1)}),
    "interrupt": Interrupt({"question": "go on?"}, id="abc"),
    "command": Command(goto="x", update={"a": 1}),
    "command sends": Command(goto=[Send("n", 1), "y"], resume={"r": 1}),
    "overwrite": Overwrite([1]),
    "get": GetOp(("a",), "k"),
    "item": Item(value={"a": 1}, key="k", namespace=("a", "b"), created_at=NOW, updated_at=NOW),
    "search item": SearchItem(
        value={"a": 1}, key="k", namespace=("a",), created_at=NOW, updated_at=NOW, score=0.5
    ),
}

if versions.IS_NEW:
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
    from langgraph.types import TimeoutPolicy

    GRAPH["send with timeout"] = Send("node", 1, timeout=TimeoutPolicy(run_timeout=2))
    GRAPH["timeout policy"] = TimeoutPolicy(run_timeout=dt.timedelta(seconds=1))
    GRAPH["delta"] = _DeltaSnapshot([1, {2}])
    GRAPH["delta nested"] = {"channel": _DeltaSnapshot(_DeltaSnapshot(None))}

_DTYPES = "? i1 u2 <i4 >i4 i8 u8 <f2 >f4 f8 c8 >c16 S3 <U5 >U2"
_SQUARE = np.arange(6).reshape(2, 3)

ARRAYS: Samples = {f"array {dtype}": np.array([[0, 1, 2]]).astype(dtype) for dtype in _DTYPES.split()} | {
    "array Fortran": np.asfortranarray(_SQUARE),
    "array transposed": np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
    "array stride": np.arange(10)[::2],
    "array backwards": np.arange(3)[::-1],
    "array scalar": np.array(5),
    "array empty": np.zeros((0, 3)),
    "array empty string": np.zeros(2, dtype="U0"),
    "array broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "array in state": {"embedding": [np.ones(3, dtype="f4"), t.Point(np.zeros(1))]},
    "array masked": np.ma.array([1, 2], mask=[False, True]),
}

SAMPLES: Samples = PLAIN | STANDARD | MODELS | MESSAGES | GRAPH | ARRAYS
"""Values that both serializers read back alike; where LangGraph's falls short see test_serde_differences."""

LOSSY = {
    "memoryview": "bytes",
    "bytes inside": "bytes",
    "surrogates": "replaced by '?'",
    "tuples": "lists",
    "keys that become text": "as msgpack keys are",
    "subclasses of builtins": "the builtin",
    "ordered": "dict",
    "exceptions": "their repr",
    "deque with an end": "maxlen is not stored",
    "datetime offset": "the name of its zone is not stored",
    "datetime zone": "its offset at that moment",
    "datetime fold": "its offset at that moment",
    "dataclass nested": "a surrogate",
    "array masked": "its data without the mask",
    "get": "a list for its tuple",
}
"""Samples that the bytes do not hold in full, and what comes back instead; the same for both serializers."""


def alike(one: object, other: object) -> bool:
    """Whether two values have one type, one repr, and are the same to LangGraph's serializer."""
    return (
        type(one) is type(other)
        and repr(one) == repr(other)
        and Theirs().dumps_typed(one) == Theirs().dumps_typed(other)
    )
