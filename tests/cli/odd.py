"""Genuine odd values: what LangGraph of some version wrote, and what a reader cannot take as it stands."""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.support.databases.sealed import AES_KEY, sealing

SECRET: Final = "Kumquat-4711"
THREAD: Final = "t"
MODULE: Final = "odd_app"
CHECKPOINT: Final = "1ef00000-0000-6000-8000-000000000001"


class Odd(NamedTuple):
    """One odd value.

    Attributes:
        write: Writes a database that contains it.
        before: The source of the program's module when it was written.
        after: Its source when it is read; ``None`` if the module is gone.
        hidden: Packages that the reader lacks.
    """

    write: Callable[[Path], None]
    before: str = ""
    after: str | None = ""
    hidden: tuple[str, ...] = ()


def install(name: str, source: str | None) -> None:
    """Let a module be importable with this source, or not at all."""
    sys.modules.pop(name, None)
    if source is not None:
        module = ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102 -- the sources of this table


def _checkpoint(values: Mapping[str, Any]) -> Any:
    return {
        **empty_checkpoint(),
        "channel_values": dict(values),
        "channel_versions": dict.fromkeys(values, 1),
    }


def put(path: Path, value: Any, serde: Any = None) -> None:
    """Let LangGraph store a value in a checkpoint, and in a write on top of it."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection, serde=serde or JsonPlusSerializer(pickle_fallback=True))
        at: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
        metadata: Any = {"source": "loop", "step": 1, "parents": {}}
        saved = saver.put(at, _checkpoint({"text": SECRET, "odd": value}), metadata, {})
        saver.put_writes(saved, [("odd", value)], "task")


def value(make: Callable[[], Any], serde: Callable[[], Any] = lambda: None, **more: Any) -> Odd:
    """Return a row of a value that LangGraph of today writes."""
    return Odd(lambda path: put(path, make(), serde()), **more)


def text(content: str) -> Odd:
    """Return a row of LangGraph 0.2 or LangGraph.js: the content of a channel, in JSON."""

    def write(path: Path) -> None:
        put(path, 0)
        document = json.dumps({**_checkpoint({"odd": 0, "text": SECRET}), "id": CHECKPOINT})
        row = ("json", document.replace('"odd": 0', f'"odd": {content}').encode())
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE checkpoints SET type = ?, checkpoint = ?, checkpoint_id = ?", (*row, CHECKPOINT)
            )
            connection.execute(
                "UPDATE writes SET type = 'json', value = ?, checkpoint_id = ?",
                (content.encode(), CHECKPOINT),
            )

    return Odd(write)


def js(name: str, *arguments: Any) -> Odd:
    """Return a row of LangGraph.js."""
    fields = {"lc": 2, "type": "constructor", "id": [name], "method": None, "args": arguments, "kwargs": {}}
    return text(json.dumps(fields))


def lc(kind: str, *path: str, **fields: Any) -> Odd:
    """Return a row with a list of one envelope of LangChain."""
    return text(json.dumps([{"lc": 1, "type": kind, "id": path, **fields}]))


def labelled(kind: str | None, content: bytes | None = None) -> Odd:
    """Return a row that another serializer or an old saver wrote."""

    def write(path: Path) -> None:
        put(path, 0)
        with closing(sqlite3.connect(path)) as connection, connection:
            for column, table in (("checkpoint", "checkpoints"), ("value", "writes")):
                connection.execute(
                    f"UPDATE {table} SET type = ?, {column} = coalesce(?, {column})",
                    (kind, content),
                )

    return Odd(write)


def _metadata(content: str) -> Odd:
    def write(path: Path) -> None:
        put(path, 0)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE checkpoints SET metadata = ?", (content.encode(),))

    return Odd(write)


def _old_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id TEXT NOT NULL, thread_ts TEXT NOT NULL, parent_ts TEXT,"
            " checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, thread_ts))"
        )
        content = json.dumps({**_checkpoint({"text": SECRET}), "v": 1})
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, '2024-06-01T00:00:00', NULL, ?, '{}')",
            (THREAD, content.encode()),
        )


class _OtherCipher:
    """A cipher of a user's own, which LangGraph's EncryptedSerializer takes."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mine", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def _of(source: str, expression: str, after: str | None, **more: Any) -> Odd:
    """Return a value of a class of the program, which changes afterwards."""
    return value(lambda: eval(expression, vars(sys.modules[MODULE])), before=source, after=after, **more)  # noqa: S307


