"""Context: bytes for the tag and the row of a sealed value. Authenticated with the value, and never stored.

    "sealpoint" 00 01 | length tag | length name | length value | ...
      11 bytes          u32 BE ..    pairs of the row, sorted by name

Every field is preceded by its length as four bytes, big-endian, so that no two
contexts share an encoding. `pack_tag`, `pack_row` and `RowTemplate` pack parts that several values share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final

PREFIX: Final = b"sealpoint\x00\x01"

Row = Mapping[str, str]
"""The columns that name a row, as text by name of the column."""

_length: Final = Struct(">I").pack


class PackedRow(bytes):
    """Coordinates of one row as bytes, from `pack_row` or `RowTemplate`: the last part of a context."""

    __slots__ = ()


def _field(text: str) -> bytes:
    data = str.encode(text)
    return _length(len(data)) + data


def pack_tag(tag: str) -> bytes:
    """Return the first part of the context of a value with this tag: the prefix and the tag."""
    return PREFIX + _field(tag)


def pack_row(row: Row) -> PackedRow:
    """Return the last part of the context of a value in this row."""
    parts: list[bytes] = []
    try:
        for pair in sorted(row.items()):
            for text in pair:
                data = str.encode(text)  # `_field` inlined: a call would double the time
                parts += _length(len(data)), data
    except TypeError:
        kinds = ", ".join(f"{type(name).__name__}: {type(value).__name__}" for name, value in row.items())
        raise TypeError(f"row coordinates are strings, not {kinds}") from None
    return PackedRow(b"".join(parts))


class RowTemplate:
    """A set of rows that share most coordinates; the shared coordinates are packed only once.

    writes = RowTemplate({"table": "writes", "thread_id": "t1", ...}, ("task_id", "channel"))
    serializer.open(tag, blob, row=writes.row("task-1", "messages"))
    """

    __slots__ = ("_first", "_steps")

    def __init__(self, shared: Row, names: Iterable[str]) -> None:
        """Pack the shared coordinates.

        Args:
            shared: The coordinates that all rows share.
            names: The names of the other coordinates, in the order in which `row` takes their values.

        Raises:
            ValueError: If a name is given twice.
            TypeError: If a coordinate or a name is not a string.
        """
        names = tuple(names)
        if len({*shared, *names}) != len(shared) + len(names):
            raise ValueError(f"a coordinate is named twice: {', '.join([*shared, *names])}")
        # The bytes before the value of each name, in sorted order, and after the last one.
        between = [b""]
        for name in sorted((*shared, *names)):
            if name in shared:
                between[-1] += pack_row({name: shared[name]})
            else:
                between[-1] += _field(name)
                between.append(b"")
        order = sorted(range(len(names)), key=names.__getitem__)
        self._first = between[0]
        self._steps = [*zip(order, between[1:], strict=True)]

    def row(self, *values: str) -> PackedRow:
        """Return the packed coordinates of one row, the bytes that `pack_row` returns for all of them.

        Args:
            values: The coordinates, one text for each name in ``names`` of the template.

        Raises:
            TypeError: If a value is not a string, or the number of values differs from the number of names.
        """
        if len(values) != len(self._steps):
            raise TypeError(f"{len(values)} values for {len(self._steps)} coordinates")
        parts = [self._first]
        for place, following in self._steps:
            data = str.encode(values[place])
            parts += _length(len(data)), data, following
        return PackedRow(b"".join(parts))


# Pickles and messages name the classes by their former module.
PackedRow.__module__ = RowTemplate.__module__ = "sealpoint.crypto.context"
