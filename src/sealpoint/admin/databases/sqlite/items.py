"""Items of LangGraph's Store in a SQLite file: values and tags in JSON, which is parsed here and not in SQL.

Of a key that occurs twice, SQLite's functions return the first value; they accept JSON5 and JSONB, and differ
between releases. Counts, selections and reads all use one parser, which refuses what can be read in two ways.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sealpoint.admin.databases.cells import Cell, Column, Where, unframe
from sealpoint.errors import RowError
from sealpoint.seal.places import KEY, make_frame
from sealpoint.serde.jsontext import parse_item

_FIELDS: Final = "fields"  # of `Where.beside`, which is no column


@dataclass(frozen=True, slots=True)
class ItemAccess:
    """How items are found, read and replaced; the locator of a cell has the row id and what is stored."""

    column: Column
    is_whole: bool = False  # whether the cells are whole rows

    # Includes the key: SQLite may reuse the row id of a deleted row.
    replace = (
        "main.store NOT INDEXED SET value = ? WHERE rowid = ? AND value IS ? AND prefix IS ? AND key IS ?"
    )

    @property
    def _beside(self) -> list[str]:
        return [name for name in self.column.beside if name != _FIELDS]

    @property
    def read(self) -> str:
        """After SELECT: the key, the columns beside, the value, the row id."""
        return ", ".join((*self.column.key, *self._beside, self.column.name, "rowid"))

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for prefix, key, *others, stored, row_id in rows:
            beside = dict(zip(self._beside, others, strict=True))
            tag, value, fields = unframe(stored)
            if _FIELDS in self.column.beside:
                beside[_FIELDS] = _to_json(fields)
            if self.is_whole:
                beside["value"] = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
            yield Cell(value, tag, Where(self.column, (prefix, key), (row_id, stored), beside))

    def replacement(self, cell: Cell, tag: str, value: bytes, *more: Any) -> tuple[Any, ...]:
        """Return the parameters that replace an item if it is unchanged since it was read.

        It keeps the storage class: LangGraph stores a BLOB in this column of text.
        """
        row_id, stored = cell.where.locator
        if self.is_whole:
            *_, document = more
        else:
            found = parse_item(stored)
            if KEY not in found:  # its fields would stay readable beside the frame
                raise RowError("an item that is not sealed is replaced as a whole row only")
            document = _to_json({**found, KEY: make_frame(tag, value)})
        return document if isinstance(stored, str) else document.encode(), row_id, stored, *cell.where.key


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
