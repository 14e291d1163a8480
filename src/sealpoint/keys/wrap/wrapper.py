"""Wrapper: encrypts key material under a key that another service holds, and decrypts it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

MAX_BLOB_BYTES: Final = 4096
"""How many bytes a wrapped key may have. That of a key of 32 bytes has under 300 in AWS KMS and in Vault."""


@dataclass(frozen=True, slots=True)
class WrapContext:
    """What a wrapped key is bound to: unwrapping it for another ring or key fails.

    Attributes:
        ring: The name of the ring.
        key: The id of the key.
    """

    ring: str
    key: str

    def pairs(self) -> dict[str, str]:
        """Return the context as names and values, e.g. for an encryption context of AWS."""
        return {"sealpoint:key": self.key, "sealpoint:ring": self.ring}

    def to_bytes(self) -> bytes:
        """Return the context as associated data: compact JSON in UTF-8 with sorted names."""
        import json

        return json.dumps(self.pairs(), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A wrapped key.

    Attributes:
        blob: What the service returned, at most `MAX_BLOB_BYTES`.
        version: The version of the wrapping key, if the service has versions and named it.
    """

    blob: bytes
    version: str | None = None


@dataclass(frozen=True, slots=True)
class WrapperState:
    """What a service says of its wrapping key.

    Attributes:
        version: The version with which it wraps now, if it has versions.
        problem: What will stop it from unwrapping, e.g. that it is disabled or waits for deletion.
    """

    version: str | None = None
    problem: str | None = None


class Wrapper(Protocol):
    """A wrapping key and the service that holds it. Equal wrappers unwrap the same blobs.

    An instance contains no credential. A call has a time limit, about 10 seconds; it is made again if its
    error says that it may pass. Messages need not name kind and location. No error shows material, or has the
    SDK's exception as its context. Calls may come from several threads, and in a child after a fork.
    """

    kind: ClassVar[str]
    """The name of the kind in a ring file."""

    @property
    def location(self) -> str:
        """The service and its key, for messages."""

    def wrap(self, material: bytes, context: WrapContext, /) -> WrappedKey:
        """Encrypt key material.

        Args:
            material: The key, 32 bytes (LANGGRAPH_AES_KEY: 16, 24 or 32).
            context: What it is bound to.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
        """

    def unwrap(self, blob: bytes, context: WrapContext, /) -> bytes:
        """Decrypt a wrapped key.

        Args:
            blob: What `wrap` returned.
            context: What it is bound to.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
            WrappedKeyError: If the blob is not one of this wrapper for this context.
        """

    def describe(self) -> WrapperState:
        """Ask the service for the state of its key. What it does not say is ``None``.

        Raises:
            KeyUnavailableError: If the service does not answer or refuses.
        """
