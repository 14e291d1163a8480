"""Values to msgpack, byte for byte as LangGraph writes them.

What msgpack has no form for becomes an extension, see `sealpoint.serde.codes`.
One table from type to encoder, filled when a type is first seen: the questions to a type
are asked once, and not once for every value.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import pathlib
import re
import sys
import zoneinfo
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from inspect import getattr_static
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import ormsgpack

from sealpoint.errors import UnsupportedTypeError, excerpt
from sealpoint.serde import diagnostics
from sealpoint.serde.arguments import address_text, time_arguments, timezone_arguments
from sealpoint.serde.classes import answers_by_instance, why_not_found
from sealpoint.serde.codes import (
    DELTA_SNAPSHOT,
    KEYWORD_ARGUMENTS,
    METHOD,
    NUMPY_ARRAY,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.fast.freed import LARGE_BYTES, keep_freed_memory
from sealpoint.serde.fast.models import plain_fields
from sealpoint.serde.types import SendProtocol, _DeltaSnapshot

OPTIONS: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

# Subclasses too are passed to the callback, and other keys than text stop the packing: what model_dump()
# makes of either depends on the schema.
_PLAIN_OPTIONS: Final = (OPTIONS | ormsgpack.OPT_PASSTHROUGH_SUBCLASS) & ~ormsgpack.OPT_NON_STR_KEYS
_ISO_OPTIONS: Final = OPTIONS & ~ormsgpack.OPT_PASSTHROUGH_DATETIME
_DUMPED_AS_THEY_ARE: Final = frozenset(
    (UUID, Decimal, datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
)

_MAX_LEARNED: Final = 4096  # types made at run time must not fill memory
_NUMPY_KINDS: Final = "biufcSU"  # what an array's own bytes hold: no objects, no field names

Encoder = Callable[[Any], Any]

# Looked up once: a record is a call of both.
_packb: Final = ormsgpack.packb
_Ext: Final = ormsgpack.Ext
_noted: Final = diagnostics.noted


def encode(obj: Any, must_be_readable: bool = False) -> bytes:
    """Return ``obj`` as msgpack.

    Args:
        obj: Any value.
        must_be_readable: Whether it is an error if what is read will be another value: a class in it
            that a reader would not find by its module and name, or text with lone surrogates, which
            UTF-8 cannot hold. Otherwise both are written as LangGraph does, the surrogates as ``?``,
            with one warning per type, and one for text.

    Raises:
        UnsupportedTypeError: If something in it has a type without a form, an integer has
            over 64 bits, it is nested too deeply, or has text that is an error.
        UnreadableTypeError: If a class in it would not be found, and that is an error.
    """
    try:
        data = _packb(obj, _default, OPTIONS)
    except ormsgpack.MsgpackEncodeError as error:
        data = _pack_or_refuse(obj, error)
    if _noted:
        diagnostics.report(is_error=must_be_readable)
    if len(data) >= LARGE_BYTES:
        keep_freed_memory()
    return data


def _pack_or_refuse(value: Any, error: Exception) -> bytes:
    try:
        return _pack_replacing(value, error)
    except (ormsgpack.MsgpackEncodeError, UnsupportedTypeError) as last:
        raise diagnostics.take_refusal(last) from None


def _pack(value: Any) -> bytes:
    try:
        return _packb(value, _default, OPTIONS)
    except ormsgpack.MsgpackEncodeError as error:
        return _pack_replacing(value, error)


def _pack_replacing(value: Any, error: Exception) -> bytes:
    """Pack again with ``?`` in place of lone surrogates, if it is for them that ``value`` was not packed."""
    if "surrogates" not in str(error):
        raise error
    diagnostics.note_replaced()
    return _packb(value, _default, OPTIONS | ormsgpack.OPT_REPLACE_SURROGATES)


def _default(obj: Any) -> Any:
    """Return what to write for ``obj``: called for whatever msgpack has no form for."""
    return _encoders[type(obj)](obj)


def _ext(code: int, *payload: Any) -> ormsgpack.Ext:
    return _Ext(code, _pack(payload))


class _Encoders(dict[type, Encoder]):
    """The table from type to encoder, which chooses when a type is seen for the first time."""

    def __missing__(self, cls: type) -> Encoder:
        encoder = _choose(cls)
        if len(self) >= _MAX_LEARNED:
            self.clear()
        if encoder not in _NAMELESS and why_not_found(cls) is not None:
            encoder = _unreadable(cls, encoder)
        self[cls] = encoder
        return encoder


def _unreadable(cls: type, encoder: Encoder) -> Encoder:
    """Note a class that a reader would not find, unless it can be found by now."""

    def encode_and_note(obj: Any) -> Any:
        cause = why_not_found(cls)
        if cause is not None:
            diagnostics.note_unreadable(str(cls.__module__), cls.__name__, cause)
        return encoder(obj)

    return encode_and_note


def _choose(cls: type) -> Encoder:
    if (cls.__module__, cls.__name__) == ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"):
        return _delta_snapshot
    if answers_by_instance(cls, _METHODS):
        return _encode_by_questions
    for name, make in _BY_METHOD:
        if callable(getattr(cls, name, None)):
            return make(cls)
    return _choose_by_base(cls)


def _choose_by_base(cls: type) -> Encoder:
    for base, make in _BY_BASE:
        if issubclass(cls, base):
            return make(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray):
        return _numpy_array
    if issubclass(cls, BaseException):
        return repr
    return _encode_by_questions


def _encode_by_questions(obj: Any) -> Any:
    """The general path: ask the object itself, every time."""
    for name, make in _BY_METHOD:
        if callable(getattr(obj, name, None)):
            return make(type(obj))(obj)
    encoder = _choose_by_base(type(obj))
    if encoder is not _encode_by_questions:
        return encoder(obj)
    if isinstance(obj, SendProtocol):
        timeout = getattr(obj, "timeout", None)
        arguments = (obj.node, obj.arg) if timeout is None else (obj.node, obj.arg, timeout)
        return _ext(POSITIONAL_ARGUMENTS, type(obj).__module__, type(obj).__name__, arguments)
    raise diagnostics.refuse(f"type {excerpt(f'{type(obj).__module__}.{type(obj).__name__}')}")


# --- makers: from a type to its encoder ---------------------------------------------------------


# An encoder is one function in Python: a further call would take a fifth of its time. So what its type
# knows is bound to it, and arguments are taken by functions in C where there are any.
def _record(code: int, argument: Callable[[Any], Any]) -> Callable[[type], Encoder]:
    def make(cls: type) -> Encoder:
        module, name = cls.__module__, cls.__name__

        def encode_record(obj: Any) -> ormsgpack.Ext:
            record = module, name, argument(obj)
            try:
                return _Ext(code, _packb(record, _default, OPTIONS))
            except ormsgpack.MsgpackEncodeError as error:
                return _Ext(code, _pack_replacing(record, error))

        return encode_record

    return make


def _single(argument: Callable[[Any], Any]) -> Callable[[type], Encoder]:
    return _record(SINGLE_ARGUMENT, argument)


def _positional(arguments: Callable[[Any], Any]) -> Callable[[type], Encoder]:
    return _record(POSITIONAL_ARGUMENTS, arguments)


def _keyword(arguments: Callable[[Any], Any]) -> Callable[[type], Encoder]:
    return _record(KEYWORD_ARGUMENTS, arguments)


def _fields(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Return what makes a dict of an object's fields."""
    return lambda obj: {name: getattr(obj, name) for name in names}


