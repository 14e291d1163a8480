"""Keys and the ring that holds them: who may seal, who may open, and what is derived from a key.

Every suite has a subkey of its own, HKDF-Expand-SHA512(key, "sealpoint v1 " + suite, 32)
(RFC 5869, section 2.3). A thread's secret of 32 bytes is mixed in by using
HMAC-SHA512(key, "sealpoint v1 secret" | secret) in the key's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NoReturn

from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sealpoint.errors import (
    ActiveKeyError,
    DuplicateKeyError,
    KeyDestroyedError,
    KeyDisabledError,
    KeyMaterialError,
    KeyPickleError,
    KeyRingError,
    NoActiveKeyError,
    UnknownKeyError,
    UnknownSuiteError,
    excerpt,
)
from sealpoint.keys.ids import KEY_BYTES, LEGACY, LEGACY_KEY_BYTES, require_key_id
from sealpoint.keys.state import KeyState, require_suite_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from os import PathLike
    from pathlib import Path

SECRET_BYTES: Final = 32


def expand(key: bytes, purpose: str) -> bytes:
    """Derive 32 bytes for one purpose: HKDF-Expand-SHA512(key, "sealpoint v1 " + purpose, 32)."""
    return HKDFExpand(SHA512(), KEY_BYTES, f"sealpoint v1 {purpose}".encode()).derive(key)


def require_secret(secret: bytes) -> bytes:
    """Return a thread's secret.

    Raises:
        KeyMaterialError: If it is not 32 bytes.
    """
    if type(secret) is not bytes or len(secret) != SECRET_BYTES:
        raise KeyMaterialError(
            f"a thread's secret is exactly {SECRET_BYTES} bytes",
            hint=f"make it with os.urandom({SECRET_BYTES})",
        )
    return secret


def mix(key: bytes, secret: bytes) -> bytes:
    """Return the 64 bytes that stand in the place of a key of 32 for a ``.dek`` value."""
    mac = HMAC(key, SHA512())
    mac.update(b"sealpoint v1 secret" + require_secret(secret))
    return mac.finalize()


def check_value(key: bytes) -> str:
    """Return eight hex digits that tell one key from another and say nothing else about it."""
    return expand(key, "check")[:4].hex()


def require_one_legacy(suites: Iterable[str | None]) -> None:
    """Raise `KeyRingError` if two keys of a ring are for the suite ``aes``."""
    if sum(suite == LEGACY for suite in suites) > 1:
        raise KeyRingError(
            "two keys are for suite 'aes', whose rows do not say which of them sealed them",
            hint="give each of them a ring of its own, and open its rows with that ring",
        )


class NeverPickled:
    """What a class with key material owes: neither pickle nor copy takes it apart."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse.

        Raises:
            KeyPickleError: Always.
        """
        raise KeyPickleError(f"{type(self).__name__} holds key material and is never pickled")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Key(NeverPickled):
    """A key of a ring.

    Attributes:
        id: Public name, 1 to 24 of ``[a-z0-9.-]``; stands in the tag of every value it sealed.
        material: 32 bytes; for ``suite="aes"`` 16, 24 or 32; empty for a destroyed key, and it
            may be for a disabled one, which needs none to be refused.
        state: What may be done with it.
        created: When it was made, if known.
        destroyed: When it was destroyed, if it was and that is known.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY, whose rows name no key; else ``None``.
    """

    id: str
    material: bytes
    state: KeyState
    created: datetime | None = None
    destroyed: datetime | None = None
    suite: str | None = None

    def __post_init__(self) -> None:
        """Check id, length and state against each other."""
        require_key_id(self.id)
        if self.suite not in (None, LEGACY):
            hint = "name a suite only for LANGGRAPH_AES_KEY: 'aes'"
            raise UnknownSuiteError(f"key {self.id!r}: suite is {excerpt(self.suite)}", hint=hint)
        if not isinstance(self.state, KeyState):
            raise KeyRingError(f"key {self.id!r}: state is {type(self.state).__name__}, not KeyState")
        require_suite_state(self.id, self.suite, self.state)
        if not isinstance(self.material, bytes):
            raise KeyMaterialError(f"key {self.id!r}: material is {type(self.material).__name__}, not bytes")
        if len(self.material) not in self._lengths():
            wanted = " or ".join(map(str, self._lengths()))
            raise KeyMaterialError(
                f"key {self.id!r}: {len(self.material)} bytes of material instead of {wanted}",
                hint="LANGGRAPH_AES_KEY has 16, 24 or 32 characters" if self.suite else None,
            )

    def _lengths(self) -> tuple[int, ...]:
        if self.state is KeyState.DESTROYED:
            return (0,)
        lengths = LEGACY_KEY_BYTES if self.suite == LEGACY else (KEY_BYTES,)
        return (0, *lengths) if self.state is KeyState.DISABLED else lengths

    def __repr__(self) -> str:
        return f"Key(id={self.id!r}, state={self.state.value!r})"

    def subkey(self, suite: str, secret: bytes | None = None) -> bytes:
        """Return the key that ``suite`` uses: 32 bytes derived from this one, with ``secret`` mixed in.

        The legacy suite uses its key as it is.
        """
        if suite == LEGACY:
            return self.material
        return expand(self.material if secret is None else mix(self.material, secret), suite)

    def require_open(self) -> Key:
        """Return the key, if values under it may be opened.

        Raises:
            KeyDisabledError: If it is disabled.
            KeyDestroyedError: If it was destroyed.
        """
        if self.state is KeyState.DISABLED:
            raise KeyDisabledError(f"key {self.id!r} is disabled")
        if self.state is KeyState.DESTROYED:
            when = f" on {self.destroyed.isoformat()}" if self.destroyed else ""
            raise KeyDestroyedError(f"key {self.id!r} was destroyed{when}")
        return self


@dataclass(frozen=True, slots=True)
class Origin:
    """The ring file that a ring was read from.

    Attributes:
        path: The file, from the root.
        stamp: What tells whether it has changed since; ``None`` for a file that is not there.
        commands: By key id, the command that gave the key's material; the index key has the id ``""``.
    """

    path: Path
    stamp: tuple[int, ...] | None
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, path: Path) -> Origin:
        """Look at a file. The change time is part of the stamp: a mode that is put right is a change."""
        path = path.absolute()
        try:
            found = path.lstat()
        except OSError:
            return cls(path, None)
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


class KeyRing(NeverPickled):
    """The keys a process may use: at most one seals, the others only open. Never changes once made."""

    __slots__ = ("_by_id", "_index", "keys", "origin")

    keys: tuple[Key, ...]
    origin: Origin | None

    def __init__(
        self, keys: Iterable[Key], *, index: bytes | None = None, origin: Origin | None = None
    ) -> None:
        """Make a ring.

        Args:
            keys: At most one of them active, and at most one for the suite ``aes``.
            index: 32 bytes for blind indexes, if there are any.
            origin: The file it was read from, if it was.

        Raises:
            DuplicateKeyError: If two keys have one id.
            ActiveKeyError: If two keys are active.
            KeyRingError: If two keys are for the suite ``aes``.
            KeyMaterialError: If ``index`` does not have 32 bytes.
        """
        self.keys = tuple(keys)
        self._index = index
        self.origin = origin
        self._by_id = {key.id: key for key in self.keys}
        if len(self._by_id) != len(self.keys):
            ids = self.ids
            raise DuplicateKeyError(f"two keys are called {next(i for i in ids if ids.count(i) > 1)!r}")
        active = [key.id for key in self.keys if key.state is KeyState.ACTIVE]
        if len(active) > 1:
            raise ActiveKeyError(f"{len(active)} keys are active: {', '.join(active)}")
        require_one_legacy(key.suite for key in self.keys)
        if index is not None and (type(index) is not bytes or len(index) != KEY_BYTES):
            raise KeyMaterialError(f"index key is not {KEY_BYTES} bytes")

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> KeyRing:
        """Read a ring from its file.

        Args:
            path: The ring file. Without it the first of ``$SEALPOINT_KEYS``,
                ``$CREDENTIALS_DIRECTORY/sealpoint.keys`` and ``/etc/sealpoint/keys.toml`` counts.

        Raises:
            KeyRingError: One of its subclasses, each for one thing that can be wrong.
        """
        from sealpoint.keys.ringfile import load_ring  # the file needs the ring, not the reverse

        return load_ring(path)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(f'{key.id} {key.state.value}' for key in self.keys)})"

    @property
    def path(self) -> Path | None:
        """The ring file it was read from; ``None`` for a ring made by hand."""
        return None if self.origin is None else self.origin.path

    @property
    def active_id(self) -> str | None:
        """Id of the key that seals, if there is one."""
        return next((key.id for key in self.keys if key.state is KeyState.ACTIVE), None)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all keys, in ring order."""
        return tuple(key.id for key in self.keys)

    def get_key(self, key_id: str) -> Key | None:
        """Return the key called ``key_id``, whatever its state, or ``None``."""
        return self._by_id.get(key_id)

    def require_active(self) -> Key:
        """Return the key that seals.

        Raises:
            NoActiveKeyError: If none is active.
        """
        for key in self.keys:
            if key.state is KeyState.ACTIVE:
                return key
        raise NoActiveKeyError(f"no key of the ring is active (held: {', '.join(self.ids) or 'none'})")

    def require_key(self, key_id: str) -> Key:
        """Return the key called ``key_id``, if values under it may be opened.

        Raises:
            UnknownKeyError: If the ring does not hold it.
            KeyDisabledError: If it is disabled.
            KeyDestroyedError: If it was destroyed.
        """
        key = self._by_id.get(key_id)
        if key is None or key.suite == LEGACY:
            raise UnknownKeyError(key_id, self.ids)
        return key.require_open()

    def require_legacy(self) -> Key:
        """Return the key of LangGraph's own rows.

        Raises:
            UnknownKeyError: If no key of the ring is for the suite ``aes``.
            KeyDisabledError: If it is disabled.
            KeyDestroyedError: If it was destroyed.
        """
        for key in self.keys:
            if key.suite == LEGACY:
                return key.require_open()
        hint = (
            'add an entry with suite = "aes", state = "decrypt-only" and LANGGRAPH_AES_KEY for its material'
        )
        raise UnknownKeyError(LEGACY, self.ids, hint=hint)

    def get_command_material(self, key_id: str, command: tuple[str, ...]) -> bytes | None:
        """Return what a command of the ring file gave for a key, or for the index key, whose id is ``""``.

        ``None`` if the material is not held, or is from another source.
        """
        if self.origin is None or self.origin.commands.get(key_id) != command:
            return None
        key = self._by_id.get(key_id)
        return (key.material or None) if key else None if key_id else self._index

    def with_keys(self, keys: Iterable[Key]) -> KeyRing:
        """Return a ring of the same file and with the same index key, and other keys."""
        return KeyRing(keys, index=self._index, origin=self.origin)

    def keeps_index(self, older: KeyRing) -> bool:
        """Whether blind indexes made with ``older`` are those that this ring makes."""
        return older._index is None or compare_digest(older._index, self._index or b"")

    def index_key(self, purpose: str) -> bytes:
        """Derive 32 bytes for a blind index, from an entry of its own that never rotates.

        Raises:
            UnknownKeyError: If the ring has no index entry.
        """
        if self._index is None:
            raise UnknownKeyError("index", self.ids, hint="add an [[index]] entry, which never rotates")
        return expand(self._index, f"index {purpose}")
