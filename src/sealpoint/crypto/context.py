"""The context of a value as one function; `sealpoint.seal.context` packs its parts."""

from __future__ import annotations

from sealpoint.seal.context import PackedRow, Row, RowTemplate, pack_row, pack_tag

__all__ = ["PackedRow", "Row", "RowTemplate", "context"]


def context(tag: str, row: Row | PackedRow | None = None) -> bytes:
    """Encode the context of a value.

    Args:
        tag: The whole type tag, as in the column.
        row: Coordinates of the row. ``None`` and ``{}`` encode alike; the ``.row`` flag in the
            tag distinguishes them.

    Raises:
        TypeError: If a coordinate is not a string.
    """
    end = row if isinstance(row, PackedRow) else pack_row(row or {})
    return pack_tag(tag) + end
