"""Protocols of serializers and ciphers, which savers use and users may implement.

A serializer needs the two methods of `SerializerProtocol`. The other protocols describe optional
capabilities; code that uses them checks for the protocol, not for single methods.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from sealpoint.errors import DecodeError, UnknownTypeError, excerpt, require_is
from sealpoint.seal.tag import BYTEARRAY, BYTES, NULL
from sealpoint.serde.catalogue import AllowedModules


class UntypedSerializerProtocol(Protocol):
    """Converts values to bytes and back, as the modules ``json`` and ``pickle`` do."""

    def dumps(self, obj: Any) -> bytes:
        """Return the bytes of ``obj``."""

    def loads(self, data: bytes) -> Any:
        """Return the value that the bytes ``data`` represent."""


@runtime_checkable
class SerializerProtocol(Protocol):
    """Converts values to a type name and bytes, and back."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type name and the bytes of ``obj``."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that a type name and bytes represent.

        Args:
            data: The type name and the bytes, as `dumps_typed` returned them.
        """


@runtime_checkable
class SealAwareSerializer(SerializerProtocol, Protocol):
    """A serializer that reads authenticated bytes by other rules than unauthenticated bytes.

    `EncryptedSerializer` calls these methods instead of ``loads_typed``.
    """

    def loads_sealed(self, kind: str, content: bytes) -> Any:
        """Return the value of bytes that a key has authenticated together with their type name.

        Args:
            kind: The type name.
            content: The bytes.

        Raises:
            SerdeError: If the bytes do not have the format ``kind``, or name a type that is not allowed.
        """

    def loads_unsealed(self, kind: str, content: bytes, *, allow_any_type: bool = False) -> Any:
        """Return the value of bytes that no key has authenticated; check the bytes before decoding.

        Args:
            kind: Type name.
            content: Bytes.
            allow_any_type: Whether a serializer that constructs any type may do so from ``content``, too.

        Raises:
            SerdeError: If the bytes do not have the format ``kind``, exceed a limit, or name a blocked type.
        """

    def with_unsealed_allowlist(self, extra_allowlist: AllowedModules) -> SerializerProtocol:
        """Return a serializer that also allows the types ``extra_allowlist`` in unauthenticated bytes."""


@runtime_checkable
class AllowlistSerializer(SerializerProtocol, Protocol):
    """A serializer whose allowlist can be extended: LangGraph adds the types in the schema of a graph."""

    def with_msgpack_allowlist(self, extra_allowlist: AllowedModules) -> SerializerProtocol:
        """Return a serializer that also allows ``extra_allowlist``; this serializer if it already does."""


@runtime_checkable
class CarrierSerializer(SerializerProtocol, Protocol):
    """A serializer for a saver that another saver wraps: the outer saver gets stored values undecoded.

    A saver checks the values that its serializer decodes. A value that is not decoded is opaque: the inner
    saver passes the value on, and the outer saver checks it. The serializer alone decides which values are
    opaque, whatever the stored bytes are.
    """

    def is_opaque(self, value: object) -> bool:
        """Whether ``loads_typed`` returned ``value`` without decoding it."""


def is_opaque(serde: SerializerProtocol, value: object) -> bool:
    """Whether ``serde`` is a `CarrierSerializer` that returned ``value`` without decoding it."""
    check = getattr(serde, "is_opaque", None)  # isinstance() of a protocol is slow, for each row
    return check is not None and bool(check(value))


@runtime_checkable
class CipherProtocol(Protocol):
    """Encrypts and decrypts bytes that have no type name, as LangGraph's ciphers do."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return the cipher's name and the ciphertext.

        Args:
            plaintext: Any bytes.
        """

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return the plaintext.

        Args:
            ciphername: The name that `encrypt` returned.
            ciphertext: The bytes that `encrypt` returned.
        """


class SerializerCompat(SerializerProtocol):
    """Adds the typed methods to an untyped serializer; the type name is the name of a value's class.

    Args:
        serde: Object with the methods ``dumps`` and ``loads``.
    """

    def __init__(self, serde: UntypedSerializerProtocol) -> None:
        self.serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the class name of ``obj`` and its bytes."""
        return type(obj).__name__, self.serde.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that the bytes represent; the type name is ignored.

        Args:
            data: A type name, which is ignored, and the bytes.
        """
        return self.serde.loads(data[1])


def maybe_add_typed_methods(serde: SerializerProtocol | UntypedSerializerProtocol) -> SerializerProtocol:
    """Return ``serde``, wrapped in a `SerializerCompat` if it has only ``dumps`` and ``loads``."""
    if isinstance(serde, type) or not hasattr(serde, "dumps"):
        require_is(serde, SerializerProtocol, "serde", "pass EncryptedSerializer.from_key_file(PATH)")
    return serde if isinstance(serde, SerializerProtocol) else SerializerCompat(serde)


def read_plain(kind: str, content: bytes | bytearray, hint: str = "") -> bytes | bytearray | None:
    """Return the value of bytes with the type ``null``, ``bytes`` or ``bytearray``; raise for other types."""
    if kind == BYTES:
        return bytes(content)
    if kind == BYTEARRAY:
        return bytearray(content)
    if kind != NULL:
        raise UnknownTypeError(f"Unknown serialization type: {excerpt(kind)}", hint=hint)
    if content:
        raise DecodeError("a value of type 'null' is not empty")
    return None
