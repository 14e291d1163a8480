"""Rebuilds one object from its stored arguments. This module handles types, not bytes.

A builder takes the payload of one record and returns the object. One builder is made for
each type and kind of record, so that the type is examined only once.

A conversation is read again at every turn, and a history contains most of its messages once per checkpoint.
Validation takes half of the time of reading a message of LangChain. A sealed record that validation did not
change is adopted when it is read again: its fields become the fields of the message without validation.

Arrays from untrusted bytes are checked to be values of the dtype that they name. numpy accepts any bytes for
any dtype: a bool of 7 counts as 7, a code point outside Unicode raises an error when it is read, and a date
without a unit has no value.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import isclass, signature
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.errors import UnbuildableValueError, excerpt
from sealpoint.serde import codes
from sealpoint.serde.catalogue import CATALOGUE, Builder, SafeType, address_reader
from sealpoint.serde.classes import IMPORTABLE, _DeltaSnapshot, find_class, home_of
from sealpoint.serde.fast import is_on
from sealpoint.serde.guards import RefusedError, as_tuple, require_members
from sealpoint.serde.limits import MAX_LEARNED_MESSAGES

MESSAGES: Final = "langchain_core.messages"


def is_message_class(cls: Any) -> bool:
    """Whether a class is one of LangChain's own messages of conversations."""
    return (
        cls.__module__.startswith(f"{MESSAGES}.")
        and cls.__name__ != "RemoveMessage"
        and hasattr(cls, "__pydantic_validator__")
    )


def make_message_builder(cls: Any) -> Builder:
    """Return a builder that saves half of the time of a LangChain message: it skips four constructors.

    The constructors pass ``content`` on unchanged. The first payload tests this: if the validator alone makes
    a different object than the constructors, the constructors are called for all later payloads, too.
    """
    # Looked up once, and not for every message.
    validate, make = cls.__pydantic_validator__.validate_python, cls.__new__
    is_enough = None if is_on("constructors") else False

    def build(payload: Any) -> Any:
        nonlocal is_enough
        if not isinstance(payload, dict):
            raise TypeError
        if is_enough and _has_content(payload):
            return validate(payload, self_instance=make(cls))
        long = cls(**payload)
        if is_enough is None and _has_content(payload):
            is_enough = are_alike(validate(payload, self_instance=make(cls)), long)
        return long

    return build


def _has_content(payload: dict[str, Any]) -> bool:
    return payload.get("content") is not None and "content_blocks" not in payload


def are_alike(one: Any, other: Any) -> bool:
    """Whether two messages have the same class and equal contents; 1, 1.0 and True are equal here."""
    return _state(one) == _state(other)


def _state(model: Any) -> tuple[Any, ...]:
    return (
        type(model),
        vars(model),
        model.__pydantic_fields_set__,
        model.__pydantic_extra__,
        model.__pydantic_private__,
    )


# Packs only the types that unpacking returns: no tuple as a list, no subclass.
_EXACTLY: Final = codes.PACK | ormsgpack.OPT_PASSTHROUGH_SUBCLASS | ormsgpack.OPT_PASSTHROUGH_TUPLE


def adopting(validate: Builder) -> Callable[[bytes, Any], Any]:
    """Return a builder of the messages of one class, which validates a record only when it is new.

    The builder takes the bytes of a record, and the record. A record is identified by Python's hash of its
    bytes, which has a random key per process. Nothing else of the record is kept.
    """
    # By hash: the function that makes the message; None after the first record, False to validate each time.
    known: dict[int, Builder | Literal[False] | None] = {}

    def build(data: bytes, record: Any) -> Any:
        mark = hash(data)
        adopt = known.get(mark)
        if adopt:
            return adopt(record[2])
        made = validate(record[2])
        if mark not in known:
            if len(known) >= MAX_LEARNED_MESSAGES:
                known.clear()
            known[mark] = None
        elif adopt is None:
            known[mark] = _is_unchanged(data, record, made) and adopter(made.__class__)
        return made

    return build


