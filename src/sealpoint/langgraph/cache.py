"""SealedCache: wraps a cache of LangGraph, and seals each value to its namespace and key.

    value   table=cache namespace=<labels, joined by NUL> key=<key>

The times of storage and expiry are not sealed, and an older value under the same key still opens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT

from sealpoint.errors import (
    ConfigError,
    KeyDestroyedError,
    KeyDisabledError,
    PlaintextError,
    SealpointError,
    UnboundValueError,
    UnknownKeyError,
    excerpt,
    located,
)
from sealpoint.forks import reset_in_child
from sealpoint.seal.carrier import Carrier, Sealable
from sealpoint.seal.cipher import parse_tag
from sealpoint.seal.context import PackedRow, RowTemplate
from sealpoint.seal.places import CACHED, require_unicode
from sealpoint.seal.rows import is_bound, require_sealed
from sealpoint.seal.tag import is_sealed
from sealpoint.sealed.layout import require_instance, require_ring
from sealpoint.sealed.tables import InheritedSaver
from sealpoint.serde import EncryptedSerializer
from sealpoint.threadpool import shared

_row: Final = RowTemplate(dict(CACHED.kind), CACHED.columns).row
_GONE: Final = (UnknownKeyError, KeyDisabledError, KeyDestroyedError)
_CLEAR: Final = (
    "remove the values cached before: SealedCache(...).clear(); if that does not help, find who writes to it"
)


class SealedCache(BaseCache[ValueT]):
    """A cache that seals values, each bound to its namespace and key, and stores them in another cache.

    A value that was changed, moved or not sealed by this class raises a `SealpointError`. A value sealed
    under a key that the ring lacks, or may not open with, counts as not cached: caches are not rotated.

    Attributes:
        inner: The wrapped cache. It has no key, and cannot be used alone any more.
        serde: The serializer that seals.

    Example:
        >>> from langgraph.cache.memory import InMemoryCache
        >>> from sealpoint.langgraph import EncryptedSerializer, SealedCache
        >>> cache = SealedCache(InMemoryCache(), serde=EncryptedSerializer.from_key_file("keys.toml"))
        >>> key = (("nodes", "search"), "tea")
        >>> cache.set({key: (["green", "black"], 60)})
        >>> cache.get([key])[key]
        ['green', 'black']
    """

    __module__ = "sealpoint.langgraph"

    inner: Any
    serde: EncryptedSerializer

    def __init__(self, cache: BaseCache[ValueT], serde: EncryptedSerializer) -> None:
        """Wrap a cache, and replace its serializer.

        Args:
            cache: LangGraph's InMemoryCache, SqliteCache or RedisCache, or another that passes each value to
                its ``serde``.
            serde: Serializes and seals; its cipher is a `RingCipher`.

        Raises:
            ConfigError: If ``cache`` is not a cache, or is wrapped already.
            SealingError: If the cipher cannot bind values to rows.
        """
        require_instance(cache, "cache", ("aclear",), "SealedCache(InMemoryCache(), ...)")
        if isinstance(cache, SealedCache) or isinstance(cache.serde, Carrier):
            raise ConfigError(
                f"this {type(cache).__name__} is wrapped already",
                hint="share one SealedCache between graphs, or create another cache",
            )
        require_ring(serde)
        super().__init__(serde=serde)
        cache.serde = Carrier()  # not on a copy: a copy of SqliteCache closes the connection of both
        self.inner = cache
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Refuse every later use if the wrapped cache has a connection to SQLite, which is the parent's."""
        inner = vars(self).get("inner")
        if "_conn" in getattr(inner, "__dict__", {}):
            self.inner = InheritedSaver(inner)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.inner).__name__})"

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Return the cached values by namespace and key; keys without a value are omitted.

        Args:
            keys: Pairs of a namespace and a key.

        Raises:
            PlaintextError: If a value is not sealed.
            UnboundValueError: If a value is sealed, but not bound to its key.
            IntegrityError: If a value was changed, moved or relabelled.
            SealpointError: An error of the serializer.
        """
        return self._open(keys, self.inner.get(keys))

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """Async version of `get`."""
        found = await self.inner.aget(keys)
        return await shared.run(self._open, keys, found) if found else {}

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Store values.

        Args:
            pairs: For each namespace and key, the value and its lifetime in seconds, or ``None`` for ever.

        Raises:
            ConfigError: If a namespace is not a tuple of labels without NUL, or a key is not text.
            SealpointError: If the serializer raises it; in that case nothing is stored.
        """
        self.inner.set(self._seal(pairs))

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Async version of `set`."""
        await self.inner.aset(await shared.run(self._seal, pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Remove the values of some namespaces, or all.

        Args:
            namespaces: Namespaces to clear; ``None`` for all.
        """
        self.inner.clear(namespaces)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Async version of `clear`."""
        await self.inner.aclear(namespaces)

    def _seal(
        self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]
    ) -> dict[FullKey, tuple[Sealable, int | None]]:
        """Seal all values before the first is stored."""
        return {
            full: (Sealable.of(partial(self.serde.seal, value, row=_row_of(*full)), now=True), ttl)
            for full, (value, ttl) in pairs.items()
        }

    def _open(self, keys: Sequence[FullKey], found: Mapping[FullKey, Any]) -> dict[FullKey, ValueT]:
        # SqliteCache joins labels by commas and splits them again: a label with a comma comes back as two.
        split = {(",".join(full[0]), full[1]): found[full] for full in found.keys() - set(keys)}
        values = ((full, found.get(full, split.get((",".join(full[0]), full[1])))) for full in keys)
        opened = dict[FullKey, ValueT]()
        with self.serde.tally:
            for full, value in values:
                if value is not None:
                    row = _row_of(*full)
                    try:
                        opened[full] = self._opened(value, row)
                    except _GONE:
                        continue
                    except SealpointError as error:
                        located(error, "cache", namespace=full[0], key=full[1])
                        raise
        return opened

    def _opened(self, value: Any, row: PackedRow) -> ValueT:
        tag, blob = require_sealed(value).tag, value.blob
        if not is_bound(tag):
            if is_sealed(tag):
                raise UnboundValueError(f"{excerpt(tag)} is not bound to a key of the cache", hint=_CLEAR)
            raise PlaintextError(f"a cached value of type {excerpt(tag)} is not sealed", hint=_CLEAR)
        # Checked first: the cipher would count a refusal.
        require_ring(self.serde).require_key(str(parse_tag(tag).key_id))
        opened = self.serde.open(tag, blob, row=row)
        return self.serde.decode(opened.inner, opened.data)  # type: ignore[no-any-return]


def _row_of(namespace: Namespace, key: str) -> PackedRow:
    """Return the coordinates to which a value is bound: namespace and key."""
    if not isinstance(namespace, tuple) or not all(isinstance(text, str) for text in (*namespace, key)):
        raise ConfigError("a key of the cache is not a pair of a tuple of labels and a text")
    labels = "\0".join(namespace)
    if namespace != (tuple(labels.split("\0")) if labels else ()):
        raise ConfigError("a namespace of the cache has a NUL, or is one empty label, and is ambiguous")
    return _row(require_unicode("namespace", labels), require_unicode("key", key))
