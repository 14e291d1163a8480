"""Converts msgpack to values with objects of allowed types. `sealpoint.serde.codes` lists the extensions.

A decoder caches a builder for each kind of record. A builder is valid as long as its module has the class,
and `sys.modules` has the module; each call of `Decoder.decode` checks this once. After a reload, or when a
notebook cell runs again, the name belongs to a new class, and records are rebuilt as the new class.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.errors import BlockedTypeError, DecodeError, SealpointError, UnbuildableValueError, excerpt
from sealpoint.serde.catalogue import Allowlist, Builder
from sealpoint.serde.classes import find_class, home_of, warn_once
from sealpoint.serde.codes import EXTENSIONS, PYDANTIC_V1, PYDANTIC_V2, UNPACK, malformed, require_record
from sealpoint.serde.fast import is_on
from sealpoint.serde.guards import json_budget
from sealpoint.serde.limits import MAX_LEARNED_TYPES, MIN_DEEP_BYTES, Limits
from sealpoint.serde.rebuild import (
    MESSAGES,
    UNNAMED,
    adopting,
    as_unbuildable,
    construct,
    make_builder,
    make_raw_builder,
)
from sealpoint.serde.stack import require_stack

OnBlocked = Literal["raise", "raw"]
Hook = Callable[[int, bytes], Any]
_MODELS: Final = (PYDANTIC_V1, PYDANTIC_V2)

# Looked up once, because it is called for every extension.
_unpackb: Final = ormsgpack.unpackb

_TOO_DEEP: Final = (RecursionError, ImportError, LookupError, OverflowError, TypeError, ValueError)


class Learned:
    """The cached builder of one kind of record.

    Attributes:
        build: Builds an object from the argument of a record.
        build_from_bytes: Builds an object from the bytes and the argument; ``None`` if ``build`` is used.
        cls: The class that the builder was made for; ``None`` if none was imported.
        place: Name of the module of the class.
        home: The module of the class.
        names: The ``__dict__`` of that module.
        seen: The latest call of ``decode`` that found the builder valid.
    """

    __slots__ = ("build", "build_from_bytes", "cls", "home", "names", "place", "seen")

    def __init__(
        self,
        build: Callable[[Any], Any],
        module: str = "",
        cls: Any = None,
        build_from_bytes: Callable[[bytes, Any], Any] | None = None,
    ) -> None:
        """Cache a builder and its class in ``module``; a builder without a class is not used again."""
        self.build, self.build_from_bytes, self.cls = build, build_from_bytes, cls
        self.place = home_of(module)
        self.home = sys.modules.get(self.place)
        self.names = getattr(self.home, "__dict__", {})
        self.seen: object = None

    def require_current(self, name: str, call: object) -> None:
        """Record that a call found the class under ``name``; raise if the module now has another class."""
        if sys.modules[self.place] is not self.home or self.names[name] is not self.cls:
            raise KeyError(self.place)
        self.seen = call

    def is_current(self, module: str, name: str) -> bool:
        """Whether the module still has this class under ``name``, perhaps by the module's ``__getattr__``."""
        try:
            return self.cls is not None and self.cls is find_class(module, name)
        except UnbuildableValueError:
            return False


