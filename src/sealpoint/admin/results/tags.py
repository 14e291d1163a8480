"""What a type tag says of a value: its kind, its key's id, and whether it is bound to its row.

No function here needs a key: all read only the text of a column ``type``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sealpoint.errors import TagError
from sealpoint.seal.keys import LEGACY
from sealpoint.seal.tag import BOUND_MARK, LEGACY_END, PICKLE, READABLE, SEALED_MARK, Tag, is_sealed

KINDS: Final = READABLE | {PICKLE}


class Kind(StrEnum):
    """How a value is protected, according to its `type` column."""

    SEALED = "sealed"
    LEGACY = "legacy"
    PLAINTEXT = "plaintext"
    UNKNOWN = "unknown"


def classify(tag: object) -> tuple[Kind, Tag | None]:
    """Return the kind of a value, and the parts of its tag: for ``plaintext``, only `Tag.inner` is valid.

    A tag that this release cannot parse, or that is not text, is ``unknown``.
    """
    if not isinstance(tag, str) or not tag or tag.startswith(SEALED_MARK):
        return Kind.UNKNOWN, None
    try:
        if not is_sealed(tag):
            return Kind.PLAINTEXT, Tag.parse(f"{tag}{LEGACY_END}")  # checks the inner type
        parsed = Tag.parse(tag)
    except TagError:
        return Kind.UNKNOWN, None
    return (Kind.LEGACY if parsed.suite == LEGACY else Kind.SEALED), parsed


# The functions below look at single characters only: they also accept tags that `Tag.parse` refuses, and
# the row stores do the same in SQL.


def key_end(key_id: str) -> str:
    """Return the text with which every tag of values under a key ends."""
    # Includes the '@', because an id may be the end of another.
    return f"@{key_id}"


def is_under(tag: object, key_id: str | None) -> bool:
    """Return whether a tag names a key; a ``key_id`` of ``None`` stands for LANGGRAPH_AES_KEY."""
    return is_sealed(tag) and tag.endswith(LEGACY_END if key_id is None else key_end(key_id))


def is_marked_bound(tag: object) -> bool:
    """Return whether a tag, if it is valid, says that its value is bound to its row."""
    return isinstance(tag, str) and BOUND_MARK in tag.partition(SEALED_MARK)[2]


def key_id_of(tag: object) -> str | None:
    """Return the id of the key that a tag names; ``None`` if the tag names no key."""
    _, found, key_id = tag.rpartition("@") if is_sealed(tag) else ("", "", "")
    return key_id if found else None
