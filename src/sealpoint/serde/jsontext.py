"""Parses JSON text from a database: checks its size first, and then parses strictly.

`require_bounded` takes time linear in the length of any text: the steps are searches and copies of the
whole text, and one pass over the brackets. A regular expression for whole strings would take quadratic
time if a string has no end. `parse` refuses text that Python's parser accepts but does not return as
it was stored: NaN, infinities, numbers beyond a float, ``-0`` (which would become ``0``), duplicate keys,
lone surrogates. Legacy ``json`` rows are read as LangGraph reads them, which accepts all of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError, RowError, SerdeError
from sealpoint.seal.jsontext import (
    MAX_DEPTH,
    MAX_NUMBER_CHARS,
    SHORT,
    STRICT_NUMBERS,
    bounded,
    parse_short,
    unique,
)
from sealpoint.serde.fast import switched_off
from sealpoint.serde.limits import MAX_JSON_ELEMENTS

_BRACKETS: Final = b"[]{}"
_NO_BRACKETS: Final = bytes(set(range(256)).difference(_BRACKETS))
_NO_STRUCTURE: Final = bytes(set(_NO_BRACKETS).difference(b'",'))
_STEPS: Final = [{ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}.get(byte, 0) for byte in range(256)]
_STRING: Final = re.compile(r'"[^"]*"?')  # matches at every quotation mark, so no text is read twice
_MINUS_ZERO: Final = re.compile(rb"-0(?![0-9.eE])")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")

Hook = Callable[[dict[str, Any]], Any]


def require_bounded(data: bytes, depth: int, elements: int) -> None:
    """Refuse JSON that is nested too deeply or has too many elements, without parsing it.

    Text that is not JSON may pass, and is left to the parser.
    """
    opened = data.count(b"[") + data.count(b"{")
    if opened <= depth and (len(data) <= elements or opened + data.count(b",") <= elements):
        return  # even if none of them is in a string
    plain = data.replace(rb"\\", b"__").replace(rb"\"", b"__")  # now every quotation mark delimits a string
    if plain.count(b'"') > 4 * elements + 2:  # four quotation marks, of a key and a value, for each element
        raise _too_many(elements)
    structure = plain.translate(None, _NO_STRUCTURE).decode("ascii")  # bytes would be joined at 80 bytes each
    bare = _STRING.sub("", structure).encode()  # the brackets and commas that are not in a string
    opened = bare.count(b"[") + bare.count(b"{")
    if opened + bare.count(b",") > elements:
        raise _too_many(elements)
    if opened > depth:
        steps = map(_STEPS.__getitem__, bare.translate(None, _NO_BRACKETS))
        if max(accumulate(steps)) > depth:
            raise LimitError(f"JSON is nested over {depth} deep", "depth")


def _too_many(elements: int) -> LimitError:
    return LimitError(f"JSON has over {elements} elements", "elements")


def parse(data: bytes, depth: int, elements: int, hook: Hook | None = None, *, strict: bool = True) -> Any:
    """Return the value that JSON text represents.

    Args:
        data: The text, in UTF-8.
        depth: Maximum nesting depth of arrays and objects.
        elements: Maximum number of items of arrays and pairs of objects together.
        hook: Function called with every object, innermost first; its result replaces the object.
        strict: Whether to refuse text that would not be returned as it was stored, NaN, infinities and
            duplicate keys. Otherwise ``json.loads`` reads the text: the last of duplicate keys counts.

    Raises:
        LimitError: If ``data`` is deeper, or has more elements or a longer number than is allowed.
        DecodeError: If ``data`` is not JSON in UTF-8, or is refused because of ``strict``.
    """
    if len(data) > min(depth, elements):  # else it has neither so many levels nor so many elements
        require_bounded(data, depth, elements)
    if strict and b"\\" in data:
        plain = data.replace(rb"\\", b"__")  # now every backslash begins an escape
        if _SURROGATE.search(plain) and _SURROGATE.search(_SURROGATE_PAIR.sub(b"__", plain)):
            raise DecodeError("JSON has a lone surrogate, which is not a character")
    # Nearly all metadata is short: no integer in it can be too long, or ``-0``. The search for bytes costs a
    # tenth of the search for the pattern.
    is_short = (
        len(data) <= MAX_NUMBER_CHARS
        and "json" not in switched_off  # `is_on`, without a call
        and not (b"-0" in data and _MINUS_ZERO.search(data))
    )
    # Errors are raised outside: one of Python's that is their context would keep the text alive.
    try:
        text = data.decode("utf-8", "strict" if strict else "surrogatepass")
        if hook is None and is_short:
            return parse_short(text, SHORT if strict else _LENIENT)
        return _decoder(hook, strict).decode(text)
    except SerdeError:
        raise
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno} column {error.colno}"
    except RecursionError:  # where the bound is higher than Python's own
        reason = "it is nested too deeply"
    except ValueError:  # int(), if the process allows fewer digits than we do
        reason = "it has a number of too many digits"
    raise DecodeError(f"not JSON: {reason}")


def _decoder(hook: Hook | None, strict: bool) -> json.JSONDecoder:
    if strict:
        build = unique if hook is None else lambda pairs: hook(unique(pairs))
        return json.JSONDecoder(object_pairs_hook=build, **STRICT_NUMBERS, parse_int=_integer)
    return json.JSONDecoder(
        object_hook=hook,
        parse_float=lambda text: float(bounded(text)),
        parse_int=lambda text: int(bounded(text)),
    )


def _integer(text: str) -> int:
    if text == "-0":
        raise DecodeError("JSON contains -0, which Python would read as 0")
    return int(bounded(text))


def parse_item(stored: Any, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Parse the JSON object of an item: the value, or, if it is sealed, readable fields and the frame."""
    if not isinstance(stored, str | bytes):
        raise DecodeError(f"the value of an item is {type(stored).__name__}, not JSON text")
    try:
        found = parse(stored.encode() if isinstance(stored, str) else stored, depth, MAX_JSON_ELEMENTS)
    except UnicodeEncodeError:
        found = None
    if not isinstance(found, dict):
        raise RowError(f"stored JSON is {type(found).__name__}, not an object")
    return found


def are_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, but ``true`` does not equal 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


_LENIENT: Final[Any] = json.JSONDecoder()