class Decoder:
    """Converts msgpack to values, and imports only types on its allowlist."""

    def __init__(
        self,
        allowlist: Allowlist,
        on_blocked: OnBlocked = "raise",
        limits: Limits | None = None,
        *,
        authenticated: bool = False,
    ) -> None:
        # ``limits`` is None for authenticated or otherwise trusted bytes. Untrusted bytes, and arguments of
        # safe types in them, are checked before decoding. ``authenticated``: a key has authenticated the
        # bytes, so a Pydantic model that refuses its dump is created without validation. For other bytes
        # never set ``authenticated``: an attacker would choose the fields.
        self.allowlist = allowlist
        self.on_blocked = on_blocked
        self.limits = limits
        self.authenticated = authenticated
        # Decodes objects inside a Pydantic model again. Checked bytes are decoded once, to bound the time.
        self._in_model = self
        if on_blocked == "raise" and limits is None:
            self._in_model = Decoder(allowlist, "raw", authenticated=authenticated)
            self._in_model._warned = BlockedTypeError
        self._warned: type[Exception] = SealpointError
        self._learned: dict[tuple[Any, ...], Learned] = {}
        self._failed = threading.local()
        self._latest_call = [object()]
        self._extension = self._make_hook()

    def decode(self, data: bytes, hook: Hook | None = None) -> Any:
        """Return the value that msgpack bytes represent."""
        limits = self.limits
        if limits is None:
            return self.unpack(data, hook)
        # Imported here: authenticated bytes are not scanned.
        from sealpoint.serde.scan import require_few_costly, scan

        payloads = scan(data, limits)
        if not payloads:
            return self.unpack(data, hook)
        require_few_costly(data, payloads, limits)
        return json_budget.run(limits.elements, lambda: self.unpack(data, hook))

    def unpack(self, data: bytes, hook: Hook | None = None) -> Any:
        """Return the value of authenticated msgpack bytes, without the check against ``limits``."""
        self._latest_call[0] = object()
        if len(data) > MIN_DEEP_BYTES:
            require_stack(data)
        try:
            return _unpackb(data, ext_hook=hook or self._extension, option=UNPACK)
        except ormsgpack.MsgpackDecodeError as error:
            failure = vars(self._failed).pop("error", None)
            # At the end of a small stack, Python 3.14 lets through what a tuple of exceptions would catch.
            if isinstance(failure, _TOO_DEEP) and not isinstance(failure, SealpointError):
                failure = DecodeError("the msgpack of a value is nested too deeply")
            raise failure or DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None

    def _make_hook(self) -> Hook:
        """Return the function that decodes an extension; for speed, the function looks up no attributes."""
        learned = self._learned if is_on("lookup") else {}
        latest_call, rebuild, note = self._latest_call, self._rebuild, self._note
        construct_, rebuild_model = self._construct, self._rebuild_model

        def extension(code: int, data: bytes) -> Any:  # msgpack calls this for the innermost first
            try:
                record = _unpackb(data, ext_hook=extension, option=UNPACK)
                known = None
                try:
                    if len(record) == 3:
                        module, name, argument = record
                        found = learned[code, module, name]
                    else:
                        module, name, argument, method = record
                        found = learned[code, module, name, method]
                    # A kind is current if it was found current since the latest call of any thread began.
                    if found.seen is not (call := latest_call[0]):
                        found.require_current(name, call)
                    known = found
                except (KeyError, TypeError, ValueError):  # unknown, or not a record
                    pass
                if known is None:
                    return rebuild(code, record, data)
                try:
                    build = known.build_from_bytes
                    return known.build(argument) if build is None else build(data, record)
                except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
                    return construct_(error, code, record, data)
            except BaseException as error:
                if code in _MODELS and type(error) is ValueError:  # an error of an object inside the model
                    return rebuild_model(error, code, data)
                note(error)
                raise

        return extension

    def _note(self, error: BaseException) -> None:
        """Record an exception raised during unpacking, because ormsgpack replaces it by its own exception."""
        if type(error) is not ValueError:  # which ormsgpack raises for malformed data or a failed inner hook
            vars(self._failed).setdefault("error", error)

    def _construct(self, error: Exception, code: int, record: list[Any], data: bytes) -> Any:
        """Create a Pydantic model unvalidated if it refused authenticated fields; else raise ``error``."""
        if self.authenticated and code in _MODELS and not isinstance(error, RecursionError | MemoryError):
            with suppress(Exception):  # of the model's own code, which may have changed the record
                again = _unpackb(data, ext_hook=self._in_model._extension, option=UNPACK)
                return construct(find_class(*record[:2]), code, again[2])
        raise as_unbuildable(error, record[0], record[1]) from None

    def _rebuild_model(self, error: BaseException, code: int, data: bytes) -> Any:
        """Build a Pydantic model with bare arguments in place of objects that cannot be built."""
        failure, decoder = vars(self._failed).get("error"), self._in_model
        if decoder is self or not isinstance(failure, BlockedTypeError | UnbuildableValueError):
            raise error
        del self._failed.error
        try:
            return self._rebuild(code, decoder.unpack(data), data)
        except BaseException as last:
            self._note(last)
            raise

    def _rebuild(self, code: int, record: Any, data: bytes) -> Any:
        """Build an object without a cached builder: its class is new or changed, or is not named."""
        if code in UNNAMED:
            try:
                return UNNAMED[code](record, self.limits is not None)
            except (ImportError, OverflowError, TypeError, ValueError) as error:
                module, name = EXTENSIONS[code].type_name or ("", "")
                return self._raw_or_raise(as_unbuildable(error, module, name))(record)
        try:
            kind = (code, record[0], record[1], *record[3:])
            known = self._learned.get(kind)
            if known is None or not known.is_current(record[0], record[1]):
                known = self._make(code, *require_record(code, record))
                if len(self._learned) >= MAX_LEARNED_TYPES:
                    self._learned.clear()
                self._learned[kind] = known
            argument = record[2]
        except (IndexError, KeyError, TypeError) as error:
            if isinstance(error, BlockedTypeError):
                raise
            raise malformed(code) from None
        try:
            return known.build(argument)
        except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
            return self._construct(error, code, record, data)

    def _make(self, code: int, module: str, name: str) -> Learned:
        if not self.allowlist.permissive and (module, name) not in self.allowlist.types:
            blocked = Learned(self._raw_or_raise(BlockedTypeError(module, name)), "builtins")
            blocked.names = {name: None}  # this builder has no class, so it is current in every call
            return blocked
        if (module, name) not in self.allowlist.types:
            line = f"allowed_msgpack_modules=[({excerpt(module)}, {excerpt(name)})]"
            warn_once("unregistered", module, name, f"rebuilt though not on an allowlist; allow it: {line}")
        try:
            cls = find_class(module, name)
            make = make_raw_builder if self.on_blocked == "raise" else self._make_or_raw
            builder = make(code, module, name, guarded=self.limits is not None)
        except UnbuildableValueError as error:
            return Learned(self._raw_or_raise(error))  # never current: a later call may find the class
        # Unauthenticated records are not adopted: if PYTHONHASHSEED is set, two with one hash can be found.
        is_sealed_message = code == PYDANTIC_V2 and self.limits is None and module.startswith(MESSAGES)
        adopts = is_sealed_message and is_on("adoption")
        return Learned(builder, module, cls, adopting(builder) if adopts else None)

    def _make_or_raw(self, code: int, module: str, name: str, *, guarded: bool) -> Builder:
        builder = make_builder(code, module, name, guarded=guarded)

        def build(payload: Any) -> Any:
            try:
                return builder({**payload} if type(payload) is dict else payload)  # validators write into it
            except UnbuildableValueError as error:
                if self.authenticated and code in _MODELS:
                    with suppress(Exception):  # of the model's own code
                        return construct(find_class(module, name), code, payload)
                return self._raw_or_raise(error)(payload)

        return build

    def _raw_or_raise(self, error: BlockedTypeError | UnbuildableValueError) -> Builder:
        if self.on_blocked == "raise":
            raise error
        if isinstance(error, self._warned):
            warn_once(type(error).__name__, error.module, error.name, f"returned as bare arguments: {error}")
        return lambda payload: payload
