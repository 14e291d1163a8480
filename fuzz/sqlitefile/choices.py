"""Choices that are read from bytes, so that a fuzzer can learn them and shrink them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """Gives the first of everything once its bytes are used up."""

    def __init__(self, data: bytes) -> None:
        """Read from ``data``."""
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        """Whether all bytes are used."""
        return self._at >= len(self._data)

    def number(self, below: int) -> int:
        """Return a number from 0 on, below a bound; one byte for each factor of 256 in it."""
        width = max(1, (max(below, 1) - 1).bit_length() + 7 >> 3)
        part = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(part, "big") % max(below, 1)

    def one(self, items: Sequence[Item]) -> Item:
        """Return one of some items.

        Raises:
            IndexError: If there is none.
        """
        return items[self.number(len(items))]

    def flag(self) -> bool:
        """Return yes or no; no at the end."""
        return bool(self.number(2))
