"""Catalogue of the safe types: one entry per type with all its properties. Also the class `Allowlist`.

By default a strict serializer rebuilds only these types. The entry of a type says how the encoder writes
objects, how the decoder checks arguments, and whether objects of the type take long to construct.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import pathlib
import re
import socket
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import ormsgpack

from sealpoint.serde import codes, guards
from sealpoint.serde.fast import is_on
from sealpoint.serde.limits import MAX_NAME_CHARS, MAX_SAME_HASH, MAX_SHORT_CHARS

Builder = Callable[[Any], Any]
Encoder = Callable[[Any, int], Any]  # from an object and its nesting level to what is written
FastBuild = Callable[[Any, Builder], Builder]


class SafeType(NamedTuple):
    """One entry of the catalogue: a type that a strict serializer rebuilds by default.

    Attributes:
        codes: Codes of the msgpack extensions that contain the type's arguments. The first code is written;
            the other codes were written by earlier LangGraph versions.
        guard: Function that checks arguments from unauthenticated bytes.
        is_same: Function that says whether an object would be written as the arguments that it was created
            from. Set if the constructor accepts several forms of one value.
        written: A class whose instances are written as their arguments, including subclasses, and the
            function that returns the arguments. ``None`` if objects are written by their methods or fields.
        called: Module and name to write for the type, if they differ from those of the class.
        fast_build: Function that makes a fast builder from the class and the guarded general builder.
        fast_write: Function that makes a fast encoder from the class and the general encoder.
        costly: If such objects take long to construct, the field of `Limits` that limits their number.
    """

    codes: tuple[int, ...]
    guard: guards.Guard | None = None
    is_same: Callable[[Any, Any], bool] | None = None
    written: tuple[type, Callable[[Any], Any]] | None = None
    called: tuple[str, str] | None = None
    fast_build: FastBuild | None = None
    fast_write: Callable[[type, Encoder], Encoder] | None = None
    costly: str | None = None


# --- shortcuts: ordinary arguments, and text that is written by the system ------------------------

# A guard takes longer than the constructor. Each function of ordinary arguments takes the class and the
# builder with the guard, and returns a builder that skips the guard for arguments it recognises as valid.
_MOMENT_OPTIONS: Final = codes.PACK & ~ormsgpack.OPT_PASSTHROUGH_DATETIME
_PARTS: Final = re.compile(r"(?:/\0)?(?!\.(?:\0|\Z))[^/\0]++(?:\0(?!\.(?:\0|\Z))[^/\0]++)*+")


def _fast_moment(cls: Any, otherwise: Builder) -> Builder:
    """Skip the guard for the two most common forms of ``isoformat()``, known by every third character."""
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


def _fast_members(cls: Any, otherwise: Builder) -> Builder:
    """Skip the guard for a set with too few members for a hash-collision attack, if no two are equal."""

    def build(members: Any) -> Any:
        if type(members) is not list or len(members) > MAX_SAME_HASH:
            return otherwise(members)
        try:
            made = cls(members)
        except TypeError:  # members that were tuples are lists now
            return otherwise(members)
        return made if len(made) == len(members) else otherwise(members)

    return build


def _fast_path(cls: Any, otherwise: Builder) -> Builder:
    """Skip the guard for an optional root and names that the path class keeps as its parts."""

    def build(parts: Any) -> Any:
        if type(parts) is not list:
            return otherwise(parts)
        try:
            text = "\0".join(parts)
        except TypeError:
            return otherwise(parts)
        if len(text) > MAX_NAME_CHARS or text.count("\0") != len(parts) - 1 or not _PARTS.fullmatch(text):
            return otherwise(parts)
        return cls(*parts)

    return build


def address_reader(cls: Any, otherwise: Builder) -> Builder:
    """Return a builder of IP addresses, interfaces or networks."""
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


def _address_writer(cls: Any, otherwise: Encoder) -> Encoder:
    """Return an encoder for IP addresses of a class; ``otherwise`` if the class has its own text form."""
    module, name = cls.__module__, cls.__name__
    if not is_on("addresses") or vars(ipaddress).get(name) is not cls:
        return otherwise

    def encode_address(obj: Any, level: int) -> Any:
        address = getattr(obj, "network_address", obj)
        packed = address.packed
        if len(packed) == 4:
            text = socket.inet_ntoa(packed)
        else:
            text = socket.inet_ntop(socket.AF_INET6, packed)
            if "." in text or address.scope_id:  # the class may write such an address differently
                return otherwise(obj, level)
        network = obj if address is not obj else getattr(obj, "network", None)
        if network is not None:
            text = f"{text}/{network.prefixlen}"
        return ormsgpack.Ext(codes.SINGLE_ARGUMENT, ormsgpack.packb((module, name, text)))

    return encode_address


def _moment_writer(cls: type, otherwise: Encoder) -> Encoder:
    if not is_on("moments") or cls is not datetime.datetime:
        return otherwise
    module, name, code = cls.__module__, cls.__name__, codes.METHOD
    method = codes.EXTENSIONS[code].method
    ext, packb, utc = ormsgpack.Ext, ormsgpack.packb, datetime.UTC

    def encode_moment(obj: Any, level: int) -> Any:
        if obj.tzinfo is None or obj.tzinfo is utc:
            return ext(code, packb((module, name, obj, method), None, _MOMENT_OPTIONS))
        return otherwise(obj, level)

    return encode_moment


# --- the rows -------------------------------------------------------------------------------------


def _set(base: type, guard: guards.Guard, fast_build: FastBuild | None = None) -> SafeType:
    return SafeType((codes.SINGLE_ARGUMENT,), guard, written=(base, tuple), fast_build=fast_build)


def _message(guard: guards.Guard, costly: str | None = None) -> SafeType:
    return SafeType((codes.PYDANTIC_V2, codes.PYDANTIC_V1), guard, costly=costly)


_PATH: Final = SafeType(
    (codes.POSITIONAL_ARGUMENTS,),
    guards.require_parts,
    lambda path, parts: path.parts == tuple(parts),
    written=(pathlib.Path, attrgetter("parts")),
    fast_build=_fast_path,
)
_ADDRESSES: Final = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Address,
    ipaddress.IPv6Interface,
    ipaddress.IPv6Network,
)
_MESSAGES: Final = {
    "base": "BaseMessage BaseMessageChunk",
    "chat": "ChatMessage ChatMessageChunk",
    "function": "FunctionMessage FunctionMessageChunk",
    "human": "HumanMessage HumanMessageChunk",
    "modifier": "RemoveMessage",
    "system": "SystemMessage SystemMessageChunk",
    "tool": "ToolMessage ToolMessageChunk",
}

# Python 3.13 defines pathlib's classes in another module. A class comes before its base classes.
# The safe types, by module and name.
CATALOGUE: Final[dict[tuple[str, str], SafeType]] = {
    **{
        (module, f"{kind}Path"): _PATH
        for module in ("pathlib", "pathlib._local")
        for kind in ("", "Posix", "Windows")
    },
    ("re", "compile"): SafeType(
        (codes.POSITIONAL_ARGUMENTS,),
        guards.require_pattern,
        # A text pattern always has the flag UNICODE.
        lambda pattern, arguments: pattern.flags in (arguments[1], arguments[1] | re.UNICODE),
        written=(re.Pattern, attrgetter("pattern", "flags")),
        called=("re", "compile"),
        costly="patterns",
    ),
    ("uuid", "UUID"): SafeType(
        (codes.SINGLE_ARGUMENT,),
        guards.short_text(MAX_SHORT_CHARS),
        lambda uuid, text: text == uuid.hex or text == str(uuid),
        written=(UUID, attrgetter("hex")),
    ),
    ("decimal", "Decimal"): SafeType(
        (codes.SINGLE_ARGUMENT,),
        guards.require_decimal,
        # A context may write the exponent in lower case.
        lambda number, text: str(number) == text or str(number).replace("e", "E") == text.replace("e", "E"),
        written=(Decimal, str),
    ),
    ("builtins", "set"): _set(set, guards.require_members, _fast_members),
    ("builtins", "frozenset"): _set(frozenset, guards.require_members, _fast_members),
    ("collections", "deque"): _set(deque, guards.require_list),
    **{
        ("ipaddress", cls.__name__): SafeType(
            (codes.SINGLE_ARGUMENT,),
            guards.short_text(MAX_SHORT_CHARS),
            # Python 3.13 writes the following in another form than 3.11.
            lambda address, text: str(address) == text or text.startswith("::ffff:"),
            written=(cls, str),
            fast_build=address_reader,
            fast_write=_address_writer,
        )
        for cls in _ADDRESSES
    },
    ("datetime", "datetime"): SafeType(
        (codes.METHOD,),
        guards.short_text(MAX_SHORT_CHARS),
        # fromisoformat() also takes dates, weeks and "Z", which isoformat() does not write.
        lambda moment, text: bool(moment.isoformat() == text),
        written=(datetime.datetime, lambda moment: moment.isoformat()),
        fast_build=_fast_moment,
        fast_write=_moment_writer,
    ),
    ("datetime", "timedelta"): SafeType(
        (codes.POSITIONAL_ARGUMENTS,),
        guards.require_timedelta,
        written=(datetime.timedelta, attrgetter("days", "seconds", "microseconds")),
    ),
    ("datetime", "date"): SafeType(
        (codes.POSITIONAL_ARGUMENTS,),
        guards.require_date,
        written=(datetime.date, attrgetter("year", "month", "day")),
    ),
    ("datetime", "time"): SafeType(
        (codes.KEYWORD_ARGUMENTS,),
        guards.require_time,
        written=(datetime.time, lambda time: {name: getattr(time, name) for name in guards.TIME_FIELDS}),
    ),
    ("datetime", "timezone"): SafeType(
        (codes.POSITIONAL_ARGUMENTS,),
        guards.require_timezone,
        # LangGraph calls this undocumented method: it returns a name only if the zone has one.
        written=(datetime.timezone, lambda zone: zone.__getinitargs__()),
    ),
    ("zoneinfo", "ZoneInfo"): SafeType(
        (codes.SINGLE_ARGUMENT,),
        guards.require_zone,
        written=(zoneinfo.ZoneInfo, attrgetter("key")),
    ),
    **{
        ("langgraph.types", name): SafeType((codes.KEYWORD_ARGUMENTS,))
        for name in ("Command", "Overwrite", "PregelTask", "StateSnapshot", "TimeoutPolicy")
    },
    ("langgraph.types", "Interrupt"): SafeType((codes.KEYWORD_ARGUMENTS,), guards.require_interrupt),
    ("langgraph.types", "Send"): SafeType(
        (codes.POSITIONAL_ARGUMENTS,),
        is_same=lambda send, arguments: len(arguments) == 2 or bool(send.timeout == arguments[2]),
    ),
    ("langgraph.store.base", "GetOp"): SafeType((codes.KEYWORD_ARGUMENTS,)),
    ("langgraph.store.base", "Item"): SafeType(
        (codes.PYDANTIC_V1,), guards.require_item, guards.is_same_item
    ),
    ("langchain_core.documents.base", "Document"): SafeType(
        (codes.PYDANTIC_V2, codes.PYDANTIC_V1),
        guards.require_document,
        lambda document, fields: set(fields) <= set(vars(document)),
    ),
    ("langchain_core.messages.ai", "AIMessage"): _message(guards.require_ai_message),
    ("langchain_core.messages.ai", "AIMessageChunk"): _message(guards.require_ai_chunk, "chunks"),
    **{
        (f"langchain_core.messages.{home}", name): _message(guards.require_message)
        for home, names in _MESSAGES.items()
        for name in names.split()
    },
}

# --- the allowlist: the types that bytes may name, as exact (module, name) pairs, never prefixes ------


AllowedModules: TypeAlias = Iterable[tuple[str, ...] | type]

STRICT_VARIABLE: Final = "LANGGRAPH_STRICT_MSGPACK"

SAFE_TYPES: Final = frozenset(CATALOGUE)
"""The types that a strict serializer rebuilds by default: the same as LangGraph's."""


