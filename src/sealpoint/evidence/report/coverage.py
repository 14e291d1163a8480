"""Coverage: how many values each table has under each key; by their tags, and as they were opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sealpoint.crypto.tag import Kind
from sealpoint.keys.ids import LEGACY
from sealpoint.maintenance.status import Share


def key_of(share: Share) -> str | None:
    """Return the key that values name: ``aes`` for LANGGRAPH_AES_KEY, ``None`` if they name none."""
    return LEGACY if share.kind is Kind.LEGACY else share.key_id


def coverage(shares: Iterable[Share], opened: Mapping[tuple[str, str], int] | None) -> list[dict[str, Any]]:
    """Return the rows of the table, largest first within each column.

    Args:
        shares: What the tags say, see `status`.
        opened: How many values opened by column and key, see `Verification`; ``None`` if none was to.
    """
    groups = dict[tuple[str, str, str | None], list[Share]]()
    for share in shares:
        groups.setdefault((share.table, share.kind.value, key_of(share)), []).append(share)
    rows = [_row(*group, members, opened) for group, members in groups.items()]
    return sorted(rows, key=lambda row: (row["table"], -row["rows"], row["key"] or ""))


def _row(
    table: str,
    kind: str,
    key_id: str | None,
    members: list[Share],
    opened: Mapping[tuple[str, str], int] | None,
) -> dict[str, Any]:
    suites = {".".join((share.suite, *share.flags)) for share in members if share.suite is not None}
    return {
        "table": table,
        "kind": kind,
        "key": key_id,
        # `status` counts keys beyond its limit together.
        "other_keys": kind == Kind.SEALED.value and key_id is None,
        "state": members[0].state,
        "suites": sorted(suites),
        "rows": sum(share.rows for share in members),
        "size_bytes": sum(share.size_bytes for share in members),
        # Values under LANGGRAPH_AES_KEY do not authenticate their types, and are not counted as opened.
        "opened": None if opened is None or key_id == LEGACY else opened.get((table, key_id or ""), 0),
    }
