"""A search for costly types in bytes, which takes less time than reading the name of every record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sealpoint.serde.fast import is_on
from sealpoint.serde.headers import TEXTS

_SMALL_RECORD_BYTES: Final = 100
# The second byte of a record that does not begin with the shortest headers.
_LONG_HEADS: Final = TEXTS | {0}


def names_few(data: bytes, payloads: list[int], bounds: Mapping[tuple[str, str], int]) -> bool:
    """Whether it is certain that no type is named more often than is allowed.

    Args:
        data: Bytes that have passed the check.
        payloads: Where the payloads of its extensions start.
        bounds: How often each type may be named, by module and name.
    """
    if not is_on("costly"):
        return False
    # Few values name one. For large records the lengths of the module names are enough: map() over them
    # takes a tenth of the time of a search through all bytes.
    if len(data) >= _SMALL_RECORD_BYTES * len(payloads):
        modules = (module for (module, _), most in bounds.items() if len(payloads) > most)
        lengths = _LONG_HEADS.union(0xA0 + len(module) for module in modules)
        places = [payload + 1 for payload in payloads if payload + 1 < len(data)]
        if lengths.isdisjoint(map(data.__getitem__, places)):
            return True
    return all(data.count(name.encode()) <= most for (_, name), most in bounds.items())
