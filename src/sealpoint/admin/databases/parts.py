"""Parts of an opened value: the serializer's bytes, and what `SealedSaver` put in front of these bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sealpoint.seal.calls import Claims, split_write
from sealpoint.seal.cipher import Opened
from sealpoint.seal.items import ItemName, split_item
from sealpoint.seal.places import CHECKPOINT, ITEM, METADATA, WRITE, Coordinates
from sealpoint.seal.rows import Header, is_bound, not_sealed_part, split_header


class Parts(NamedTuple):
    """An opened value, split into parts: ``opened`` has only the bytes of the serializer."""

    opened: Opened
    header: Header | None = None  # of a bound checkpoint
    claims: Claims | None = None  # of a bound write
    is_bound: bool = True
    name: ItemName | None = None  # of a bound item under pseudonyms: its real name


def take_apart(kind: Coordinates, tag: object, opened: Opened, names: Mapping[str, Any]) -> Parts:
    """Split an opened value into parts; ``tag`` is its type tag, ``names`` has the key columns of its row."""
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
    if kind == ITEM:
        name, data = split_item(opened.data)
        return Parts(opened._replace(data=data), name=name)
    return Parts(opened)
