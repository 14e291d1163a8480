"""Names in rows: the owner of a row, the pseudonym of a name, and the time in a checkpoint id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sealpoint.base.checkpoint import UUID
from sealpoint.errors import RowError
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.items import label_pseudonym
from sealpoint.seal.tokens import Tokens
from sealpoint.utc import format_utc

# A checkpoint id made by LangGraph: a UUID of version 6, whose text sorts by time.
DATED_ID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)


def owner_of(place: Mapping[str, Any]) -> Any:
    """Return the thread id of a row; for an item, a text with its namespace."""
    return place["thread_id"] if "thread_id" in place else f"items of {place.get('prefix')}"


def stored_ids(ring: KeyRing, thread_id: str) -> list[str]:
    """Return the texts that ``thread_id`` columns may have for a thread: its id, and its pseudonym.

    Raises:
        KeyRingError: If the material of the index key, which makes pseudonyms, is not available.
    """
    tokens = Tokens(lambda: ring)
    return [thread_id, *([] if ring.index is None else [tokens.pseudonym(thread_id)])]


def stored_prefixes(ring: KeyRing, namespace: str) -> list[str]:
    """Return the texts that ``prefix`` columns may have for a namespace: its name, and its pseudonym."""
    tokens, labels = Tokens(lambda: ring), namespace.split(".")
    pseudonyms = [] if ring.index is None else [label_pseudonym(label, tokens) for label in labels]
    return [namespace, *([".".join(pseudonyms)] if pseudonyms else [])]


def time_of(checkpoint_id: object) -> str | None:
    """Return the time in a checkpoint id; ``None`` for an id not made by LangGraph."""
    if not isinstance(checkpoint_id, str) or not DATED_ID.fullmatch(checkpoint_id):
        return None
    steps = UUID(checkpoint_id).time  # 100 ns since the Gregorian reform; 60 bits, until the year 5236
    return format_utc(_GREGORIAN + timedelta(microseconds=steps // 10))


def two_histories() -> RowError:
    """Return the error for a thread with rows under both its id and its pseudonym."""
    return RowError(
        "the thread has rows under its id and under a pseudonym: two histories",
        hint="a process wrote without pseudonyms: delete one of the histories by a saver without pseudonyms",
    )
