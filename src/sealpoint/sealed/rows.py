"""The rule of a row: what is sealed at its place, opened, taken apart and compared.

No I/O: sync and async savers share it, and the commands that read or change whole databases. They differ in
what they do with a refusal, never in what they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sealpoint.base.place import CHECKPOINT, METADATA, WRITE, Coordinates
from sealpoint.crypto import Opened
from sealpoint.crypto.cipher import parse_tag
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import RowError, excerpt
from sealpoint.sealed.body import (
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    require_same_kind,
    require_same_metadata,
    split_claims,
    split_header,
)
from sealpoint.sealed.calls import Claims
from sealpoint.sealed.carrier import Sealed
from sealpoint.sealed.tokens import Tokens


class Parts(NamedTuple):
    """A value that was opened, taken apart: ``opened`` has the bytes of the serializer alone."""

    opened: Opened
    header: Header | None = None  # of a bound checkpoint
    claims: Claims | None = None  # of a bound write
    is_bound: bool = True

    @property
    def sealed_with(self) -> dict[str, Any] | None:
        """What is sealed in front of the bytes of the serializer, as JSON."""
        if self.claims is not None:
            return self.claims.columns | ({"call": self.claims.call_id.hex()} if self.claims.call else {})
        return dict(self.header) if self.header else None


# --- the rule -------------------------------------------------------------------------------------


def is_bound(tag: object) -> bool:
    """Whether a value is bound to its row."""
    return is_sealed(tag) and "row" in parse_tag(tag).flags


def take_apart(kind: Coordinates, tag: object, opened: Opened, names: Mapping[str, Any]) -> Parts:
    """Take apart what was opened at a row: its tag, and the columns of its key by name."""
    if not is_bound(tag):
        if kind == METADATA:
            raise not_sealed_part(names.get("checkpoint_id"))
        return Parts(opened, is_bound=False)
    if kind == WRITE:
        claims, data = split_write(names["channel"], opened.data)
        return Parts(opened._replace(data=data), claims=claims)
    if kind in (CHECKPOINT, METADATA):
        header, data = split_header(opened.data)
        return Parts(opened._replace(data=data), header)
    return Parts(opened)


def split_write(channel: str, data: bytes) -> tuple[Claims, bytes]:
    """Return the claims and the value of an authenticated write to a channel."""
    claims, value = split_claims(data)
    require_same_kind(channel, claims)
    return claims, value


def not_sealed_part(checkpoint_id: object) -> RowError:
    """Return the error for a value in metadata that no saver has sealed to its row."""
    return RowError(f"the sealed part of {excerpt(checkpoint_id)} is not one")


def require_same_row(header: Header, metadata: Mapping[str, Any], parent: object, tokens: Tokens) -> None:
    """Compare what is readable of a bound checkpoint with what was sealed; ``parent`` is its column.

    Savers set the column of the parent to NULL when they prune.
    """
    require_same_metadata(metadata, header["metadata"], tokens)
    if parent not in (None, header["parent"]):
        raise RowError("the id of the parent is not what was sealed")


def require_parts(checkpoint: Any, checkpoint_id: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the readable values and versions of a checkpoint whose values are stored apart."""
    for part in ("channel_values", "channel_versions"):
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(part), dict):
            raise RowError(f"checkpoint {excerpt(checkpoint_id)} has no {part}")
    return checkpoint["channel_values"], checkpoint["channel_versions"]


def require_never_sealed(checkpoint_id: object, *parts: Any) -> None:
    """Check that a checkpoint without a sealed part never had one: values and versions name no sentinel."""
    if any(isinstance(part, dict) and SENTINEL in part for part in parts):
        raise RowError(f"checkpoint {excerpt(checkpoint_id)} lacks its sealed part")


def channels_apart(header: Header) -> Iterator[str]:
    """Yield the channels of a bound checkpoint whose values are in rows of their own."""
    inline = header.get("inline", {})
    return (channel for channel in header.get("channels", ()) if channel not in inline)


def versions_apart(
    header: Header, document: Mapping[str, Any], readable: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the channel and version of each value in a row of its own that a bound checkpoint needs."""
    versions = {**document["channel_versions"], SENTINEL: SENTINEL_VERSION}
    for channel in (SENTINEL, *channels_apart(header)):
        version = str(versions.get(channel))
        if str(readable.get(channel)) != version:
            raise RowError(f"the row has another version for channel {excerpt(channel)} than was sealed")
        yield channel, version


def value_missing(channel: object) -> RowError:
    """Return the error for a checkpoint without one of its values."""
    return RowError(f"the value of channel {excerpt(channel)} is missing")


def restore_values(header: Header, readable: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a Postgres saver has in ``channel_values`` of a row: inline values, and marks of snapshots.

    Snapshots of delta channels are in rows of their own; that they are is readable.
    """
    marks = {channel: True for channel in channels_apart(header) if readable.get(channel) is True}
    return {**header.get("inline", {}), **marks}


def require_sealed(value: Any) -> Sealed:
    """Return what a saver's serializer gave it."""
    if type(value) is not Sealed:
        raise RowError("a value stands where a sealed one was stored")
    return value
