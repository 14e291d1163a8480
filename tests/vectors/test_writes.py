"""What is sealed in front of a write, and what a checkpoint says of writes: known answers, never edited."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode
from typing import Final

import pytest

from sealpoint.sealed.entry import pack_made, require_made
from sealpoint.sealed.rows import Claims, StoredWrite, pack_claims, places_of, require_whole, split_claims

PATH: Final = "~__pregel_pull, node"
CALL: Final = bytes.fromhex("0001020304050607 00000004 0002 00000000fc 00000001fc")
"""Of a node that was resumed: ``[__resume__, __resume__, a, b]``."""

FIRST: Final = "00000001000000147e5f5f70726567656c5f70756c6c2c206e6f6465"
"""As the first checkouts wrote it: no call."""

WITH_CALL: Final = (
    "00000002800000147e5f5f70726567656c5f70756c6c2c206e6f6465000102030405060700000004000200000000fc00000001fc"
)
MADE: Final = "eGhtJwTU1pAAAAAAAAAAAAAAAAF6+qNGtL+SvwABAgMEBQYHAAAAAg=="


@pytest.mark.parametrize(
    ("head", "claims"), [(FIRST, Claims(PATH, 1)), (WITH_CALL, Claims(PATH, 2, CALL))], ids=["first", "call"]
)
def test_claims(head: str, claims: Claims) -> None:
    assert pack_claims(claims).hex() == head
    assert split_claims(bytes.fromhex(head) + b"value") == (claims, b"value")


def test_places() -> None:
    ordinary, special = places_of(CALL)
    assert ([*ordinary], [*special]) == ([2, 3], [-4])


def test_made() -> None:
    """Computed here from its definition, too."""
    writes = [
        StoredWrite(Claims("", 2, CALL), "task-1", "a", "", b""),
        StoredWrite(Claims("", 3, CALL), "task-1", "b", "", b""),
        StoredWrite(Claims("", -4, CALL), "task-1", "__resume__", "", b""),
        StoredWrite(Claims("", 0), "task-2", "a", "", b""),
    ]
    require_whole(writes)
    assert pack_made(writes) == MADE
    require_made(MADE, writes)
    records = [
        hashlib.sha256(b"task-1").digest()[:8] + CALL[:8] + struct.pack(">I", 2),
        hashlib.sha256(b"task-2").digest()[:8] + bytes(8) + struct.pack(">I", 1),
    ]
    assert b64encode(b"".join(sorted(records))).decode() == MADE
