"""Ordinary arguments: the short way to an object, for speed alone.

A guard looks for everything that a stranger may have written, and takes longer than the
constructor. Nearly all arguments are of a form that no guard refuses, and one look tells:
then the object is built at once. All else goes to the guard.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from sealpoint.serde.guards import MAX_DECIMAL_CHARS, MAX_SAME_HASH

Builder = Callable[[Any], Any]

_MAX_PATH_CHARS: Final = 1000
_PATH: Final = re.compile(r"(?:/\0)?(?!\.(?:\0|\Z))[^/\0]++(?:\0(?!\.(?:\0|\Z))[^/\0]++)*+")
_TIME_FIELDS: Final = ["hour", "minute", "second", "microsecond", "tzinfo", "fold"]


def _datetime(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    read = cls.fromisoformat

    def build(text: Any) -> Any:
        """Build from the two commonest forms that ``isoformat()`` writes, told by every third character."""
        if type(text) is str:
            if len(text) == 32 and text[4:20:3] == "--T::." and text[26::3] == "+:":
                made = read(text)
                return made if made.microsecond else otherwise(text)
            if len(text) == 19 and text[4::3] == "--T::":
                return read(text)
        return otherwise(text)

    return build


def _uuid(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(text: Any) -> Any:
        if type(text) is str and len(text) == 32:
            made = cls(text)
            if f"{made.int:032x}" == text:
                return made
        return otherwise(text)

    return build


def _decimal(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(text: Any) -> Any:
        if type(text) is str and len(text) <= MAX_DECIMAL_CHARS and "E" not in text and "e" not in text:
            made = cls(text)
            if str(made) == text:
                return made
        return otherwise(text)

    return build


def address_reader(cls: Any, otherwise: Builder) -> Builder:
    """Let the system read addresses, which the classes do in Python, in two to four times the time.

    What the system writes in another form than it was read goes to ``otherwise``.
    """
    family = socket.AF_INET if cls.__name__.startswith("IPv4") else socket.AF_INET6
    has_prefix = not cls.__name__.endswith("Address")

    def build(payload: Any) -> Any:
        try:
            text, _, prefix = payload.partition("/")
            packed, length = socket.inet_pton(family, text), int(prefix or 0)
            read = socket.inet_ntop(family, packed)
            if payload == (f"{read}/{length}" if has_prefix else read):
                return cls((packed, length)) if has_prefix else cls(packed)
        except (AttributeError, OSError, TypeError, ValueError):
            pass
        return otherwise(payload)

    return build


def _address(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    return address_reader(cls, otherwise)


def _date(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(arguments: Any) -> Any:
        if type(arguments) is list and len(arguments) == 3:
            year, month, day = arguments
            if type(year) is type(month) is type(day) is int:
                return cls(year, month, day)
        return otherwise(arguments)

    return build


def _timedelta(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(arguments: Any) -> Any:
        if type(arguments) is list and len(arguments) == 3:
            days, seconds, micros = arguments
            if (
                type(days) is type(seconds) is type(micros) is int
                and 0 <= seconds < 86_400
                and 0 <= micros < 1_000_000
            ):
                return cls(days, seconds, micros)
        return otherwise(arguments)

    return build


def _timezone(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    return lambda arguments: (
        cls(arguments[0])
        if type(arguments) is list and len(arguments) == 1 and type(arguments[0]) is timedelta
        else otherwise(arguments)
    )


def _time(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(arguments: Any) -> Any:
        if type(arguments) is dict and list(arguments) == _TIME_FIELDS:
            hour, minute, second, micros, zone, fold = arguments.values()
            if type(hour) is type(minute) is type(second) is type(micros) is type(fold) is int:
                return cls(hour, minute, second, micros, zone, fold=fold)
        return otherwise(arguments)

    return build


def _set(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(members: Any) -> Any:
        """Build from members that are too few to share a hash, if no two are equal."""
        if type(members) is not list or len(members) > MAX_SAME_HASH:
            return otherwise(members)
        try:
            made = cls(members)
        except TypeError:  # lists, which were tuples
            return otherwise(members)
        return made if len(made) == len(members) else otherwise(members)

    return build


def _deque(_: Any, build: Builder, otherwise: Builder) -> Builder:
    return lambda items: build(items) if type(items) is list else otherwise(items)


def _path(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    def build(parts: Any) -> Any:
        """Build from a root or none, and then names, which are what the parts of the path will be."""
        if type(parts) is not list:
            return otherwise(parts)
        try:
            text = "\0".join(parts)
        except TypeError:
            return otherwise(parts)
        if len(text) > _MAX_PATH_CHARS or text.count("\0") != len(parts) - 1 or not _PATH.fullmatch(text):
            return otherwise(parts)
        return cls(*parts)

    return build


def _zone(_: Any, build: Builder, otherwise: Builder) -> Builder:
    def build_named(key: Any) -> Any:
        """Build from one name or two that are words in ASCII."""
        if type(key) is str and len(key) <= 64 and key.isascii():
            area, slash, city = key.partition("/")
            if area.isidentifier() and (city.isidentifier() or not slash):
                return build(key)
        return otherwise(key)

    return build_named


ORDINARY: Final[dict[tuple[str, str], Callable[[Any, Builder, Builder], Builder]]] = {
    ("builtins", "frozenset"): _set,
    ("builtins", "set"): _set,
    ("collections", "deque"): _deque,
    ("datetime", "date"): _date,
    ("datetime", "datetime"): _datetime,
    ("datetime", "time"): _time,
    ("datetime", "timedelta"): _timedelta,
    ("datetime", "timezone"): _timezone,
    ("decimal", "Decimal"): _decimal,
    ("uuid", "UUID"): _uuid,
    **{
        ("ipaddress", f"IPv{version}{kind}"): _address
        for version in (4, 6)
        for kind in ("Address", "Interface", "Network")
    },
    **{
        (home, f"{kind}Path"): _path
        for home in ("pathlib", "pathlib._local")
        for kind in ("", "Posix", "Windows")
    },
    ("zoneinfo", "ZoneInfo"): _zone,
}
"""By (module, name): what makes a builder that skips the guard for ordinary arguments.

It takes the class, the builder without the guard, and the one with it.
"""
