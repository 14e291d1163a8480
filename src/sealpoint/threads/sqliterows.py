"""Rows of a thread store in SQLite, as its statements take and return them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sealpoint.threads.specials import Special, parse_specials
from sealpoint.threads.sqliteerrors import damaged, require_row
from sealpoint.threads.store import Head, Kind, Spot


def head_of(path: Path, *values: Any) -> Head:
    """Return a head for the columns of a row."""
    thread_id, ns, checkpoint_id, kind, mac = require_row(path, values, str, str, str, int, bytes)
    if not 0 <= kind < len(Kind):
        raise damaged(path, "a row has a kind that does not exist")
    return Head(Spot(thread_id, ns, checkpoint_id), Kind(kind), mac)


def specials_of(path: Path, *found: tuple[Spot, Any]) -> list[tuple[Spot, list[Special]]]:
    """Return events of special writes, for those that have records."""
    try:
        return [(spot, parse_specials(records)) for spot, records in found if records is not None]
    except (ValueError, AttributeError, TypeError):
        raise damaged(path, "a special write is not as a thread store writes it") from None


def values_of(heads: Iterable[Head]) -> list[tuple[Any, ...]]:
    """Return the columns of heads that are appended now."""
    now = int(time.time())
    # sqlite3 searches for an adapter of each value that is bytes, and not of a bytearray.
    return [(*spot, int(kind), bytearray(mac), now, int(kind is Kind.DELETED)) for spot, kind, mac in heads]
