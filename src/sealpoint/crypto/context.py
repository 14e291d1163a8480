"""Computes the context of a value in one call; `sealpoint.seal.context` packs the parts of a context."""

from __future__ import annotations

from sealpoint.seal.context import PackedRow, Row, RowTemplate, pack_row, pack_tag

__all__ = ["PackedRow", "Row", "RowTemplate", "context"]


def context(tag: str, row: Row | PackedRow | None = None) -> bytes:
    """Encode the context of a value.

    Args:
        tag: The whole type tag, as in the column.
        row: Coordinates of the row. ``None`` and ``{}`` give the same bytes; the flag ``.row`` in the tag
            distinguishes them.

    Raises:
        TypeError: If a coordinate is not a string.
    """
    end = row if isinstance(row, PackedRow) else pack_row(row or {})
    return pack_tag(tag) + end
