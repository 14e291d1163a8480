"""Types that take long to build, and how many of them a value may name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.codes import EXTENSIONS
from sealpoint.serde.fast.costly import names_few
from sealpoint.serde.headers import ARRAYS, TEXTS, read_length
from sealpoint.serde.limits import Limits

COSTLY: Final = {names: row.costly for names, row in CATALOGUE.items() if row.costly is not None}
"""The types, each with the field of `Limits` that says how many there may be."""

_CALLED: Final = {"patterns": "regular expressions", "chunks": "streamed messages"}


def read_names(data: bytes, payload: int) -> tuple[str, str]:
    """Return the module and the name of the type of an extension.

    Args:
        data: Bytes that have passed `sealpoint.serde.scan.scan`.
        payload: Where the payload starts, as `scan` has returned it.

    Raises:
        DecodeError: If there are none.
    """
    code = data[payload - 1]
    fixed = EXTENSIONS[code].type_name
    if fixed is not None:
        return fixed
    start, count = read_length(data, payload) if data[payload] in ARRAYS else (0, 0)
    if count not in (3, 4):
        raise DecodeError(f"extension {code} does not hold what LangGraph writes there")
    module, position = _read_text(data, start)
    name, _ = _read_text(data, position)
    return module, name


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    head = data[position]
    if 0xA0 <= head <= 0xBF:
        start, length = position + 1, head - 0xA0
    elif head in TEXTS:
        start, length = read_length(data, position)
    else:
        raise DecodeError("the name of a type in an extension is not text")
    try:
        return data[start : start + length].decode(), start + length
    except UnicodeDecodeError:
        raise DecodeError("the name of a type in an extension is not UTF-8") from None


def require_few_costly(data: bytes, payloads: list[int], limits: Limits) -> None:
    """Refuse scanned bytes that name more types than ``limits`` say of those that take long to build.

    Args:
        data: Bytes that have passed `sealpoint.serde.scan.scan`.
        payloads: What `scan` has returned.
        limits: How many there may be.

    Raises:
        LimitError: If there are more.
    """
    bounds = {names: getattr(limits, field) for names, field in COSTLY.items()}
    if len(payloads) <= min(bounds.values()) or names_few(data, payloads, bounds):
        return
    require_counts(Counter(_names(data, payload) for payload in payloads), limits)


def _names(data: bytes, payload: int) -> tuple[str, str]:
    try:
        return read_names(data, payload)
    except DecodeError:  # nothing is built from it
        return "", ""


def require_counts(names: Mapping[tuple[str, str], int], limits: Limits) -> None:
    """Refuse counts of types as `require_few_costly` does.

    Raises:
        LimitError: If there are too many of one.
    """
    for costly, field in COSTLY.items():
        if names[costly] > getattr(limits, field):
            raise LimitError(f"value has over {getattr(limits, field)} {_CALLED[field]}")
