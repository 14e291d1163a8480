"""The cipher: seals values under the active key of a ring, and opens a value under the key in its tag.

Never falls back: an unknown key, suite or flag, a missing ``row``, and every failed authentication each raise
an error of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from sealpoint.errors import ContextMissingError, UnboundValueError, UnknownTypeError, excerpt
from sealpoint.seal.compression import Zstd, decompress
from sealpoint.seal.context import PackedRow, Row, pack_row, pack_tag
from sealpoint.seal.keys import LEGACY, Key, KeyState, NeverPickled
from sealpoint.seal.ring import Ring
from sealpoint.seal.suites import Suite, make_suite
from sealpoint.seal.tag import COMPRESSED, READABLE, Tag

# What is counted, by key id.
SEALED: Final = "sealed"
OPENED: Final = "opened"
OPENED_RETIRED: Final = "opened_retired"

Counter = Callable[[str, str], "count[int]"]
R = TypeVar("R", bound=Ring)

_RETIRED: Final = (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED)

_CACHED_TAGS: Final = 256

Work = Callable[[bytes, bytes], bytes]  # data or blob, and context

parse_tag = lru_cache(_CACHED_TAGS)(Tag.parse)


class Opened(NamedTuple):
    """A value that was opened.

    Attributes:
        inner: Type name from the serializer, e.g. ``msgpack``.
        data: The serializer's bytes.
        authenticated: Whether a key of the ring authenticates type and bytes. False for an unsealed value,
            for a value under LANGGRAPH_AES_KEY, whose type is not authenticated, and for a value opened by
            another cipher than `RingCipher`.
        key_id: The key id in the tag, if the ring has this key.
    """

    inner: str
    data: bytes
    authenticated: bool
    key_id: str | None

    @property
    def typed(self) -> tuple[str, bytes]:
        """The pair of type name and bytes that a serializer's ``loads_typed`` takes."""
        return self[:2]


# `Opened(...)` without its Python constructor: every value that is read passes here.
_opened: Final[Callable[[tuple[str, bytes, bool, str | None]], Opened]] = partial(tuple.__new__, Opened)


# What sealing a value of one type needs: tag, beginning of the context, function and counter.
_Sealing: TypeAlias = "tuple[str, bytes, Work, count[int]]"

# What opening a value with one tag needs: type, beginning of the context, function and counter,
# `authenticated` and `key_id` of `Opened`, and whether the value is compressed.
_Opening: TypeAlias = "tuple[str, bytes, Work, count[int], bool, str | None, bool]"


class PreparedRing(NeverPickled, Generic[R]):
    """One ring, with caches of the keys and suites that are derived from it. Immutable but for the caches."""

    ring: R

    def __init__(self, ring: R, suite: str, counter: Counter, zstd: Zstd) -> None:
        """Prepare a ring.

        Args:
            ring: The keys.
            suite: Name of the suite to seal with.
            counter: Function that returns the counter for a kind of event, such as `SEALED`, and a key id.
            zstd: Function that returns the module for zstd.
        """
        self.ring, self._suite, self._counter, self._zstd = ring, suite, counter, zstd
        self._sealing = lru_cache(_CACHED_TAGS)(self._prepare_seal)
        self._opening = lru_cache(_CACHED_TAGS)(self._prepare_open)
        self._suites: dict[tuple[str, str], Suite] = {}  # by key id and name of the suite

    def seal(
        self, inner: str, data: bytes, row: Row | PackedRow | None, frame: bytes | None = None
    ) -> tuple[str, bytes]:
        """Seal a value: return its tag and the sealed bytes. `RingCipher.seal` names the errors.

        Args:
            inner: Type name, which may be empty here.
            data: The bytes of the serializer.
            row: Coordinates to bind the value to, if any.
            frame: ``data`` compressed by zstd, to be sealed instead of ``data``.
        """
        tag, head, seal, counter = self._sealing(inner, row is not None, frame is not None)
        if frame is not None:
            data = frame
        if row is not None:
            head += row if isinstance(row, PackedRow) else pack_row(row)
        blob = seal(data, head)
        next(counter)
        return tag, blob

    def open(self, tag: str, blob: bytes, row: Row | PackedRow | None) -> Opened:
        """Open a value by its tag. See `RingCipher.open`, which names the errors."""
        opening = self._opening(tag, row is not None)
        inner, head, open_, counter, authenticated, key_id, is_compressed = opening
        if row is not None:
            head += row if isinstance(row, PackedRow) else pack_row(row)
        data = open_(blob, head)
        if is_compressed:
            data = decompress(data, self._zstd)
        next(counter)
        return _opened((inner, data, authenticated, key_id))

    def _suite_of(self, key: Key, name: str) -> Suite:
        found = self._suites.get((key.id, name))
        if found is None:
            found = self._suites[key.id, name] = make_suite(name, key.subkey(name))
        return found

    def _prepare_seal(self, inner: str, is_bound: bool, is_compressed: bool) -> _Sealing:
        key = self.ring.require_active()
        flags = (COMPRESSED,) * is_compressed + ("row",) * is_bound
        tag = Tag(inner, self._suite, flags, key.id).format()
        seal = self._suite_of(key, self._suite).seal
        return tag, pack_tag(tag), seal, self._counter(SEALED, key.id)

    def _prepare_open(self, text: str, is_bound: bool) -> _Opening:
        tag = parse_tag(text)
        key = self._require_matching(tag, is_bound)
        kind = OPENED_RETIRED if key.state in _RETIRED else OPENED
        counter = self._counter(kind, key.id)
        open_ = self._suite_of(key, tag.suite).open
        authenticated = tag.suite != LEGACY
        is_compressed = COMPRESSED in tag.flags
        return tag.inner, pack_tag(text), open_, counter, authenticated, tag.key_id, is_compressed

    def _require_matching(self, tag: Tag, is_bound: bool) -> Key:
        """Check a tag against the ring and the presence of a row, and return the key that opens the value."""
        # The type of these rows is not authenticated: a row relabelled as a pickle could run code.
        if tag.key_id is None and tag.inner not in READABLE:
            raise UnknownTypeError(
                f"rows under LANGGRAPH_AES_KEY never have the type {excerpt(tag.inner)}",
                hint=(
                    "such rows do not authenticate their type: only null, bytes, bytearray, msgpack"
                    " and json are read"
                ),
            )
        if "row" in tag.flags and not is_bound:
            raise ContextMissingError(f"{tag.format()} is bound to its row, and no row was given")
        if "row" not in tag.flags and is_bound:
            raise UnboundValueError(f"{tag.format()} is not bound to a row")
        return self.ring.require_legacy() if tag.suite == LEGACY else self.ring.require_key(str(tag.key_id))


# Pickles and messages name the class by its former module.
Opened.__module__ = "sealpoint.crypto.cipher"
