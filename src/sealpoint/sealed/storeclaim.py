"""What a sealed checkpoint says of its thread store: identity, a clock that it had reached, random bytes."""

from __future__ import annotations

import os
import re
from typing import Final

from sealpoint.errors import DecodeError

_RANDOM_BYTES: Final = 12
_CLAIM: Final = re.compile(r"([0-9a-f]{32}):([0-9]{1,20}):[0-9a-f]{24}")


def pack_claim(identity: str, clock: int) -> str:
    """Return what a checkpoint says."""
    return f"{identity}:{clock}:{os.urandom(_RANDOM_BYTES).hex()}"


def parse_claim(claim: object) -> tuple[str, int]:
    """Return the store and the clock that a sealed checkpoint claims.

    Raises:
        DecodeError: If they have another form: another program has sealed it.
    """
    found = _CLAIM.fullmatch(claim) if isinstance(claim, str) else None
    if found is None:
        raise DecodeError("a sealed checkpoint names its thread store in another form")
    return found[1], int(found[2])
