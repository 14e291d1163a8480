"""The tables ``[[wrapper]]`` of a ring file, and the ring's name, to which its wrapped keys are bound.

name = "agents"               # 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-'; never changes

[[wrapper]]
id = "aws-prod"               # of the same form as a key id
kind = "aws"                  # the other fields are those of the kind
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import DuplicateKeyError, RingFileError, excerpt
from sealpoint.keys.fields import require_text
from sealpoint.keys.ids import KEY_ID
from sealpoint.keys.wrap.ask import NamedWrapper
from sealpoint.keys.wrap.kinds import parse_wrapper
from sealpoint.keys.wrap.wrapper import WrapContext

RING_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Wrappers:
    """The wrappers of a ring.

    Attributes:
        file: The ring file, for messages.
        ring: The name of the ring, if it has one.
        by_id: The wrappers, in ring order.
    """

    file: Path
    ring: str | None
    by_id: Mapping[str, NamedWrapper]

    def require(self, wrapper_id: str) -> NamedWrapper:
        """Return the wrapper called ``wrapper_id``.

        Raises:
            RingFileError: If there is none.
        """
        if wrapper_id not in self.by_id:
            hint = "add a [[wrapper]] entry with this id to the ring file by hand, see docs/wrapped-keys.md"
            held = ", ".join(self.by_id) or "none"
            raise RingFileError(f"{self.file} has no wrapper {excerpt(wrapper_id)} (held: {held})", hint=hint)
        return self.by_id[wrapper_id]

    def context(self, key_id: str) -> WrapContext:
        """Return what a wrapped key of the ring is bound to.

        Raises:
            RingFileError: If the ring has no name.
        """
        if self.ring is None:
            hint = 'wrapped keys are bound to the ring\'s name: restore the line name = "..." from a copy'
            raise RingFileError(f"{self.file} has a wrapped key, and no 'name'", hint=hint)
        return WrapContext(self.ring, key_id)


def read_wrappers(table: Mapping[str, Any], file: Path) -> Wrappers:
    """Return the wrappers of a ring file. No service is asked.

    Raises:
        RingFileError: If one has another form than above, or is of an unknown kind.
        DuplicateKeyError: If two wrappers have the same id.
    """
    name = table.get("name")
    if name is not None and (not isinstance(name, str) or not RING_NAME.fullmatch(name)):
        hint = "use 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', starting with a letter or a digit"
        raise RingFileError(f"{file}: 'name' is not a name of a ring", hint=hint)
    entries = table.get("wrapper", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RingFileError(f"{file}: 'wrapper' is written as [[wrapper]]")
    by_id: dict[str, NamedWrapper] = {}
    for entry in entries:
        wrapper_id = require_text(entry, "id", f"{file}: a wrapper")
        where = f"{file}: wrapper {excerpt(wrapper_id)}"
        if not KEY_ID.fullmatch(wrapper_id):
            hint = "use 1 to 24 of a-z, 0-9, '.' and '-', starting with a letter or a digit"
            raise RingFileError(f"{where}: 'id' has another form than a key id", hint=hint)
        if wrapper_id in by_id:
            raise DuplicateKeyError(f"{file}: two wrappers are called {wrapper_id!r}")
        kind = require_text(entry, "kind", where)
        fields = {field: value for field, value in entry.items() if field not in ("id", "kind")}
        by_id[wrapper_id] = NamedWrapper(wrapper_id, parse_wrapper(kind, fields, where, file.parent))
    return Wrappers(file, name, by_id)
