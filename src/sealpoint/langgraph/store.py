"""SealedStore: wraps LangGraph's Store, and seals what an agent remembers across threads.

A batch is a procedure without I/O (`sealpoint.sealed.steps`) over the method ``batch`` of the wrapped store:
reads come first, then puts. See `sealpoint.seal.items` for the stored form.

The results differ from those of the wrapped store alone:

- Values keep types that the serializer supports and JSON lacks, such as bytes, times, and keys that are not
  text.
- Fields that are not plain are compared as `InMemoryStore` does; see `sealpoint.sealed.conditions`. Tokens
  distinguish true from 1, as Postgres does, and a missing field has no token.
- Each result is a new object: changes by a caller do not change an `InMemoryStore`.
- A filter with a query finds all matching items, also items outside of the wrapped store's own selection.
- With pseudonyms, pages of namespaces come in the order of pseudonyms, and a namespace without an item, which
  `InMemoryStore` lists, is not listed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from math import inf
from time import monotonic
from typing import Any, Final, Literal, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from sealpoint.base.metadata import names_of
from sealpoint.crypto.cipher import UNBOUND
from sealpoint.crypto.zstd import Postponed, decompressing_at_most
from sealpoint.errors import ConfigError, PlaintextError, RowError, SealpointError, excerpt, located
from sealpoint.forks import reset_in_child
from sealpoint.langgraph.pages import Pages, Times, name_of, others, seconds_of, stored_chars, times_of
from sealpoint.seal.items import ItemName, Items, require_unframed
from sealpoint.seal.places import require_unicode
from sealpoint.seal.tokens import Tokens
from sealpoint.sealed.conditions import Conditions, divide
from sealpoint.sealed.drivers import decoding_late, item_row
from sealpoint.sealed.layout import require_instance, require_ring
from sealpoint.sealed.saver import UnboundPolicy, logger
from sealpoint.sealed.steps import LARGE_BYTES, Call, Do, R, Steps, watch
from sealpoint.sealed.tables import Wrapping, tables_of
from sealpoint.serde import EncryptedSerializer
from sealpoint.serde.encode import refusing_surrogates

VectorPolicy = Literal["refuse", "open"]

TEXTS: Final = "__texts__"

# A store whose replies are its own objects, and are not sorted by time
_SHARED: Final = "langgraph.store.memory"

# Stores that return items of one time in the same order on each page; Postgres does not
_ORDERED: Final = "langgraph.store.sqlite"

# After this number of seconds, all items that were saved meanwhile are read in one request
_MAX_SECONDS: Final = 10

# How long a transaction takes that saves items, and less than a second, to which SQLite rounds
_SAVE_SECONDS: Final = 2

# Stores that refuse a NUL in a key only after other items of the batch may have been stored
_NO_NUL: Final = "langgraph.store.postgres"


class _Indexed(dict[str, Any]):
    """The stored form of an item, with texts that the wrapped store must index, but must not store.

    The store looks up the texts by the name of a field, `TEXTS`, and then stores a copy, which lacks that
    field.
    """

    __slots__ = ("texts",)

    texts: dict[str, list[str]]

    def __contains__(self, name: object) -> bool:
        return name == TEXTS or super().__contains__(name)

    def __getitem__(self, name: str) -> Any:
        return self.texts if name == TEXTS else super().__getitem__(name)


class _Batched(AsyncBatchedBaseStore):
    """Base class of a `SealedStore` whose wrapped store collects concurrent operations into batches."""

    inner: Any
    _task = None  # read even if `__init__` has raised an error

    async def __aenter__(self) -> Self:
        await type(self.inner).__aenter__(self.inner)
        return self

    async def __aexit__(self, *raised: object) -> Any:
        return await type(self.inner).__aexit__(self.inner, *raised)


@cache
def _batched(kind: Any) -> Any:
    return type(kind.__name__, (kind, _Batched), {"__module__": kind.__module__, "__doc__": kind.__doc__})


class SealedStore(Wrapping, BaseStore):
    """A store that seals items, each bound to its namespace and key, and stores them in another store.

    Every method raises a `SealpointError` if an item that it reads was changed, moved or exchanged. A deleted
    item, or a restored older value of the same item, is not detected; times and expiry are not sealed.
    Names of namespaces and keys stay readable, unless ``pseudonyms`` is given. See docs/memory.md.

    Attributes:
        inner: The copy of the wrapped store.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> from sealpoint.langgraph import EncryptedSerializer, SealedStore
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> store = SealedStore(InMemoryStore(), serde=serde)
        >>> store.put(("users", "ada"), "profile", {"likes": "tea"})
        >>> store.get(("users", "ada"), "profile").value
        {'likes': 'tea'}
    """

    __module__ = "sealpoint.langgraph"

    def __new__(cls, store: Any = None, *_: Any, **__: Any) -> Self:
        """Create an object whose class collects operations into batches, if the class of ``store`` does."""
        made: Self = super().__new__(_batched(cls) if isinstance(store, AsyncBatchedBaseStore) else cls)
        reset_in_child(made)
        return made

    def __init__(
        self,
        store: Any,
        serde: EncryptedSerializer,
        *,
        plain_fields: Collection[str] = (),
        indexed_fields: Collection[str] = (),
        pseudonyms: bool = False,
        vectors: VectorPolicy = "refuse",
        unbound: UnboundPolicy = "refuse",
        allow_write_plain: bool = False,
        allow_schema: bool = False,
    ) -> None:
        """Wrap a store.

        Args:
            store: One of LangGraph's stores. It is not changed.
            serde: Serializes and seals; its cipher is a `RingCipher`.
            plain_fields: Top-level fields that stay readable, for the filters of the store. They hold JSON.
            indexed_fields: Top-level fields that a filter on equality finds by token. Equal values have equal
                tokens, which anybody can compare. Needs an index key in the ring.
            pseudonyms: Whether pseudonyms replace labels of namespaces, and keys, in the database: only for
                a store that has used them from the beginning. Needs an index key.
            vectors: ``refuse`` a store with an index, or ``open`` to search by meaning: **any reader of the
                database then has the embeddings, from which texts can be reconstructed**.
            unbound: ``refuse``, or ``allow`` to read items that are unsealed, or lack plain fields or tokens,
                during a migration; only this process filters. ``serde`` needs ``plaintext="allow"``.
            allow_write_plain: During a migration, whether items are written as the store alone writes them,
                for processes that have no `SealedStore` yet. **Nothing is sealed.** Needs
                ``unbound="allow"``.
            allow_schema: Whether tables may have additions that LangGraph does not create, such as triggers.

        Raises:
            ConfigError: If an argument is invalid, or the store cannot be sealed.
            SealingError: If the cipher cannot bind values to rows.
            PlaintextError: If ``serde`` refuses unsealed items, and ``allow_write_plain`` would write some.
            UnknownKeyError: If an index key is needed, and the ring lacks it.
        """
        if isinstance(store, SealedStore):
            raise ConfigError("the store is a SealedStore already")
        require_instance(store, "store", ("batch", "abatch"), "SealedStore(SqliteStore(connection), ...)")
        if unbound not in ("refuse", "allow"):
            raise ConfigError(f"unbound must be 'refuse' or 'allow', not {excerpt(str(unbound))}")
        config = getattr(store, "index_config", None)
        if vectors not in ("refuse", "open"):
            raise ConfigError(f"vectors must be 'refuse' or 'open', not {excerpt(str(vectors))}")
        if config and vectors == "refuse":
            raise ConfigError(
                "the store has an index: its embeddings stay readable, and reveal nearly the whole texts",
                hint='create the store without index=, or pass vectors="open" if that is acceptable',
            )
        require_ring(serde)
        tokens = Tokens(lambda: require_ring(serde))
        plain, indexed = names_of(plain_fields), names_of(indexed_fields)
        self._items = Items(serde, plain, indexed, tokens, pseudonyms, unbound == "allow")
        if indexed or pseudonyms:
            tokens.key("metadata" if indexed else "thread_id")  # raises now, not at the first write
        self._serde, self._writes_plain = serde, allow_write_plain
        if allow_write_plain:
            self._require_reads_plain()
        self._paths: Any = config.get("__tokenized_fields") or [("$", "$")] if config else None
        self.supports_ttl, self.ttl_config = store.supports_ttl, store.ttl_config
        # The stores begin their transactions themselves: a connection in autocommit mode is theirs.
        self._tables = tables_of(
            store, None, allow_partial=True, allow_schema=allow_schema, allow_shared_role=False
        )
        modules = [base.__module__ for base in type(store).__mro__]
        self._is_shared = any(name.startswith(_SHARED) for name in modules)
        self._is_ordered = any(name.startswith(_ORDERED) for name in modules)
        self._refuses_nul = any(name.startswith(_NO_NUL) for name in modules)
        super().__init__()
        self.inner = decoding_late(store)
        watch(self.inner, item_row)

    def _require_reads_plain(self) -> None:
        if not self._items.allow_unbound or self._items.has_pseudonyms:
            raise ConfigError(
                "allow_write_plain writes items that are not sealed: it cannot be combined with pseudonyms or"
                " unbound='refuse'",
                hint='pass unbound="allow", and no pseudonyms',
            )
        if self._serde.plaintext == "refuse":
            raise PlaintextError(
                "allow_write_plain writes items that are not sealed, but serde= refuses to read them",
                hint='create serde= with plaintext="allow" for the time of the migration',
            )
        logger.warning("SealedStore with allow_write_plain: items are written readable, and not sealed")

    def reset_after_fork(self) -> None:
        """Refuse every later use if the wrapped store's connection belongs to the parent."""
        super().reset_after_fork()
        if isinstance(self, _Batched) and "inner" in vars(self):
            self._loop = self.inner  # its loop does not run here: it would be waited for

    @property
    def serde(self) -> EncryptedSerializer:
        """The serializer that seals."""
        return self._serde

    def __repr__(self) -> str:
        more = ", allow_write_plain=True" if self._writes_plain else ""
        return f"{type(self).__name__}({type(self.inner).__name__}{more})"

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, first reads, then writes. Of writes to the same key only the last is executed.

        Args:
            ops: Operations of LangGraph's: get, put, search and list namespaces.

        Returns:
            The result of each operation.

        Raises:
            InvalidNamespaceError: If a label of a namespace is empty, not a string, or contains a period.
            ConfigError: If a value is not a dict, or has the field ``__sealpoint__``, or a filter has an
                unknown operator.
            SchemaError: If the store's tables have additions that LangGraph does not create.
            SealpointError: If an item was changed, moved or exchanged, or a value cannot be sealed. Nothing
                is written in that case.
        """
        return self._run(self._batch([*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async version of `batch`."""
        return await self._arun(self._batch([*ops]))

    # --- the procedures -----------------------------------------------------------------------

    def _batch(self, ops: Sequence[Op]) -> Steps[list[Result]]:
        results: list[Any] = [None] * len(ops)
        puts = {_named(op): op for op in ops if isinstance(op, PutOp)}
        stored_puts = [self._stored_put(name, op) for name, op in puts.items()]
        reads = [(place, *self._read(op)) for place, op in enumerate(ops) if not isinstance(op, PutOp)]
        if stored := [op for _, op, _ in reads if op is not None]:
            replies = iter((yield Do("batch", (stored,))))
        for place, op, finish in reads:
            results[place] = yield from (finish() if op is None else finish(next(replies)))
        if stored_puts:
            yield Do("batch", (stored_puts,))
        return results

    def _read(self, op: Op) -> tuple[Op | None, Callable[..., Steps[Any]]]:
        """Return the wrapped store's operation, or ``None``, and the procedure that receives its reply."""
        if isinstance(op, GetOp):
            own = _named(op)
            name = self._items.stored_name(own)
            return op._replace(namespace=name.namespace, key=name.key), partial(self._got, own)
        if isinstance(op, SearchOp):
            conditions = divide(self._items, op.filter or {})
            if conditions.own:
                return None, partial(self._scan, op, conditions)
            return self._stored_search(op, conditions), partial(self._found, op, conditions)
        if isinstance(op, ListNamespacesOp):
            return self._stored_listing(op), self._listed
        raise ConfigError(f"{type(op).__name__} is not an operation of a store")

    def _stored_put(self, name: ItemName, op: PutOp) -> PutOp:
        if self._writes_plain:
            if op.value is not None:
                require_unframed(op.value)
                self.serde.tally.add(UNBOUND, "")
            return op
        stored = self._items.stored_name(name)
        if self._refuses_nul and "\0" in stored.key:
            raise ConfigError("the key of an item contains a NUL, which Postgres cannot store")
        if op.value is None:
            return op._replace(namespace=stored.namespace, key=stored.key)
        try:
            with refusing_surrogates():
                value, index = self._items.seal(name, op.value), op.index
        except SealpointError as error:
            located(error, "store", own=name._asdict(), **stored._asdict())
            raise
        if self._paths is not None:
            value, index = self._indexed(value, op)
        return op._replace(namespace=stored.namespace, key=stored.key, value=value, index=index)

    def _indexed(self, sealed: dict[str, Any], op: PutOp) -> tuple[dict[str, Any], Any]:
        """Return the stored form of an item with the texts to index, and their paths, or ``False``."""
        if op.index is False:
            return sealed, False
        paths = self._paths if op.index is None else [(path, tokenize_path(path)) for path in op.index]
        made = _Indexed(sealed)
        made.texts = {
            str(place): texts
            for place, (_, tokens) in enumerate(paths)
            if (texts := get_text_at_path(op.value, tokens))
        }
        return made, [f"{TEXTS}.{place}[*]" for place in made.texts] or False

    def _got(self, name: ItemName, found: Item | None) -> Steps[Item | None]:
        return None if found is None else (yield from self._open([found], name))[0]

    def _found(self, op: SearchOp, conditions: Conditions, found: Sequence[Item]) -> Steps[list[Any]]:
        opened = yield from self._open(found)
        if all(_is_wanted(each, op, conditions) for each in opened):
            return opened
        return (yield from self._scan(op, conditions))  # the store counted items that do not match

    def _open(self, found: Sequence[Item], name: ItemName | None = None) -> Steps[list[Any]]:
        """Open the items that the wrapped store returned; ``name`` is the real name of one requested item."""
        return (yield from _working(found, lambda: [self._opened(each, name) for each in found]))

    def _opened(self, found: Item, own: ItemName | None = None) -> Item:
        """Return the opened item for ``found``, an item of the wrapped store, which is not changed.

        ``own`` is the item's real name, if known; otherwise the name in ``found`` is used.
        """
        stored = self._items.stored_name(own) if own else name_of(found)
        name, value = self._items.open(stored, found.value, own)
        times = found.created_at, found.updated_at
        if isinstance(found, SearchItem):
            return SearchItem(name.namespace, name.key, value, *times, found.score)
        return Item(
            value=value, key=name.key, namespace=name.namespace, created_at=times[0], updated_at=times[1]
        )

    def _stored_search(self, op: SearchOp, conditions: Conditions) -> SearchOp:
        prefix = self._stored_labels(op.namespace_prefix)
        return op._replace(namespace_prefix=prefix, filter=conditions.stored or None)

    def _scan(self, op: SearchOp, conditions: Conditions) -> Steps[list[Any]]:
        """Open items until the requested number of items meets the conditions.

        Memory holds one page, and the items that are returned.
        """
        if op.limit < 0 or op.offset < 0:
            raise ConfigError("limit and offset of a search must not be negative")
        end = op.offset + op.limit if op.limit else 0
        met = yield from self._walk(op, conditions, end)
        wanted = [*met.items()][op.offset :]
        if names := [name for name, item in wanted if item is None]:  # other items have come before them
            reply = yield Do("batch", ([GetOp(*name, refresh_ttl=False) for name in names],))
            items = [_searched(item) for item in reply if item is not None]
            again = yield from self._choose(op._replace(offset=0), conditions, end, items, _Met(), _Met())
            wanted = [(name, item or again.get(name)) for name, item in wanted]
        results = [(name, item) for name, item in wanted if item is not None][: op.limit]
        if results and op.refresh_ttl and (self.supports_ttl or self.ttl_config):
            yield Do("batch", ([GetOp(*name, refresh_ttl=True) for name, _ in results],))
        return [item for _, item in results]

    def _walk(self, op: SearchOp, conditions: Conditions, end: int) -> Steps[_Met]:
        """Return the matching items in order, without duplicates, at least up to the position ``end``."""
        stored = self._stored_search(op, conditions)._replace(refresh_ttl=False)
        is_ranked = bool(op.query) and self._paths is not None
        is_whole = is_ranked or self._is_shared
        met, seen, begun, limit, top, since = _Met(), Times(), monotonic(), inf, inf, -inf
        while True:
            start, found = monotonic() - begun, _Met()
            is_whole = is_whole or start > limit
            pages = Pages(since, is_whole, is_ranked=is_ranked, is_ordered=self._is_ordered)
            while len(found) < end and pages.size:
                (page,) = yield Do("batch", ([stored._replace(limit=pages.size, offset=pages.offset)],))
                if page and top == inf:
                    top = seconds_of(page[0])
                new = others(pages.take(page), seen if since > -inf else {})
                found |= yield from self._choose(op, conditions, end, new, found, met)
                if new and (pages.size or not pages.is_whole) and seconds_of(new[0]) >= top - _SAVE_SECONDS:
                    seen |= times_of(new)
            met = found | met
            if pages.is_whole:
                return met
            # Other processes may have saved items meanwhile that are on no page: the newest items.
            since, limit = top + start - _SAVE_SECONDS, min(limit, monotonic() - begun + _MAX_SECONDS)

    def _choose(
        self, op: SearchOp, conditions: Conditions, end: int, page: Sequence[Item], before: _Met, met: _Met
    ) -> Steps[_Met]:
        """Return the new matching items of a page, up to the position ``end`` of the search.

        Items are opened one by one, so memory holds only one opened item that is not returned.
        """

        def chosen() -> _Met:
            found = _Met()
            for each in page:
                place, name = len(before) + len(found), name_of(each)
                if place == end:
                    break
                if not (name in before or name in met or name in found):
                    opened = self._opened(each)
                    if _is_wanted(opened, op, conditions):
                        found[name] = opened if place >= op.offset else None
            return found

        return (yield from _working(page, chosen))

    def _stored_listing(self, op: ListNamespacesOp) -> ListNamespacesOp:
        conditions = op.match_conditions or ()
        mapped = tuple(each._replace(path=self._stored_labels(each.path, kept="*")) for each in conditions)
        return op._replace(match_conditions=mapped or None)

    def _stored_labels(self, labels: Any, kept: str = "") -> tuple[str, ...]:
        return tuple(label if label == kept else self._items.stored_label(label) for label in _labels(labels))

    def _listed(self, found: Sequence[tuple[str, ...]]) -> Steps[list[tuple[str, ...]]]:
        """Return the real names of namespaces; for pseudonyms they are read from the first item in each."""
        if not (found and self._items.has_pseudonyms):
            return [*found]
        firsts = yield Do("batch", ([SearchOp(each, limit=1, refresh_ttl=False) for each in found],))
        opened = yield from self._open([item for items in firsts for item in items])
        named = [(each, items[0].namespace) for each, items in zip(found, firsts, strict=True) if items]
        for each, stored in named:
            if tuple(stored[: len(each)]) != tuple(each):  # a forged '%' matches any text on Postgres
                raise located(RowError("a namespace has an item of another"), "store", namespace=each)
        return [item.namespace[: len(each)] for item, (each, _) in zip(opened, named, strict=True)]


