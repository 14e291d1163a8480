"""JSON of sealed headers and of values that savers keep in JSON: strict JSON, with forms for NaN and others.

Strict JSON excludes what Python's parser accepts but changes, such as numbers beyond a float and objects with
a duplicate key, and NaN and infinities. Arrays represent what JSON lacks:

    [0, ...]                    an array
    ["n", "nan"]                NaN; "inf" and "-inf" are the infinities
    ["u", "d800..."]            text with lone surrogates: hex of its UTF-16, big-endian
    ["o", [name, value], ...]   an object of which a name has lone surrogates

`sealpoint.serde.jsontext` reads JSON that no key has authenticated.
"""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from sealpoint.errors import DecodeError, LimitError

MAX_DEPTH: Final = 64  # levels of JSON that is readable beside a sealed value
# Longest number that is read: Python's own default for ``int(text)``, which is quadratic in it.
MAX_NUMBER_CHARS: Final = 4300

_CONTAINERS: Final = (dict, list, tuple)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict of the pairs of a JSON object; refuse a duplicate key."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise DecodeError("JSON contains an object with a duplicate key")
    return table


def bounded(text: str) -> str:
    """Return the text of a number; refuse over `MAX_NUMBER_CHARS` characters."""
    if len(text) > MAX_NUMBER_CHARS:
        raise LimitError(f"JSON contains a number of over {MAX_NUMBER_CHARS} characters")
    return text


def _float(text: str) -> float:
    number = float(bounded(text))
    if math.isinf(number) or (number == 0 and text.lower().partition("e")[0].strip("-0.")):
        raise DecodeError("JSON contains a number that is too large or too small for a float")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise DecodeError(f"{name} is not valid in JSON")


STRICT_NUMBERS: Final[dict[str, Any]] = {"parse_float": _float, "parse_constant": _refuse_constant}
# Decoder of text that is too short for a long integer. Made once: making it takes as long as using it.
SHORT: Final[Any] = json.JSONDecoder(object_pairs_hook=unique, **STRICT_NUMBERS)


def parse_short(text: str, decoder: Any = None) -> Any:
    """Return the value of strict JSON that is too short for long integers or deep levels: neither is checked.

    Text without white space is read by the decoder's scanner alone, which takes two thirds of the time.
    """
    decoder = decoder or SHORT
    try:
        value, end = decoder.scan_once(text, 0)
    except StopIteration:
        value, end = None, -1
    return value if end == len(text) else decoder.decode(text)


_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_NESTED: Final = frozenset((dict, list))
_LEAVES: Final = frozenset((int, bool, type(None)))  # values of these types are written unchanged


def pack_json(value: Any) -> Any:
    """Return strict JSON to be sealed, for a value made of lists, scalars, and dicts whose keys are text."""
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
    """Return the value that `pack_json` converted to this JSON.

    Raises:
        DecodeError: If an array has none of the forms that `pack_json` writes.
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
                return unique(found)
    raise DecodeError("a sealed header has an array that is in no known form")


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogate."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def has_strict_form(value: Any, *, otherwise: bool = False, levels: int = MAX_DEPTH - 1) -> bool:
    """Whether a value of metadata can be stored readable: whether strict JSON of 64 levels represents it.

    ``otherwise`` is returned for NaN and infinities. Other values that JSON lacks cannot be sealed at all.
    """
    if isinstance(value, float):
        return otherwise or math.isfinite(value)
    if not isinstance(value, _CONTAINERS):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(has_strict_form(each, otherwise=otherwise, levels=levels - 1) for each in parts)


def prepared_encoder(encoder: json.JSONEncoder) -> Callable[[Any, bool], Iterable[str]]:
    """Return a function that encodes as ``encoder`` does; the function's second argument must be ``False``.

    `json.JSONEncoder.encode` creates another encoder for each value, which takes as long as the encoding.
    Without ``markers``, which one encoder cannot share among threads, a cycle ends in `RecursionError`. The
    encoder has no indentation, neither sorts nor skips keys, and does not look for cycles.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the C accelerator
        return encoder.iterencode
    text = json.encoder.encode_basestring_ascii if encoder.ensure_ascii else json.encoder.encode_basestring
    separators = encoder.key_separator, encoder.item_separator
    made: Callable[[Any, bool], Iterable[str]] = make(
        None, encoder.default, text, None, *separators, False, False, encoder.allow_nan
    )
    return made
