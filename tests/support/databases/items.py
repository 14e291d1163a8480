"""Items of LangGraph's Store: sealed as `SealedStore` does it, and cells of them as databases return them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sealpoint.admin.databases.cells import ITEMS, Cell, Where
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.seal.items import ItemName, Items
from sealpoint.seal.places import KEY, read_frame
from sealpoint.seal.tokens import Tokens
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.sealed import make_ring

NAME = ItemName(("users", "ada"), "allergy")
VALUE = {"allergy": "penicillin", "user": "ada", "dose": 1.5}


def with_index(key_id: str = "k1", *others: str) -> RingCipher:
    """A cipher whose ring has an index key."""
    ring = make_ring(key_id, *others)
    return RingCipher(KeyRing(ring.keys, index=b"i" * 32))


def items_of(
    cipher: RingCipher, plain: tuple[str, ...] = (), indexed: tuple[str, ...] = (), **named: Any
) -> Items:
    """What seals and opens items."""
    serde = EncryptedSerializer(cipher, plaintext="allow" if named.get("allow_unbound") else "refuse")
    tokens = Tokens(lambda: cipher.ring)
    return Items(serde, frozenset(plain), frozenset(indexed), tokens, **named)


def cell_of(name: ItemName, stored: Mapping[str, Any] | str) -> Cell:
    """The cell of an item in a store of whole rows."""
    text = stored if isinstance(stored, str) else json.dumps(stored)
    tag, value = None, None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        tag, value = read_frame(found[KEY]) if KEY in found else ("json", text.encode())
    where = Where(ITEMS, (".".join(name.namespace), name.key), None, {"value": text})
    return Cell(value, tag, where)
