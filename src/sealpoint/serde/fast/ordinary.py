"""Ordinary arguments, recognised by a short check to be valid for their guard.

A guard takes longer than the constructor. Each function takes the class and the builders without and with
the guard, and returns a builder that uses the guard for all other arguments.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, Final

from sealpoint.serde.limits import (
    DAY_SECONDS,
    MAX_DECIMAL_CHARS,
    MAX_NAME_CHARS,
    MAX_SAME_HASH,
    MAX_SHORT_CHARS,
    SECOND_MICROSECONDS,
)

Builder = Callable[[Any], Any]

_PATH: Final = re.compile(r"(?:/\0)?(?!\.(?:\0|\Z))[^/\0]++(?:\0(?!\.(?:\0|\Z))[^/\0]++)*+")
_TIME_FIELDS: Final = ["hour", "minute", "second", "microsecond", "tzinfo", "fold"]


def moment(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take the two commonest forms that ``isoformat()`` writes, recognised by every third character."""
    read = cls.fromisoformat

    def build(text: Any) -> Any:
        if type(text) is str:
            if len(text) == 32 and text[4:20:3] == "--T::." and text[26::3] == "+:":
                made = read(text)
                return made if made.microsecond else otherwise(text)
            if len(text) == 19 and text[4::3] == "--T::":
                return read(text)
        return otherwise(text)

    return build


def uuid(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take 32 digits in small letters."""

    def build(text: Any) -> Any:
        if type(text) is str and len(text) == 32:
            made = cls(text)
            if f"{made.int:032x}" == text:
                return made
        return otherwise(text)

    return build


def decimal(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take digits without an exponent."""

    def build(text: Any) -> Any:
        if type(text) is str and len(text) <= MAX_DECIMAL_CHARS and "E" not in text and "e" not in text:
            made = cls(text)
            if str(made) == text:
                return made
        return otherwise(text)

    return build


def date(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take three integers."""

    def build(arguments: Any) -> Any:
        if type(arguments) is list and len(arguments) == 3:
            year, month, day = arguments
            if type(year) is type(month) is type(day) is int:
                return cls(year, month, day)
        return otherwise(arguments)

    return build


def timedelta(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take three integers in their normal form."""

    def build(arguments: Any) -> Any:
        if type(arguments) is list and len(arguments) == 3:
            days, seconds, micros = arguments
            if (
                type(days) is type(seconds) is type(micros) is int
                and 0 <= seconds < DAY_SECONDS
                and 0 <= micros < SECOND_MICROSECONDS
            ):
                return cls(days, seconds, micros)
        return otherwise(arguments)

    return build


def timezone(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take an offset without a name."""
    return lambda arguments: (
        cls(arguments[0])
        if type(arguments) is list and len(arguments) == 1 and type(arguments[0]) is datetime.timedelta
        else otherwise(arguments)
    )


def time(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take the six fields in their order."""

    def build(arguments: Any) -> Any:
        if type(arguments) is dict and list(arguments) == _TIME_FIELDS:
            hour, minute, second, micros, zone, fold = arguments.values()
            if type(hour) is type(minute) is type(second) is type(micros) is type(fold) is int:
                return cls(hour, minute, second, micros, zone, fold=fold)
        return otherwise(arguments)

    return build


def members(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take members that are too few to share a hash, if no two are equal."""

    def build(members: Any) -> Any:
        if type(members) is not list or len(members) > MAX_SAME_HASH:
            return otherwise(members)
        try:
            made = cls(members)
        except TypeError:  # lists, which were tuples
            return otherwise(members)
        return made if len(made) == len(members) else otherwise(members)

    return build


def items(_: Any, build: Builder, otherwise: Builder) -> Builder:
    """Take a list."""
    return lambda items: build(items) if type(items) is list else otherwise(items)


def path(cls: Any, _: Builder, otherwise: Builder) -> Builder:
    """Take a root or none, and then names, which are what the parts of the path will be."""

    def build(parts: Any) -> Any:
        if type(parts) is not list:
            return otherwise(parts)
        try:
            text = "\0".join(parts)
        except TypeError:
            return otherwise(parts)
        if len(text) > MAX_NAME_CHARS or text.count("\0") != len(parts) - 1 or not _PATH.fullmatch(text):
            return otherwise(parts)
        return cls(*parts)

    return build


def zone(_: Any, build: Builder, otherwise: Builder) -> Builder:
    """Take one name or two that are words in ASCII."""

    def build_named(key: Any) -> Any:
        if type(key) is str and len(key) <= MAX_SHORT_CHARS and key.isascii():
            area, slash, city = key.partition("/")
            if area.isidentifier() and (city.isidentifier() or not slash):
                return build(key)
        return otherwise(key)

    return build_named
