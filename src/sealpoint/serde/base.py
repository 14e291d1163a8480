"""Protocols of serializers and ciphers: what a saver needs, and what a user may bring."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class UntypedSerializerProtocol(Protocol):
    """Turns values into bytes and back, as the modules ``json`` and ``pickle`` do."""

    def dumps(self, obj: Any) -> bytes:
        """Return the bytes of ``obj``."""
        ...

    def loads(self, data: bytes) -> Any:
        """Return the value of ``data``."""
        ...


@runtime_checkable
class SerializerProtocol(Protocol):
    """Turns values into a type name with bytes, and back."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type name and the bytes of ``obj``."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of a type name and bytes."""
        ...


class CipherProtocol(Protocol):
    """Encrypts bytes of no type, as LangGraph's ciphers do."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return the cipher's name and the ciphertext."""
        ...

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return the plaintext."""
        ...


class SerializerCompat(SerializerProtocol):
    """An untyped serializer with the two typed methods; its class name is the type."""

    def __init__(self, serde: UntypedSerializerProtocol) -> None:
        """Wrap ``serde``."""
        self.serde = serde

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the class name of ``obj`` and its bytes."""
        return type(obj).__name__, self.serde.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of the bytes, whatever their type name."""
        return self.serde.loads(data[1])


def maybe_add_typed_methods(serde: SerializerProtocol | UntypedSerializerProtocol) -> SerializerProtocol:
    """Return ``serde``, wrapped if it has only ``dumps`` and ``loads``."""
    return serde if isinstance(serde, SerializerProtocol) else SerializerCompat(serde)
