"""Legacy ``json`` rows: LangChain's envelopes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.attacks.blobs import Build, cases
from tests.attacks.case import Case
from tests.attacks.families.names import TOUCH, WRITE

ALL: Final = "strict plaintext inert"


def _row(path: Any, lc: Any = 2, kind: Any = "constructor", **fields: Any) -> bytes:
    return json.dumps({"lc": lc, "type": kind, "id": path, **fields}).encode()


def names() -> Iterator[Case]:
    """Envelopes that name what must not be called."""
    for path, args in (
        (["canary", "Thing"], ["x"]),
        (["canary", "run"], ["x"]),
        (["canary_package", "inner", "Thing"], ["x"]),
        (["canary_package", "langchain", "Thing"], ["x"]),
        (["os", "system"], [TOUCH]),
        (["subprocess", "Popen"], [["sh", "-c", TOUCH]]),
        (["builtins", "eval"], [WRITE]),
        (["builtins", "exec"], [WRITE]),
        (["builtins", "__import__"], ["canary"]),
        (["importlib", "import_module"], ["canary"]),
        (["functools", "partial"], [1]),
        (["uuid", "os"], []),
        (["re", "sub"], ["a", "b", "c"]),
        (["datetime", "sys"], []),
        (["pathlib", "os", "system"], [TOUCH]),
        (["langchain", "llms", "openai", "OpenAI"], []),
        (["langchain", "prompts", "PromptTemplate"], []),
        (["langchain_core", "load", "load", "loads"], ["{}"]),
        (["langchain", "chains", "loading", "load_chain"], ["x"]),
        (["langchain_core", "runnables", "base", "RunnableLambda"], []),
    ):
        for lc in (1, 2):
            blob = _row(path, lc, args=args, kwargs={})
            readers = ALL if path[0] in ("canary", "os") else "strict"
            yield from cases("envelopes", f"{'.'.join(path)} in lc {lc}", blob, kind="json", readers=readers)
    odd: tuple[tuple[str, Any], ...] = (
        ("no id", None),
        ("an empty id", []),
        ("one part", ["os"]),
        ("text", "os.system"),
        ("numbers", [1, 2]),
        ("lists", [["os"], ["system"]]),
        ("dots in a part", ["os.path", "os.system"]),
        ("empty parts", ["", ""]),
        ("a long id", ["a"] * 100_000),
        ("a huge name", ["a" * 1_000_000, "b"]),
        ("control characters", ["\x1b[31m\n", "\r\x00"]),
    )
    for label, forged in odd:
        for lc in (1, 2):
            readers = "strict inventory" if lc == 2 else "strict"
            yield from cases(
                "envelopes",
                f"id: {label} in lc {lc}",
                _row(forged, lc),
                kind="json",
                readers=readers,
                honest=_never,
            )


def _never(_: object) -> bool:
    return False


def kinds() -> Iterator[Case]:
    """Envelopes of other kinds, methods, and arguments of allowed types."""
    for lc in (1, 2):
        for kind in ("secret", "not_implemented", "constructor ", "eval", "", None, 5, ["constructor"]):
            blob = _row(["HOME"] if kind == "secret" else ["datetime", "date"], lc, kind, args=[2024, 1, 1])
            yield from cases("envelopes", f"a {kind} in lc {lc}", blob, kind="json")
        blob = _row(["langchain", "HOME"], lc, "secret")
        yield from cases("envelopes", f"a secret with two parts in lc {lc}", blob, kind="json")
    for path, fields in (
        (["datetime", "datetime"], {"method": "fromtimestamp", "args": [0]}),
        (["datetime", "datetime"], {"method": ["fromtimestamp"], "args": [0]}),
        (["datetime", "datetime"], {"method": ["__init__", "now"], "args": []}),
        (["pathlib", "Path"], {"method": "touch", "args": ["x"]}),
        (["pathlib", "Path"], {"method": ["cwd"], "args": []}),
        (["pathlib", "Path"], {"method": {"a": 1}, "args": []}),
        (["builtins", "set"], {"args": ["abc"]}),
        (["builtins", "set"], {"args": [10**9]}),
        (
            ["builtins", "set"],
            {"args": [[[-1 if n >> b & 1 else -2 for b in range(14)] for n in range(1 << 14)]]},
        ),
        (["collections", "deque"], {"args": [[1, 2, 3], 1]}),
        (["re", "compile"], {"args": ["a" * 100_000]}),
        (["re", "compile"], {"args": ["[\\u0000-\\U0010ffff]" * 40, 2]}),
        (["re", "compile"], {"args": ["a", 128]}),
        (["re", "compile"], {"kwargs": {"pattern": "[\\u0000-\\U0010ffff]" * 40, "flags": 2}}),
        (["re", "compile"], {"args": ["[\\u0000-\\U0010ffff]" * 40], "kwargs": {"flags": 2}}),
        (["zoneinfo", "ZoneInfo"], {"args": ["/etc/passwd"]}),
        (["zoneinfo", "ZoneInfo"], {"kwargs": {"key": "../../etc/passwd"}}),
        (["decimal", "Decimal"], {"args": ["1e999999999"]}),
        (["decimal", "Decimal"], {"args": [0.1]}),
        (["decimal", "Decimal"], {"kwargs": {"value": "9" * 100_000}}),
        (["uuid", "UUID"], {"kwargs": {"int": 5, "version": 99}}),
        (["uuid", "UUID"], {"args": [None, None, None, None, 5]}),
        (["datetime", "timedelta"], {"kwargs": {"weeks": 10**12}}),
        (["datetime", "timedelta"], {"args": [0.5]}),
        (["datetime", "date"], {"args": "2024-01-01"}),
        (["datetime", "date"], {"args": {"year": 1}}),
        (["datetime", "date"], {"args": [2024, 1], "kwargs": {"day": 1}}),
        (["datetime", "date"], {"kwargs": [1]}),
        (["pathlib", "Path"], {"args": ["a\0"]}),
        (["langchain", "schema", "messages", "AIMessage"], {"kwargs": {"content": 5}}),
        (["langchain", "schema", "messages", "AIMessage"], {"kwargs": {}}),
        (["langchain_core", "messages", "ai", "AIMessage"], {"kwargs": {"content": "x", "type": "human"}}),
        (
            ["langchain_core", "messages", "ai", "AIMessageChunk"],
            {
                "kwargs": {
                    "content": "",
                    "tool_call_chunks": [{"name": "n", "args": "[" * 200_000, "id": "1", "index": 0}],
                }
            },
        ),
        (["langgraph", "types", "Send"], {"args": ["node"]}),
        (["langgraph", "types", "Interrupt"], {"kwargs": {"evil": 1}}),
    ):
        for lc in (1, 2) if path[0].startswith("lang") else (2,):
            shown = f"{json.dumps(fields)[:40]} of {len(json.dumps(fields))}"
            yield from cases(
                "envelopes", f"{path[-1]} {shown} in lc {lc}", _row(path, lc, **fields), kind="json"
            )


def shapes() -> Iterator[Case]:
    """JSON that is none, is ambiguous, or is deep."""
    evil = _row(["os", "system"], args=[TOUCH]).decode()
    for label, text in (
        ("nothing", b""),
        ("half a value", b'{"a": '),
        ("two values", b"{} {}"),
        ("not UTF-8", b'"\xff"'),
        ("UTF-16", '{"a": 1}'.encode("utf-16")),
        ("a byte order mark", b"\xef\xbb\xbf{}"),
        ("a key twice", b'{"a": 1, "a": 2}'),
        (
            "an id twice",
            b'{"lc": 2, "type": "constructor", "id": ["datetime", "date"], "id": ["os", "system"], '
            b'"args": []}',
        ),
        ("a key twice, escaped", b'{"a": 1, "\\u0061": 2}'),
        ("5,000 digits", b"1" * 5000),
        ("a million digits", b"[" + b"1" * 1_000_000 + b"]"),
        ("single quotes", b"{'a': 1}"),
        ("a comment", b"[1] // x"),
        ("a comma too many", b"[1,]"),
        ("a control character", b'"\x01"'),
    ):
        yield from cases(
            "envelopes", f"JSON: {label}", text, kind="json", readers=ALL, malformed=True, honest=_never
        )
    for depth in (100, 1000, 100_000, 1_000_000):
        for label, head, tail in (("lists", "[", "]"), ("objects", '{"a":', "}"), ("quoted", '["', '"]')):
            text = (head * depth + "1" + tail * depth).encode()
            yield from cases(
                "envelopes",
                f"JSON: {depth} {label}",
                text,
                kind="json",
                readers="strict strict-thread inert-thread",
                honest=_never,
            )
    surrogate = b'"\\ud800"'
    yield from cases(
        "envelopes",
        "JSON: half a surrogate",
        surrogate,
        kind="json",
        readers=ALL,
        honest=lambda value: value == "\ud800",
    )
    wrapped: Any = evil
    for label, wrapped in (
        ("a list", f"[{evil}]"),
        ("an object", f'{{"a": {evil}}}'),
        ("the arguments of a set", _row(["builtins", "set"], args=["@"]).decode().replace('"@"', evil)),
        (
            "the kwargs of a message",
            _row(["langchain", "schema", "messages", "AIMessage"], 1, kwargs={"content": "@"})
            .decode()
            .replace('"@"', evil),
        ),
        ("the id of another", _row("@").decode().replace('"@"', evil)),
        ("the method of another", _row(["datetime", "date"], method="@").decode().replace('"@"', evil)),
        ("a blocked one", _row(["canary", "Thing"], args=["@"]).decode().replace('"@"', evil)),
    ):
        yield from cases(
            "envelopes", f"in {label}", wrapped.encode(), kind="json", readers="strict plaintext"
        )
    bombs: tuple[tuple[str, bytes | Build], ...] = (
        ("12 million objects", lambda _: b"[" + b"{}," * 12_000_000 + b"{}]"),
        ("12 million lists", lambda _: b"[" + b"[]," * 12_000_000 + b"[]]"),
        ("a string of 400 MiB", lambda _: b'"' + b"a" * (400 << 20) + b'"'),
        ("100,000 blocked ones", b"[" + b",".join([evil.encode()] * 100_000) + b"]"),
        (
            "2,000 patterns",
            b"["
            + b",".join(_row(["re", "compile"], args=[f"(a|b{n})*[c-x]" * 20]) for n in range(2000))
            + b"]",
        ),
        ("half a million quotes", b'"\\"' * 500_000),
    )
    for label, bomb in bombs:
        yield from cases(
            "envelopes", f"JSON: {label}", bomb, kind="json", readers="strict inert", honest=_is_data
        )


def _is_data(value: object) -> bool:
    return isinstance(value, list | str)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (names, kinds, shapes):
        yield from family()
