"""Status: what is sealed under what, told from the tags alone. No value is read, no key is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from sealpoint.crypto import Tag
from sealpoint.databases.rows import RowStore, TagCount
from sealpoint.errors import TagError, excerpt
from sealpoint.keys.ids import LEGACY
from sealpoint.serde.kinds import PICKLE, READABLE

if TYPE_CHECKING:
    from sealpoint.keys.entry import RingEntry

MAX_KEYS: Final = 100
MAX_TYPES: Final = 5
UNKNOWN_STATE: Final = "not in the ring"


class Kind(StrEnum):
    """What a tag says of its value."""

    SEALED = "sealed"
    LEGACY = "legacy"
    PLAINTEXT = "plaintext"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """Values of one table that are protected in the same way.

    Attributes:
        table: Where they stand.
        kind: ``sealed``; ``legacy`` under LANGGRAPH_AES_KEY; ``plaintext``; ``unknown`` if the tag is
            none that this release knows.
        suite: What they are sealed in, if they are.
        flags: Of their tags, e.g. ``row``.
        key_id: What they are sealed under. ``None`` in the share that sums up the keys beyond `MAX_KEYS`.
        state: What the ring says of that key; ``None`` if there is no ring to ask, or no key.
        rows: How many there are.
        size_bytes: How many bytes they have.
        types: What the serializer called them, escaped, the commonest first; of ``unknown`` the whole tags.
        tags: How many different tags they have.
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
    def is_skipped(self) -> bool:
        """Whether no rotation takes these values: nothing vouches for them, and their types are not checked.

        Such values never share with others.
        """
        return _stays(self.kind, self.types[0])

    @property
    def is_pickle(self) -> bool:
        """Whether these values stay because they are pickles, which run when they are read."""
        return self.is_skipped and self.types[0] == PICKLE


def _stays(kind: Kind, inner: str) -> bool:
    return kind in (Kind.PLAINTEXT, Kind.LEGACY) and inner not in READABLE


def status(store: RowStore, entries: Sequence[RingEntry] | None = None) -> list[Share]:
    """Return how many values of each table are sealed under what, and how many are not.

    Args:
        store: A database.
        entries: What the ring says about its keys, see `read_ring_entries`; ``None`` without a ring.
    """
    return with_states(_bounded([_share(members) for members in _grouped(store.count())]), entries)


def with_states(shares: Iterable[Share], entries: Sequence[RingEntry] | None) -> list[Share]:
    """Return shares with what the ring says of their keys."""
    if entries is None:
        return list(shares)
    # The key of legacy rows, which name none, stands under the empty one.
    states = {"" if entry.suite == LEGACY else entry.id: entry.state.value for entry in entries}
    return [
        share if share.suite is None else replace(share, state=states.get(share.key_id or "", UNKNOWN_STATE))
        for share in shares
    ]


def classify(tag: Any) -> tuple[Kind, Tag | None]:
    """Return what a `type` column says of its value, and its parts if there are any."""
    if not isinstance(tag, str) or not tag or tag.startswith("+"):
        return Kind.UNKNOWN, None
    try:
        if "+" not in tag:
            return Kind.PLAINTEXT, Tag.parse(f"{tag}+{LEGACY}")  # for the rule of what may stand before a '+'
        parsed = Tag.parse(tag)
    except TagError:
        return Kind.UNKNOWN, None
    return (Kind.LEGACY if parsed.suite == LEGACY else Kind.SEALED), parsed


def _grouped(counts: Iterable[TagCount]) -> Iterable[list[tuple[TagCount, Kind, Tag | None]]]:
    groups: dict[tuple[Any, ...], list[tuple[TagCount, Kind, Tag | None]]] = {}
    for count in counts:
        kind, tag = classify(count.tag)
        protection = (tag.suite, tag.flags, tag.key_id) if tag and kind is not Kind.PLAINTEXT else ()
        inner = tag.inner if tag else ""
        apart = _stays(kind, inner) and (inner == PICKLE or "other")
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
    """Keep the shares of the `MAX_KEYS` commonest keys of each table, and sum up the others."""
    shares = sorted(shares, key=lambda share: -share.rows)
    bounded: list[Share] = []
    for table in sorted({share.table for share in shares}):
        own = [share for share in shares if share.table == table]
        sealed = [share for share in own if share.kind is Kind.SEALED]
        bounded += [share for share in own if share.kind is not Kind.SEALED]
        bounded += sealed[:MAX_KEYS]
        if len(sealed) > MAX_KEYS:
            bounded.append(_sum(sealed[MAX_KEYS:]))
    return sorted(bounded, key=lambda share: (share.table, -share.rows))


def _sum(shares: list[Share]) -> Share:
    return replace(
        shares[0],
        suite=None,
        flags=(),
        key_id=None,
        state=None,
        rows=sum(share.rows for share in shares),
        size_bytes=sum(share.size_bytes for share in shares),
        tags=sum(share.tags for share in shares),
    )
