"""PreparedRing: a ring with derived keys and contexts, prepared once for each tag."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count
from typing import Final, NamedTuple

from sealpoint.crypto.context import PackedRow, Row, pack_row, pack_tag
from sealpoint.crypto.kinds import READABLE
from sealpoint.crypto.stats import OPENED, OPENED_RETIRED, SEALED
from sealpoint.crypto.suites import Suite, make_suite
from sealpoint.crypto.tag import Tag
from sealpoint.errors import (
    LegacyTypeError,
    RowMissingError,
    SecretMissingError,
    UnboundValueError,
    UnexpectedSecretError,
    excerpt,
)
from sealpoint.keys.counters import Tally
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import Key, require_secret
from sealpoint.keys.material import NeverPickled
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.state import KeyState

_RETIRED: Final = (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED)

_CACHED_TAGS: Final = 256
_CACHED_SECRETS: Final = 1024

Work = Callable[[bytes, bytes], bytes]  # data or blob, and context

parse_tag = lru_cache(_CACHED_TAGS)(Tag.parse)


class Opened(NamedTuple):
    """A value that was opened.

    Attributes:
        inner: Type name from the serializer, e.g. ``msgpack``.
        data: The serializer's bytes.
        authenticated: Whether a key of the ring authenticates type and bytes. False for an unsealed value,
            for a value under LANGGRAPH_AES_KEY, whose type is not authenticated, and for a value that
            another cipher than `RingCipher` opened.
        key_id: The key id in the tag, if the ring has this key.
    """

    inner: str
    data: bytes
    authenticated: bool
    key_id: str | None

    @property
    def typed(self) -> tuple[str, bytes]:
        """Type name and bytes, as a serializer's ``loads_typed`` takes them."""
        return self[:2]


# `Opened(...)` without its Python constructor: every value that is read passes here.
_opened: Final[Callable[[tuple[str, bytes, bool, str | None]], Opened]] = partial(tuple.__new__, Opened)


class _Sealing(NamedTuple):
    """What sealing a value of one type needs: the tag, the function, and the beginning of the context.

    ``seal`` uses the key without a secret, so it is not used for values that have one.
    """

    tag: str
    key: Key
    head: bytes
    seal: Work
    counter: count[int]


class _Opening(NamedTuple):
    """What opening a value with one tag needs."""

    inner: str
    key: Key
    suite: str
    head: bytes
    open: Work
    counter: count[int]
    authenticated: bool
    key_id: str | None


class PreparedRing(NeverPickled):
    """One ring with caches of everything derived from it. Its behaviour never changes."""

    def __init__(self, ring: KeyRing, suite: str, tally: Tally) -> None:
        self.ring = ring
        self._suite = suite
        self._tally = tally
        self._sealing = lru_cache(_CACHED_TAGS)(self._prepare_seal)
        self._opening = lru_cache(_CACHED_TAGS)(self._prepare_open)
        self._unmixed: dict[tuple[str, str], Suite] = {}  # by key id and name of the suite
        self._mixed: dict[bytes, dict[tuple[str, str], Suite]] = {}  # the same, by secret

    def seal(
        self, inner: str, data: bytes, row: Row | PackedRow | None, secret: bytes | None
    ) -> tuple[str, bytes]:
        """See `RingCipher.seal`. Here ``inner`` may be empty."""
        if row is None and secret is None:
            tag, _, head, seal, counter = self._sealing(inner)
        else:
            if secret is not None:
                require_secret(secret)
            tag, key, head, seal, counter = self._sealing(inner, row is not None, secret is not None)
            if secret is not None:
                seal = self._suite_of(key, self._suite, secret).seal
            if row is not None:
                head += row if isinstance(row, PackedRow) else pack_row(row)
        blob = seal(data, head)
        next(counter)
        return tag, blob

    def open(self, tag: str, blob: bytes, row: Row | PackedRow | None, secret: bytes | None) -> Opened:
        """See `RingCipher.open`."""
        if row is None and secret is None:
            inner, _, _, head, open_, counter, authenticated, key_id = self._opening(tag)
        else:
            if secret is not None:
                require_secret(secret)
            inner, key, suite, head, open_, counter, authenticated, key_id = self._opening(
                tag, row is not None, secret is not None
            )
            if secret is not None:
                open_ = self._suite_of(key, suite, secret).open
            if row is not None:
                head += row if isinstance(row, PackedRow) else pack_row(row)
        data = open_(blob, head)
        next(counter)
        return _opened((inner, data, authenticated, key_id))

    def forget_secret(self, secret: bytes) -> None:
        """Remove a secret, and every key derived from it, from the caches."""
        self._mixed.pop(secret, None)

    def _suite_of(self, key: Key, name: str, secret: bytes | None) -> Suite:
        """Return the suite called ``name`` under a key, with ``secret`` mixed in."""
        if secret is None:
            suites = self._unmixed
        else:
            if len(self._mixed) >= _CACHED_SECRETS and secret not in self._mixed:
                self._mixed = {}  # replaced as a whole, which needs no lock
            suites = self._mixed.setdefault(secret, {})
        found = suites.get((key.id, name))
        if found is None:
            found = suites[key.id, name] = make_suite(name, key.subkey(name, secret))
        return found

    def _prepare_seal(self, inner: str, is_bound: bool = False, is_mixed: bool = False) -> _Sealing:
        key = self.ring.require_active()
        flags = ("dek",) * is_mixed + ("row",) * is_bound
        tag = Tag(inner, self._suite, flags, key.id).format()
        seal = self._suite_of(key, self._suite, None).seal
        return _Sealing(tag, key, pack_tag(tag), seal, self._tally.counter(SEALED, key.id))

    def _prepare_open(self, text: str, is_bound: bool = False, is_mixed: bool = False) -> _Opening:
        tag = parse_tag(text)
        key = self._require_matching(tag, is_bound, is_mixed)
        kind = OPENED_RETIRED if key.state in _RETIRED else OPENED
        counter = self._tally.counter(kind, key.id)
        open_ = self._suite_of(key, tag.suite, None).open
        authenticated = tag.suite != LEGACY
        return _Opening(tag.inner, key, tag.suite, pack_tag(text), open_, counter, authenticated, tag.key_id)

    def _require_matching(self, tag: Tag, is_bound: bool, is_mixed: bool) -> Key:
        """Make all checks that need no cryptography, and return the key."""
        # The type of these rows is not authenticated: a row relabelled as a pickle could run code.
        if tag.key_id is None and tag.inner not in READABLE:
            raise LegacyTypeError(f"rows under LANGGRAPH_AES_KEY never have the type {excerpt(tag.inner)}")
        if "row" in tag.flags and not is_bound:
            raise RowMissingError(f"{tag.format()} is bound to its row, and no row was given")
        if "row" not in tag.flags and is_bound:
            raise UnboundValueError(f"{tag.format()} is not bound to a row")
        if "dek" in tag.flags and not is_mixed:
            raise SecretMissingError(f"{tag.format()} needs the secret of its thread")
        if "dek" not in tag.flags and is_mixed:
            raise UnexpectedSecretError(f"{tag.format()} has no secret in its key")
        return self.ring.require_legacy() if tag.suite == LEGACY else self.ring.require_key(str(tag.key_id))
