"""Names in rows: whose a row is, what may stand for a name, and the time that the id of a checkpoint has."""

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

# The id of a checkpoint that LangGraph made: a UUID of version 6. Such texts sort by their times.
DATED_ID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)


def owner_of(place: Mapping[str, Any]) -> Any:
    """Return the thread of a row, by the columns of its key; of an item what names its namespace."""
    return place["thread_id"] if "thread_id" in place else f"items of {place.get('prefix')}"


def stored_ids(ring: KeyRing, thread_id: str) -> list[str]:
    """Return what may stand for a thread in a database: its id, and its pseudonym.

    Raises:
        KeyRingError: If the index key is not available; without one there are no pseudonyms.
    """
    tokens = Tokens(lambda: ring)
    return [thread_id, *([] if ring.index is None else [tokens.pseudonym(thread_id)])]


def stored_prefixes(ring: KeyRing, namespace: str) -> list[str]:
    """Return what may stand for a namespace in a database, as `stored_ids` does for a thread."""
    tokens, labels = Tokens(lambda: ring), namespace.split(".")
    pseudonyms = [] if ring.index is None else [label_pseudonym(label, tokens) for label in labels]
    return [namespace, *([".".join(pseudonyms)] if pseudonyms else [])]


def time_of(checkpoint_id: object) -> str | None:
    """Return the time that the id of a checkpoint names; ``None`` for one that LangGraph did not make."""
    if not isinstance(checkpoint_id, str) or not DATED_ID.fullmatch(checkpoint_id):
        return None
    steps = UUID(checkpoint_id).time  # 100 ns since the Gregorian reform; 60 bits, until the year 5236
    return format_utc(_GREGORIAN + timedelta(microseconds=steps // 10))


def two_histories() -> RowError:
    """Return the error for a thread of which it is not known which rows are its own."""
    return RowError(
        "the thread has rows under its id and under a pseudonym: two histories",
        hint="a process began it again without pseudonyms: delete one of them through such a saver",
    )
