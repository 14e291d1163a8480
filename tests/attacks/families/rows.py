"""Rows that do not hold what their columns say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import ormsgpack

from tests.attacks import swollen
from tests.attacks.case import Case
from tests.attacks.stores import cases, checkpoint, quoted
from tests.support.values.forge import named, pack, pairs
from tests.support.values.wire import nested_extensions

_WRITE: Final = """INSERT INTO writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"""
_INSERTS: Final = {
    "checkpoint": "INSERT INTO checkpoints VALUES ('t', '', 'd' || ?, NULL, 'bytes', zeroblob(?), '{}')",
    "metadata": "INSERT INTO checkpoints VALUES ('t', '', 'd' || ?, NULL, 'msgpack', x'80', zeroblob(?))",
    "parent": "INSERT INTO checkpoints VALUES ('t', '', 'd' || ?, zeroblob(?), 'msgpack', x'80', '{}')",
    "write": f"{_WRITE} VALUES ('t', '', 'c3', 'task', 9 + ?, 'n', 'bytes', zeroblob(?))",
    "channel": f"{_WRITE} VALUES ('t', '', 'c3', 'task', 9 + ?, zeroblob(?), 'bytes', x'00')",
}
_STORAGE: Final = (
    ("an integer", "5"),
    ("a huge integer", "1000000000000"),
    ("a real", "1.5"),
    ("text", "'abc'"),
    ("NULL", "NULL"),
    ("nothing", "x''"),
)


def storage() -> Iterator[Case]:
    """Values of another storage class than their column has."""
    for label, value in _STORAGE:
        yield from cases("storage", f"checkpoint: {label}", _checkpoint("checkpoint", value))
        yield from cases("storage", f"write: {label}", _write("value", value))
    types = (
        ("a blob", "x'6d7367'"),
        ("half a megabyte", f"'{'x' * 500_000}'"),
        ("NUL", "'msgpack' || char(0)"),
    )
    not_utf8 = ("invalid UTF-8", "CAST(x'ff' AS TEXT)")
    for label, value in (*_STORAGE[:5], *types, not_utf8):
        checkpoint_type, write_type = _checkpoint("type", value), _write("type", value)
        yield from cases("storage", f"type of a checkpoint: {label}", checkpoint_type, queries="latest")
        yield from cases("storage", f"type of a write: {label}", write_type, queries="latest")
    for label, value in (("a blob", "x'ff00'"), ("NUL", "x'00'"), not_utf8):
        for column in ("thread_id", "checkpoint_ns", "checkpoint_id"):
            yield from cases("storage", f"{column}: {label}", _checkpoint(column, value), queries="list")
        parent = _checkpoint("parent_checkpoint_id", value)
        yield from cases("storage", f"parent: {label}", parent, queries="latest")
        for column in ("task_id", "task_path", "channel", "idx"):
            yield from cases("storage", f"{column}: {label}", _write(column, value), queries="latest")
    for label, value in (("text", "'one'"), ("a real", "0.5")):
        yield from cases("storage", f"idx: {label}", _write("idx", value), queries="latest")


def _checkpoint(column: str, value: str) -> str:
    return f"UPDATE checkpoints SET {column} = {value} WHERE checkpoint_id = 'c3'"


def _write(column: str, value: str) -> str:
    return f"UPDATE writes SET {column} = {value} WHERE checkpoint_id = 'c3' AND idx = 0"


def amounts() -> Iterator[Case]:
    """Values larger than memory or than the file, and more rows than memory holds."""
    for name, rows, size, queries in (
        ("checkpoint", 30, 45, "list"),
        ("metadata", 30, 45, "list"),
        ("write", 30, 45, "latest list"),
        ("parent", 1, 130, "latest"),
        ("channel", 1, 130, "latest"),
        ("checkpoint", 1, 450, "latest"),
        ("checkpoint", 1, 600, "latest"),
        ("metadata", 1, 600, "latest"),
        ("write", 1, 600, "latest"),
    ):
        tamper = swollen.tamper(_INSERTS[name], rows, size * 1_000_000)
        yield from cases("amounts", f"{rows} x {name} of {size} MB", tamper, queries=queries)
    many = f"""WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
        {_WRITE} SELECT 't', '', 'c3', 'task', i, 'n', 'msgpack', x'c0' FROM n"""
    yield from cases("amounts", "a million writes of a byte", many, queries="latest")
    chain = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
        INSERT INTO checkpoints SELECT 't', '', 'a' || i, 'a' || (i + 1), 'msgpack', x'80', '{}' FROM n;
        UPDATE checkpoints SET parent_checkpoint_id = 'a1' WHERE checkpoint_id = 'c3'"""
    yield from cases("amounts", "400,000 ancestors that are empty", chain, queries="history list")


