"""SourceLoader: reads the material of one entry of a ring file, and compares it with the check value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealpoint.errors import (
    CheckValueError,
    FileLinkError,
    FilePermissionsError,
    SourceError,
    TestKeysError,
    WrappedKeyError,
)
from sealpoint.keys.files import read_private
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import check_value, require_length
from sealpoint.keys.material import Material, parse_material
from sealpoint.keys.sources import InlineSource, Source
from sealpoint.keys.wrapped import WrappedSource

TEST_MATERIAL_PREFIX: Final = b"sealpoint PUBLIC TEST key "
ALLOW_TEST_KEYS: Final = "SEALPOINT_ALLOW_TEST_KEYS"
_DISABLE: Final = "; a key that is no longer needed can be disabled, and is then not read"


@dataclass(frozen=True, slots=True)
class SourceLoader:
    """Reads the material of one entry, and compares it with the entry's check value.

    Attributes:
        source: Where the material is.
        file: The ring file.
        where: Names the entry in messages; equal for the same entry of the same file.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY.
        check: The entry's check value, if it has one.
        has_state: Whether the entry can be disabled; the index key cannot.
    """

    source: Source
    file: Path
    where: str
    suite: str | None
    check: str | None
    has_state: bool = True

    @property
    def is_slow(self) -> bool:
        """Whether reading may wait for another program or a network."""
        return self.source.is_slow

    def __call__(self) -> bytes:
        """Return the material.

        Raises:
            KeyRingError: One of its subclasses, if it is not available, or is not that of the entry.
        """
        try:
            raw = self.source.read(self.file.parent)
        except (FileLinkError, FilePermissionsError, SourceError, WrappedKeyError) as error:
            advice = _DISABLE if self.has_state and type(error) is SourceError else ""
            raise type(error)(f"{self.where}: {error}", hint=f"{error.hint}{advice}") from None
        parsed = raw if self.suite == LEGACY else parse_material(raw, self.where)
        material = require_length(parsed, self.suite, self.where)
        if material.startswith(TEST_MATERIAL_PREFIX):
            if os.environ.get(ALLOW_TEST_KEYS) != "1":
                raise TestKeysError(f"{self.where} is a public test key of keys.example")
        elif isinstance(self.source, InlineSource):
            # A ring with inline material must be as private as a key file.
            read_private(self.file, allow_links=True)
        if self.check not in (None, check_value(material)):
            raise CheckValueError(f"{self.where}: the material is not the one that 'check' was made from")
        return material

    def accepts(self, held: Material) -> bool:
        """Whether this loader would read the same material.

        The check value suffices if the key was moved to another source, or wrapped again for the same ring.
        """
        if held.loader == self:
            return True
        if not isinstance(held.loader, SourceLoader) or not held.is_loaded:
            return False
        if held.loader.source == self.source:
            return self.check in (None, check_value(held.get()))
        return self._moved_from(held.loader) and self.check == check_value(held.get())

    def _moved_from(self, other: SourceLoader) -> bool:
        mine, theirs = self.source, other.source
        if isinstance(mine, WrappedSource) and isinstance(theirs, WrappedSource):
            return self.where == other.where and mine.context == theirs.context
        return self.where == other.where


def get_material(loader: SourceLoader, held: Sequence[Material]) -> Material:
    """Return new material for a loader; for a slow loader held material, if it is the same."""
    same = (material for material in held if loader.accepts(material)) if loader.is_slow else iter(())
    return next(same, None) or Material(loader)
