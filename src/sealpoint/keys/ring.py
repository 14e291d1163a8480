"""KeyRing: the keys that a process may use. At most one seals; the others only open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.errors import NoActiveKeyError, UnknownKeyError, require_is
from sealpoint.keys.key import (
    Key,
    Material,
    NeverPickled,
    active_id,
    expand,
    require_consistent,
    require_length,
)
from sealpoint.keys.state import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from pathlib import Path

    from sealpoint.keys.files import Origin
    from sealpoint.keys.ringfile import RingFile


class KeyRing(NeverPickled):
    """The keys that a process may use: at most one seals, the others only open. Immutable.

    Example:
        >>> from sealpoint import KeyRing
        >>> ring = KeyRing.load("keys.toml")
        >>> ring
        KeyRing(k1 active)
        >>> ring.active_id
        'k1'
    """

    __slots__ = ("_by_id", "index", "keys", "origin")

    def __init__(
        self, keys: Iterable[Key], *, index: bytes | Material | None = None, origin: Origin | None = None
    ) -> None:
        """Make a ring.

        Args:
            keys: At most one of them active, and at most one for the suite ``aes``.
            index: 32 bytes for blind indexes, or an object that loads them; ``None`` for no index key.
            origin: The file it was read from; ``None`` for a ring that is created in code.

        Raises:
            ConfigError: If one of them is not a key.
            KeyIdError: If two keys have the same id.
            RingFileError: If two keys are active.
            KeyRingError: If two keys are for the suite ``aes``.
            KeyMaterialError: If ``index`` does not have 32 bytes.
        """
        self.keys = tuple(keys)
        for key in self.keys:
            require_is(key, Key, "one of the keys", "create Key(ID, MATERIAL, STATE), or KeyRing.load(PATH)")
        self.origin = origin
        require_consistent(self.keys)
        self._by_id = {key.id: key for key in self.keys}
        if index is not None and not isinstance(index, Material):
            index = Material(require_length(index, None, "index key"))
        self.index = index

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> KeyRing:
        """Read a ring from its file.

        Material in files, variables and the ring itself is read and checked, as is that of the active key.
        Commands of other keys run when their material is first used, or in `load_material`.

        Args:
            path: The ring file; by default the first of ``$SEALPOINT_KEYS``,
                ``$CREDENTIALS_DIRECTORY/sealpoint.keys`` and ``/etc/sealpoint/keys.toml``.

        Raises:
            KeyRingError: One of its subclasses, each for one thing that can be wrong.
        """
        # Not above: a ring that is created in code needs no TOML.
        from sealpoint.keys.ringfile import RingFile

        ring = cls.of_file(RingFile(path)).load_material(is_local=True)
        if ring.active_id is not None and (material := ring.require_active().lazy_material) is not None:
            material.load()
        return ring

    @classmethod
    def of_file(cls, file: RingFile, *older: KeyRing) -> KeyRing:
        """Create the ring that a file describes. No material is loaded.

        Args:
            file: The file, parsed.
            older: Earlier rings of this file; their material from slow sources is reused.

        Raises:
            KeyRingError: As the constructor.
        """
        held = [material for ring in older for material in ring.materials]
        keys = (file.make_key(entry, held) for entry in file.entries)
        return cls(keys, index=file.make_index(held), origin=file.origin)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(f'{key.id} {key.state.value}' for key in self.keys)})"

    @property
    def path(self) -> Path | None:
        """The ring file it was read from; ``None`` for a ring that is created in code."""
        return None if self.origin is None else self.origin.path

    @property
    def active_id(self) -> str | None:
        """Id of the active key, if there is one."""
        return active_id(self.keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all keys, in ring order."""
        return tuple(key.id for key in self.keys)

    def get_key(self, key_id: str) -> Key | None:
        """Return the key called ``key_id``, whatever its state, or ``None``."""
        return self._by_id.get(key_id)

    def require_active(self) -> Key:
        """Return the active key.

        Raises:
            NoActiveKeyError: If none is active.
        """
        key = self._by_id.get(self.active_id or "")
        if key is not None:
            return key
        raise NoActiveKeyError(f"no key of the ring is active (held: {', '.join(self.ids) or 'none'})")

    def require_key(self, key_id: str) -> Key:
        """Return the key called ``key_id`` if values under it may be opened.

        Raises:
            UnknownKeyError: If the ring does not have it.
            KeyDisabledError: If it is disabled.
            KeyDestroyedError: If it was destroyed.
        """
        key = self._by_id.get(key_id)
        # LangGraph's rows name no key: a tag with the id of the legacy key would use it with another suite.
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

    @property
    def materials(self) -> tuple[Material, ...]:
        """The material of all keys that have any, including the index key, loaded or not."""
        found = (*(key.lazy_material for key in self.keys), self.index)
        return tuple(material for material in found if material is not None)

    def load_material(self, *, is_local: bool = False) -> KeyRing:
        """Load all material that is not loaded yet, and return the ring.

        For programs that should fail at once if any key is not available.

        Args:
            is_local: Whether no wrapper and no command is asked: only files, variables and the ring file.

        Raises:
            KeyRingError: If a source does not provide the material of its key, or provides other material.
        """
        for material in self.materials:
            if not (is_local and material.is_slow):
                material.load()
        return self

    def with_keys(self, keys: Iterable[Key]) -> KeyRing:
        """Return a ring with other keys, and the same file and index key.

        Args:
            keys: All keys of the new ring.
        """
        return KeyRing(keys, index=self.index, origin=self.origin)

    def index_key(self, purpose: str) -> bytes:
        """Derive 32 bytes for a blind index from the index key, which never rotates.

        Args:
            purpose: What the index is for: two purposes have two keys.

        Raises:
            UnknownKeyError: If the ring has no index entry.
            KeyRingError: Another of its subclasses, if the index key's material is not available.
        """
        if self.index is None:
            raise UnknownKeyError("index", self.ids, hint="add an index key: sealpoint keys generate --index")
        return expand(self.index.get(), f"index {purpose}")
