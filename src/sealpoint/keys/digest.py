"""The digest of a ring: it differs after every change of a key's id, state, check value or source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sealpoint.keys.entry import RingEntry


def ring_digest(entries: Iterable[RingEntry]) -> str:
    """Return the SHA-256 over what a ring says about its keys, as ``sha256:`` and 64 hexadecimal digits.

    What is hashed has a line of ASCII JSON for each key: ``[id, state, suite, check, source, location]``. The
    lines are sorted, and each ends with a newline. Neither key material nor dates are part of it.
    """
    lines = sorted(
        json.dumps([entry.id, entry.state.value, entry.suite, entry.check, entry.source, entry.location])
        for entry in entries
    )
    return "sha256:" + hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