@cache
def adopter(cls: Any) -> Builder:
    """Return a builder that takes all fields of a message unchanged, without validation."""
    make, put = cls.__new__, object.__setattr__

    def adopt(fields: dict[str, Any]) -> Any:
        made = make(cls)
        put(made, "__dict__", fields)
        put(made, "__pydantic_fields_set__", set(fields))
        put(made, "__pydantic_extra__", {})
        put(made, "__pydantic_private__", None)
        return made

    return adopt


def _is_unchanged(data: bytes, record: Any, message: Any) -> bool:
    """Whether a validated message has exactly the fields of its record, byte for byte."""
    if not is_message_class(message.__class__):
        return False
    module, name, _, method = record
    try:
        fields = {**vars(message)}
        same = ormsgpack.packb([module, name, fields, method], option=_EXACTLY) == data
        return same and are_alike(adopter(message.__class__)(fields), message)
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # it contains an object, or is nested too deeply
        return False


_LAST_CODE_POINT: Final = 0x10FFFF
_X87_MANTISSA_BITS: Final = 63
_X87_BYTES: Final = 16


def _has_values(array: Any) -> bool:
    numpy: Any = import_module("numpy")
    dtype = array.dtype
    flat = array.reshape(-1, order="A")  # no copy of a whole array
    if dtype.kind == "b":
        return bool((flat.view("u1") <= 1).all())
    if dtype.kind == "U" and flat.size:
        return bool((flat.view(numpy.dtype("u4").newbyteorder(dtype.byteorder)) <= _LAST_CODE_POINT).all())
    if dtype.kind in "mM":
        unit, count = numpy.datetime_data(dtype)
        has_unit = unit != "generic" or dtype.kind == "m"
        return count > 0 and (has_unit or bool(numpy.isnat(flat).all()))
    if dtype.kind in "fc" and dtype.itemsize >= _X87_BYTES and numpy.finfo(dtype).nmant == _X87_MANTISSA_BITS:
        numbers = flat.view("u1").reshape(-1, _X87_BYTES)
        low_first = numbers[:, ::-1] if dtype.byteorder == ">" else numbers
        has_exponent = (low_first[:, 8] | (low_first[:, 9] & 0x7F)) != 0
        return bool((has_exponent == (low_first[:, 7] >> 7)).all())  # the explicit leading bit agrees with it
    return True


_PLAIN_DTYPE: Final = re.compile(r"[<>|=][biufcSU][0-9]{1,9}|[<>][Mm]8(\[[0-9a-zA-Z]+\])?")  # never pointers


def make_builder(code: int, module: str, name: str, *, guarded: bool = False) -> Builder:
    """Return the builder for records of one kind that name one type.

    The builder raises `UnbuildableValueError` if the type refuses its arguments.
    """
    make = make_raw_builder(code, module, name, guarded=guarded)

    def build(payload: Any) -> Any:
        try:
            return make(payload)
        except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
            raise as_unbuildable(error, module, name) from None

    return build


def as_unbuildable(error: Exception, module: str, name: str) -> UnbuildableValueError:
    """Return the error for any exception of a constructor, without its text, which may quote values."""
    if isinstance(error, UnbuildableValueError):
        return error
    cause = str(error) if isinstance(error, RefusedError) else type(error).__name__
    if isinstance(error, getattr(sys.modules.get("pydantic_core"), "ValidationError", ())):
        cause = f"pydantic refuses {_refused_fields(error, module, name)}"
    hint = IMPORTABLE if isinstance(error, ModuleNotFoundError) else None
    return UnbuildableValueError(module, name, cause, hint=hint)


