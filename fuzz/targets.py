"""What is fuzzed: each target takes bytes from a stranger, and reads or refuses them.

A target returns, whether they were read or refused with one of our own errors. Anything
else goes up: another exception, a value that two ways of reading see differently, and
(see `fuzz.watch`) an import or a process. The two targets on forged databases run the commands,
and compare what they report with what `fuzz.sqlitefile` reads from the pages.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from fuzz.sqlitefile.commands import READING, WRITING, check_script
from fuzz.watch import load_allowed, watched
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag
from sealpoint.errors import SealpointError, SourceError
from sealpoint.keys import sources
from sealpoint.serde import SAFE_TYPES, JsonPlusSerializer
from sealpoint.serde.codes import (
    DELTA_SNAPSHOT,
    METHOD,
    NUMPY_ARRAY,
    PYDANTIC_V2,
)
from sealpoint.serde.inert import Inert, decode_inert, inventory
from sealpoint.sqlite import SqliteSaver

Target = Callable[[bytes], None]

KEY: Final = bytes(range(32))
SECRET: Final = b"what was sealed"
MATERIAL: Final = bytes(range(32, 64)).hex()
SEPARATOR: Final = b"\n--\n"
COLUMNS: Final = {
    "checkpoints": ("parent_checkpoint_id", "type", "metadata", "checkpoint"),
    "writes": ("channel", "task_id", "idx", "type", "value"),
}

SAFE: Final = sorted(SAFE_TYPES)
METHODS: Final = {METHOD: "fromisoformat", PYDANTIC_V2: "model_validate_json"}

strict: Final = JsonPlusSerializer(allowed_msgpack_modules=None)
raw: Final = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
ring: Final = KeyRing(
    [
        Key("k1", KEY, KeyState.ACTIVE),
        Key("k2", KEY[::-1], KeyState.DISABLED),
        Key("aes", KEY, KeyState.DECRYPT_ONLY, suite="aes"),
    ]
)
cipher: Final = RingCipher(ring)


class DisagreementError(AssertionError):
    """Two ways of reading the same bytes do not agree."""


class _Refused:
    """Stands for a value that was refused."""


def _attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except SealpointError:
        return _Refused


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise DisagreementError(what)


def names_in(value: Any) -> Counter[tuple[str, str]]:
    """Count the types that an inert value names, which is what `inventory` counts in its bytes."""
    found: Counter[tuple[str, str]] = Counter()
    ahead = [value]
    while ahead:
        part = ahead.pop()
        if isinstance(part, Inert):
            found[part.module, part.name] += 1
            ahead.append(part.payload)
        elif isinstance(part, dict):
            ahead += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            ahead += part
    return found


def _read_every_way(kind: str, data: bytes) -> None:
    value = _attempt(strict.loads_typed, (kind, data))
    _attempt(raw.loads_typed, (kind, data))
    plain = _attempt(decode_inert, kind, data)
    named = _attempt(inventory, data, kind)
    _require(value is _Refused or plain is not _Refused, "inert reading refuses what strict reading takes")
    _require(plain is _Refused or named == names_in(plain), "the inventory is not that of the value")


def read_msgpack(data: bytes) -> None:
    """A msgpack row, read strictly, inertly and for its inventory."""
    _read_every_way("msgpack", data)


def read_record(data: bytes) -> None:
    """One record of msgpack: a byte for its kind, a byte for its type, and the bytes of its arguments.

    Lengths are put in front, so that a change to the arguments does not end at the first of them.
    """
    code, number, argument = *data[:2].ljust(2, b"\0"), data[2:]
    module, name = SAFE[number % len(SAFE)]
    head = b"" if code in (NUMPY_ARRAY, DELTA_SNAPSHOT) else b"".join(map(_text, (module, name)))
    method = _text(METHODS[code]) if code in METHODS else b""
    items = bytes((0x94 if method else 0x93,)) if head else b""
    payload = items + head + argument + method
    _read_every_way("msgpack", b"\xc9" + len(payload).to_bytes(4, "big") + bytes((code,)) + payload)


def _text(text: str) -> bytes:
    return b"\xd9" + bytes((len(text),)) + text.encode()


def read_json(data: bytes) -> None:
    """A legacy json row, read strictly, inertly and for its inventory."""
    _read_every_way("json", data)


def read_tag(data: bytes) -> None:
    """A type tag, and after a line break a blob: nothing opens but what was sealed."""
    text, _, blob = data.partition(b"\n")
    tag = text.decode("utf-8", "surrogateescape")
    parsed = _attempt(Tag.parse, tag)
    _require(parsed is _Refused or parsed.format() == tag, "a tag is not written as it was read")
    opened = _attempt(cipher.open, tag, blob)
    typed = opened if opened is _Refused else opened.typed
    _require(typed in (_Refused, (tag.partition("+")[0], SECRET)), "something opens that was not sealed")


def read_ring(data: bytes) -> None:
    """A ring file, with a key file beside it. Commands are not run: the file's owner chooses them."""

    def run_nothing(*_: Any) -> bytes:
        raise SourceError("commands are not run here")

    with tempfile.TemporaryDirectory() as name, patch.object(sources, "run_command", run_nothing):
        folder = Path(name)
        for file, content in ((folder / "keys.toml", data), (folder / "k1.key", MATERIAL.encode())):
            file.write_bytes(content)
            file.chmod(0o600)
        with suppress(SealpointError):
            KeyRing.load(folder / "keys.toml")


