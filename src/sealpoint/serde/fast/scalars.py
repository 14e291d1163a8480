"""Scalars: moments, addresses, sets and paths, checked and converted by fewer steps.

A guard takes longer than the constructor. Each function of ordinary arguments takes the class and the
builder with the guard, and returns a builder that uses the guard for all but those it recognises as valid.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import socket
from collections.abc import Callable
from typing import Any, Final

import ormsgpack

from sealpoint.serde.codes import EXTENSIONS, METHOD, PACK, SINGLE_ARGUMENT
from sealpoint.serde.fast import is_on
from sealpoint.serde.limits import MAX_NAME_CHARS, MAX_SAME_HASH

Builder = Callable[[Any], Any]
Encoder = Callable[[Any, int], Any]

_MOMENT_OPTIONS: Final = PACK & ~ormsgpack.OPT_PASSTHROUGH_DATETIME
_PATH: Final = re.compile(r"(?:/\0)?(?!\.(?:\0|\Z))[^/\0]++(?:\0(?!\.(?:\0|\Z))[^/\0]++)*+")


def moment(cls: Any, otherwise: Builder) -> Builder:
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


def members(cls: Any, otherwise: Builder) -> Builder:
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


def path(cls: Any, otherwise: Builder) -> Builder:
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


def address_reader(cls: Any, otherwise: Builder) -> Builder:
    """Return a builder of addresses, interfaces or networks."""
    if not is_on("addresses"):
        return otherwise
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


def address_writer(cls: Any, otherwise: Encoder) -> Encoder:
    """Return an encoder of the addresses of a class; ``otherwise``, if the class writes its own text."""
    module, name = cls.__module__, cls.__name__
    if not is_on("addresses") or vars(ipaddress).get(name) is not cls:
        return otherwise

    def encode_address(obj: Any, level: int) -> Any:
        text = address_text(obj)
        if text is None:
            return otherwise(obj, level)
        return ormsgpack.Ext(SINGLE_ARGUMENT, ormsgpack.packb((module, name, text)))

    return encode_address


def address_text(obj: Any) -> str | None:
    """Return ``str(obj)``, or ``None`` if the system may write it in another way."""
    address = getattr(obj, "network_address", obj)
    packed = address.packed
    if len(packed) == 4:
        text = socket.inet_ntoa(packed)
    else:
        text = socket.inet_ntop(socket.AF_INET6, packed)
        if "." in text or address.scope_id:
            return None
    network = obj if address is not obj else getattr(obj, "network", None)
    return text if network is None else f"{text}/{network.prefixlen}"


def moment_writer(cls: type, otherwise: Encoder) -> Encoder:
    """Return an encoder of datetimes; ``otherwise`` encodes those with a time zone."""
    if not is_on("moments") or cls is not datetime.datetime:
        return otherwise
    module, name, method = cls.__module__, cls.__name__, EXTENSIONS[METHOD].method
    ext, packb, utc = ormsgpack.Ext, ormsgpack.packb, datetime.UTC

    def encode_moment(obj: Any, level: int) -> Any:
        if obj.tzinfo is None or obj.tzinfo is utc:
            return ext(METHOD, packb((module, name, obj, method), None, _MOMENT_OPTIONS))
        return otherwise(obj, level)

    return encode_moment
