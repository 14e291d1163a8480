"""Budget: what a value has used up of the limits that hold for all of it together."""

from __future__ import annotations

from sealpoint.errors import LimitError
from sealpoint.serde.limits import FREE_COPIED_BYTES, MAX_COPIES, Limits


class Budget:
    """Counts what a walk meets, and refuses the value when it is too much."""

    __slots__ = ("_copied", "_elements", "_most_copied", "_most_elements", "_most_records", "_records")

    def __init__(self, limits: Limits, size: int) -> None:
        """Make the budget of a value of ``size`` bytes."""
        self._most_elements, self._most_records = limits.elements, limits.records
        self._elements = self._records = self._copied = 0
        # The factor alone would refuse small values that are deeply nested. Their copies cost little.
        self._most_copied = max(FREE_COPIED_BYTES, MAX_COPIES * size)

    def add_elements(self, count: int) -> None:
        """Count the elements of a container.

        Raises:
            LimitError: If there are too many in the value.
        """
        self._elements += count
        if self._elements > self._most_elements:
            raise LimitError(f"value has over {self._most_elements} elements")

    def add_record(self, size: int) -> None:
        """Count an extension, and the ``size`` bytes of its payload, which a decoder copies.

        Raises:
            LimitError: If there are too many of either in the value.
        """
        self._records += 1
        if self._records > self._most_records:
            raise LimitError(f"value has over {self._most_records} records")
        self._copied += size
        if self._copied > self._most_copied:
            raise LimitError(f"value has extensions within extensions of over {MAX_COPIES} times its size")

    def add_key(self, size: int) -> None:
        """Count an array that is a key of a map as one element for each of its bytes."""
        self._elements += size

    @property
    def elements_left(self) -> int:
        """How many elements the value may still have."""
        return self._most_elements - self._elements
