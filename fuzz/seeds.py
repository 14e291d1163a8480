"""What fuzzing starts from: honest values, rings and databases, and all that was ever found."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import ormsgpack
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage

from fuzz.sqlitefile.honest import SHAPES
from fuzz.targets import COLUMNS, FORGED, MATERIAL, SAFE, SECRET, SEPARATOR, TARGETS, cipher
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import RingCipher, Row
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.codes import DELTA_SNAPSHOT, NUMPY_ARRAY
from sealpoint.sqlite import SqliteSaver
from tests.support.values.samples import SAMPLES

ROOT: Final = Path(__file__).parents[1]
CORPUS: Final = ROOT / "tests" / "corpus"
GOLDEN: Final = ROOT / "tests" / "compat" / "golden"

OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS

serde: Final = JsonPlusSerializer(allowed_msgpack_modules=True)


def seeds(target: str) -> Iterator[bytes]:
    """Yield what a target starts from."""
    yield from _MAKERS[target]()
    yield from found(target)


def found(target: str) -> Iterator[bytes]:
    """Yield what fuzzing has found for a target, from ``tests/corpus``."""
    for path in sorted((CORPUS / target).glob("*")):
        yield path.read_bytes()


def _msgpack() -> Iterator[bytes]:
    yield from (data for kind, data in map(serde.dumps_typed, SAMPLES.values()) if kind == "msgpack")


def _records() -> Iterator[bytes]:
    """Yield records as LangGraph writes them, taken apart as `read_record` puts them together."""

    def take_apart(code: int, payload: bytes) -> None:
        record = ormsgpack.unpackb(payload, ext_hook=ormsgpack.Ext, option=OPTIONS)
        if code in (NUMPY_ARRAY, DELTA_SNAPSHOT):
            made.append(bytes((code, 0)) + payload)
        elif tuple(record[:2]) in SAFE:
            argument = ormsgpack.packb(record[2], option=OPTIONS)
            made.append(bytes((code, SAFE.index(tuple(record[:2])))) + argument)

    made: list[bytes] = []
    for data in _msgpack():
        ormsgpack.unpackb(data, ext_hook=take_apart, option=OPTIONS)
    yield from made


def _json() -> Iterator[bytes]:
    for lc, path, fields in (
        (2, ["uuid", "UUID"], {"args": ["0" * 32]}),
        (2, ["builtins", "set"], {"args": [[1, "a"]]}),
        (2, ["re", "compile"], {"args": ["a+", 2]}),
        (2, ["re", "compile"], {"args": ["a+"], "kwargs": {"flags": 2}}),
        (2, ["collections", "deque"], {"args": [[1]], "kwargs": {}, "method": None}),
        (2, ["datetime", "timedelta"], {"args": [1, 2, 3]}),
        (2, ["datetime", "datetime"], {"args": ["2026-01-01T00:00:00+00:00"], "method": "fromisoformat"}),
        (2, ["pathlib", "PosixPath"], {"args": ["/", "a"]}),
        (2, ["langgraph", "types", "Send"], {"args": ["node", {}]}),
        (2, ["langgraph", "types", "Interrupt"], {"kwargs": {"value": 1, "id": "x"}}),
        (1, ["HOME"], {}),
    ):
        yield json.dumps({"lc": lc, "type": "constructor", "id": path, **fields}).encode()
    messages = [HumanMessage("hi"), AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])]
    yield json.dumps({"messages": [dumpd(message) for message in messages], "n": [1.5, None, "é"]}).encode()


def _tags() -> Iterator[bytes]:
    for suite in ("cobblestone256", "xaes256gcm"):
        row: Row | None
        for row in (None, {"a": "b"}):
            tag, blob = RingCipher(cipher.ring, suite).seal("msgpack", SECRET, row=row)
            yield tag.encode() + b"\n" + blob
    yield b"bytes+aes\n" + bytes(48)
    yield b"msgpack+cobblestone256@k2\n" + bytes(80)


def _rings() -> Iterator[bytes]:
    yield (ROOT / "keys.example").read_bytes()
    for source in (
        f'{{ inline = "{MATERIAL}" }}',
        '{ file = "k1.key" }',
        '{ env = "HOME" }',
        '{ command = ["true"] }',
        '{ credential = "k1" }',
    ):
        key = f'[[key]]\nid = "k1"\nstate = "active"\ncreated = 2026-01-01T00:00:00Z\nsource = {source}\n'
        gone = '[[key]]\nid = "k0"\nstate = "destroyed"\ndestroyed = 2026-01-01T00:00:00Z\n'
        legacy = f'[[key]]\nid = "old"\nstate = "decrypt-only"\nsuite = "aes"\nsource = {source}\n'
        index = f'[[index]]\nid = "index"\ncheck = "00000000"\nsource = {source}\n'
        yield f'version = 1\nactive = "k1"\n{key}'.encode()
        yield f'version = 1\nactive = "k1"\n{key}{gone}{legacy}{index}'.encode()


def _databases() -> Iterator[bytes]:
    """Yield the golden one, and a small one: a change in it hits more often."""
    yield (GOLDEN / "plain.db").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA page_size = 512")
            saver = SqliteSaver(connection, serde=serde)
            config = saver.put(
                {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {"step": 1}, {}
            )
            saver.put_writes(config, [("messages", [HumanMessage("hi", id="1")])], "task")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        yield path.read_bytes()


def _rows() -> Iterator[bytes]:
    checkpoint = {**empty_checkpoint(), "id": "1", "channel_values": {"messages": [HumanMessage("hi")]}}
    honest = {
        "parent_checkpoint_id": b"t0",
        "type": b"tmsgpack",
        "metadata": b'b{"step": 1, "source": "loop", "a": {"b": null}}',
        "checkpoint": b"b" + serde.dumps_typed(checkpoint)[1],
        "channel": b"tmessages",
        "task_id": b"ttask",
        "idx": b"i\x00\x05",
        "value": b"b" + serde.dumps_typed([1, {"a": AIMessage("x")}])[1],
    }
    columns = [column for table in COLUMNS.values() for column in table]
    yield SEPARATOR.join(honest[column] for column in columns)
    for column in dict.fromkeys(columns):
        for other in (b"i\x05", b"r\x05", b"t\xff", b"b\x00", b""):
            yield SEPARATOR.join(other if name == column else honest[name] for name in columns)


def _forged() -> Iterator[bytes]:
    """Yield honest databases of all shapes. The names of edits are single bytes, and soon found."""
    for shape in range(len(SHAPES)):
        yield bytes((shape, 0))


_MAKERS: Final = {
    "msgpack": _msgpack,
    "record": _records,
    "json": _json,
    "tag": _tags,
    "ring": _rings,
    "database": _databases,
    "row": _rows,
    "forged-read": _forged,
    "forged-write": _forged,
}

_WORDS: Final = {
    "json": {
        '"lc": 1',
        '"lc": 2',
        '"type": "constructor"',
        '"id": [',
        '"args": [',
        '"kwargs": {',
        '"method": ',
    },
    "ring": {"[[key]]", "[[index]]", "source = ", "inline", "staged", "decrypt-only", "disabled", "check = "},
    "tag": {"+cobblestone256@k1", "+xaes256gcm@k1", "+aes", ".row", ".zst", "pickle", "msgpack"},
    "database": {
        "checkpoints",
        "writes",
        "CREATE TRIGGER",
        "GENERATED ALWAYS AS",
        "CREATE VIEW",
        "sqlite_master",
    },
}


def words(target: str) -> list[str]:
    """Return what libFuzzer may put into an input beside what it comes upon by itself."""
    names = {part for pair in SAFE for part in pair} if target == "json" else set()
    return sorted(names | _WORDS.get(target, set()))


def write_seeds(target: str, folder: Path) -> None:
    """Write every seed of a target to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds(target)):
        (folder / f"seed-{number:03}").write_bytes(data)
        if target not in FORGED:  # commands run in a main thread; `fuzz.one` tries these
            try_seed(target, data)


def try_seed(target: str, data: bytes) -> None:
    """Hand a seed to its target, so that whatever is loaded late has been loaded."""
    TARGETS[target](data)
