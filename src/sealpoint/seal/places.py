"""Places: the rows that values with the flag ``.row`` are bound to, and the frames that hold them in JSON.

Coordinates are a part of the value's context. They are logical names, the same for every kind of database,
whatever its tables are called. All are text. The coordinates of a sealed value never change.

    checkpoint   table=checkpoints column=checkpoint thread_id checkpoint_ns checkpoint_id
    metadata     table=checkpoints column=metadata   thread_id checkpoint_ns checkpoint_id
    value        table=values                        thread_id checkpoint_ns channel version
    write        table=writes                        thread_id checkpoint_ns checkpoint_id task_id channel
    item         table=store                         prefix key
    cached       table=cache                         namespace key

A frame is a sealed value and its tag in a JSON object with readable keys: metadata, or an item's value.

    {"source": "loop", "step": 1, "__sealpoint__": {"type": "<tag>", "value": "<base64>"}}

The value is bound to its row. Only sealed values are written as frames.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sealpoint.errors import ConfigError, RowError
from sealpoint.seal.context import Row
from sealpoint.seal.jsontext import is_unicode
from sealpoint.seal.tag import is_legacy, is_sealed


class Spot(NamedTuple):
    """The row of a checkpoint: its primary key in the database.

    Attributes:
        thread_id: The content of the column: the thread id, or its pseudonym.
        checkpoint_ns: Namespace of the checkpoint.
        checkpoint_id: Id of the checkpoint.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


def require_unicode(name: str, text: Any) -> str:
    """Return ``text``; refuse other types, and lone surrogates, which databases cannot store."""
    if type(text) is str and text.isascii():  # nearly always
        return text
    if not isinstance(text, str):
        raise ConfigError(f"{name} is {type(text).__name__}; it is a string")
    if not is_unicode(text):
        raise ConfigError(f"{name} holds a lone surrogate, which is not a character")
    return text


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The names of the coordinates of one kind of value, such as a pending write."""

    kind: tuple[tuple[str, str], ...]  # names and texts that all values of this kind share
    columns: tuple[str, ...]  # of the row, which complete them

    def row(self, columns: Mapping[str, Any]) -> Row:
        """Return the coordinates of the value in ``row``, a row by column; other columns are ignored."""
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


KEY: Final = "__sealpoint__"  # name of the JSON member that holds a frame


def read_frame(frame: Any) -> tuple[str | None, bytes | None]:
    """Return the tag and the bytes of the sealed value in a frame; each is ``None`` if it is invalid."""
    if not isinstance(frame, dict):
        return None, None
    tag, text = frame.get("type"), frame.get("value")
    # LangGraph's own cipher binds no context: such a value may have been copied from any row.
    return tag if is_sealed(tag) and not is_legacy(tag) else None, decode_value(text)


def make_frame(tag: str, value: bytes) -> dict[str, str]:
    """Return the frame of a sealed value: the JSON object to store under ``__sealpoint__``."""
    return {"type": tag, "value": encode_value(value)}


def encode_value(value: bytes) -> str:
    """Return the base64 text for the bytes in a frame."""
    return b64encode(value).decode()


def decode_value(text: Any) -> bytes | None:
    """Return the bytes of the base64 text in a frame; ``None`` if the text is not canonical base64.

    Only one text is accepted for the same bytes. b64decode would accept more: it ignores other characters
    unless ``validate`` is on, and always ignores the unused bits of the last character.
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


# Pickles and messages name the class by its former module.
Spot.__module__ = "sealpoint.threads.store"
