"""Errors of sealed values and their tags."""

from __future__ import annotations

from sealpoint.errors.root import SealpointError


class SealedValueError(SealpointError):
    """A value cannot be opened or sealed."""


class TagError(SealedValueError, ValueError):
    """A type tag is not of the form ``<inner>+<suite>[.flags]@<key id>``."""

    hint = "the row was damaged, forged, or not written by sealpoint"


class UnknownSuiteError(TagError, NotImplementedError):
    """A tag names a sealing suite that this release does not know."""

    hint = "the row was forged, or written by a newer release"


class PlaintextError(SealedValueError, ValueError):
    """A value is not sealed, and plaintext is not allowed."""

    hint = 'seal existing rows first, or pass plaintext="allow" while you migrate'


class BlobError(SealedValueError, ValueError):
    """A blob is not bytes, or is too short for a sealed value."""

    hint = "the row was damaged or forged; restore it from backup"


class IntegrityError(SealedValueError, ValueError):
    """Authentication failed: bytes, tag, key or row differ from those that were sealed."""

    hint = "the row was changed, moved or relabelled, or the ring holds another key under this id"


class RowMissingError(SealedValueError, ValueError):
    """A value is bound to its row, but no row was given."""

    hint = "read it through the saver that wrote it"


class UnboundValueError(SealedValueError, ValueError):
    """A row was given, but the value is not bound to a row."""

    hint = "the value was written before rows were bound, or was forged"


class SecretMissingError(SealedValueError, ValueError):
    """The value's key is derived with a per-thread secret, but none was given."""

    hint = "read it through the saver that wrote it"


class UnexpectedSecretError(SealedValueError, ValueError):
    """A per-thread secret was given, but the value's key is derived without one."""

    hint = "the value was written before threads had secrets, or was forged"


class LegacyTypeError(SealedValueError, ValueError):
    """A row under LANGGRAPH_AES_KEY names an inner type that is not allowed there."""

    hint = "such rows do not authenticate their type: only null, bytes, bytearray, msgpack and json are read"


class CipherSurfaceError(SealedValueError, TypeError):
    """A cipher with only ``encrypt`` and ``decrypt`` cannot bind a row or use a secret."""

    hint = "use RingCipher"