def pair(entry: tuple[str, ...] | type) -> tuple[str, str]:
    """Return the (module, name) for an entry of an allowlist: a type, or a tuple of names."""
    if isinstance(entry, type):
        return entry.__module__, entry.__name__
    if (
        not isinstance(entry, tuple | list)
        or len(entry) < 2
        or not all(isinstance(part, str) for part in entry)
    ):
        raise TypeError("an allowlist holds types and tuples of strings like ('package.module', 'Name')")
    *module, name = entry
    return ".".join(module), name


def strict_from_environment() -> bool:
    """Whether the environment variable ``LANGGRAPH_STRICT_MSGPACK`` now requests a strict serializer."""
    return os.environ.get(STRICT_VARIABLE, "").lower() in {"1", "true", "yes"}


@dataclass(frozen=True, slots=True)
class Allowlist:
    """The types that may be imported and called to rebuild a value.

    Attributes:
        types: The allowed (module, name) pairs.
        permissive: Whether all other types are rebuilt, too, with one warning per type.

    Example:
        >>> from sealpoint import Allowlist
        >>> ("shop.state", "Order") in Allowlist.of([("shop.state", "Order")]).types
        True
    """

    types: frozenset[tuple[str, str]] = SAFE_TYPES
    permissive: bool = False

    @classmethod
    def of(cls, modules: AllowedModules | Literal[True] | None) -> Allowlist:
        """Return the allowlist for an argument: ``True`` is permissive, ``None`` allows the safe types.

        Raises:
            TypeError: If ``modules`` contains anything but types and tuples of strings.
        """
        if modules is True:
            return cls(permissive=True)
        return cls().extended(modules or ())

    def extended(self, modules: AllowedModules) -> Allowlist:
        """Return an allowlist that also allows ``modules``, or this allowlist if it already does.

        Raises:
            TypeError: If ``modules`` contains anything but types and tuples of strings.
        """
        types = self.types.union(map(pair, modules))
        return self if types == self.types else Allowlist(types, self.permissive)