def _nested(levels: int) -> Any:
    found: Any = SECRET
    for _ in range(levels):
        found = [found]
    return found


def _array() -> Any:
    return np.arange(3.0)


_CLASS: Final = "from dataclasses import dataclass\n@dataclass\nclass Ticket:\n    number: int\n"
_ENUM: Final = f"from enum import Enum\nclass Color(Enum):\n    RED = 'red'\n    BLUE = {SECRET!r}\n"
_MODEL: Final = (
    "from pydantic import BaseModel, ConfigDict\nfrom typing import *\n"
    "class Order(BaseModel):\n    model_config = ConfigDict(extra='forbid')\n    item: {}\n{}"
)
_ORDER: Final = _MODEL.format("str", "")
_MADE: Final = f"Order(item={SECRET!r})"
_PANDAS: Final = """
import datetime
class NaTType(datetime.datetime):
    def isoformat(self, *_): return "NaT"
class Timedelta(datetime.timedelta): pass
class DataFrame:
    def __init__(self, data): self.data = data
for each in (NaTType, Timedelta, DataFrame): each.__module__ = "pandas"
"""


def _pandas(expression: str) -> Odd:
    """Return a value of pandas, which the reader lacks: a class of this name, base and dump."""

    def make() -> Any:
        install("pandas", _PANDAS)
        return eval(expression, vars(sys.modules["pandas"]))  # noqa: S307 -- the expressions of this table

    return value(make, hidden=("pandas",))


def _aes() -> Any:
    return TheirEncrypted.from_pycryptodome_aes(key=AES_KEY)


_MESSAGE: Final = {"content": SECRET, "type": "human", "id": "1"}
_OLD_PATH: Final = ("langchain", "schema", "messages", "HumanMessage")

