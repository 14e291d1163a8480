"""Places: what a config names, and what a value with the flag ``.row`` is bound to there.

Coordinates are a part of the value's context. They are logical: the same for every kind of database and its
names of tables. All are text. After a value has been sealed with them, they never change.

    checkpoint   table=checkpoints column=checkpoint thread_id checkpoint_ns checkpoint_id
    metadata     table=checkpoints column=metadata   thread_id checkpoint_ns checkpoint_id
    value        table=values                        thread_id checkpoint_ns channel version
    write        table=writes                        thread_id checkpoint_ns checkpoint_id task_id channel
    item         table=store                         prefix key
    cached       table=cache                         namespace key

A frame is a sealed value and its tag in a JSON object with readable keys: metadata, or an item's value.

    {"source": "loop", "step": 1, "__sealpoint__": {"type": "<tag>", "value": "<base64>"}}

The value is bound to its row. A frame that is not sealed under a key is never written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from sealpoint.base.checkpoint import RunnableConfig
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.context import Row
from sealpoint.crypto.tag import is_legacy, is_sealed
from sealpoint.errors import ConfigError, ConfigKeyError, MetadataError, RowError
from sealpoint.serde.jsontext import is_unicode

_MAPPINGS: Final = (dict, Mapping)  # to ask for the second takes ten times as long
_THREAD_IDS: Final = (str, int, UUID)


class Place(NamedTuple):
    """Where a config points: columns of a row. No ``checkpoint_id`` means the latest."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None

    def config(self, more: Mapping[str, Any] | None = None) -> RunnableConfig:
        """Return a config that names this place, with ``more`` in its ``configurable``."""
        configurable = {**(more or {}), "thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}
        if self.checkpoint_id:
            configurable["checkpoint_id"] = self.checkpoint_id
        return {"configurable": configurable}


# What `Place(...)` does, without the call of its Python constructor.
_place: Final[Callable[[tuple[Any, ...]], Place]] = partial(tuple.__new__, Place)


def require_thread_id(value: object) -> str:
    """Return a thread id as text; a string, an integer or a UUID is one."""
    if type(value) is str and value.isascii():  # nearly always
        return value
    if not isinstance(value, _THREAD_IDS) or isinstance(value, bool):
        raise ConfigError(f"thread_id is {type(value).__name__}; it is a string, an integer or a UUID")
    return require_unicode("thread_id", str(value))


def require_unicode(name: str, text: Any) -> str:
    """Return ``text``, if it is text that a database can hold: none has a form for lone surrogates."""
    if type(text) is str and text.isascii():  # nearly always
        return text
    if not isinstance(text, str):
        raise ConfigError(f"{name} is {type(text).__name__}; it is a string")
    if not is_unicode(text):
        raise ConfigError(f"{name} holds a lone surrogate, which is not a character")
    return text


def require_channels(channels: Collection[Any], *task: Any) -> None:
    """Check the names of channels, and of a task its id and its path, which stand in columns of their own."""
    with suppress(TypeError):
        if "".join((*task, *channels)).isascii():  # nearly always
            return
    for name, text in zip(("task_id", "task_path"), task, strict=False):
        require_unicode(name, text)
    for channel in channels:
        require_unicode("the name of a channel", channel)


def optional_text(configurable: Mapping[str, Any], name: str) -> str | None:
    """Return the text of an optional item of ``configurable``."""
    value = configurable.get(name)
    return None if value is None else require_unicode(name, value)


def configurable_of(config: RunnableConfig) -> Mapping[str, Any]:
    """Return the ``configurable`` of a config."""
    if not isinstance(config, _MAPPINGS) or not isinstance(config.get("configurable"), _MAPPINGS):
        raise ConfigKeyError("the config has no 'configurable' with a 'thread_id'")
    return config["configurable"]


def require_place(config: RunnableConfig, *needed: str) -> Place:
    """Return where ``config`` points; it must name a thread, and what is ``needed``."""
    if type(config) is dict and type(found := config.get("configurable")) is dict:
        get = found.get
        place = thread_id, ns, checkpoint_id = get("thread_id"), get("checkpoint_ns"), get("checkpoint_id")
        # Nearly always plain ASCII text: what follows takes seven calls.
        if type(thread_id) is str and type(ns) is str and thread_id.isascii() and ns.isascii():
            if type(checkpoint_id) is str and checkpoint_id.isascii():
                return _place(place)
            if checkpoint_id is None and "checkpoint_id" not in needed:
                return _place(place)
    configurable = configurable_of(config)
    for name in ("thread_id", *needed):
        if name not in configurable:
            raise ConfigKeyError(f"the config has no {name!r} in 'configurable'")
    return Place(
        require_thread_id(configurable["thread_id"]),
        optional_text(configurable, "checkpoint_ns") or "",
        optional_text(configurable, "checkpoint_id"),
    )


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The coordinates of one kind of value."""

    kind: tuple[tuple[str, str], ...]  # names and texts that all values of this kind share
    columns: tuple[str, ...]  # of the row, which complete them

    def row(self, columns: Mapping[str, Any]) -> Row:
        """Return the coordinates of one value; additional columns of its row are ignored."""
        row = dict(self.kind)
        for name in self.columns:
            text = columns.get(name)
            if not isinstance(text, str):
                raise RowError(f"column {name!r} of {row['table']!r} is missing or does not hold text")
            row[name] = text
        return row


_THREAD: Final = ("thread_id", "checkpoint_ns")
_CHECKPOINT: Final = (*_THREAD, "checkpoint_id")

CHECKPOINT: Final = Coordinates((("table", "checkpoints"), ("column", "checkpoint")), _CHECKPOINT)
METADATA: Final = Coordinates((("table", "checkpoints"), ("column", "metadata")), _CHECKPOINT)
VALUE: Final = Coordinates((("table", "values"),), (*_THREAD, "channel", "version"))
WRITE: Final = Coordinates((("table", "writes"),), (*_CHECKPOINT, "task_id", "channel"))
ITEM: Final = Coordinates((("table", "store"),), ("prefix", "key"))  # of LangGraph's Store
CACHED: Final = Coordinates((("table", "cache"),), ("namespace", "key"))  # of its caches


KEY: Final = "__sealpoint__"  # the key of a frame

_QUOTED: Final = f'"{KEY}"'.encode()
_ESCAPE: Final = rb"\u00"  # of each ASCII character


def has_frame(metadata: bytes | str | None) -> bool:
    """Whether there is a frame in a metadata column.

    Metadata is parsed only if it holds `KEY` in quotation marks, or an escape that may stand for one of its
    characters. What holds `KEY` and is not strict JSON counts as a frame.
    """
    if not isinstance(metadata, bytes | str):
        return False
    data = metadata.encode("utf-8", "replace") if isinstance(metadata, str) else metadata
    has_key = _QUOTED in data
    if not has_key and _ESCAPE not in data:
        return False
    try:
        return KEY in decode_metadata(data)
    except MetadataError:
        return has_key


def read_frame(frame: Any) -> tuple[str | None, bytes | None]:
    """Return what is in the content of `KEY`: the tag of a sealed value, if it is valid, and its bytes."""
    if not isinstance(frame, dict):
        return None, None
    tag, text = frame.get("type"), frame.get("value")
    # LangGraph's own cipher binds no context: such a value may have been copied from any row.
    return tag if is_sealed(tag) and not is_legacy(tag) else None, decode_value(text)


def make_frame(tag: str, value: bytes) -> dict[str, str]:
    """Return the content of `KEY` for a sealed value."""
    return {"type": tag, "value": encode_value(value)}


def encode_value(value: bytes) -> str:
    """Return the text of a frame's value."""
    return b64encode(value).decode()


def decode_value(text: Any) -> bytes | None:
    """Return the bytes of a frame's value; ``None`` if it is not canonical base64.

    Each value has one text: b64decode ignores other characters without ``validate``, and the unused bits of
    the last character always.
    """
    if not isinstance(text, str):
        return None
    try:
        value = b64decode(text, validate=True)
    except ValueError:
        return None
    rest = len(value) % 3
    is_canonical = not rest or text.endswith(encode_value(value[-rest:]))
    # Python 3.11 ignores padding that is not needed.
    return value if is_canonical and len(text) == (len(value) + 2) // 3 * 4 else None
