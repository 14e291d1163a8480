"""Kinds of tampering that edit what is readable, or a sealed value, its tag, and where it stands."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde.types import TASKS

from tests.graphs.savers import SEALED
from tests.sealed.moves import Act, copied, edited, exchanged, found, of
from tests.sealed.raw import Raw, Row
from tests.sealed.scene import ALICE, BOB, C1, C2, C3, C9, CHILD, ROOT, version

FRAME: Final = "__sealpoint__"
FORGED: Final[dict[str, Any]] = {"forged": "forged"}
Value = tuple[Any, Any]
"""A type tag and bytes."""

_TARGET: Final = of(ALICE, ROOT, C2)

# --- metadata and the open part of a checkpoint ----------------------------------------------------


def within(column: str, *path: str, to: Any = None, drop: bool = False, where: Row = _TARGET) -> Act:
    """Set or remove a member of a JSON column."""

    def act(db: Raw) -> None:
        (row,) = found(db, "checkpoints", where)
        document = deepcopy(row[column])
        *above, last = path
        inside = document
        for name in above:
            inside = inside.setdefault(name, {})
        if drop:
            inside.pop(last, None)
        else:
            inside[last] = to
        db.put("checkpoints", {**row, column: document})

    return act


def metadata(to: Any) -> Act:
    return edited("checkpoints", _TARGET, metadata=to)


def plain_kept(document: Row) -> Row:
    return {name: value for name, value in document.items() if name != FRAME}


def opened_exchanged(db: Raw) -> None:
    """Exchange what is readable in the metadata of two threads, tokens included."""
    (one,) = found(db, "checkpoints", of(ALICE, ROOT, C3))
    (other,) = found(db, "checkpoints", of(BOB, ROOT, C3))
    for row, source in ((one, other), (other, one)):
        sealed = {name: value for name, value in row["metadata"].items() if name == FRAME}
        db.put("checkpoints", {**row, "metadata": {**plain_kept(source["metadata"]), **sealed}})


def tokens_added(db: Raw) -> None:
    """Add the tokens of one thread to a row of another."""
    (row,) = found(db, "checkpoints", of(BOB, ROOT, C3))
    (source,) = found(db, "checkpoints", of(ALICE, ROOT, C3))
    tokens = {name: value for name, value in source["metadata"].items() if name.startswith("sp")}
    db.put("checkpoints", {**row, "metadata": {**row["metadata"], **tokens}})


METADATA: Final[dict[str, Act]] = {
    "readable metadata of two threads exchanged": opened_exchanged,
    "tokens of another thread added": tokens_added,
    "tenant edited": within("metadata", "tenant", to="tenant bob"),
    "step edited": within("metadata", "step", to=77),
    "step as text": within("metadata", "step", to="1"),
    "step as a boolean": within("metadata", "step", to=True),
    "step removed": within("metadata", "step", drop=True),
    "source edited": within("metadata", "source", to="update"),
    "source null": within("metadata", "source"),
    "run_id edited": within("metadata", "run_id", to="run bob 2 "),
    "run_id removed": within("metadata", "run_id", drop=True),
    "parents edited": within("metadata", "parents", to={"": C1}),
    "counters added": within("metadata", "counters_since_delta_snapshot", to={"log": [9, 9]}),
    "delta mark added": within("metadata", "delta_writes_versioned", to=True),
    "user added": within("metadata", "user_id", to="user bob"),
    "key added": within("metadata", "admin", to=True),
    "frame added": within("metadata", FRAME, to={"type": "msgpack", "value": "oA=="}),
    "metadata emptied": metadata({}),
    "metadata forged": metadata({"source": "loop", "step": 1, "parents": {}, "user_id": "user bob"}),
}

FRAMES: Final[dict[str, Act]] = {
    "frame removed": metadata(plain_kept),
    "frame null": within("metadata", FRAME),
    "frame a list": within("metadata", FRAME, to=[]),
    "frame a text": within("metadata", FRAME, to="x"),
    "frame emptied": within("metadata", FRAME, to={}),
    "frame without its value": within("metadata", FRAME, "value", drop=True),
    "frame without its tag": within("metadata", FRAME, "type", drop=True),
    "frame's value not base64": within("metadata", FRAME, "value", to="!"),
    "frame's value a number": within("metadata", FRAME, "value", to=7),
    "key added inside the frame": within("metadata", FRAME, "metadata", to=FORGED),
    "frame of another step, its keys too": exchanged("checkpoints", _TARGET, of(ALICE, ROOT, C3), "metadata"),
}


def texts(*members: tuple[str, Any]) -> bytes:
    """JSON with these members, repeated names included."""
    return b"{%s}" % b", ".join(json.dumps({k: v}).encode()[1:-1] for k, v in members)


def doubled(first: str, *, forged_first: bool) -> Act:
    def act(db: Raw) -> None:
        (row,) = found(db, "checkpoints", _TARGET)
        (other,) = found(db, "checkpoints", of(BOB, ROOT, C2))
        mine, theirs = (each["metadata"].items() for each in (row, other))
        extra = [(name, value) for name, value in theirs if name == first]
        members = [*extra, *mine] if forged_first else [*mine, *extra]
        db.put("checkpoints", {**row, "metadata": texts(*members)})

    return act


SQLITE_METADATA: Final[dict[str, Act]] = {
    "run_id twice, the forged one last": doubled("run_id", forged_first=False),
    "run_id twice, the forged one first": doubled("run_id", forged_first=True),
    "metadata not JSON": metadata(b"{"),
    "metadata a list": metadata(b"[]"),
    "metadata as text": metadata(lambda old: json.dumps({**old, "step": 77})),
}
_OLD: Final = of(ALICE, CHILD, C2)
_VERSIONS: Final = ("checkpoint", "channel_versions")
_VALUES: Final = ("checkpoint", "channel_values")

POSTGRES_DOCUMENT: Final[dict[str, Act]] = {
    "version of an older blob": within(*_VERSIONS, "doc", to=version(1)),
    "version of a newer blob": within(*_VERSIONS, "items", to=version(3)),
    "version of no blob": within(*_VERSIONS, "doc", to=version(8)),
    "version of a delta channel's snapshot": within(*_VERSIONS, "log", to=version(1)),
    "version removed": within(*_VERSIONS, "doc", drop=True),
    "version of an inline channel edited": within(*_VERSIONS, "note", to=version(8)),
    "version added": within(*_VERSIONS, "fresh", to=version(1)),
    "versions_seen edited": within("checkpoint", "versions_seen", "node", "note", to=version(1)),
    "versions_seen emptied": within("checkpoint", "versions_seen", to={}),
    "ts edited": within("checkpoint", "ts", to="2030-01-01T00:00:00+00:00"),
    "ts removed": within("checkpoint", "ts", drop=True),
    "id edited": within("checkpoint", "id", to=C3),
    "id of no row": within("checkpoint", "id", to=C9),
    "v edited": within("checkpoint", "v", to=3),
    "v of the first release": within("checkpoint", "v", to=1),
    "v of an old checkpoint edited": within("checkpoint", "v", to=4, where=_OLD),
    "parent of an old checkpoint not there": edited("checkpoints", _OLD, parent_checkpoint_id=C9),
    "sends of another thread added to a parent": copied(
        "writes", of(BOB, ROOT, C1, channel=TASKS), thread_id=ALICE, checkpoint_ns=CHILD, task_id="task-9"
    ),
    "updated_channels edited": within("checkpoint", "updated_channels", to=["doc"]),
    "updated_channels removed": within("checkpoint", "updated_channels", drop=True),
    "key added to the checkpoint": within("checkpoint", "pending_sends", to=[FORGED]),
    "inline text edited": within(*_VALUES, "note", to="forged"),
    "inline number edited": within(*_VALUES, "count", to=77),
    "inline boolean edited": within(*_VALUES, "open", to=True),
    "inline value removed": within(*_VALUES, "note", drop=True),
    "inline value null": within(*_VALUES, "note"),
    "inline value added": within(*_VALUES, "fresh", to="forged"),
    "inline value a list": within(*_VALUES, "note", to=[FORGED]),
    "inline value for a channel with a blob": within(*_VALUES, "doc", to="forged"),
    "inline value for a delta channel": within(*_VALUES, "log", to=["forged"]),
    "mark of a snapshot added": within(*_VALUES, "log", to=True),
    "values emptied": within("checkpoint", "channel_values", to={}),
    "versions emptied": within("checkpoint", "channel_versions", to={}),
    "values removed": within("checkpoint", "channel_values", drop=True),
    "versions removed": within("checkpoint", "channel_versions", drop=True),
    "version added for the sends": within(*_VERSIONS, TASKS, to=version(1)),
    "value added for the sends": within(*_VALUES, TASKS, to=[FORGED]),
}

_SENTINEL: Final = of(ALICE, ROOT, channel=FRAME)
SENTINELS: Final[dict[str, Act]] = {
    "sentinel deleted": lambda db: db.delete("blobs", found(db, "blobs", _SENTINEL)[0]),
    "sentinel typed empty": edited("blobs", _SENTINEL, type="empty", blob=None),
    "sentinel of another thread": exchanged("blobs", _SENTINEL, of(BOB, ROOT, channel=FRAME), "type", "blob"),
    "sentinel of another namespace": exchanged(
        "blobs", _SENTINEL, of(ALICE, CHILD, channel=FRAME), "type", "blob"
    ),
    "sentinel's version edited": within(*_VERSIONS, FRAME, to="2"),
    "sentinel's version removed": within(*_VERSIONS, FRAME, drop=True),
}

# --- one sealed value ------------------------------------------------------------------------------


def sealed_alone(value: Value) -> Value:
    """A value that the serializer alone has sealed, under the same key."""
    return SEALED.dumps_typed(FORGED)


CHANGES: Final[dict[str, Callable[[Value], Value]]] = {
    ".row taken off": lambda value: (value[0].replace(".row", ""), value[1]),
    ".zst added": lambda value: (value[0].replace("256", "256.zst", 1), value[1]),
    "key id exchanged": lambda value: (value[0].replace("@k1", "@k2"), value[1]),
    "key id of none": lambda value: (value[0].replace("@k1", "@k9"), value[1]),
    "suite exchanged": lambda value: (value[0].replace("cobblestone256", "xaes256gcm"), value[1]),
    "suite of LangGraph": lambda value: (value[0].partition("+")[0] + "+aes", value[1]),
    "inner type exchanged": lambda value: ("bytes+" + value[0].partition("+")[2], value[1]),
    "inner type json": lambda value: ("json+" + value[0].partition("+")[2], value[1]),
    "inner type null": lambda value: ("null+" + value[0].partition("+")[2], value[1]),
    "tag emptied": lambda value: ("", value[1]),
    "tag of plaintext": lambda value: (value[0].partition("+")[0], value[1]),
    "typed empty": lambda value: ("empty", b""),
    "typed null": lambda value: ("null", b""),
    "plaintext": lambda value: ("msgpack", ormsgpack.packb(FORGED)),
    "plaintext json": lambda value: ("json", json.dumps(FORGED).encode()),
    "of the serializer alone": sealed_alone,
    "of the serializer alone, .row added": lambda value: (
        (sealed := sealed_alone(value))[0].replace("@", ".row@"),
        sealed[1],
    ),
    "emptied": lambda value: (value[0], b""),
    "truncated": lambda value: (value[0], value[1][:-1]),
    "last bit flipped": lambda value: (value[0], value[1][:-1] + bytes([value[1][-1] ^ 1])),
    "first bit flipped": lambda value: (value[0], bytes([value[1][0] ^ 128]) + value[1][1:]),
    "bytes appended": lambda value: (value[0], value[1] + b"x"),
}


class Holder:
    """A sealed value somewhere: reads and replaces it."""

    def __init__(self, table: str, columns: tuple[str, str], where: Row) -> None:
        self.table, self.columns, self.where = table, columns, where

    def get(self, db: Raw) -> Value:
        (row,) = found(db, self.table, self.where)
        tag, blob = (row[name] for name in self.columns)
        return tag, bytes(blob)

    def set(self, db: Raw, value: Value) -> None:
        (row,) = found(db, self.table, self.where)
        db.put(self.table, {**row, **dict(zip(self.columns, value, strict=True))})


class Framed(Holder):
    """The sealed value in metadata."""

    def __init__(self, where: Row) -> None:
        super().__init__("checkpoints", ("metadata", ""), where)

    def get(self, db: Raw) -> Value:
        frame = found(db, self.table, self.where)[0]["metadata"][FRAME]
        return frame["type"], b64decode(frame["value"])

    def set(self, db: Raw, value: Value) -> None:
        frame = {"type": value[0], "value": b64encode(value[1]).decode()}
        (row,) = found(db, self.table, self.where)
        db.put(self.table, {**row, "metadata": {**row["metadata"], FRAME: frame}})


HOLDERS: Final[dict[str, Holder]] = {
    "document": Holder("checkpoints", ("type", "checkpoint"), _TARGET),
    "frame": Framed(_TARGET),
    "write": Holder("writes", ("type", "blob"), {**_TARGET, "task_id": "task-1", "channel": "log"}),
    "interrupt": Holder("writes", ("type", "blob"), {**_TARGET, "channel": "__interrupt__"}),
    "blob": Holder("blobs", ("type", "blob"), of(ALICE, ROOT, channel="doc", version=version(2))),
    "snapshot": Holder("blobs", ("type", "blob"), of(ALICE, ROOT, channel="log", version=version(1))),
    "sentinel": Holder("blobs", ("type", "blob"), _SENTINEL),
}


def changed(holder: Holder, change: Callable[[Value], Value]) -> Act:
    return lambda db: holder.set(db, change(holder.get(db)))


def put_into(target: Holder, source: Holder) -> Act:
    return lambda db: target.set(db, source.get(db))
