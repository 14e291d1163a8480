"""Values as JSON data, truncated where they are very long; `maintenance.inspect` has the form."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, Final

MAX_MEMBERS: Final = 2_000
MAX_CHARS: Final = 2_000
MAX_BYTES: Final = 64


class Plain:
    """Converts one value; the number of shown members is limited for the whole value."""

    def __init__(self) -> None:
        self._left = MAX_MEMBERS

    def show(self, value: Any) -> Any:
        """Return a value, or a part of one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray):
            return {"$bytes": len(value), "hex": value[:MAX_BYTES].hex()}
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | tuple):
            return self._members(value, self.show)
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": str(value)}
        return value

    def text(self, text: str) -> Any:
        """Return a text, or how it begins."""
        if len(text) <= MAX_CHARS:
            return text
        return {"$text": len(text), "start": text[:MAX_CHARS]}

    def _members(self, members: Collection[Any], show: Callable[[Any], Any]) -> list[Any]:
        taken = min(len(members), self._left)
        self._left -= taken
        shown = [show(member) for member in islice(members, taken)]
        return shown if taken == len(members) else [*shown, {"$cut": len(members) - taken}]

    def _dict(self, table: dict[Any, Any]) -> Any:
        if len(table) > self._left or not all(map(_is_ordinary, table)):
            return {"$map": self._members(table.items(), lambda pair: [*map(self.show, pair)])}
        self._left -= len(table)
        return {key: self.show(value) for key, value in table.items()}


def _is_ordinary(key: object) -> bool:
    return isinstance(key, str) and len(key) <= MAX_CHARS and not key.startswith("$")
