"""JsonPlusSerializer: same bytes as LangGraph's serializer, but raises for types that are not allowed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from sealpoint.errors import (
    BlockedTypeError,
    NestingError,
    SealedValueError,
    UnsupportedTypeError,
    excerpt,
)
from sealpoint.seal.tag import BYTEARRAY, BYTES, JSON, MSGPACK, NULL, PICKLE
from sealpoint.serde.base import read_plain
from sealpoint.serde.catalogue import AllowedModules, Allowlist, strict_from_environment
from sealpoint.serde.classes import logger  # noqa: F401 -- a name of LangGraph's module
from sealpoint.serde.decode import Decoder, OnBlocked
from sealpoint.serde.encode import encode
from sealpoint.serde.limits import DEFAULT_LIMITS, WRITTEN_LIMITS, Limits

InvalidModuleError = BlockedTypeError

_BYTES: Final = (bytes, bytearray)  # a union would be created for every value
FROM_ENVIRONMENT: Final[Any] = object()
_PICKLE_HINT: Final = (
    "serde=JsonPlusSerializer(pickle_fallback=True) reads such rows if they are sealed, or if the serializer"
    " is not strict; reading a pickle runs code that its writer chose"
)


class JsonPlusSerializer:
    """Serializes the same values as LangGraph's serializer, to the same bytes.

    Values are rebuilt completely or not at all: a type that is not allowed raises `BlockedTypeError`, a
    type that refuses its arguments raises `UnbuildableValueError`.

    Example:
        A strict serializer, which constructs the safe types and the types of the list:

        >>> from sealpoint import JsonPlusSerializer
        >>> serde = JsonPlusSerializer(allowed_msgpack_modules=[("shop.state", "Order")])
        >>> serde.loads_typed(serde.dumps_typed({"items": [1, 2]}))
        {'items': [1, 2]}
    """

    def __init__(
        self,
        *,
        pickle_fallback: bool = False,
        allowed_json_modules: Iterable[tuple[str, ...]] | Literal[True] | None = None,
        allowed_msgpack_modules: AllowedModules | Literal[True] | None = FROM_ENVIRONMENT,
        on_blocked: OnBlocked = "raise",
        limits: Limits = DEFAULT_LIMITS,
        __unpack_ext_hook__: Callable[[int, bytes], Any] | None = None,
    ) -> None:
        """Create a serializer.

        Args:
            pickle_fallback: Write unsupported types as pickle, and read pickle rows. Reading a pickle runs
                code that the writer of the row chose.
            allowed_json_modules: Types that legacy ``json`` rows may name besides the safe types; ``True``
                allows any type.
            allowed_msgpack_modules: Types that values may name besides the safe ones.
                ``None``: only the safe ones. ``True``: any, with one warning per type.
                Not given: ``None`` if ``LANGGRAPH_STRICT_MSGPACK`` is ``true``, else ``True``.
            on_blocked: ``raise``, or ``raw`` for LangGraph's behaviour: the bare arguments of types that
                may not or cannot be rebuilt, with one warning per type.
            limits: Limits of unauthenticated bytes: a strict serializer checks them before it decodes them.
            __unpack_ext_hook__: Function that decodes msgpack extensions instead of this class, and decides
                which objects it builds. The check against ``limits`` stays the same.

        Raises:
            ValueError: If ``on_blocked`` is neither ``raise`` nor ``raw``.
            TypeError: If an allowlist contains anything but types and tuples of strings.
        """
        if allowed_msgpack_modules is FROM_ENVIRONMENT:
            allowed_msgpack_modules = None if strict_from_environment() else True
        if on_blocked not in ("raise", "raw"):
            raise ValueError(f"on_blocked must be 'raise' or 'raw', not {excerpt(on_blocked)}")
        self.pickle_fallback = pickle_fallback
        self.limits = limits
        self._set_allowlist(Allowlist.of(allowed_msgpack_modules), on_blocked)
        self._json_modules = (
            allowed_json_modules if allowed_json_modules is True else tuple(allowed_json_modules or ())
        )
        self._ext_hook = __unpack_ext_hook__

    @property
    def on_blocked(self) -> OnBlocked:
        """``raise`` or ``raw``."""
        return self._decoder.on_blocked

    @property
    def allowlist(self) -> Allowlist:
        """The types that msgpack values may name."""
        return self._decoder.allowlist

    def with_msgpack_allowlist(self, extra_allowlist: AllowedModules) -> JsonPlusSerializer:
        """Return a serializer that also allows ``extra_allowlist``, or this serializer if it already does.

        Raises:
            TypeError: If ``extra_allowlist`` holds anything but types and tuples of strings.
        """
        return self if self.allowlist.permissive else self.with_unsealed_allowlist(extra_allowlist)

    def with_unsealed_allowlist(self, extra_allowlist: AllowedModules) -> JsonPlusSerializer:
        """Return a serializer whose `loads_unsealed` also allows the types ``extra_allowlist``.

        Unlike `with_msgpack_allowlist`, this also extends a permissive serializer, which stays permissive.

        Raises:
            TypeError: If ``extra_allowlist`` holds anything but types and tuples of strings.
        """
        extended = self.allowlist.extended(extra_allowlist)
        if extended == self.allowlist:
            return self
        clone = copy.copy(self)
        clone._set_allowlist(extended, self.on_blocked)
        return clone

    def _set_allowlist(self, allowlist: Allowlist, on_blocked: OnBlocked) -> None:
        self._may_be_raw = on_blocked == "raw"
        self._must_be_readable = on_blocked == "raise" and not allowlist.permissive
        self._decoder = Decoder(allowlist, on_blocked)
        # Not the same as `_decoder`: a permissive serializer uses that for bytes no key authenticated.
        self._sealed = Decoder(allowlist, on_blocked, authenticated=True)
        self._checking = Decoder(allowlist, on_blocked, self.limits)
        self._strictest = Decoder(Allowlist(allowlist.types), on_blocked, self.limits)
        self._unpack = self._sealed.unpack
        self._default = self._decoder if allowlist.permissive else self._checking

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type name (``null``, ``bytes``, ``bytearray``, ``msgpack`` or ``pickle``) and the bytes.

        Raises:
            UnsupportedTypeError: If a type in ``obj`` is not supported and pickle is not enabled, or the
                serializer is strict and text in ``obj`` has a lone surrogate. A permissive serializer
                writes ``?`` in place of the surrogate and warns once.
            NestingError: If ``obj`` is nested too deeply to be written and read without exhausting the stack.
            UnreadableTypeError: If the serializer is strict and a class in ``obj`` would not be found
                by its module and name. A permissive serializer warns once per type and writes it.
        """
        if obj is None:
            return NULL, b""
        if isinstance(obj, _BYTES):
            return BYTEARRAY if isinstance(obj, bytearray) else BYTES, bytes(obj)
        try:
            return MSGPACK, encode(obj, self._must_be_readable, self._may_be_raw)
        except NestingError:
            raise  # pickle recurses too
        except UnsupportedTypeError:
            if not self.pickle_fallback:
                raise
            try:
                return PICKLE, pickle.dumps(obj)
            except RecursionError:
                raise NestingError("value is nested too deeply for pickle") from None

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that a type name and bytes represent. A strict serializer first checks the bytes.

        Args:
            data: The type name and the bytes, as `dumps_typed` returned them.

        Raises:
            UnknownTypeError: If the type name is unknown, or is ``pickle`` and pickle is not enabled or the
                serializer is strict.
            DecodeError: If the bytes do not have the format of the type name.
            LimitError: If the bytes are larger, deeper or have more elements than ``limits`` allow.
            BlockedTypeError: If the bytes name a type that is not allowed.
            UnbuildableValueError: If a type refuses its arguments.
        """
        kind, content = data
        decoder = self._default
        if kind == MSGPACK and type(content) is bytes:  # nearly always: saves a call
            return decoder.decode(content, self._ext_hook)
        is_trusted = decoder is self._decoder
        return self._loads(kind, content, decoder, allow_pickle=is_trusted and self.pickle_fallback)

    def loads_sealed(self, kind: str, content: bytes) -> Any:
        """Return the value of authenticated bytes, which only a holder of the key can have written.

        Args:
            kind: The type name.
            content: The bytes, which a key has authenticated.

        Raises:
            SerdeError: As `loads_typed`.
        """
        if kind == MSGPACK and type(content) is bytes:  # nearly always: saves two calls
            return self._unpack(content, self._ext_hook)
        if kind == NULL and content == b"":  # written by a branch of a graph
            return None
        if kind == JSON and isinstance(content, _BYTES):
            return self._loads_json(content, self._sealed, WRITTEN_LIMITS)
        return self._loads(kind, content, self._sealed, allow_pickle=self.pickle_fallback)

    def loads_unsealed(self, kind: str, content: bytes, *, allow_any_type: bool = False) -> Any:
        """Return the value of bytes that no key has authenticated: check the bytes first, and never unpickle.

        Args:
            kind: Type name.
            content: Bytes.
            allow_any_type: Whether a permissive serializer may build any type here, too. If not, only safe
                types and listed types are built; ``allowed_msgpack_modules=True`` and
                ``allowed_json_modules=True`` then count as empty lists.

        Raises:
            SerdeError: As `loads_typed`.
        """
        return self._loads(kind, content, self._checking if allow_any_type else self._strictest)

    def _loads(self, kind: str, content: bytes, decoder: Decoder, *, allow_pickle: bool = False) -> Any:
        if not isinstance(content, _BYTES):  # SQLite returns an integer if one was stored
            raise SealedValueError(f"serialized value is {type(content).__name__}, not bytes")
        if kind == MSGPACK:
            return decoder.decode(bytes(content), self._ext_hook)  # bytes are not copied
        if kind == JSON:
            return self._loads_json(content, decoder, self.limits)
        if kind == PICKLE and allow_pickle:
            return pickle.loads(content)  # noqa: S301 -- requested by the caller, see pickle_fallback
        return read_plain(kind, content, _PICKLE_HINT if kind == PICKLE else "")

    def _loads_json(self, content: bytes, decoder: Decoder, limits: Limits) -> Any:
        from sealpoint.serde.legacy_json import decode_json  # no serializer writes JSON any more

        listed = () if self._json_modules is True else self._json_modules
        allowlist = Allowlist(self.allowlist.types).extended(listed)
        if self._json_modules is True and decoder is not self._strictest:
            allowlist = Allowlist(permissive=True)
        return decode_json(content, allowlist, self.on_blocked, limits)