def _labels(namespace: Any) -> tuple[str, ...]:
    """Return the labels of a namespace; a database stores them joined by periods."""
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label:
            raise InvalidNamespaceError(
                f"label {excerpt(label)} of a namespace is empty, not a string, or contains a period"
            )
        require_unicode("a label of a namespace", label)
    return tuple(namespace)


def _named(op: GetOp | PutOp) -> ItemName:
    return ItemName(_labels(op.namespace), require_unicode("the key of an item", op.key))


def _is_wanted(found: Item, op: SearchOp, conditions: Conditions) -> bool:
    """Whether an item matches a search; the wrapped store may return even a wrong namespace."""
    prefix = tuple(op.namespace_prefix)
    return found.namespace[: len(prefix)] == prefix and conditions.are_met(found.value)


def _searched(found: Item) -> SearchItem:
    return SearchItem(found.namespace, found.key, found.value, found.created_at, found.updated_at)


def _working(found: Sequence[Item], function: Callable[[], R]) -> Steps[R]:
    """Call ``function``, which opens the items ``found``: on a worker thread if they are large."""
    if sum(map(stored_chars, found)) < LARGE_BYTES:
        try:
            return decompressing_at_most(LARGE_BYTES, function)
        except Postponed:
            pass
    return (yield Call(function))  # type: ignore[no-any-return]


# Matching items of a search, by their names in the database; items before its offset without their values
_Met = dict[ItemName, Item | None]

# `__new__` hides the arguments, and a subclass with `__init__` of its own has others.
SealedStore.__new__.__signature__ = inspect.signature(SealedStore.__init__)  # type: ignore[attr-defined]