ODD: Final[dict[str, Odd]] = {
    "pickle of a number": value(lambda: 1j),
    "pickle of a range": value(lambda: range(3)),
    "pickle of a large integer": value(lambda: 2**70),
    "pickle of a class of the program": _of(
        "class Tool:\n    pass\n", "Tool()", "", serde=lambda: JsonPlusSerializer(pickle_fallback=True)
    ),
    "pickle of a DataFrame without pandas": _pandas("DataFrame([1])"),
    "NaT without pandas": _pandas("NaTType(2026, 1, 1)"),
    "Timedelta without pandas": _pandas("Timedelta(days=1)"),
    "json NaN": text("NaN"),
    "json infinities": text("[Infinity, -Infinity]"),
    "json float out of range": text("1e999"),
    "json minus zero": text("-0"),
    "json lone surrogate": text('"\\ud800"'),
    "json key twice": text(f'{{"a": 1, "a": "{SECRET}"}}'),
    "json of 70 levels": text("[" * 70 + "]" * 70),
    "json messages": lc("constructor", *_OLD_PATH, kwargs=_MESSAGE),
    "json secret of LangChain": lc("secret", "OPENAI_API_KEY"),
    "json object without a form": lc(
        "not_implemented", "langchain_core", "runnables", "Thing", repr="Thing()"
    ),
    "json class of the program": lc("constructor", MODULE, "Ticket", kwargs={"number": 1}),
    "json method that is gone": text(
        json.dumps({"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "method": "make", "args": ["1"]})
    ),
    "js Set": js("Set", [1, SECRET]),
    "js Map": js("Map", [["k", SECRET]]),
    "js RegExp": js("RegExp", "a", "g"),
    "js Error": js("Error", SECRET),
    "js Uint8Array": js("Uint8Array", [1, 2]),
    "js undefined": text('{"lc": 2, "type": "undefined"}'),
    "numpy array without numpy": value(_array, hidden=("numpy",)),
    "numpy scalar without numpy": value(lambda: np.float64(1.5), hidden=("numpy",)),
    "class renamed": _of(_CLASS, "Ticket(1)", _CLASS.replace("Ticket", "Issue")),
    "class moved": _of(_CLASS, "Ticket(1)", None),
    "class made a function": _of(_CLASS, "Ticket(1)", "def Ticket(number): return number\n"),
    "field of a dataclass removed": _of(_CLASS, "Ticket(1)", _CLASS.replace("number: int", "pass")),
    "field of a dataclass added": _of(_CLASS, "Ticket(1)", f"{_CLASS}    owner: str\n"),
    "class of a function": _of(
        "from dataclasses import make_dataclass\n"
        "def make():\n    class Inner(make_dataclass('Base', ['n'])):\n        pass\n    return Inner\n",
        "make()(1)",
        "def make(): pass\n",
    ),
    "class nested in another": _of(
        "from dataclasses import dataclass\nclass Outer:\n    @dataclass\n    class Inner:\n        n: int\n",
        "Outer.Inner(1)",
        "class Outer:\n    pass\n",
    ),
    "member of an enum removed": _of(_ENUM, "Color.BLUE", _ENUM.rpartition("    BLUE")[0]),
    "field of a model removed": _of(_ORDER, _MADE, _MODEL.format("str = ''", "").replace("item", "name")),
    "field of a model added": _of(_ORDER, _MADE, _MODEL.format("str", "    count: int\n")),
    "type of a field changed": _of(_ORDER, _MADE, _MODEL.format("int", "")),
    "validator of a model changed": _of(
        _ORDER,
        _MADE,
        "from pydantic import BaseModel, field_validator\nclass Order(BaseModel):\n    item: str\n"
        "    @field_validator('item')\n    def check(cls, found): raise ValueError(f'no {found}')\n",
    ),
    "named tuple with another field": _of(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n",
        "Pair(1, 2)",
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n",
    ),
    "message of today": value(lambda: [HumanMessage(SECRET), AIMessage("yes")]),
    "deep": value(lambda: _nested(70)),
    "very deep": value(lambda: _nested(120)),
    "many elements": value(lambda: [0] * 2_000_001),
    "NaN as a key": value(lambda: {float("nan"): 1}),
    "keys of one hash": value(lambda: {-1: 1, -2: 2, **{(2**61 - 1) * n: n for n in range(1, 4)}}),
    "number and text as keys": value(lambda: {1: 2, "1": 3}),
    "tuple as a key": value(lambda: {(1, 2): 3}),
    "costly pattern": value(lambda: __import__("re").compile("(a+)+b")),
    "LANGGRAPH_AES_KEY": value(lambda: SECRET, _aes),
    "pickle under LANGGRAPH_AES_KEY": value(
        lambda: 1j,
        lambda: TheirEncrypted.from_pycryptodome_aes(JsonPlusSerializer(pickle_fallback=True), key=AES_KEY),
    ),
    "cipher of the program": value(lambda: SECRET, lambda: TheirEncrypted(_OtherCipher())),
    "key that is not in the ring": value(lambda: SECRET, lambda: sealing("k9")),
    "type of another serializer": labelled("yaml", b"a: 1"),
    "type empty": labelled("empty", b""),
    "type of no characters": labelled(""),
    "type NULL": labelled(None),
    "json without a type": labelled(None, b'{"v": 1}'),
    "bytes": labelled("bytes"),
    "pickle of a whole checkpoint": labelled("pickle", pickle.dumps(_checkpoint({"text": SECRET}))),
    "checkpoint of version 1": labelled("json", b'{"v": 1, "ts": "", "channel_values": {}}'),
    "extension of a later release": labelled("msgpack", b"\xd4\x63\x00"),
    "metadata NaN": _metadata('{"source": "loop", "step": 1, "score": NaN}'),
    "metadata with a name twice": _metadata('{"source": "loop", "step": 1, "a": 1, "a": 2}'),
    "tables with thread_ts": Odd(_old_tables),
}
