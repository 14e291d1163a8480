"""Places: the rows that values with the flag ``.row`` are bound to, and the frames that hold them in JSON.

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
        thread_id: The thread, as the database names it: perhaps a pseudonym.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


def require_unicode(name: str, text: Any) -> str:
    """Return ``text``, if it is text that a database can hold: none has a form for lone surrogates."""
    if type(text) is str and text.isascii():  # nearly always
        return text
    if not isinstance(text, str):
        raise ConfigError(f"{name} is {type(text).__name__}; it is a string")
    if not is_unicode(text):
        raise ConfigError(f"{name} holds a lone surrogate, which is not a character")
    return text


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


# Pickles and messages name it by its former module.
Spot.__module__ = "sealpoint.threads.store"