def _refused_fields(error: Any, module: str, name: str) -> str:
    """Return the names of declared fields whose values a Pydantic model refuses, without stored text."""
    declared = getattr(getattr(sys.modules.get(home_of(module)), name, None), "model_fields", {})
    aliases = {field.alias or key: key for key, field in declared.items()}
    refused = (part["loc"][:1] for part in error.errors(include_url=False, include_input=False))
    names = dict.fromkeys(aliases.get(key, key) for (key,) in filter(None, refused))
    known = [f"field {excerpt(key)}" for key in names if key in declared]
    return ", ".join([*known, *["other parts of it"] * (len(known) < len(names) or not names)])


def make_raw_builder(code: int, module: str, name: str, *, guarded: bool) -> Builder:
    """Return a builder as `make_builder` does, but one that raises the constructor's own exceptions.

    If possible the builder is the constructor itself, which saves a call or two for every object.
    """
    cls = find_class(module, name)
    build = _MAKERS[code](cls)
    row = CATALOGUE.get((module, name))
    if row is None and isclass(cls) and issubclass(cls, set | frozenset):
        row = SafeType((code,), require_members)
    if row is None or not guarded:
        return build
    if code not in row.codes:
        raise UnbuildableValueError(module, name, "it is never written as this kind of record")
    guard, is_same = row.guard, row.is_same
    if guard is None and is_same is None:
        return build

    def build_guarded(payload: Any) -> Any:
        if guard is not None:
            guard(payload)
        made = build(payload)
        # Refuses arguments that the constructor accepts, but the encoder would write in another form.
        if is_same is not None and not is_same(made, payload):
            raise RefusedError("its arguments are not in the form that is written")
        return made

    if row.fast_build is None or not is_on("arguments"):
        return build_guarded
    return row.fast_build(cls, build_guarded)


def _delta_snapshot(value: Any, _guarded: bool) -> Any:
    """Return a delta snapshot; of LangGraph's class if LangGraph is loaded, since its channels require it."""
    theirs = sys.modules.get("langgraph.checkpoint.serde.types")
    return getattr(theirs, "_DeltaSnapshot", _DeltaSnapshot)(value)


def _numpy_array(payload: Any, guarded: bool) -> Any:
    """Return the read-only array of dtype, shape, order and bytes, if the dtype holds plain values alone.

    A guarded array is refused if it would be written in another form, or has bytes that are not values.
    """
    numpy = import_module("numpy")
    dtype_name, shape, order, data = payload
    if not _PLAIN_DTYPE.fullmatch(dtype_name) or order not in ("C", "F"):
        raise RefusedError("its dtype or order is not one of plain values")
    dtype = numpy.dtype(dtype_name)
    # Integers of Python do not overflow. A product in 64 bits would be 0 for a shape of [2**32, 2**32].
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise RefusedError("its bytes do not fill its shape")
    array = numpy.frombuffer(data, dtype=dtype).reshape(shape, order=order)
    if guarded:
        is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        if (array.dtype.str, list(array.shape), "F" if is_fortran else "C") != (dtype_name, shape, order):
            raise RefusedError("its dtype, shape or order is not in the form that is written")
        if bool in map(type, shape):
            raise RefusedError("its shape does not consist of integers")
        if not _has_values(array):
            raise RefusedError("its bytes are not values of its dtype")
    return array


def _single(cls: Any) -> Builder:
    if issubclass(cls, set | frozenset):
        return _set(cls)
    if issubclass(cls, Enum):
        return _enum(cls)
    if issubclass(cls, deque):
        return lambda payload: cls(_require(list, payload))
    if cls.__module__ == "ipaddress":
        return address_reader(cls, cls)
    if issubclass(cls, bytes | bytearray):
        return lambda payload: cls(_require(bytes, payload))  # bytearray(10**12) would allocate a terabyte
    return cls  # type: ignore[no-any-return]


def _require(kind: type, payload: Any) -> Any:
    if not isinstance(payload, kind):
        raise TypeError
    return payload


