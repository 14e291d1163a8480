"""Status: counts values by key and protection, from their type tags. Opens no value and needs no key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.rows import RowStore, TagCount
from sealpoint.admin.results.tags import Kind, classify
from sealpoint.errors import SealpointError, excerpt
from sealpoint.keys.entry import RingEntry
from sealpoint.seal.keys import LEGACY
from sealpoint.seal.tag import PICKLE, READABLE, Tag

# Tags are untrusted: an attacker who can write to the database can name any number of keys and types.
MAX_KEYS: Final = 100
MAX_TYPES: Final = 5
UNKNOWN_STATE: Final = "not in the ring"


@dataclass(frozen=True, slots=True)
class Share:
    """A group of values in one column with the same protection.

    Attributes:
        table: Label of the column: the table's name, or ``checkpoints.metadata``.
        kind: Whether the values are sealed, plaintext, legacy, or have an unknown tag.
        suite: Encryption suite; ``None`` if the values are not sealed.
        flags: Flags in the tags, such as ``row``.
        key_id: Id of the key; ``None`` in the group of all keys beyond `MAX_KEYS`.
        state: State of the key in the ring; ``None`` without a ring or a key.
        rows: Number of values.
        size_bytes: Stored size of the values.
        types: Types inside of the tags, such as ``msgpack``, escaped, most frequent first; for ``unknown``,
            whole tags.
        tags: Number of different type tags of the values.
    """

    table: str
    kind: Kind
    suite: str | None
    flags: tuple[str, ...]
    key_id: str | None
    state: str | None
    rows: int
    size_bytes: int
    types: tuple[str, ...]
    tags: int

    @property
    def is_plain_item(self) -> bool:
        """Whether the values are unsealed items of LangGraph's Store."""
        return self.table == ITEMS.label and self.kind is Kind.PLAINTEXT

    @property
    def is_skipped(self) -> bool:
        """Whether rotation skips these values, as they are unauthenticated and their type cannot be checked.

        Rotation skips either all values of a share or none.
        """
        return _is_skipped(self.kind, self.types[0])


def _is_skipped(kind: Kind, inner: str) -> bool:
    return kind in (Kind.PLAINTEXT, Kind.LEGACY) and inner not in READABLE


def status(
    store: RowStore,
    entries: Sequence[RingEntry] | None = None,
    damage: list[SealpointError] | None = None,
    more: Sequence[TagCount] = (),
) -> list[Share]:
    """Count the values of each column by key and protection.

    Args:
        store: A database.
        entries: The keys listed in a ring file; the result then contains their states.
        damage: List that receives the errors of damaged parts, see `RowStore.count`; if ``None``, errors are
            raised.
        more: Counts of values in other tables, such as those from `RowStore.cached`.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint.admin.maintenance import SqliteRows
        >>> from sealpoint.admin.maintenance.status import status
        >>> with closing(SqliteRows("agent.db")) as store:
        ...     print({share.key_id for share in status(store)})
        {'k1'}
    """
    shares = _bounded([_share(members) for members in _grouped([*store.count(damage), *more])])
    if entries is None:
        return shares
    # Legacy rows name no key: their key is looked up by the empty id.
    states = {"" if entry.suite == LEGACY else entry.id: entry.state.value for entry in entries}
    return [
        share if share.suite is None else replace(share, state=states.get(share.key_id or "", UNKNOWN_STATE))
        for share in shares
    ]


def _grouped(counts: Iterable[TagCount]) -> Iterable[list[tuple[TagCount, Kind, Tag | None]]]:
    groups: dict[tuple[Any, ...], list[tuple[TagCount, Kind, Tag | None]]] = {}
    for count in counts:
        kind, tag = classify(count.tag)
        protection = (tag.suite, tag.flags, tag.key_id) if tag and kind is not Kind.PLAINTEXT else ()
        inner = tag.inner if tag else ""
        # `Share.is_skipped` reads only the first type, so skipped types and others are separate groups.
        apart = _is_skipped(kind, inner) and (inner == PICKLE or "other")
        groups.setdefault((count.table, kind, *protection, apart), []).append((count, kind, tag))
    return groups.values()


def _share(members: list[tuple[TagCount, Kind, Tag | None]]) -> Share:
    members.sort(key=lambda member: -member[0].rows)
    (first, kind, tag) = members[0]
    sealed = tag if kind in (Kind.SEALED, Kind.LEGACY) else None
    return Share(
        table=first.table,
        kind=kind,
        suite=sealed.suite if sealed else None,
        flags=sealed.flags if sealed else (),
        key_id=sealed.key_id if sealed else None,
        state=None,
        rows=sum(count.rows for count, _, _ in members),
        size_bytes=sum(count.size_bytes for count, _, _ in members),
        types=tuple(parts.inner if parts else excerpt(count.tag) for count, _, parts in members[:MAX_TYPES]),
        tags=len(members),
    )


def _bounded(shares: list[Share]) -> list[Share]:
    """Keep the shares of the `MAX_KEYS` most frequent keys of each column, and sum up the rest."""
    bounded, sealed = list[Share](), defaultdict[str, list[Share]](list)
    for share in sorted(shares, key=lambda share: -share.rows):
        (sealed[share.table] if share.kind is Kind.SEALED else bounded).append(share)
    for own in sealed.values():
        bounded += own[:MAX_KEYS]
        if others := own[MAX_KEYS:]:
            bounded.append(
                replace(
                    others[0],
                    suite=None,
                    flags=(),
                    key_id=None,
                    state=None,
                    rows=sum(share.rows for share in others),
                    size_bytes=sum(share.size_bytes for share in others),
                    tags=sum(share.tags for share in others),
                )
            )
    return sorted(bounded, key=lambda share: (share.table, -share.rows))
