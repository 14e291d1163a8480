"""msgpack to values, under an allowlist. The extension codes stand in `encode`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

import ormsgpack

from sealpoint.errors import BlockedTypeError, DecodeError, UnbuildableValueError, excerpt
from sealpoint.serde.allowlist import Allowlist
from sealpoint.serde.arrays import require_array
from sealpoint.serde.classes import find_class, home_of
from sealpoint.serde.codes import (
    DELTA_SNAPSHOT,
    METHOD,
    NUMPY_ARRAY,
    PYDANTIC_V2,
)
from sealpoint.serde.fast.messages import MESSAGES, adopter, are_alike, is_message
from sealpoint.serde.guards import RefusedError
from sealpoint.serde.rebuild import (
    Builder,
    as_unbuildable,
    delta_snapshot,
    make_builder,
    make_raw_builder,
    numpy_array,
)
from sealpoint.serde.scan.walk import Limits, require_few_costly, scan
from sealpoint.serde.shapes import json_budget
from sealpoint.serde.warned import warn_once

OnBlocked = Literal["raise", "raw"]

# Looked up once: an extension is a call of both.
_unpackb: Final = ormsgpack.unpackb
_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS
# Packs what unpacking gives, and nothing that only looks like it: no tuple for a list, no subclass.
_EXACTLY: Final = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_MAX_LEARNED: Final = 4096  # names come from the bytes: they must not fill memory
_MAX_KNOWN: Final = 16_384  # records of one class of messages, at some 80 bytes each
_METHODS: Final = {METHOD: "fromisoformat", PYDANTIC_V2: "model_validate_json"}


class _Learned:
    """What is known of one kind of record.

    It holds as long as the class stands in its module and the module in `sys.modules`, which is looked at
    once in a call of `Decoder.decode`; then the builder is made anew.

    Attributes:
        build: Builds from the argument.
        build_from_bytes: Builds from the bytes of the record too; ``None`` where ``build`` is enough.
        place: Name of the module of the class.
        home: The module.
        names: The names in it.
        cls: The class that the builder was made for.
        seen: The latest call that found it current.
    """

    __slots__ = ("build", "build_from_bytes", "cls", "home", "names", "place", "seen")

    def __init__(
        self,
        build: Builder,
        build_from_bytes: Callable[[bytes, Any], Any] | None,
        place: str,
        home: Any,
        names: dict[str, Any],
        cls: Any,
    ) -> None:
        self.build, self.build_from_bytes = build, build_from_bytes
        self.place, self.home, self.names, self.cls = place, home, names, cls
        self.seen: object = None


class Decoder:
    """Turns msgpack into values, and imports what its allowlist allows and nothing else."""

    def __init__(
        self, allowlist: Allowlist, on_blocked: OnBlocked = "raise", limits: Limits | None = None
    ) -> None:
        """Make a decoder.

        Args:
            allowlist: What may be imported and called.
            on_blocked: What to do with a type that may not or cannot be rebuilt: ``raise``,
                or ``raw``, which gives the bare arguments and warns once per type.
            limits: What bytes from a stranger may be: they are checked before they are decoded,
                and so are the arguments of the safe types. ``None`` for bytes that the ring has
                just opened, or that are trusted for another reason.
        """
        self.allowlist = allowlist
        self.on_blocked = on_blocked
        self.limits = limits
        self._learned: dict[tuple[Any, ...], _Learned] = {}
        self._failed = threading.local()
        self._latest_call = [object()]
        self._extension = self._make_hook()

    def decode(self, data: bytes, hook: Callable[[int, bytes], Any] | None = None) -> Any:
        """Return the value of msgpack bytes.

        Args:
            data: The bytes.
            hook: Takes the place of this class for extensions.

        Raises:
            DecodeError: If they are not msgpack, or an extension is not one that LangGraph writes.
            BlockedTypeError: If they name a type that is not allowed.
            UnbuildableValueError: If a type refuses its arguments.
        """
        limits, extension = self.limits, hook or self._extension
        if limits is None:
            return self._unpack(data, extension)
        payloads = scan(data, limits)
        if not payloads:
            return self._unpack(data, extension)
        require_few_costly(data, payloads, limits)
        return json_budget.run(limits.elements, lambda: self._unpack(data, extension))

    def _unpack(self, data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
        self._latest_call[0] = object()
        try:
            return _unpackb(data, ext_hook=hook, option=_OPTIONS)
        except ormsgpack.MsgpackDecodeError as error:
            # msgpack keeps to itself what the hook raised, so the hook leaves it for its thread here.
            failure = vars(self._failed).pop("error", None)
            if isinstance(failure, RecursionError):
                failure = DecodeError("the msgpack of a value is nested too deeply")
            raise failure or DecodeError(f"not the msgpack of a value: {excerpt(str(error))}") from None

    def _make_hook(self) -> Callable[[int, bytes], Any]:  # noqa: C901 -- a further call would cost a tenth
        """Return what is called for every extension: a function, which looks nothing up on ``self``."""
        learned, failed, rebuild, modules = self._learned, self._failed, self._rebuild, sys.modules
        latest_call = self._latest_call

        def extension(code: int, data: bytes) -> Any:
            try:
                record = _unpackb(data, ext_hook=extension, option=_OPTIONS)
                # What has been learned is found here, which saves a call for every record. A record of
                # another form finds nothing, and `_rebuild` says what is wrong with it.
                known = None
                try:
                    if len(record) == 3:
                        module, name, argument = record
                        known = learned.get((code, module, name))
                    elif len(record) == 4:
                        module, name, argument, method = record
                        known = learned.get((code, module, name, method))
                    # A kind is current if it was so after the latest call of any thread began.
                    if known is not None and known.seen is not (call := latest_call[0]):
                        if modules[known.place] is known.home and known.names[name] is known.cls:
                            known.seen = call
                        else:  # defined again since
                            known = None
                except (KeyError, TypeError):
                    known = None
                if known is None:
                    return rebuild(code, record)
                try:
                    build = known.build_from_bytes
                    return known.build(argument) if build is None else build(data, record)
                except Exception as error:  # noqa: BLE001 -- see `as_unbuildable`
                    raise as_unbuildable(error, module, name) from None
            except BaseException as error:
                if type(error) is not ValueError:  # which is how msgpack tells of its data or an inner hook
                    vars(failed).setdefault("error", error)
                raise

        return extension

    def _rebuild(self, code: int, record: Any) -> Any:
        if code == DELTA_SNAPSHOT:
            return delta_snapshot(record)
        if code == NUMPY_ARRAY:
            return self._numpy_array(record)
        try:
            kind = (code, record[0], record[1], *record[3:])
            known = self._learned.get(kind)
            builder = known.build if known and _is_current(known, record) else self._learn(kind, record)
            argument = record[2]
        except (IndexError, KeyError, TypeError) as error:
            if isinstance(error, BlockedTypeError):
                raise
            raise _malformed(code) from None
        try:
            return builder(argument)
        except Exception as error:  # noqa: BLE001 -- see `as_unbuildable`
            raise as_unbuildable(error, record[0], record[1]) from None

    def _numpy_array(self, payload: Any) -> Any:
        try:
            array = numpy_array(payload)
            if self.limits is not None:
                require_array(array, payload)
        except (UnbuildableValueError, RefusedError) as error:
            return self._raw_or_raise(as_unbuildable(error, "numpy", "ndarray"))(payload)
        return array

    def _learn(self, kind: tuple[Any, ...], record: Any) -> Builder:
        """Return the builder for a kind of record that is seen for the first time, or whose class changed."""
        code = kind[0]
        known = self._make(code, *require_record(code, record))
        if len(self._learned) >= _MAX_LEARNED:
            self._learned.clear()
        self._learned[kind] = known
        return known.build

    def _make(self, code: int, module: str, name: str) -> _Learned:
        if not self.allowlist.permissive and (module, name) not in self.allowlist.types:
            blocked = self._raw_or_raise(BlockedTypeError(module, name))
            return _Learned(blocked, None, "builtins", sys.modules["builtins"], {name: None}, None)  # always
        if (module, name) not in self.allowlist.types:
            line = f"allowed_msgpack_modules=[({excerpt(module)}, {excerpt(name)})]"
            warn_once("unregistered", module, name, f"rebuilt though not on an allowlist; allow it: {line}")
        try:
            cls = find_class(module, name)
            make = make_raw_builder if self.on_blocked == "raise" else make_builder
            builder = make(code, module, name, guarded=self.limits is not None)
        except UnbuildableValueError as error:
            # Never current: it may be defined by then.
            return _Learned(self._raw_or_raise(error), None, "", None, {}, None)
        builder = builder if self.on_blocked == "raise" else self._or_raw(builder)
        # Nothing of a stranger's is remembered: where Python's key is fixed, he could find two of one hash.
        is_remembered = code == PYDANTIC_V2 and self.limits is None and module.startswith(MESSAGES)
        build_from_bytes = _Remembering(builder).build if is_remembered else None
        home = sys.modules.get(home_of(module))
        names = getattr(home, "__dict__", {})
        return _Learned(builder, build_from_bytes, home_of(module), home, names, cls)

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


class _Remembering:
    """Builds the messages of one class: a record that it has met before perhaps without validation.

    A record is known by a hash of its bytes, which Python keys for this process. Nothing else of it is kept.
    """

    __slots__ = ("_known", "_validate")

    def __init__(self, validate: Builder) -> None:
        self._validate = validate
        # By hash, what makes the message; None after the first sight, False if it is validated each time.
        self._known: dict[int, Builder | Literal[False] | None] = {}

    def build(self, data: bytes, record: Any) -> Any:
        """Return the message of a record, whose bytes are ``data``."""
        mark = hash(data)
        adopt = self._known.get(mark)
        if adopt:
            return adopt(record[2])
        made = self._validate(record[2])
        if mark not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[mark] = None
        elif adopt is None:
            self._known[mark] = _is_unchanged(data, record, made) and adopter(made.__class__)
        return made


def _is_unchanged(data: bytes, record: Any, message: Any) -> bool:
    """Whether a validated message has the very fields that its record has, to the byte, and nothing else."""
    if not is_message(message):
        return False
    module, name, _, method = record
    try:
        fields = {**vars(message)}
        same = ormsgpack.packb([module, name, fields, method], option=_EXACTLY) == data
        return same and are_alike(adopter(message.__class__)(fields), message)
    except (ormsgpack.MsgpackEncodeError, RecursionError):  # an object is in it; or it is deep, and so are we
        return False


def _is_current(known: _Learned, record: Any) -> bool:
    """Whether a class is the one that its module gives, if only by ``__getattr__``."""
    try:
        return known.cls is find_class(record[0], record[1])
    except UnbuildableValueError:
        return False


def require_record(code: int, record: Any) -> tuple[str, str]:
    """Return the module and the name that a record names.

    Raises:
        DecodeError: If it is not of the form that LangGraph writes under its code.
    """
    if not isinstance(record, list) or len(record) < 3 or not 0 <= code <= PYDANTIC_V2:
        raise _malformed(code)
    module, name, _, *method = record
    if not isinstance(module, str) or not isinstance(name, str) or method not in ([], [_METHODS.get(code)]):
        raise _malformed(code)
    return module, name


def _malformed(code: int) -> DecodeError:
    return DecodeError(f"extension {code} does not hold what LangGraph writes there")