def _model_dump(cls: type) -> Encoder:
    module, name = cls.__module__, cls.__name__

    def encode_dump(obj: Any) -> Any:
        return _ext(PYDANTIC_V2, module, name, obj.model_dump(), "model_validate_json")

    names = plain_fields(cls)
    return encode_dump if names is None else _model(cls, names, encode_dump)


def _encode_as_dumped(obj: Any) -> Any:
    if type(obj) in _DUMPED_AS_THEY_ARE:
        return _default(obj)
    raise TypeError


def _model(cls: type, names: list[str], encode_dump: Encoder) -> Encoder:
    """Pack the fields from where the object has them, which takes a third of the time of dumping first.

    Whatever `plain_fields` does not vouch for, in the fields or in them, stops the packing, and
    the object is dumped.
    """
    module, name = cls.__module__, cls.__name__

    def encode_model(obj: Any) -> Any:
        fields = obj.__dict__  # vars() takes twice as long
        if [*fields] == names and not obj.__pydantic_extra__:
            try:
                record = (module, name, fields, "model_validate_json")
                return _Ext(PYDANTIC_V2, _packb(record, _encode_as_dumped, _PLAIN_OPTIONS))
            except ormsgpack.MsgpackEncodeError:
                pass
        return encode_dump(obj)

    return encode_model


