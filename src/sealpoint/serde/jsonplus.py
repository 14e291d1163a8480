"""JsonPlusSerializer: LangGraph's serializer, with an allowlist that refuses."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from sealpoint.errors import BlobError, BlockedTypeError, UnknownTypeError, UnsupportedTypeError, excerpt
from sealpoint.serde.allowlist import AllowedModules, Allowlist, strict_from_environment
from sealpoint.serde.decode import Decoder, OnBlocked
from sealpoint.serde.encode import encode
from sealpoint.serde.envelope import decode_json

InvalidModuleError = BlockedTypeError

_FROM_ENVIRONMENT: Final[Any] = object()


class JsonPlusSerializer:
    """Serializes what LangGraph's serializer does, into the same bytes.

    What it reads back is rebuilt in full or not at all: a type that is not allowed raises
    `BlockedTypeError`, one that refuses its arguments raises `UnbuildableValueError`.
    """

    def __init__(
        self,
        *,
        pickle_fallback: bool = False,
        allowed_json_modules: Iterable[tuple[str, ...]] | Literal[True] | None = None,
        allowed_msgpack_modules: AllowedModules | Literal[True] | None = _FROM_ENVIRONMENT,
        on_blocked: OnBlocked = "raise",
        __unpack_ext_hook__: Callable[[int, bytes], Any] | None = None,
    ) -> None:
        """Make a serializer.

        Args:
            pickle_fallback: Write what msgpack has no form for as pickle, and read such
                rows. Reading a pickle runs what its writer put there.
            allowed_json_modules: Types that legacy ``json`` rows may name beside the safe
                ones; ``True`` allows any.
            allowed_msgpack_modules: Types that values may name beside the safe ones.
                ``None``: only the safe ones. ``True``: any, with one warning per type.
                Not given: ``None`` if ``LANGGRAPH_STRICT_MSGPACK`` is ``true``, else ``True``.
            on_blocked: ``raise``, or ``raw`` for LangGraph's behaviour: the bare arguments
                of what may not or cannot be rebuilt, with one warning per type.
            __unpack_ext_hook__: Decodes msgpack extensions instead of this class.
        """
        if allowed_msgpack_modules is _FROM_ENVIRONMENT:
            allowed_msgpack_modules = None if strict_from_environment() else True
        if on_blocked not in ("raise", "raw"):
            raise ValueError(f"on_blocked is 'raise' or 'raw', not {excerpt(on_blocked)}")
        self.pickle_fallback = pickle_fallback
        self._decoder = Decoder(Allowlist.of(allowed_msgpack_modules), on_blocked)
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
        """What msgpack values may name."""
        return self._decoder.allowlist

    def with_msgpack_allowlist(self, extra_allowlist: AllowedModules) -> JsonPlusSerializer:
        """Return a serializer that also allows ``extra_allowlist``; this one, if that changes nothing."""
        extended = self.allowlist if self.allowlist.permissive else self.allowlist.extended(extra_allowlist)
        if extended == self.allowlist:
            return self
        clone = self.__class__.__new__(self.__class__)
        vars(clone).update(vars(self), _decoder=Decoder(extended, self.on_blocked))
        return clone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return ``null``, ``bytes``, ``bytearray``, ``msgpack`` or ``pickle``, and the bytes.

        Raises:
            UnsupportedTypeError: If ``obj`` has no form in msgpack and pickle is not switched on.
        """
        if obj is None:
            return "null", b""
        if isinstance(obj, bytes | bytearray):
            return "bytearray" if isinstance(obj, bytearray) else "bytes", bytes(obj)
        try:
            return "msgpack", encode(obj)
        except UnsupportedTypeError:
            if not self.pickle_fallback:
                raise
            return "pickle", pickle.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of a type name and bytes.

        Raises:
            UnknownTypeError: If the type name is not one of those above or ``json``, or is
                ``pickle`` and that is not switched on.
            DecodeError: If the bytes are not what the type name says.
            BlockedTypeError: If they name a type that is not allowed.
            UnbuildableValueError: If a type refuses its arguments.
        """
        kind, content = data
        if not isinstance(content, bytes | bytearray):  # SQLite gives back an integer where one was put
            raise BlobError(f"serialized value is {type(content).__name__}, not bytes")
        if kind == "msgpack":
            if self._ext_hook is not None:
                return self._decoder.unpack(content, self._ext_hook)
            return self._decoder.decode(content)
        if kind == "null":
            return None
        if kind == "bytes":
            return bytes(content)
        if kind == "bytearray":
            return bytearray(content)
        if kind == "json":
            return decode_json(content, self._json_allowlist(), self.on_blocked)
        if kind == "pickle" and self.pickle_fallback:
            return pickle.loads(content)  # noqa: S301 -- asked for by the caller, see pickle_fallback
        hint = (
            "pickle_fallback=True reads such rows, and runs what their writer put there"
            if kind == "pickle"
            else ""
        )
        raise UnknownTypeError(f"Unknown serialization type: {excerpt(kind)}", hint=hint)

    def _json_allowlist(self) -> Allowlist:
        if self._json_modules is True:
            return Allowlist(permissive=True)
        return Allowlist(self.allowlist.types).extended(self._json_modules)