def contents() -> Iterator[Case]:
    """Checkpoints that are no checkpoints, or those of other rows."""
    honest = checkpoint("c3", n=2, text="x" * 40)
    for label, value in (
        ("a list", ["c3"]),
        ("text", "c3"),
        ("a number", 5),
        ("nil", None),
        ("an empty map", {}),
        ("the id alone", {"id": "c3"}),
        ("another id", {**honest, "id": "c2"}),
        ("no id", {key: value for key, value in honest.items() if key != "id"}),
        ("an id that is a number", {**honest, "id": 3}),
        ("an id in a list", {**honest, "id": ["c3"]}),
        ("values in a list", {**honest, "channel_values": [1]}),
        ("no values", {key: value for key, value in honest.items() if key != "channel_values"}),
        ("versions in a list", {**honest, "channel_versions": [1]}),
        ("versions seen as text", {**honest, "versions_seen": "x"}),
        ("a blocked type in it", {**honest, "channel_values": {"n": named(0, "os", "system", "x")}}),
        ("a blocked type for it", named(0, "os", "system", honest)),
        ("a set for it", named(0, "builtins", "set", ["id"])),
    ):
        yield from cases("contents", label, _checkpoint("checkpoint", quoted(pack(value))))
    twice = pairs(("id", "c3"), ("id", "c3"), ("v", 4), ("channel_values", {}))
    yield from cases("contents", "an id twice", _checkpoint("checkpoint", quoted(twice)))
    yield from cases(
        "contents", "5,000 snapshots", _checkpoint("checkpoint", quoted(nested_extensions(7, 2000)))
    )
    for kind in ("null", "bytes", "bytearray", "json", "pickle", "", "MSGPACK"):
        yield from cases("contents", f"labelled {kind!r}", _checkpoint("type", f"'{kind}'"))
        if kind not in ("bytes", "bytearray"):
            forged = _write("value", f"{quoted(pack({'a': 1}))}, type = '{kind}'")
            yield from cases("contents", f"a write labelled {kind!r}", forged, queries="latest")
    for sealed in (False, True):
        yield from cases("contents", "the row before it", _copy("c2", "c3"), sealed=sealed)
        yield from cases("contents", "the row of another thread", _copy("d1", "c3"), sealed=sealed)
        newer = (
            "INSERT INTO checkpoints SELECT thread_id, checkpoint_ns, 'c9', 'c3', type, "
            "checkpoint, metadata FROM checkpoints WHERE checkpoint_id = 'c2'"
        )
        yield from cases("contents", "an old one put on top", newer, sealed=sealed)
        swap = """CREATE TEMP TABLE old AS SELECT * FROM checkpoints;
            UPDATE checkpoints SET checkpoint = (SELECT o.checkpoint FROM old AS o WHERE o.checkpoint_id =
            CASE checkpoints.checkpoint_id WHEN 'c2' THEN 'c3' ELSE 'c2' END)
            WHERE checkpoint_id IN ('c2', 'c3')"""
        yield from cases("contents", "two rows swapped", swap, sealed=sealed)
        mixed = (
            "UPDATE checkpoints SET checkpoint = (SELECT value FROM writes WHERE checkpoint_id "
            "= 'c3' AND idx = 1) WHERE checkpoint_id = 'c3'"
        )
        yield from cases("contents", "a write in place of a checkpoint", mixed, sealed=sealed)
    plain = ormsgpack.packb({**honest, "channel_values": {"n": "forged"}})
    yield from cases(
        "contents",
        "an unsealed one among sealed ones",
        f"UPDATE checkpoints SET type = 'msgpack', checkpoint = {quoted(plain)} WHERE checkpoint_id = 'c3'",
        sealed=True,
    )
    yield from cases(
        "contents",
        "an unsealed write among sealed ones",
        f"UPDATE writes SET type = 'msgpack', value = {quoted(pack('forged'))} WHERE checkpoint_id "
        f"= 'c3' AND idx = 0",
        sealed=True,
    )
    for kind in ("pickle", "bytes", "json", "null"):
        relabel = (
            f"UPDATE checkpoints SET type = '{kind}' || substr(type, instr(type, '+')) WHERE "
            f"checkpoint_id = 'c3'"
        )
        yield from cases("contents", f"relabelled {kind}", relabel, sealed=True)


