"""Frames: a sealed value and its tag in a metadata column, beside readable keys.

    {"source": "loop", "step": 1, "__sealpoint__": {"type": "<tag>", "value": "<base64>"}}

The value is bound to its row. A frame that is not sealed under a key is never written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any, Final, NamedTuple

from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.tag import is_legacy, is_sealed
from sealpoint.errors import MetadataError

KEY: Final = "__sealpoint__"
"""The key of a frame in metadata."""

_QUOTED: Final = f'"{KEY}"'.encode()
_ESCAPE: Final = rb"\u00"  # of each ASCII character


class Frame(NamedTuple):
    """The content of `KEY`.

    Attributes:
        tag: The tag of the sealed value; ``None`` if there is no valid one.
        value: The sealed bytes; ``None`` if there are none.
    """

    tag: str | None
    value: bytes | None


def has_frame(metadata: bytes | str | None) -> bool:
    """Whether there is a frame in a metadata column."""
    return find_frame(metadata) is not None


def find_frame(metadata: bytes | str | None) -> Frame | None:
    """Return the frame in a metadata column; ``None`` if there is none.

    Metadata is parsed only if it holds `KEY` in quotation marks, or an escape that may stand for one of its
    characters. What holds `KEY` and is not strict JSON counts as a frame without tag and value.
    """
    if not isinstance(metadata, bytes | str):
        return None
    data = metadata.encode("utf-8", "replace") if isinstance(metadata, str) else metadata
    has_key = _QUOTED in data
    if not has_key and _ESCAPE not in data:
        return None
    try:
        document: dict[str, Any] = dict(decode_metadata(data))
    except MetadataError:
        return Frame(None, None) if has_key else None
    if KEY not in document:
        return None
    return read_frame(document[KEY])


def read_frame(frame: Any) -> Frame:
    """Return what is in the content of `KEY`."""
    if not isinstance(frame, dict):
        return Frame(None, None)
    tag, text = frame.get("type"), frame.get("value")
    # LangGraph's own cipher binds no context: such a value may have been copied from any row.
    return Frame(tag if is_sealed(tag) and not is_legacy(tag) else None, decode_value(text))


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
    except (Base64Error, ValueError):
        return None
    rest = len(value) % 3
    is_canonical = not rest or text.endswith(encode_value(value[-rest:]))
    return value if is_canonical else None


def make_frame(tag: str, value: bytes) -> dict[str, str]:
    """Return the content of `KEY` for a sealed value."""
    return {"type": tag, "value": encode_value(value)}
