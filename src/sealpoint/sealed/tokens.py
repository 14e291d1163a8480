"""Tokens: what stands in a database in place of metadata that is searched, and of thread ids.

    token       "sp" + hex(HMAC-SHA256(index key "metadata", LP(key) | LP(typed value))[:16])
    pseudonym   "t-" + base32(HMAC-SHA256(index key "thread_id", thread id))[:32], small letters

LP is a length as u32be and the bytes. The typed value is that of the JSON that is stored. Equal values have
equal tokens, which is what a search needs, and what a token shows. The index key never rotates, because a
token cannot be made again without the value.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from sealpoint.base import CheckpointTuple
from sealpoint.base.place import Place
from sealpoint.keys.key import NeverPickled, keyed_hash
from sealpoint.keys.ring import KeyRing
from sealpoint.sealed.steps import Request, Steps, spot_of
from sealpoint.threads.store import Spot

TOKEN: Final = re.compile(r"sp[0-9a-f]{32}\Z")
PSEUDONYM_START: Final = "t-"
PSEUDONYM: Final = re.compile(rf"{PSEUDONYM_START}[a-z2-7]{{32}}\Z")
_TOKEN_BYTES: Final = 16
_PSEUDONYM_CHARS: Final = 32
_CACHED: Final = 4096
# Integers below are exact as floats, so that 1 and 1.0 have one token
EXACT: Final = 2**53


class Tokens(NeverPickled):
    """Computes tokens and pseudonyms with the index key of a ring, and remembers the last few thousand."""

    def __init__(self, ring: Callable[[], KeyRing]) -> None:
        self._ring = ring
        # At first use; the index key of a ring never changes.
        self.key = lru_cache(lambda purpose: ring().index_key(purpose))
        self._token = lru_cache(_CACHED)(self._make_token)
        self.pseudonym = lru_cache(_CACHED)(self._make_pseudonym)

    def __repr__(self) -> str:
        return type(self).__name__

    def token(self, key: str, value: Any) -> str | None:
        """Return the token of one item of metadata; ``None`` if the value is no scalar."""
        text = _canonical(value)
        return None if text is None else self._token(key, text)

    @property
    def are_available(self) -> bool:
        """Whether the ring has an index key, and its material is loaded: no reader waits for it."""
        index = self._ring().index
        return index is not None and index.is_loaded

    def of(self, metadata: Mapping[str, Any]) -> frozenset[str]:
        """Return the tokens of all items of metadata that can have one."""
        made = (self.token(key, value) for key, value in metadata.items())
        return frozenset(token for token in made if token is not None)

    def _make_token(self, key: str, text: str) -> str:
        data = b"".join(
            len(part).to_bytes(4, "big") + part for part in (key.encode("utf-8", "ignore"), text.encode())
        )
        return "sp" + keyed_hash(self.key("metadata"), data)[:_TOKEN_BYTES].hex()

    def _make_pseudonym(self, thread_id: str) -> str:
        digest = keyed_hash(self.key("thread_id"), thread_id.encode())
        return PSEUDONYM_START + b32encode(digest).decode().lower()[:_PSEUDONYM_CHARS]


def in_json(value: Any) -> Any:
    """Return a scalar as it reads in the JSON of metadata: of a plain type, text without lone surrogates."""
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "ignore").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _canonical(value: Any) -> str | None:
    """Return a canonical, type-tagged encoding of a scalar: equal for values that are equal in JSON.

    Numbers are equal if their decimal digits are, as Postgres compares them.
    """
    value = in_json(value)
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, float):
        if not isfinite(value):
            return None
        if not value.is_integer():
            return f"n:{value!r}"
        value = int(value) if abs(value) < EXACT else int(Decimal(repr(value)))
    try:
        return f"n:{value:d}" if isinstance(value, int) else None
    except ValueError:  # Python converts at most 4,300 digits, also for JSON
        return None


_REMEMBERED: Final = 10_000


class Pseudonyms:
    """Finds what stands for a thread in the database.

    A pseudonym is remembered: a thread never loses it. Its own id is remembered too, and compared with the
    database each time, because another process may have deleted the thread and begun it again.
    """

    def __init__(self, tokens: Tokens, has_live: Callable[[str], Steps[bool]] | None) -> None:
        self._tokens = tokens
        self._has_live = has_live  # asks the thread store for a thread, if there is one
        self._known = OrderedDict[str, str]()

    def find(
        self, place: Place, check: Callable[[CheckpointTuple, Spot], object], *, is_new: bool
    ) -> Steps[str]:
        """Return the id of a thread in the database; ``is_new`` if it is about to be written.

        ``check`` authenticates a row: a forged one under the id itself would else be followed.
        """
        thread_id = place.thread_id
        column = self._known.get(thread_id)
        if is_new and not place.checkpoint_id:  # a history begins: what is put next has no parent
            self.forget(thread_id)  # what is stored upon it at the same time must not go under another id
        elif column is not None and column != thread_id:
            return column
        pseudonym = self._tokens.pseudonym(thread_id)
        # What looks like a pseudonym is never taken for an id: it is another thread's.
        may_be_named = not PSEUDONYM.match(thread_id)
        is_there = bool((yield _any_of(pseudonym)))
        is_renamed = self._has_live is not None and (yield from self._has_live(pseudonym))
        known = None if is_there or is_renamed else self._known.get(thread_id)
        if known is not None:
            return known  # its rows, which may be large, need not be read for it
        if self._has_live is not None:  # any row may have been put under a pseudonym, or removed
            if may_be_named and (yield from self._has_live(thread_id)):
                return self._remember(thread_id, pseudonym if is_renamed else thread_id)
            if not is_there and is_renamed:
                return pseudonym  # the thread is missing as a whole, which is noticed when it is read
        if is_there:
            return self._remember(thread_id, pseudonym)
        if may_be_named and (found := (yield _any_of(thread_id))):
            check(found[0], spot_of(found[0])._replace(thread_id=thread_id))
            return self._remember(thread_id, thread_id)
        return self._remember(thread_id, pseudonym) if is_new else pseudonym

    def others(self, thread_id: str, column: str) -> Sequence[str]:
        """Return what else than ``column`` may stand for a thread: its history may have begun twice.

        Nothing is looked for: writes without a checkpoint are no history, and must be deleted too.
        """
        named = () if PSEUDONYM.match(thread_id) else (thread_id,)
        return [other for other in (self._tokens.pseudonym(thread_id), *named) if other != column]

    def forget(self, thread_id: str) -> None:
        """Search for a thread again the next time: it was deleted."""
        self._known.pop(thread_id, None)

    def _remember(self, thread_id: str, column: str) -> str:
        self._known[thread_id] = column
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return column


def _any_of(thread_id: str) -> Request:
    return Request({"configurable": {"thread_id": thread_id}}, limit=1)
