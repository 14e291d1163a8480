"""msgpack to values, under an allowlist. `sealpoint.serde.codes` lists the extensions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.errors import BlockedTypeError, DecodeError, UnbuildableValueError, excerpt
from sealpoint.serde.allowlist import Allowlist
from sealpoint.serde.classes import Learned, find_class, warn_once
from sealpoint.serde.codes import EXTENSIONS, PYDANTIC_V2, UNPACK, malformed, require_record
from sealpoint.serde.fast import is_on
from sealpoint.serde.fast.messages import MESSAGES, Adoption
from sealpoint.serde.guards import RefusedError
from sealpoint.serde.limits import MAX_LEARNED_TYPES, Limits
from sealpoint.serde.rebuild import UNNAMED, Builder, as_unbuildable, make_builder, make_raw_builder
from sealpoint.serde.scan import require_few_costly, scan
from sealpoint.serde.shapes import json_budget

OnBlocked = Literal["raise", "raw"]
Hook = Callable[[int, bytes], Any]

# Looked up once: it is called for every extension.
_unpackb: Final = ormsgpack.unpackb


class Decoder:
    """Converts msgpack to values, and imports only what its allowlist allows."""

    def __init__(
        self, allowlist: Allowlist, on_blocked: OnBlocked = "raise", limits: Limits | None = None
    ) -> None:
        """Make a decoder.

        Args:
            allowlist: What may be imported and called.
            on_blocked: What to do with a type that may not or cannot be rebuilt: ``raise``, or ``raw``,
                which returns the bare arguments and warns once per type.
            limits: Limits of unauthenticated bytes, which are checked before they are decoded, as are the
                arguments of the safe types. ``None`` for authenticated or otherwise trusted bytes.
        """
        self.allowlist = allowlist
        self.on_blocked = on_blocked
        self.limits = limits
        self._learned: dict[tuple[Any, ...], Learned] = {}
        self._failed = threading.local()
        self._latest_call = [object()]
        self._extension = self._make_hook() if is_on("lookup") else self._decode_extension

    def decode(self, data: bytes, hook: Hook | None = None) -> Any:
        """Return the value of msgpack bytes."""
        limits = self.limits
        if limits is None:
            return self.unpack(data, hook)
        payloads = scan(data, limits)
        if not payloads:
            return self.unpack(data, hook)
        require_few_costly(data, payloads, limits)
        return json_budget.run(limits.elements, lambda: self.unpack(data, hook))

    def unpack(self, data: bytes, hook: Hook | None = None) -> Any:
        """Return the value of trusted msgpack bytes: as `decode`, without the check against ``limits``."""
        self._latest_call[0] = object()
        try:
            return _unpackb(data, ext_hook=hook or self._extension, option=UNPACK)
        except ormsgpack.MsgpackDecodeError as error:
            failure = vars(self._failed).pop("error", None)
            if isinstance(failure, RecursionError):
                failure = DecodeError("the msgpack of a value is nested too deeply")
            raise failure or DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None

    def _decode_extension(self, code: int, data: bytes) -> Any:
        """Return the value of one extension. msgpack calls this for the innermost first."""
        try:
            return self._rebuild(code, _unpackb(data, ext_hook=self._extension, option=UNPACK))
        except BaseException as error:
            self._note(error)
            raise

    def _make_hook(self) -> Hook:
        """Return a faster `_decode_extension`: it looks up no attributes, and saves a call per record."""
        learned, latest_call, rebuild, note = self._learned, self._latest_call, self._rebuild, self._note

        def extension(code: int, data: bytes) -> Any:
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
                    return rebuild(code, record)
                try:
                    build = known.build_from_bytes
                    return known.build(argument) if build is None else build(data, record)
                except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
                    raise as_unbuildable(error, module, name) from None
            except BaseException as error:
                note(error)
                raise

        return extension

    def _note(self, error: BaseException) -> None:
        """Record an exception raised during unpacking: ormsgpack replaces it by its own."""
        if type(error) is not ValueError:  # which ormsgpack raises for malformed data or a failed inner hook
            vars(self._failed).setdefault("error", error)

    def _rebuild(self, code: int, record: Any) -> Any:
        if code in UNNAMED:
            return self._rebuild_unnamed(code, record)
        try:
            kind = (code, record[0], record[1], *record[3:])
            known = self._learned.get(kind)
            is_known = known is not None and known.is_current(record[0], record[1])
            builder = known.build if known and is_known else self._learn(kind, record)
            argument = record[2]
        except (IndexError, KeyError, TypeError) as error:
            if isinstance(error, BlockedTypeError):
                raise
            raise malformed(code) from None
        try:
            return builder(argument)
        except Exception as error:  # noqa: BLE001 -- a constructor may raise anything
            raise as_unbuildable(error, record[0], record[1]) from None

    def _rebuild_unnamed(self, code: int, payload: Any) -> Any:
        try:
            return UNNAMED[code](payload, self.limits is not None)
        except (UnbuildableValueError, RefusedError) as error:
            module, name = EXTENSIONS[code].type_name or ("", "")
            return self._raw_or_raise(as_unbuildable(error, module, name))(payload)

    def _learn(self, kind: tuple[Any, ...], record: Any) -> Builder:
        """Return the builder for a kind of record that is new, or whose class has changed."""
        code = kind[0]
        known = self._make(code, *require_record(code, record))
        if len(self._learned) >= MAX_LEARNED_TYPES:
            self._learned.clear()
        self._learned[kind] = known
        return known.build

    def _make(self, code: int, module: str, name: str) -> Learned:
        if not self.allowlist.permissive and (module, name) not in self.allowlist.types:
            blocked = self._raw_or_raise(BlockedTypeError(module, name))
            return Learned.always(blocked, name)
        if (module, name) not in self.allowlist.types:
            line = f"allowed_msgpack_modules=[({excerpt(module)}, {excerpt(name)})]"
            warn_once("unregistered", module, name, f"rebuilt though not on an allowlist; allow it: {line}")
        try:
            cls = find_class(module, name)
            make = make_raw_builder if self.on_blocked == "raise" else make_builder
            builder = make(code, module, name, guarded=self.limits is not None)
        except UnbuildableValueError as error:
            return Learned.never(self._raw_or_raise(error))  # the class may be defined by then
        builder = builder if self.on_blocked == "raise" else self._or_raw(builder)
        # Unauthenticated records are not adopted: where PYTHONHASHSEED is set, two of one hash can be found.
        is_sealed_message = code == PYDANTIC_V2 and self.limits is None and module.startswith(MESSAGES)
        adopts = is_sealed_message and is_on("adoption")
        return Learned(builder, module, cls, Adoption(builder).build if adopts else None)

    def _or_raw(self, builder: Builder) -> Builder:
        def build(payload: Any) -> Any:
            try:
                return builder({**payload} if type(payload) is dict else payload)  # validators write into it
            except UnbuildableValueError as error:
                return self._raw_or_raise(error)(payload)

        return build

    def _raw_or_raise(self, error: BlockedTypeError | UnbuildableValueError) -> Builder:
        if self.on_blocked == "raise":
            raise error
        warn_once(type(error).__name__, error.module, error.name, f"given as bare arguments: {error}")
        return lambda payload: payload
