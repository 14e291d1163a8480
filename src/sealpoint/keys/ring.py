"""KeyRing: a ring that was read from its file, or created in code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.seal.ring import Ring

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from pathlib import Path

    from sealpoint.keys.files import Origin
    from sealpoint.keys.ringfile import RingFile
    from sealpoint.seal.keys import Key, Material


class KeyRing(Ring):
    """The keys that a process may use: at most one key seals, the other keys only open. Immutable.

    Example:
        >>> from sealpoint import KeyRing
        >>> ring = KeyRing.load("keys.toml")
        >>> ring
        KeyRing(k1 active)
        >>> ring.active_id
        'k1'
    """

    __slots__ = ("origin",)

    def __init__(
        self, keys: Iterable[Key], *, index: bytes | Material | None = None, origin: Origin | None = None
    ) -> None:
        """Create a ring.

        Args:
            keys: The keys; at most one is active, and at most one is for the suite ``aes``.
            index: The index key, as 32 bytes or as material that is loaded later; ``None`` for no index key.
            origin: The file that the ring was read from; ``None`` for a ring that is created in code.

        Raises:
            ConfigError: If an element of ``keys`` is not a `Key`.
            KeyIdError: If two keys have the same id.
            RingFileError: If two keys are active.
            KeyRingError: If two keys are for the suite ``aes``.
            KeyMaterialError: If ``index`` does not have 32 bytes.
        """
        super().__init__(keys, index=index)
        self.origin = origin

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> KeyRing:
        """Read a ring from its file.

        The material of keys in files, environment variables and the ring file is loaded at once, as is the
        active key. Commands and wrappers are called for other keys at first use, or by `load_material`.

        Args:
            path: The ring file; by default the first of ``$SEALPOINT_KEYS``,
                ``$CREDENTIALS_DIRECTORY/sealpoint.keys`` and ``/etc/sealpoint/keys.toml``.

        Raises:
            KeyRingError: A subclass, which says what is wrong with the ring file or a key.
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
            KeyRingError: For the same reasons as the constructor.
        """
        held = [material for ring in older for material in ring.materials]
        keys = (file.make_key(entry, held) for entry in file.entries)
        return cls(keys, index=file.make_index(held), origin=file.origin)

    @property
    def path(self) -> Path | None:
        """The ring file that this ring was read from; ``None`` for a ring that is created in code."""
        return None if self.origin is None else self.origin.path

    @property
    def materials(self) -> tuple[Material, ...]:
        """The material of all keys that open values, and of the index key, loaded or not."""
        found = (*(key.lazy_material for key in self.keys), self.index)
        return tuple(material for material in found if material is not None)

    def load_material(self, *, is_local: bool = False) -> KeyRing:
        """Load all material that is not loaded yet, and return the ring.

        For programs that should fail at once if any key is not available.

        Args:
            is_local: Whether to skip material that has to be loaded by a wrapper or a command.

        Raises:
            KeyRingError: If a source does not provide the material of its key, or provides other material.
        """
        for material in self.materials:
            if not (is_local and material.is_slow):
                material.load()
        return self

    def with_keys(self, keys: Iterable[Key]) -> KeyRing:
        """Return a ring with other keys, but the same ring file and index key.

        Args:
            keys: All keys of the new ring.
        """
        return KeyRing(keys, index=self.index, origin=self.origin)
