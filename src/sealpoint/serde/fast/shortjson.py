"""Short JSON without ``-0``, whose integers need no check. Nearly all metadata is such JSON."""

from __future__ import annotations

import re
from typing import Any, Final

from sealpoint.serde.fast import switched_off
from sealpoint.serde.limits import MAX_NUMBER_CHARS

_MINUS_ZERO: Final = re.compile(rb"-0(?![0-9.eE])")


def is_short(data: bytes) -> bool:
    """Whether no integer in a JSON text can be too long, or ``-0``."""
    if len(data) > MAX_NUMBER_CHARS or "json" in switched_off:  # `is_on`, without a call
        return False
    # The search for bytes costs a tenth of the search for the pattern.
    return not (b"-0" in data and _MINUS_ZERO.search(data))


def parse_short(text: str, decoder: Any) -> Any:
    """Return the value of a text, without white space by the scanner alone, in two thirds of the time.

    Args:
        text: JSON.
        decoder: A `json.JSONDecoder`.

    Raises:
        ValueError: What ``decoder`` raises.
    """
    try:
        value, end = decoder.scan_once(text, 0)
    except StopIteration:
        value, end = None, -1
    return value if end == len(text) else decoder.decode(text)
