"""Values of every type that the serializer knows, and what makes two of them equal."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import re
import zoneinfo
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from langchain_core import messages as lc
from langchain_core.documents import Document
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from tests.compat import versions
from tests.support import sample_types as t

text = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
integers = st.integers(-(2**63), 2**64 - 1)
offsets = st.integers(-86_399, 86_399).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
zones = st.none() | st.just(dt.UTC) | offsets

scalars = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    text,
    st.binary(max_size=20),
)

hashables = st.one_of(
    st.none(),
    integers,
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=9),
    st.sampled_from([*t.Color, t.Number.ONE, t.Text.A, t.Flags.X | t.Flags.Y, t.Pair.P]),
    st.datetimes(timezones=zones).map(lambda moment: moment.replace(fold=0)),  # ISO text has no fold
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
    zones,
    st.uuids(),
    st.decimals(allow_nan=False),
    st.ip_addresses(),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]).map(zoneinfo.ZoneInfo),
    st.sampled_from([r"a+", r"(?P<x>\w)\d*", ""]).map(lambda p: re.compile(p, re.IGNORECASE | re.MULTILINE)),
    st.lists(st.text("ab.é ", min_size=1, max_size=4), max_size=3).map(lambda parts: Path(*parts)),
    st.builds(t.Frozen, x=integers),
)
"""Leaves that come back exactly, and may stand in a set."""

members = hashables | st.recursive(
    hashables,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)

keys = st.none() | integers | st.floats(allow_nan=False) | text | st.binary(max_size=9)

arrays = npst.arrays(
    st.sampled_from(["?", "i1", "u2", "<i4", ">i4", "i8", "<f2", ">f4", "f8", "c16", "S3", "<U2", ">U2"]),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)

_calls = st.builds(
    lambda name, args, key: {"name": name, "args": args, "id": key, "type": "tool_call"},
    text,
    st.dictionaries(text, st.none() | text | st.integers(-5, 5), max_size=2),
    st.none() | text,
)
_content = text | st.lists(text | st.builds(lambda x: {"type": "text", "text": x}, text), max_size=2)


def made(cls: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Call a class with these fields and no others, which `builds` would guess for a model."""
    return st.fixed_dictionaries(fields).map(lambda given: cls(**given))


def messages() -> st.SearchStrategy[lc.BaseMessage]:
    """Messages of a conversation."""
    common = {"content": _content, "id": st.none() | text, "name": st.none() | text}
    return st.one_of(
        made(lc.HumanMessage, **common),
        made(lc.SystemMessage, **common),
        made(lc.AIMessage, tool_calls=st.lists(_calls, max_size=2), **common),
        made(lc.AIMessageChunk, content=text),
        made(lc.ToolMessage, tool_call_id=text, artifact=scalars, **common),
        made(lc.ChatMessage, content=_content, role=text),
        made(lc.RemoveMessage, id=text),
    )


def _snapshots(inner: st.SearchStrategy[Any]) -> list[st.SearchStrategy[Any]]:
    """What a delta channel stores in full, where LangGraph has such channels."""
    if not versions.IS_NEW:
        return []
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    return [st.builds(_DeltaSnapshot, inner)]


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.lists(inner, max_size=3).map(collections.deque),
        st.builds(t.Point, inner, text),
        st.builds(t.Named, inner, integers),
        st.builds(t.Frozen, st.just(1), inner),
        *_snapshots(inner),
        st.builds(Send, text, inner),
        st.builds(Interrupt, inner, id=text),
        st.builds(Command, update=inner, goto=text),
    )


def exact() -> st.SearchStrategy[Any]:
    """Values that come back exactly as they were."""
    leaves = st.one_of(
        scalars,
        hashables,
        st.decimals(),
        st.sets(members, max_size=3),
        st.frozensets(members, max_size=3),
        arrays,
        messages(),
        made(Document, page_content=text, metadata=st.dictionaries(text, scalars, max_size=2)),
        made(t.Model, a=integers, point=st.none() | st.builds(t.Point, st.integers(-9, 9))),
        st.builds(t.Computed, st.integers(-9, 9)),
        made(t.AliasedInside, one=made(t.Aliased, fooAlias=integers)),
    )
    return st.recursive(leaves, _containers, max_leaves=8)


def anything() -> st.SearchStrategy[Any]:
    """Values that can be written, also those that come back as something simpler."""
    lossy = st.one_of(
        st.text(max_size=5),  # with surrogates
        st.binary(max_size=9).map(lambda data: memoryview(data)),  # noqa: PLW0108 -- mypy
        st.binary(max_size=9).map(bytearray),
        st.builds(ValueError, text),
        st.datetimes(timezones=st.timezones()),
        st.sampled_from(
            [t.MyStr("x"), t.MixedPair.P, t.MyDatetime(2020, 1, 1), t.Outer.Inner(1), t.SendLike()]
        ),
        exact(),
    )
    return st.recursive(
        lossy,
        lambda inner: (
            _containers(inner)
            | st.lists(inner, max_size=3).map(tuple)
            | st.lists(inner, max_size=3).map(t.MyList)
            | st.builds(t.Dumps)
        ),
        max_leaves=6,
    )


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same all the way down: types, NaN, time zones, strides apart."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and _pairwise(one.values(), other.values())
    if isinstance(one, list | tuple | collections.deque):
        return _pairwise(one, other)
    if isinstance(one, set | frozenset):
        return one == other and collections.Counter(map(type, one)) == collections.Counter(map(type, other))
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if dataclasses.is_dataclass(one):
        return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, BaseModel):
        return equal(vars(one), vars(other))
    if isinstance(one, Send):
        return one.node == other.node and equal(one.arg, other.arg)
    return repr(one) == repr(other)


def _pairwise(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(map(equal, one, other))