def _dict(cls: type) -> Encoder:
    return lambda obj: _ext(PYDANTIC_V1, cls.__module__, cls.__name__, obj.dict())


def _datetime(cls: type) -> Encoder:
    """Let msgpack write the text where no time zone is to be asked, in half the time of ``isoformat()``."""
    module, name = cls.__module__, cls.__name__
    is_plain = cls is datetime.datetime

    def encode_moment(obj: Any) -> Any:
        if is_plain and (obj.tzinfo is None or obj.tzinfo is datetime.UTC):
            return _Ext(METHOD, _packb((module, name, obj, "fromisoformat"), None, _ISO_OPTIONS))
        return _Ext(METHOD, _packb((module, name, obj.isoformat(), "fromisoformat"), None, OPTIONS))

    return encode_moment


def _enum(cls: Any) -> Encoder:
    """Read the value past Enum's property, which is a call in Python, where nothing else answers for it."""
    is_plain = getattr_static(cls, "value") is vars(Enum)["value"] and not answers_by_instance(cls, _METHODS)
    return _single(attrgetter("_value_" if is_plain else "value"))(cls)


def _pattern(obj: Any) -> ormsgpack.Ext:
    return _ext(POSITIONAL_ARGUMENTS, "re", "compile", (obj.pattern, obj.flags))


def _address(cls: type) -> Encoder:
    return _single(address_text if vars(ipaddress).get(cls.__name__) is cls else str)(cls)


def _dataclass(cls: Any) -> Encoder:
    return _keyword(_fields(*(field.name for field in dataclasses.fields(cls))))(cls)


def _delta_snapshot(obj: Any) -> ormsgpack.Ext:
    return _Ext(DELTA_SNAPSHOT, _pack(obj.value))


def _numpy_array(obj: Any) -> ormsgpack.Ext:
    if obj.dtype.kind not in _NUMPY_KINDS:
        raise diagnostics.refuse(f"a numpy array of {excerpt(str(obj.dtype))}")
    order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
    data = sys.modules["numpy"].ndarray.tobytes(obj, order)  # a masked array's own would hide what is masked
    return _ext(NUMPY_ARRAY, obj.dtype.str, obj.shape, order, data)


# Asked in this order, as LangGraph does: an enum with a model_dump() is dumped as a model.
_BY_METHOD: Final[tuple[tuple[str, Callable[[type], Encoder]], ...]] = (
    ("model_dump", _model_dump),
    ("get_secret_value", _single(lambda obj: obj.get_secret_value())),
    ("dict", _dict),
    ("_asdict", _keyword(lambda obj: obj._asdict())),
)

_METHODS: Final = tuple(name for name, _ in _BY_METHOD)

_BY_BASE: Final[tuple[tuple[type | tuple[type, ...], Callable[[type], Encoder]], ...]] = (
    (pathlib.Path, _positional(attrgetter("parts"))),
    (re.Pattern, lambda _: _pattern),
    (UUID, _single(attrgetter("hex"))),
    (Decimal, _single(str)),
    ((set, frozenset, deque), _single(tuple)),
    (
        (ipaddress.IPv4Address, ipaddress.IPv4Network, ipaddress.IPv6Address, ipaddress.IPv6Network),
        _address,
    ),
    (datetime.datetime, _datetime),
    (datetime.timedelta, _positional(attrgetter("days", "seconds", "microseconds"))),
    (datetime.date, _positional(attrgetter("year", "month", "day"))),
    (datetime.time, _keyword(time_arguments)),
    (datetime.timezone, _positional(timezone_arguments)),
    (zoneinfo.ZoneInfo, _single(attrgetter("key"))),
    (Enum, _enum),
)

# What these write names no class, or always the same.
_NAMELESS: Final[frozenset[Encoder]] = frozenset((_delta_snapshot, _numpy_array, _pattern, repr))

_encoders: Final = _Encoders({_DeltaSnapshot: _delta_snapshot})
