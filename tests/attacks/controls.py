"""Honest values: a reader that refuses them holds against every attack, and is of no use."""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections import deque
from collections.abc import Iterator
from typing import Any

from tests.attacks.case import Case, Forge, Read, Reading, Scene
from tests.attacks.sides import opened
from tests.attacks.stores import QUERIES, Query, honest


def _values() -> dict[str, Any]:
    import numpy as np
    from langchain_core.documents import Document
    from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
    from langgraph.types import Command, Interrupt, Send

    deep: Any = "bottom"
    for _ in range(40):
        deep = [deep]
    utc = datetime.UTC
    chunk: Any = {"name": "n", "args": '{"a": [1, ', "id": "1", "index": 0, "type": "tool_call_chunk"}
    call = {"name": "n", "args": {"a": 1}, "id": "1", "type": "tool_call"}
    return {
        "scalars": [None, True, False, 0, 1.5, -1, 127, 128, -32, -33, 2**31, 2**63 - 1, -(2**63), 2**64 - 1],
        "texts": ["", "a" * 31, "a" * 32, "a" * 255, "a" * 256, "a" * 70_000, "\u00e9\u4e2d\U0001f600\0"],
        "binaries": [b"", b"a" * 255, b"a" * 256, b"a" * 70_000],
        "lists": [[], [1] * 15, [1] * 16, [1] * 70_000],
        "maps": [
            {},
            {str(n): n for n in range(15)},
            {str(n): n for n in range(16)},
            {str(n): n for n in range(70_000)},
        ],
        "keys": {1: "a", "1": "b", b"1": "c", None: "d", 2.5: "e", (1, 2): "f", (1, "2"): "g", -1: "h"},
        "depth": deep,
        "sets": [{1, 2}, frozenset({"a"}), deque([1, 2]), {(1, 2), (3, 4)}],
        "a large set": set(range(50_000)),
        "times": [
            datetime.datetime(2024, 1, 1, tzinfo=utc),
            datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
            datetime.date(2024, 1, 1),
            datetime.time(1, 2, 3, 4, tzinfo=utc, fold=1),
            datetime.timedelta(-1, 2, 3),
            datetime.timezone(datetime.timedelta(hours=2), "here"),
        ],
        "numbers": [decimal.Decimal("1.10"), decimal.Decimal("1E+20"), uuid.UUID(int=5)],
        "addresses": [ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8")],
        "paths": [pathlib.Path("/a/b c/../d"), pathlib.Path()],
        "a regex": re.compile(r"(?P<a>[a-z]+)\s*(b|c){2,3}", re.IGNORECASE | re.DOTALL),
        "messages": [
            HumanMessage("hello", id="1"),
            AIMessage(
                "",
                tool_calls=[call],
                usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
            ),
            AIMessageChunk(content="", tool_call_chunks=[chunk]),
            ToolMessage("x", tool_call_id="1", artifact={"a": 1}),
            Document("text", metadata={"a": 1}),
        ],
        "2,000 messages": [HumanMessage("x" * 200, id=str(n)) for n in range(2000)],
        "tasks": [Send("node", {"a": 1}), Interrupt(value="x", id="1"), Command(update={"a": 1}, goto=["n"])],
        "arrays": [np.arange(6).reshape(2, 3).tolist(), {"a": 1}],
        "5 MB of text": "x" * 5_000_000,
    }


def _round_trip(name: str, reader: str) -> Forge:
    def forge(scene: Scene) -> Read:
        value = _values()[name]
        sealing = scene.side.sealing(plaintext=reader == "plaintext")
        row = (sealing if reader == "sealed" else scene.side.strict()).dumps_typed(value)
        serde = scene.side.strict() if reader == "strict" else sealing

        def read() -> Reading:
            found = serde.loads_typed(row)
            return Reading(found, found == value)

        return read

    return forge


def _array(scene: Scene) -> Read:
    import numpy as np

    value = np.arange(60, dtype="<f8").reshape(3, 4, 5)
    row = scene.side.strict().dumps_typed(value)

    def read() -> Reading:
        found = scene.side.strict().loads_typed(row)
        return Reading(found, bool((found == value).all()))

    return read


def _inert(name: str) -> Forge:
    def forge(scene: Scene) -> Read:
        from sealpoint.serde.inert import decode_inert
        from tests.attacks.blobs import is_plain

        kind, data = scene.side.strict().dumps_typed(_values()[name])

        def read() -> Reading:
            found = decode_inert(kind, data)
            return Reading(found, is_plain(found))

        return read

    return forge


def _database(query: Query, sealed: bool) -> Forge:
    def forge(scene: Scene) -> Read:
        path, serde, expected = honest(scene, query, sealed)

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                found = query(saver)
            return Reading(found, bool(found) and found == expected)

        return read

    return forge


def cases() -> Iterator[Case]:
    """Each of them must come back whole."""
    for name in _values():
        for reader in ("strict", "plaintext", "sealed"):
            yield Case("controls", f"{name} [{reader}]", _round_trip(name, reader))
        yield Case("controls", f"{name} [inert]", _inert(name), shared=False)
    yield Case("controls", "an array [strict]", _array)
    for label, query in QUERIES.items():
        for sealed in (False, True):
            yield Case(
                "controls", f"a database [{label}{', sealed' if sealed else ''}]", _database(query, sealed)
            )
