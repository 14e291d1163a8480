"""The two implementations under attack, behind one face."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

KEY = bytes(range(32))
LEGACY_KEY = b"0123456789abcdef0123456789abcdef"

_SPOKEN_BY_SQLITE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_TOOBIG,
    }
)
"""What SQLite itself says of a file. Its other errors come of a statement that should not be."""


class Serializer(Protocol):
    """What both serializers have."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Side(Protocol):
    """An implementation.

    Attributes:
        name: Name of its column.
        quiet: Whether it promises short errors and few warnings, whatever the bytes hold.
    """

    name: str
    quiet: bool

    def strict(self, *, pickle_fallback: bool = False) -> Serializer:
        """Return the plain serializer, as strict as it gets."""
        ...

    def sealing(self, *, plaintext: bool = False, pickle_fallback: bool = False) -> Serializer:
        """Return the encrypting serializer around a strict one."""
        ...

    def saver(self, connection: sqlite3.Connection, serde: Serializer) -> Any:
        """Return a saver on a connection."""
        ...

    def refuses(self, error: Exception) -> bool:
        """Whether an exception is a refusal, and not an accident."""
        ...


class Sealpoint:
    """sealpoint."""

    name = "sealpoint"
    quiet = True

    def strict(self, *, pickle_fallback: bool = False) -> Serializer:
        """Return a JsonPlusSerializer with the safe types only."""
        from sealpoint.serde import JsonPlusSerializer

        return JsonPlusSerializer(allowed_msgpack_modules=None, pickle_fallback=pickle_fallback)

    def sealing(self, *, plaintext: bool = False, pickle_fallback: bool = False) -> Serializer:
        """Return an EncryptedSerializer with one key in every state, and LangGraph's."""
        from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
        from sealpoint.serde import EncryptedSerializer

        ring = KeyRing(
            [
                Key(id="k1", material=KEY, state=KeyState.ACTIVE),
                Key(id="k2", material=KEY[::-1], state=KeyState.DECRYPT_ONLY),
                Key(id="k3", material=KEY[1:] + KEY[:1], state=KeyState.DISABLED),
                Key(id="langgraph", material=LEGACY_KEY, state=KeyState.DECRYPT_ONLY, suite="aes"),
            ]
        )
        strict = self.strict(pickle_fallback=pickle_fallback)
        return EncryptedSerializer(RingCipher(ring), strict, plaintext="allow" if plaintext else "refuse")

    def saver(self, connection: sqlite3.Connection, serde: Serializer) -> Any:
        """Return a SqliteSaver."""
        from sealpoint.sqlite import SqliteSaver

        return SqliteSaver(connection, serde=serde)

    def refuses(self, error: Exception) -> bool:
        """Whether it is an error of the tree, or SQLite's word on a file."""
        from sealpoint.errors import SealpointError

        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", 0) & 0xFF in _SPOKEN_BY_SQLITE
        return isinstance(error, SealpointError)


class LangGraph:
    """LangGraph's own, with ``LANGGRAPH_STRICT_MSGPACK=true``."""

    name = "langgraph"
    quiet = False

    def strict(self, *, pickle_fallback: bool = False) -> Serializer:
        """Return a JsonPlusSerializer with the safe types only."""
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        return JsonPlusSerializer(allowed_msgpack_modules=None, pickle_fallback=pickle_fallback)

    def sealing(self, *, plaintext: bool = False, pickle_fallback: bool = False) -> Serializer:
        """Return an EncryptedSerializer. It knows no other policy for plaintext than to accept it."""
        from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

        strict: Any = self.strict(pickle_fallback=pickle_fallback)
        return EncryptedSerializer.from_pycryptodome_aes(strict, key=LEGACY_KEY)

    def saver(self, connection: sqlite3.Connection, serde: Serializer) -> Any:
        """Return a SqliteSaver."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(connection, serde=serde)

    def refuses(self, error: Exception) -> bool:
        """Whether it is an ordinary exception: there is no tree of errors to ask for more."""
        return not isinstance(error, MemoryError | SystemError)


@contextmanager
def opened(side: Side, path: Path, serde: Serializer | None = None) -> Iterator[Any]:
    """Open a file with a side's saver; strict, unless a serializer is given."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield side.saver(connection, side.strict() if serde is None else serde)