def _set(cls: Any) -> Builder:
    def build(payload: Any) -> Any:
        try:
            return cls(_require(list, payload))
        except TypeError:  # msgpack made lists of tuples, which a set cannot hold
            return cls(map(as_tuple, _require(list, payload)))

    return build


def _enum(cls: Any) -> Builder:
    def build(payload: Any) -> Any:
        try:
            return cls(payload)
        except ValueError:
            with suppress(ValueError):
                return cls(as_tuple(payload))
            raise RefusedError("it has no member of this value") from None

    return build


def _positional(cls: Any) -> Builder:
    if (cls.__module__, cls.__name__) == ("langgraph.types", "Send"):
        return lambda payload: _send(cls, *_require(list, payload))
    return lambda payload: cls(*_require(list, payload))


def _send(cls: Any, node: Any, arg: Any, timeout: Any = None) -> Any:
    """Create a ``Send``. The third stored argument is the ``timeout``, which older classes do not have."""
    return cls(node, arg) if timeout is None else cls(node, arg, timeout=timeout)


def _keyword(cls: Any) -> Builder:
    """Call a class with keywords; fields that a dataclass computes itself are set to the stored values."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    computed = tuple(field.name for field in fields if not field.init)
    if not computed:
        return lambda payload: cls(**payload) if type(payload) is dict else cls(**_require(dict, payload))

    def build(payload: Any) -> Any:
        stored = dict(_require(dict, payload))
        late = {name: stored.pop(name) for name in computed if name in stored}
        made = cls(**stored)
        for name, value in late.items():
            object.__setattr__(made, name, value)
        return made

    return build


def _method(cls: Any) -> Builder:
    if not issubclass(cls, datetime.date | datetime.time):
        raise UnbuildableValueError(cls.__module__, cls.__name__, "only dates and times are made by a method")
    return cls.fromisoformat  # type: ignore[no-any-return]


def _pydantic(cls: Any) -> Builder:
    """Validate a Pydantic model, and the models inside it, by field names (as dumped) and by aliases."""
    if not hasattr(cls, "__pydantic_validator__") or not hasattr(cls, "model_validate"):
        return _keyword(cls)
    if is_message_class(cls):
        return make_message_builder(cls)
    both = {"by_alias": True, "by_name": True}
    if "by_name" not in signature(cls.model_validate).parameters:  # pydantic before 2.11
        both = {}
    return lambda payload: cls.model_validate(payload, **both)


def construct(cls: Any, code: int, payload: Any) -> Any:
    """Create a Pydantic model without validation, from authenticated fields that the model dumped."""
    return (cls.model_construct if code == codes.PYDANTIC_V2 else cls.construct)(**payload)


def _pydantic_v1(cls: Any) -> Builder:
    """Call a pydantic v1 model with the aliases that it requires, in place of the dumped field names."""
    fields = vars(cls).get("__fields__", {})
    aliases = {name: field.alias for name, field in fields.items()}
    if all(name == alias for name, alias in aliases.items()):
        return _keyword(cls)
    return lambda payload: cls(**{aliases.get(name, name): value for name, value in payload.items()})


# The functions that make a builder from a class, by the code of the record.
_MAKERS: Final[dict[int, Callable[[Any], Builder]]] = {
    codes.SINGLE_ARGUMENT: _single,
    codes.POSITIONAL_ARGUMENTS: _positional,
    codes.KEYWORD_ARGUMENTS: _keyword,
    codes.METHOD: _method,
    codes.PYDANTIC_V1: _pydantic_v1,
    codes.PYDANTIC_V2: _pydantic,
}
# By code, the functions that build an object from a payload without a type name, and from ``guarded``.
UNNAMED: Final[dict[int, Callable[[Any, bool], Any]]] = {
    codes.NUMPY_ARRAY: _numpy_array,
    codes.DELTA_SNAPSHOT: _delta_snapshot,
}
