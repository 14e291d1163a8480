"""The source of a wrapped key: what a wrapper made of the material stands in the ring file itself."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from sealpoint.errors import RingFileError
from sealpoint.keys.fields import get_text, require_fields, require_text
from sealpoint.keys.sources import Source, parse_source
from sealpoint.keys.wrap.ask import NamedWrapper
from sealpoint.keys.wrap.wrapper import MAX_BLOB_BYTES, WrapContext
from sealpoint.keys.wrappertable import Wrappers

_FIELDS: Final = frozenset({"wrapped", "by", "version", "left"})


@dataclass(frozen=True, slots=True)
class WrappedSource:
    """A wrapped key in the ring file, and the wrapper that unwraps it.

        source = { wrapped = "BASE64", by = "aws-prod", version = "3" }

    The entry of a destroyed key keeps ``wrapped = ""`` as a record.

    Attributes:
        blob: The wrapped key.
        wrapper: Its wrapper.
        context: What it is bound to.
        version: The version of the wrapping key that made it, if the service named one.
        left: The file that has the same material, until `wrap_key` has removed it.
    """

    kind: ClassVar = "wrapped"
    is_slow: ClassVar = True
    blob: bytes = field(repr=False)
    wrapper: NamedWrapper
    context: WrapContext
    version: str | None = field(default=None, compare=False)
    left: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, table: Mapping[str, object], wrappers: Wrappers, key_id: str, where: str) -> WrappedSource:
        """Check the source that stands in a ring file. No service is asked.

        Raises:
            RingFileError: If a field is missing, unknown or of the wrong type, the wrapper is not in the
                ring, or the ring has no name.
        """
        require_fields(table, _FIELDS, {"by"}, where)
        text = require_text(table, cls.kind, where)
        try:
            blob = b64decode(text, validate=True)
        except ValueError:
            raise RingFileError(f"{where}: 'wrapped' is not base64") from None
        if not 0 < len(blob) <= MAX_BLOB_BYTES:
            raise RingFileError(f"{where}: 'wrapped' has {len(blob)} bytes, not 1 to {MAX_BLOB_BYTES}")
        version, left = get_text(table, "version", where), get_text(table, "left", where)
        wrapper = wrappers.require(require_text(table, "by", where))
        return cls(blob, wrapper, wrappers.context(key_id), version, left)

    @property
    def location(self) -> str:
        """The service and its key."""
        return self.wrapper.wrapper.location

    def read(self, _: Path, /) -> bytes:
        """Unwrap the key.

        Raises:
            KeyUnavailableError: If the service does not answer, or refuses.
            WrappedKeyError: If it was wrapped by another wrapper, or for another ring or key.
        """
        return self.wrapper.unwrap(self.blob, self.context)


def parse_key_source(source: object, wrappers: Wrappers, key_id: str, where: str) -> Source:
    """Parse the source of a key, which may be wrapped. No material is read, and no service is asked.

    Args:
        source: What stands in the file.
        wrappers: Those of the ring.
        key_id: The id of the key, to which a wrapped one is bound.
        where: Names the key in messages.

    Raises:
        RingFileError: If ``source`` is not a table with exactly one known kind and a valid value.
    """
    if isinstance(source, dict) and WrappedSource.kind in source:
        return WrappedSource.parse(source, wrappers, key_id, where)
    return parse_source(source, (WrappedSource.kind,))