def _copy(source: str, target: str) -> str:
    return f"""UPDATE checkpoints SET (type, checkpoint) =
        (SELECT type, checkpoint FROM checkpoints WHERE checkpoint_id = '{source}')
        WHERE checkpoint_id = '{target}'"""


def parents() -> Iterator[Case]:
    """Chains of parents that never end."""
    for label, script in (
        ("its own parent", _checkpoint("parent_checkpoint_id", "'c3'")),
        ("a circle of two", "UPDATE checkpoints SET parent_checkpoint_id = 'c3' WHERE checkpoint_id = 'c2'"),
        (
            "a circle of three",
            "UPDATE checkpoints SET parent_checkpoint_id = 'c3' WHERE checkpoint_id = 'c1'",
        ),
        (
            "a circle further back",
            "UPDATE checkpoints SET parent_checkpoint_id = 'c2' WHERE checkpoint_id = 'c1'",
        ),
        (
            "a parent that is a blob",
            "UPDATE checkpoints SET parent_checkpoint_id = x'6331' WHERE checkpoint_id = 'c2'",
        ),
        (
            "an ancestor that is none",
            f"UPDATE checkpoints SET checkpoint = {quoted(pack(['c1']))} WHERE checkpoint_id = 'c1'",
        ),
        (
            "an ancestor of another id",
            "UPDATE checkpoints SET checkpoint = (SELECT checkpoint FROM checkpoints WHERE "
            "checkpoint_id = 'c3') WHERE checkpoint_id = 'c1'",
        ),
        (
            "values of an ancestor in a list",
            f"UPDATE checkpoints SET checkpoint = "
            f"{quoted(pack({'id': 'c1', 'channel_values': [1]}))} WHERE checkpoint_id = 'c1'",
        ),
        (
            "no values in an ancestor",
            f"UPDATE checkpoints SET checkpoint = {quoted(pack({'id': 'c2'}))} WHERE checkpoint_id = 'c2'",
        ),
    ):
        yield from cases("parents", label, script, queries="history")


def metadata() -> Iterator[Case]:
    """Metadata that is not JSON, or more than JSON; in a plain row all that LangGraph reads is accepted."""
    good = '"source": "loop", "step": 2, "parents": {}, "run_id": "r"'
    texts: tuple[tuple[str, bytes], ...] = (
        ("a key twice", b'{"step": 1, ' + good.encode() + b"}"),
        ("a key twice, escaped", b'{"\\u0073tep": 1, ' + good.encode() + b"}"),
        ("5,000 digits", b'{"step": ' + b"1" * 5000 + b"}"),
        ("a million digits", b'{"step": ' + b"1" * 1_000_000 + b"}"),
        ("a list", b"[1]"),
        ("text", b'"x"'),
        ("null", b"null"),
        ("a number", b"5"),
        ("nothing", b""),
        ("half of it", b'{"step": '),
        ("more behind it", b"{" + good.encode() + b"} {}"),
        ("not UTF-8", b'{"step": "\xff"}'),
        ("UTF-16", ("{" + good + "}").encode("utf-16")),
        ("a byte order mark", b"\xef\xbb\xbf{" + good.encode() + b"}"),
        ("a comment", b"{" + good.encode() + b"} // x"),
        ("100,000 lists", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ("100,000 objects", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        ("a surrogate", b'{"a": "\\ud800"'),
        (
            "a message of LangChain",
            b'{"lc": 1, "type": "constructor", "id": ["canary", "Thing"], "kwargs": {}',
        ),
    )
    for label, text in texts:
        yield from cases("metadata", label, _checkpoint("metadata", quoted(text)))
    yield from cases("metadata", "an integer", _checkpoint("metadata", "5"), queries="latest")
    yield from cases("metadata", "a real", _checkpoint("metadata", "1.5"), queries="latest")
    yield from cases("metadata", "the same as text", _checkpoint("metadata", "CAST(metadata AS TEXT)"))
    many = (
        "UPDATE checkpoints SET metadata = '{\"a\": [' || replace(hex(zeroblob(20000000)), '00', "
        "'{},') || '{}]}' WHERE checkpoint_id = 'c3'"
    )
    yield from cases("metadata", "20 million objects", many, queries="latest", harmless=True)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (storage, amounts, contents, parents, metadata):
        yield from family()
