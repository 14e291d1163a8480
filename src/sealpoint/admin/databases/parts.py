"""Parts of a value that was opened at a row: what is sealed in front of it, and the serializer's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sealpoint.seal.calls import Claims, split_write
from sealpoint.seal.cipher import Opened
from sealpoint.seal.items import ItemName, split_item
from sealpoint.seal.places import CHECKPOINT, ITEM, METADATA, WRITE, Coordinates
from sealpoint.seal.rows import Header, is_bound, not_sealed_part, split_header


class Parts(NamedTuple):
    """A value that was opened, taken apart: ``opened`` has the bytes of the serializer alone."""

    opened: Opened
    header: Header | None = None  # of a bound checkpoint
    claims: Claims | None = None  # of a bound write
    is_bound: bool = True
    name: ItemName | None = None  # of a bound item, if pseudonyms stand for it


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
    if kind == ITEM:
        name, data = split_item(opened.data)
        return Parts(opened._replace(data=data), name=name)
    return Parts(opened)
