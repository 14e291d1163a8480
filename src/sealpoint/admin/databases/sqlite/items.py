"""Items of LangGraph's Store in a SQLite file: values and tags are in JSON, which SQL does not parse.

SQLite's JSON functions return the first value of a duplicate key, accept JSON5 and JSONB, and differ between
releases. So counts, selections and reads all use one parser, which refuses ambiguous JSON.
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

_FIELDS: Final = "fields"  # name in `Where.beside`, not a column


@dataclass(frozen=True, slots=True)
class ItemAccess:
    """SQL to find, read and replace items; the locator of a cell is the row id and the stored JSON."""

    column: Column
    is_whole: bool = False  # whether the cells are whole rows

    # Compares the key, too: SQLite may reuse the row id of a deleted row.
    replace = (
        "main.store NOT INDEXED SET value = ? WHERE rowid = ? AND value IS ? AND prefix IS ? AND key IS ?"
    )

    @property
    def _beside(self) -> list[str]:
        return [name for name in self.column.beside if name != _FIELDS]

    @property
    def read(self) -> str:
        """Columns after SELECT: key, other columns, value, row id."""
        return ", ".join((*self.column.key, *self._beside, self.column.name, "rowid"))

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield each row of the result of a SELECT as a cell."""
        for prefix, key, *others, stored, row_id in rows:
            beside = dict(zip(self._beside, others, strict=True))
            tag, value, fields = unframe(stored)
            if _FIELDS in self.column.beside:
                beside[_FIELDS] = _to_json(fields)
            if self.is_whole:
                beside["value"] = stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored
            yield Cell(value, tag, Where(self.column, (prefix, key), (row_id, stored), beside))

    def replacement(self, cell: Cell, tag: str, value: bytes, *more: Any) -> tuple[Any, ...]:
        """Return the parameters to replace an item if it is unchanged since it was read.

        The storage class is kept: LangGraph stores a BLOB in this TEXT column.
        """
        row_id, stored = cell.where.locator
        if self.is_whole:
            *_, document = more
        else:
            found = parse_item(stored)
            if KEY not in found:  # its fields would stay readable next to the frame
                raise RowError("cannot replace one column of an unsealed item; write the whole row")
            document = _to_json({**found, KEY: make_frame(tag, value)})
        return document if isinstance(stored, str) else document.encode(), row_id, stored, *cell.where.key


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