def read_database(data: bytes) -> None:
    """A database file. SQLite may say that it is damaged."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "checkpoints.db"
        path.write_bytes(data)
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as connection:
            _read_saver(connection)


def read_row(data: bytes) -> None:
    """One checkpoint and one write on top of it, column by column; see `COLUMNS`.

    The first byte of a column says what SQLite stores it as: ``i``, ``r``, ``t``, ``b`` or NULL.
    """
    parts = iter(data.split(SEPARATOR))
    with closing(sqlite3.connect(":memory:")) as connection:
        saver = SqliteSaver(connection, serde=strict)
        saver.setup()
        connection.execute("INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'msgpack', x'80', '{}')")
        connection.execute("INSERT INTO writes VALUES ('t', '', '1', 'task', '', 0, 'c', 'null', x'')")
        for table, columns in COLUMNS.items():
            for column in columns:
                statement, value = _stored(table, column, next(parts, b""))
                connection.execute(statement, (value,))
        connection.commit()
        _read_saver(connection)


def _stored(table: str, column: str, part: bytes) -> tuple[str, Any]:
    kind, content = part[:1], part[1:]
    form = "CAST(? AS TEXT)" if kind == b"t" else "?"
    value: Any = content if kind in (b"t", b"b") else None
    if kind == b"i":
        value = int.from_bytes(content[:8], "big", signed=True)
    if kind == b"r":
        value = float(int.from_bytes(content[:16], "big")) / 3
    return f"UPDATE OR IGNORE {table} SET {column} = {form}", value  # noqa: S608 -- names of our own


def _read_saver(connection: sqlite3.Connection) -> None:
    """Read by every method that reads, each from the start."""
    saver = SqliteSaver(connection, serde=strict)
    ways: list[Callable[[], Any]] = [
        lambda: list(saver.list(None)),
        lambda: list(saver.list(None, filter={"step": 1, "a.b": None})),
    ]
    with suppress(SealpointError):
        saver.setup()
        for thread in connection.execute("SELECT DISTINCT thread_id FROM checkpoints LIMIT 4").fetchall():
            here: Any = {"configurable": {"thread_id": str(thread[0]), "checkpoint_ns": ""}}
            ways += [
                partial(saver.get_tuple, here),
                partial(saver.get_delta_channel_history, config=here, channels=["messages"]),
            ]
    for read in ways:
        with suppress(SealpointError):
            read()


FORGED: Final[dict[str, Target]] = {
    "forged-read": partial(check_script, names=READING),
    "forged-write": partial(check_script, names=WRITING),
}
"""Targets that run commands: they need a process of their own, for SQLite may not come back."""

TARGETS: Final[dict[str, Target]] = {
    "msgpack": read_msgpack,
    "record": read_record,
    "json": read_json,
    "tag": read_tag,
    "ring": read_ring,
    "database": read_database,
    "row": read_row,
    **FORGED,
}
"""Targets by name."""


def try_one(target: str, data: bytes) -> None:
    """Hand bytes to a target, and see what it does.

    Raises:
        Exception: Whatever a target may not raise.
    """
    load_allowed()
    if target in FORGED:
        TARGETS[target](b"")  # an honest one: commands import much of what they need when they run
    with watched():
        TARGETS[target](data)
