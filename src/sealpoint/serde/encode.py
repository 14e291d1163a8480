"""Converts values to msgpack, to the same bytes as LangGraph.

A value that msgpack cannot represent becomes an extension, see `sealpoint.serde.codes`. A table from type to
encoder is filled when a type is first encoded, so that each type is examined only once.

An object within an object is packed by a further call of msgpack, and neither msgpack nor a decoder knows how
deep the stack is. So each encoder receives the nesting level of its object, and passes it on: see `_inside`.

ormsgpack replaces any exception by its own. So each thread records diagnostics while it packs a value, and
reports them afterwards: as an error if everything written must be readable, otherwise as a warning.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import ormsgpack

from sealpoint.errors import (
    DecodeError,
    NestingError,
    UnbuildableValueError,
    UnreadableTypeError,
    UnsupportedTypeError,
    excerpt,
)
from sealpoint.serde.catalogue import CATALOGUE, Allowlist, Encoder, SafeType
from sealpoint.serde.classes import (
    SendProtocol,
    _DeltaSnapshot,
    accepts_its_own,
    answers_by_instance,
    home_of,
    logger,
    warn_once,
    why_not_found,
)
from sealpoint.serde.codes import (
    DELTA_SNAPSHOT,
    EXTENSIONS,
    KEYWORD_ARGUMENTS,
    NUMPY_ARRAY,
    PACK,
    PACK_REPLACING,
    POSITIONAL_ARGUMENTS,
    PYDANTIC_V1,
    PYDANTIC_V2,
    SINGLE_ARGUMENT,
)
from sealpoint.serde.decode import Decoder
from sealpoint.serde.fast import is_on
from sealpoint.serde.limits import (
    MAX_LEARNED_TYPES,
    MAX_PACKED_LEVELS,
    MAX_REPLACEMENTS,
    MAX_WRITTEN_LEVELS,
    OBJECT_LEVELS,
    UNCOUNTED_LEVELS,
)

# The threads with diagnostics; usually empty, which is quick to check.
noted: Final = set[int]()


class _Diagnostics(threading.local):
    """The diagnostics of the value that a thread is packing.

    Attributes:
        refusal: The error that says why the value cannot be encoded.
        unreadable: Module, name and cause of each object whose class a reader would not find.
        replaced: Number of texts written with ``?`` in place of lone surrogates.
    """

    refuses_surrogates = False  # see `refusing_surrogates`

    def __init__(self) -> None:
        self.refusal: UnsupportedTypeError | None = None
        self.unreadable = Counter[tuple[str, str, str]]()
        self.replaced = 0


_STORE_FIELDS: Final = (
    "store the object in another form, such as its fields in a dict, or let its class accept its own fields"
)
_CALLBACK_FAILED: Final = "Type is not msgpack serializable"

_diagnostics: Final = _Diagnostics()


@contextmanager
def refusing_surrogates() -> Iterator[None]:
    """Context manager: inside its block, `encode` in this thread refuses text with a lone surrogate."""
    _diagnostics.refuses_surrogates = True
    try:
        yield
    finally:
        _diagnostics.refuses_surrogates = False


def refuse(what: str) -> UnsupportedTypeError:
    """Record that ``what`` cannot be encoded, and return the error."""
    _diagnostics.refusal = UnsupportedTypeError(f"cannot serialize {what}")
    return _diagnostics.refusal


def _nesting_of(error: Exception) -> NestingError | None:
    """Return the error for a value that is nested too deeply, if that caused ``error``; else ``None``.

    ormsgpack raises the same text for every failure of a callback, so a failing callback records the cause.
    If no cause is recorded, the stack was too small for Python to enter the callback.
    """
    if isinstance(error, RecursionError) or str(error).startswith(_CALLBACK_FAILED):
        return NestingError("value is nested too deeply for Python's limit of recursion")
    return None


def _note() -> None:
    noted.add(threading.get_ident())


class _AllTypes(frozenset[tuple[str, str]]):
    def __contains__(self, item: object) -> bool:
        return True


# Reads values that this process has just written, and so may build any type, without a warning.
_own: Final = Decoder(Allowlist(_AllTypes()), authenticated=True)


def _try(data: bytes, unreadable: Counter[tuple[str, str, str]]) -> Counter[tuple[str, str, str]]:
    """Decode a packed value; return the classes in ``unreadable`` whose objects the decoded value lacks.

    Raises:
        UnreadableTypeError: If a class refuses the stored form of its object.
    """
    try:
        value = _own.decode(data)
        if unreadable:
            _packb(value, _default, PACK)
            unreadable = unreadable - _diagnostics.unreadable
    except UnbuildableValueError as error:
        if not any(each[:2] == (error.module, error.name) for each in unreadable):
            cause = f"its class does not accept the stored form of this object: {error.cause}"
            raise UnreadableTypeError(error.module, error.name, cause, hint=_STORE_FIELDS) from None
    except (DecodeError, ormsgpack.MsgpackEncodeError):  # the stack is exhausted
        pass
    finally:
        _clear()
    return unreadable


def report(data: bytes, *, is_error: bool, may_be_raw: bool = False) -> None:
    """Report the diagnostics of the value that this thread has just packed as ``data``."""
    if threading.get_ident() not in noted:
        return
    unreadable, replaced = _diagnostics.unreadable, _diagnostics.replaced
    _clear()
    if not may_be_raw:
        unreadable = _try(data, unreadable)
    for module, name, cause in unreadable:
        error = UnreadableTypeError(module, name, cause)
        if is_error:
            raise error
        warn_once("unreadable", module, name, f"{cause}; a value is written that cannot be read back")
    if replaced:
        if is_error:
            raise UnsupportedTypeError("cannot encode text with a lone surrogate")
        _warn_of_replaced()


def _clear() -> None:
    noted.discard(threading.get_ident())
    _diagnostics.__init__()  # type: ignore[misc]  # empty again


@functools.cache
def _warn_of_replaced() -> None:
    logger.warning("text with a lone surrogate was written with '?' in its place")


_NUMPY_KINDS: Final = "biufcSU"  # dtypes that an array's bytes represent completely: no objects or fields

LARGE_BYTES: Final = 128 * 1024
_KEPT_BYTES: Final = 24 * 1024 * 1024


# Looked up once, because every record calls both.
_packb: Final = ormsgpack.packb
_Ext: Final = ormsgpack.Ext


def encode(obj: Any, must_be_readable: bool = False, may_be_raw: bool = False) -> bytes:
    """Return ``obj`` as msgpack.

    Args:
        obj: Any value.
        must_be_readable: Whether a value that cannot be read back unchanged is an error: a class that a
            reader would not find by its module and name, or text with lone surrogates, which UTF-8 cannot
            encode. Otherwise both are written as LangGraph does, surrogates as ``?``, with one warning per
            type and one for text.
        may_be_raw: Whether readers accept bare arguments in place of an object that cannot be built.

    Raises:
        UnsupportedTypeError: If ``obj`` contains an unsupported type, an integer of over 64 bits, or, with
            ``must_be_readable``, text with a lone surrogate.
        NestingError: If ``obj`` is nested too deeply.
        UnreadableTypeError: With ``must_be_readable``, if a reader would not find a class in ``obj``; or if a
            class refuses the stored form of its object, unless ``may_be_raw``.
    """
    try:
        try:
            data = _packb(obj, _default, PACK)
        except ormsgpack.MsgpackEncodeError as error:
            data = _pack_replacing(obj, error)
    except (ormsgpack.MsgpackEncodeError, UnsupportedTypeError) as last:
        refusal = _diagnostics.refusal or _nesting_of(last) or UnsupportedTypeError(str(last))
        _clear()
        raise refusal from None
    if noted:
        report(data, is_error=must_be_readable, may_be_raw=may_be_raw)
    if len(data) >= LARGE_BYTES and is_on("memory"):
        _keep_freed_memory()
    return data


@functools.cache
def _keep_freed_memory() -> None:
    """Let glibc's malloc keep freed memory. Called at the first large value, not at import.

    malloc requests every block over a threshold, 128 KiB at first, from the kernel, and returns the block
    when it is freed. msgpack packs into blocks that grow, and the page faults of 400 KB take longer than
    packing. The threshold rises to the largest such block that was ever freed: here to a block that is freed
    unused. In return the process may keep up to twice that size of freed memory.
    """
    bytes(_KEPT_BYTES)


def _pack(value: Any, level: int) -> bytes:
    if level > UNCOUNTED_LEVELS:
        level += _count_levels(value)
    try:
        return _packb(value, _inside[level], PACK)
    except ormsgpack.MsgpackEncodeError as error:
        return _pack_replacing(value, error, level)


def _pack_replacing(value: Any, error: Exception, level: int = 0) -> bytes:
    """Pack again with ``?`` in place of lone surrogates, if they were the cause of ``error``."""
    # ormsgpack raises one class for every cause: only the text tells them apart.
    if "surrogates" not in str(error):
        raise error
    if _diagnostics.refuses_surrogates:
        raise refuse("text with a lone surrogate")
    _diagnostics.replaced += 1
    _note()
    if _diagnostics.replaced > MAX_REPLACEMENTS:
        raise refuse("text with lone surrogates in too many objects")
    return _packb(value, _inside[level], PACK_REPLACING)


def _count_levels(value: Any) -> int:
    """Return the nesting depth of lists, tuples and dicts in a value, not counting those inside objects."""
    levels, items = 0, iter((value,))
    # By identity, because a container in many places need not be counted again in each.
    while containers := {id(item): item for item in items if isinstance(item, dict | list | tuple)}:
        levels += 1
        if levels > MAX_PACKED_LEVELS:  # the value may contain itself
            break
        items = chain.from_iterable(
            chain(item, item.values()) if isinstance(item, dict) else item for item in containers.values()
        )
    return levels


class _Callbacks(dict[int, Callable[[Any], Any]]):
    """Callbacks for values that msgpack cannot represent, one for each nesting level of the packed value."""

    def __missing__(self, level: int) -> Callable[[Any], Any]:
        if level > MAX_WRITTEN_LEVELS:
            _diagnostics.refusal = NestingError(
                f"value is nested over {MAX_WRITTEN_LEVELS} levels deep,"
                f" of which an object counts as {OBJECT_LEVELS}"
            )
            raise _diagnostics.refusal
        inner = level + OBJECT_LEVELS

        def encode_object(obj: Any) -> Any:
            try:
                return _encoders[type(obj)](obj, inner)
            except Exception as error:
                # The first recorded refusal is the innermost. The text of ``error`` may quote the object.
                if _diagnostics.refusal is None:
                    _diagnostics.refusal = _nesting_of(error) or UnsupportedTypeError(
                        f"{_CALLBACK_FAILED}: {excerpt(type(obj).__name__)}"
                    )
                raise

        return self.setdefault(level, encode_object)


_inside: Final = _Callbacks()
_default: Final = _inside[0]


class _Encoders(dict[type, Encoder]):
    """The table from type to encoder; an encoder is chosen when a type is first encoded."""

    def __missing__(self, cls: type) -> Encoder:
        encoder = _choose(cls)
        if len(self) >= MAX_LEARNED_TYPES:
            self.clear()
        if encoder not in _NAMELESS and (why_not_found(cls) is not None or not accepts_its_own(cls)):
            encoder = _noting(cls, encoder)
        self[cls] = encoder
        return encoder


def _noting(cls: type, encoder: Encoder) -> Encoder:
    """Return an encoder that requests a test decoding of the value, and records why ``cls`` is not found."""

    def encode_and_note(obj: Any, level: int) -> Any:
        _note()
        if (cause := why_not_found(cls)) is not None:
            _diagnostics.unreadable[str(cls.__module__), cls.__name__, cause] += 1
        return encoder(obj, level)

    return encode_and_note


def _choose(cls: type) -> Encoder:
    if cls is _DeltaSnapshot or (cls.__module__, cls.__name__) == EXTENSIONS[DELTA_SNAPSHOT].type_name:
        return _delta_snapshot
    if answers_by_instance(cls, _METHODS):
        return _encode_by_questions
    return _choose_for(cls, cls)


def _choose_for(asked: Any, cls: type) -> Encoder:
    """Choose the encoder by the methods of a class, or of its object, otherwise by its base classes."""
    for name, make in _BY_METHOD:
        if callable(getattr(asked, name, None)):
            return make(cls)
    for base, make in _BY_BASE:
        if issubclass(cls, base):
            return make(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.ndarray):
        return _numpy_array
    if issubclass(cls, BaseException):
        return _text
    return _encode_by_questions


def _encode_by_questions(obj: Any, level: int) -> Any:
    """Encode by the general path: examine the object itself at each call."""
    encoder = _choose_for(obj, type(obj))
    if encoder is not _encode_by_questions:
        return encoder(obj, level)
    if isinstance(obj, SendProtocol):
        return _record(POSITIONAL_ARGUMENTS, _send_arguments)(type(obj))(obj, level)
    raise refuse(f"type {excerpt(f'{type(obj).__module__}.{type(obj).__name__}')}")


# --- makers: from a type to its encoder ---------------------------------------------------------


# An encoder is one Python function: another call would add a fifth to its time. So properties of the type
# are bound to it, and arguments are read by C functions where possible.
def _record(
    code: int, argument: Callable[[Any], Any], called: tuple[str, str] | None = None
) -> Callable[[type], Encoder]:
    method = EXTENSIONS[code].method

    def make(cls: type) -> Encoder:
        module, name = called or (home_of(cls.__module__), cls.__name__)

        def encode_record(obj: Any, level: int) -> ormsgpack.Ext:
            value = argument(obj)
            record = (module, name, value) if method is None else (module, name, value, method)
            if level > UNCOUNTED_LEVELS:
                level += _count_levels(record)
            try:
                return _Ext(code, _packb(record, _inside[level], PACK))
            except ormsgpack.MsgpackEncodeError as error:
                return _Ext(code, _pack_replacing(record, error, level))

        return encode_record

    return make


def _by_row(row: SafeType, arguments: Callable[[Any], Any]) -> Callable[[type], Encoder]:
    make, fast_write = _record(row.codes[0], arguments, row.called), row.fast_write
    return make if fast_write is None else lambda cls: fast_write(cls, make(cls))


def _dataclass(cls: Any) -> Encoder:
    # asdict() would copy deeply, and convert nested dataclasses to dicts without their types.
    names = [field.name for field in dataclasses.fields(cls)]
    return _record(KEYWORD_ARGUMENTS, lambda obj: {name: getattr(obj, name) for name in names})(cls)


def _send_arguments(obj: Any) -> tuple[Any, ...]:
    timeout = getattr(obj, "timeout", None)
    return (obj.node, obj.arg) if timeout is None else (obj.node, obj.arg, timeout)


def _delta_snapshot(obj: Any, level: int) -> ormsgpack.Ext:
    return _Ext(DELTA_SNAPSHOT, _pack(obj.value, level))


def _text(obj: Any, _level: int) -> str:
    return repr(obj)


def _numpy_array(obj: Any, level: int) -> ormsgpack.Ext:
    if obj.dtype.kind not in _NUMPY_KINDS:
        raise refuse(f"a numpy array of {excerpt(str(obj.dtype))}")
    order = "F" if obj.flags.f_contiguous and not obj.flags.c_contiguous else "C"
    data = sys.modules["numpy"].ndarray.tobytes(obj, order)  # a masked array's own would hide what is masked
    return _Ext(NUMPY_ARRAY, _pack((obj.dtype.str, obj.shape, order, data), level))


# --- pydantic models ------------------------------------------------------------------------------

# Subclasses are also passed to the callback, and keys other than text stop the packing: how model_dump()
# treats them depends on the schema.
_MODEL_OPTIONS: Final = (PACK | ormsgpack.OPT_PASSTHROUGH_SUBCLASS) & ~ormsgpack.OPT_NON_STR_KEYS
# A time is not among them: its zone may be any object.
_DUMPED_AS_THEY_ARE: Final = frozenset((UUID, Decimal, datetime.datetime, datetime.date, datetime.timedelta))
# Values of these schemas are dumped unchanged: a value of another type than the schema is dumped by its own
# type, and the plain types of msgpack have no other form.
_LEAVES: Final = {
    *("any", "none", "bool", "int", "float", "str", "bytes", "literal"),
    *("date", "time", "datetime", "timedelta", "decimal", "uuid"),
}
# Keys of a schema under which it contains other schemas.
_INSIDE: Final = {
    "default": ("schema",),
    "nullable": ("schema",),
    "function-before": ("schema",),
    "function-after": ("schema",),
    "function-wrap": ("schema",),
    "list": ("items_schema",),
    "dict": ("keys_schema", "values_schema"),
    "union": ("choices",),
    "typed-dict": ("fields",),
    "typed-dict-field": ("schema",),
    "model-fields": ("fields",),
    "model-field": ("schema",),
}


def _dump(obj: Any) -> Any:
    fields = obj.model_dump()
    if type(fields) is not dict:
        _note()  # the model's own serializer may write a form that its validation refuses
    return fields


def _model_dump(cls: type) -> Encoder:
    """Return an encoder for a Pydantic model: plain fields take a third of the time of ``model_dump()``."""
    by_dump = _record(PYDANTIC_V2, _dump)(cls)
    names = plain_fields(cls) if is_on("models") else None
    if names is None:
        return by_dump
    module, name, method = cls.__module__, cls.__name__, EXTENSIONS[PYDANTIC_V2].method
    ext, packb = _Ext, _packb  # a local name is found faster

    def encode_plain(obj: Any) -> Any:
        if type(obj) in _DUMPED_AS_THEY_ARE:
            return _default(obj)
        raise TypeError

    def encode_model(obj: Any, level: int) -> Any:
        fields = obj.__dict__  # vars() takes twice as long
        if [*fields] == names and not obj.__pydantic_extra__:
            try:
                return ext(PYDANTIC_V2, packb((module, name, fields, method), encode_plain, _MODEL_OPTIONS))
            except ormsgpack.MsgpackEncodeError:
                pass
        return by_dump(obj, level)

    return encode_model


def plain_fields(cls: Any) -> list[str] | None:
    """Return the fields of a Pydantic model, if ``model_dump()`` returns them unchanged; else ``None``.

    The fields are determined once per class, from its core schema (``__pydantic_core_schema__``, documented
    at https://docs.pydantic.dev/latest/api/base_model/). Only schemas that are known to be plain qualify: no
    custom serializer, computed or excluded field, alias or dataclass, nor anything that a later pydantic
    adds. The result applies to direct instances of the class without extra fields, whose values are of
    msgpack's plain types or of types that are dumped unchanged.
    """
    schema = getattr(cls, "__pydantic_core_schema__", None)
    pydantic = sys.modules.get("pydantic")
    if (
        pydantic is None
        or type(schema) is not dict
        or schema["type"] != "model"
        or cls.model_dump is not pydantic.BaseModel.model_dump
        or issubclass(cls, pydantic.RootModel)
        or "serialization" in schema
        or not _is_plain(schema["schema"])
    ):
        return None
    return list(cls.model_fields)


def _is_plain(schema: Any) -> bool:
    kind = schema["type"]
    if (
        "serialization" in schema
        or schema.get("computed_fields")
        or any(key.startswith("serialization_") for key in schema)
        or (kind == "typed-dict" and schema.get("extra_behavior") != "allow")
    ):
        return False
    return kind in _LEAVES or (kind in _INSIDE and all(map(_is_plain, _schemas_in(schema))))


def _schemas_in(schema: Any) -> Iterator[Any]:
    for place in _INSIDE[schema["type"]]:
        found = schema.get(place, [])  # the schema of an untyped dict does not give its types
        if place == "fields":
            yield from found.values()
        elif place == "choices":
            yield from (choice[0] if isinstance(choice, tuple) else choice for choice in found)
        elif found:
            yield found


# --- the choice of an encoder ---------------------------------------------------------------------

# Checked in this order, as LangGraph does: an enum with a model_dump() is dumped as a model.
_BY_METHOD: Final[tuple[tuple[str, Callable[[type], Encoder]], ...]] = (
    ("model_dump", _model_dump),
    ("get_secret_value", _record(SINGLE_ARGUMENT, lambda obj: obj.get_secret_value())),
    ("dict", _record(PYDANTIC_V1, lambda obj: obj.dict())),
    ("_asdict", _record(KEYWORD_ARGUMENTS, lambda obj: obj._asdict())),
)

_METHODS: Final = tuple(name for name, _ in _BY_METHOD)

_BY_BASE: Final[tuple[tuple[type, Callable[[type], Encoder]], ...]] = (
    *((row.written[0], _by_row(row, row.written[1])) for row in CATALOGUE.values() if row.written),
    (Enum, _record(SINGLE_ARGUMENT, attrgetter("value"))),
)

# The output of these encoders names no class, or always the same class.
_NAMELESS: Final[frozenset[Encoder]] = frozenset((_delta_snapshot, _numpy_array, _text))


_encoders: Final = _Encoders()
