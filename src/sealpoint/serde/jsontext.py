"""JSON text from a database: bounded before it is parsed, and parsed strictly.

`require_bounded` is linear in the text, whatever the text is: the steps are searches and copies of
whole texts, and one pass over the brackets. A pattern that has to match a whole string is
quadratic where a string has no end. `parse` refuses what Python's parser accepts and returns as
something else than was stored: NaN, infinities, numbers beyond a float, ``-0`` (which would
become ``0``), a key twice, lone surrogates. Legacy rows of values are read as LangGraph reads them.

What is sealed of metadata and of inline values is strict JSON too. What that lacks stands in arrays:

    [0, ...]                    an array
    ["n", "nan"]                NaN; "inf" and "-inf" are the infinities
    ["u", "d800..."]            text with lone surrogates: hex of its UTF-16, big-endian
    ["o", [name, value], ...]   an object of which a name has lone surrogates
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, NoReturn

from sealpoint.errors import DecodeError, LimitError, SerdeError
from sealpoint.serde.fast import switched_off
from sealpoint.serde.limits import MAX_NUMBER_CHARS

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
    if plain.count(b'"') > 4 * elements + 2:  # those of a key and a value for each element
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
    """Return the value of JSON text.

    Args:
        data: The text, in UTF-8.
        depth: How many arrays and objects may be within each other.
        elements: How many items of arrays and pairs of objects there may be.
        hook: Is called for every object, innermost first; what it returns takes the object's place.
        strict: Whether to refuse what would be returned as something else than was stored, NaN and
            infinities, and a key twice. Otherwise it is read as by ``json.loads``: the last of a key counts.

    Raises:
        LimitError: If ``data`` is deeper, or has more elements or a longer number than is allowed.
        DecodeError: If it is not JSON in UTF-8, or refused as above.
    """
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
            return parse_short(text, _SHORT if strict else _LENIENT)
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


def parse_short(text: str, decoder: Any = None) -> Any:
    """Return the value of a text as `parse` does, but without looking at its integers or its levels.

    Without white space the scanner alone reads it, in two thirds of the time.
    """
    decoder = decoder or _SHORT
    try:
        value, end = decoder.scan_once(text, 0)
    except StopIteration:
        value, end = None, -1
    return value if end == len(text) else decoder.decode(text)


def _decoder(hook: Hook | None, strict: bool) -> json.JSONDecoder:
    if strict:
        build = _unique if hook is None else lambda pairs: hook(_unique(pairs))
        return json.JSONDecoder(object_pairs_hook=build, **_STRICT_NUMBERS, parse_int=_integer)
    return json.JSONDecoder(
        object_hook=hook,
        parse_float=lambda text: float(_bounded(text)),
        parse_int=lambda text: int(_bounded(text)),
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise DecodeError("JSON has an object with a key twice")
    return table


def _bounded(text: str) -> str:
    if len(text) > MAX_NUMBER_CHARS:
        raise LimitError(f"JSON has a number of over {MAX_NUMBER_CHARS} characters")
    return text


def _integer(text: str) -> int:
    if text == "-0":
        raise DecodeError("JSON has -0, which no integer is")
    return int(_bounded(text))


def _float(text: str) -> float:
    number = float(_bounded(text))
    if math.isinf(number) or (number == 0 and text.lower().partition("e")[0].strip("-0.")):
        raise DecodeError("JSON has a number that is too large or too small for a float")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError(f"JSON does not have {name}")


_STRICT_NUMBERS: Final[dict[str, Any]] = {"parse_float": _float, "parse_constant": _refuse_constant}
# For text in which no integer has to be looked at. Made once: to make it takes as long as to use it.
_SHORT: Final[Any] = json.JSONDecoder(object_pairs_hook=_unique, **_STRICT_NUMBERS)
_LENIENT: Final[Any] = json.JSONDecoder()

# --- the sealed form ------------------------------------------------------------------------------

_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_NESTED: Final = frozenset((dict, list))
_LEAVES: Final = frozenset((int, bool, type(None)))  # in all places they stand for themselves


def pack_json(value: Any) -> Any:
    """Return JSON for a value of dicts with names, lists and scalars, as it is sealed: strict JSON."""
    if isinstance(value, str):
        return value if is_unicode(value) else ["u", value.encode("utf-16-be", "surrogatepass").hex()]
    if isinstance(value, float) and not math.isfinite(value):
        return ["n", repr(float(value))]
    if isinstance(value, list):
        return [0, *[each if type(each) in _LEAVES else pack_json(each) for each in value]]
    if isinstance(value, dict):
        packed = {name: each if type(each) in _LEAVES else pack_json(each) for name, each in value.items()}
        if is_unicode("".join(value)):
            return packed
        return ["o", *[[pack_json(name), each] for name, each in packed.items()]]
    return value


def unpack_json(value: Any) -> Any:
    """Return the value from JSON that `pack_json` returned.

    Raises:
        DecodeError: If an array has another form.
    """
    kind = type(value)
    if kind is dict:
        return {name: unpack_json(each) if type(each) in _NESTED else each for name, each in value.items()}
    if kind is not list:
        return value
    mark, *items = value or [None]
    if type(mark) is int and mark == 0:
        return [unpack_json(each) if type(each) in _NESTED else each for each in items]
    match mark, items:
        case "n", [str(name)] if name in _NOT_FINITE:
            return _NOT_FINITE[name]
        case "u", [str(text)]:
            with suppress(ValueError):
                return bytes.fromhex(text).decode("utf-16-be", "surrogatepass")
        case "o", pairs if all(type(pair) is list and len(pair) == 2 for pair in pairs):
            found = [(unpack_json(name), unpack_json(each)) for name, each in pairs]
            if all(type(name) is str for name, _ in found):
                return _unique(found)
    raise DecodeError("a sealed header has an array that is in no known form")


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def are_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, and ``true`` is neither."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
