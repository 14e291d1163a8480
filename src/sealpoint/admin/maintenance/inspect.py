"""Inspection: the values of one thread, or items, as JSON data. No class is imported, no object is built.

Values that JSON cannot express are objects whose first key begins with ``$``. A dict that could be mistaken
for such an object, or that has keys other than text, is a ``$map``.

    {"$bytes": 3, "hex": "010203"}             bytes: their number, and the first of them
    {"$text": 9000, "start": "..."}            a long text: its length and beginning
    {"$record": "module.Name", "kind": "...",
     "arguments": ...}                         an object of that type, not built
    {"$map": [[key, value], ...]}              a dict
    {"$float": "nan"}                          a number that JSON cannot express
    {"$cut": 7}                                last entry of a list or map: number of entries left out
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.cells import ITEMS, Cell, Opener, Selection
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.databases.rows import RowStore, failure
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.items import read_item
from sealpoint.admin.maintenance.names import owner_of, stored_ids
from sealpoint.admin.maintenance.verify import walk
from sealpoint.admin.results.events import Event, Failure
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.admin.results.tags import KINDS, Kind, classify
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import SealpointError, UnknownTypeError, excerpt
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.items import ItemName, pseudonym_of
from sealpoint.seal.tag import is_sealed
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.catalogue import SAFE_TYPES
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.inert import inventory as named_types
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits


class Readable(NamedTuple):
    """An opened value.

    Attributes:
        table: Label of the column: the table's name, or ``checkpoints.metadata``.
        place: Key columns of the row by name: thread, namespace, checkpoint and so on.
        tag: Type tag.
        value: The value as plain data.
        sealed_with: What `SealedSaver` sealed with the value, such as metadata; ``None`` if nothing.
    """

    table: str
    place: dict[str, Any]
    tag: str
    value: Any
    sealed_with: Any = None


def names(store: RowStore, column: str) -> Iterator[str]:
    """Yield each distinct text of a key column, table by table, in the order of the tables."""
    seen = set[str]()
    for _, text in store.key_texts(column):
        if text not in seen:
            seen.add(text)
            yield text


def inspect(
    store: RowStore,
    cipher: RingCipher | None,
    thread_id: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
) -> Iterator[Readable | Failure]:
    """Yield the values of a thread, column by column, in the order of ``store.columns``.

    Args:
        store: A database.
        cipher: Opens sealed values; without a cipher, sealed values are failures.
        thread_id: Thread id that the agent uses, not the pseudonym.
        limits: Limits for decoding a value.
        batch: Maximum number of rows and bytes to read at a time.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint import KeyRing, RingCipher
        >>> from sealpoint.admin.maintenance import SqliteRows
        >>> from sealpoint.admin.maintenance.inspect import inspect
        >>> cipher = RingCipher(KeyRing.load("keys.toml"))
        >>> with closing(SqliteRows("agent.db")) as store:
        ...     print(len(list(inspect(store, cipher, "1"))))
        2
    """
    opener = opener_of(cipher)
    for column, stored_id in product(store.columns, stored_ids(opener.cipher.ring, thread_id)):
        for cell in cells_of(store, [column], Selection(thread_id=stored_id), batch):
            if not cell.is_sentinel:
                yield _shown(cell, opener, lambda _, parts: decode_inert(*parts.opened.typed, limits))


def inspect_items(
    store: RowStore, cipher: RingCipher | None, namespace: str, key: str | None = None
) -> Iterator[Readable | Failure]:
    """Yield the items of a namespace in the order of their rows; with ``key``, only the item of this key.

    Also finds items under pseudonyms. The readable columns of an item are compared with its sealed value.
    """
    opener = opener_of(cipher)
    tokens, wanted = Tokens(lambda: opener.cipher.ring), ItemName(tuple(namespace.split(".")), key or "")
    stored = [wanted]
    if opener.cipher.ring.index is not None:  # without an index key there are no pseudonyms
        stored.append(pseudonym_of(wanted, tokens))
    places = {(".".join(name.namespace), None if key is None else name.key) for name in stored}
    columns = [column.widened for column in store.columns if column == ITEMS]
    for cell in cells_of(store, columns):
        prefix, stored_key = cell.where.key
        if (prefix, None if key is None else stored_key) in places:
            yield _shown(cell, opener, lambda cell, parts: read_item(cell, parts, tokens))


def _shown(cell: Cell, opener: Opener, read: Callable[[Cell, Parts], Any]) -> Readable | Failure:
    try:
        parts = opener.parts(cell)
        shown = plain(read(cell, parts))
    except SealpointError as error:
        return failure(cell, error)
    return Readable(cell.where.column.label, cell.where.names, cell.tag, shown, plain(_sealed_with(parts)))


def _sealed_with(parts: Parts) -> dict[str, Any] | None:
    """Return what `SealedSaver` sealed in front of the serializer's bytes, as JSON data."""
    if (claims := parts.claims) is not None:
        return claims.columns | ({"call": claims.call_id.hex()} if claims.call else {})
    return parts.name._asdict() if parts.name else dict(parts.header) if parts.header else None


def plain(value: Any) -> Any:
    """Return a value of `decode_inert` as JSON data; long texts and lists are truncated."""
    return _Plain().show(value)


MAX_MEMBERS: Final = 2_000
MAX_CHARS: Final = 2_000
MAX_BYTES: Final = 64


class _Plain:
    """Converts one value to JSON data; limits the number of elements shown of the whole value."""

    def __init__(self) -> None:
        self._left = MAX_MEMBERS

    def show(self, value: Any) -> Any:
        """Return a value, or a part of a value, as JSON data."""
        if isinstance(value, Inert):
            named = self._text(f"{value.module}.{value.name}" if value.module else value.name)
            return {"$record": named, "kind": value.kind, "arguments": self.show(value.payload)}
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray):
            return {"$bytes": len(value), "hex": value[:MAX_BYTES].hex()}
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | tuple):
            return self._members(value, self.show)
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": str(value)}
        return value

    def _text(self, text: str) -> Any:
        if len(text) <= MAX_CHARS:
            return text
        return {"$text": len(text), "start": text[:MAX_CHARS]}

    def _members(self, members: Collection[Any], show: Callable[[Any], Any]) -> list[Any]:
        taken = min(len(members), self._left)
        self._left -= taken
        shown = [show(member) for member in islice(members, taken)]
        return shown if taken == len(members) else [*shown, {"$cut": len(members) - taken}]

    def _dict(self, table: dict[Any, Any]) -> Any:
        if len(table) > self._left or not all(map(_is_ordinary, table)):
            return {"$map": self._members(table.items(), lambda pair: [*map(self.show, pair)])}
        self._left -= len(table)
        return {key: self.show(value) for key, value in table.items()}


def _is_ordinary(key: object) -> bool:
    return isinstance(key, str) and len(key) <= MAX_CHARS and not key.startswith("$")


# Names also come from unauthenticated values, and an attacker may write any number of names.
MAX_TYPES: Final = 10_000
MAX_NAME_CHARS: Final = 200


@dataclass(slots=True)
class Constructor:
    """A type that serialized values name, and that decoding would import."""

    module: str
    name: str
    # The first thread, or namespace of an item, with a value that names the type; see `owner_of`.
    thread: str
    records: int = 0

    @property
    def pair(self) -> tuple[str, str]:
        """Module and name of the type, as an allowlist of the serializer has them."""
        return self.module, self.name

    @property
    def is_safe(self) -> bool:
        """Whether a strict serializer allows the type by default; this includes JavaScript's types."""
        return self.pair in SAFE_TYPES or not self.module

    @property
    def is_nameable(self) -> bool:
        """Whether the name is a valid Python name, so that an allowlist may contain it."""
        return all(part.isidentifier() for part in f"{self.module}.{self.name}".split("."))


@dataclass(slots=True)
class Inventory:
    """The types that the values of a database name, and numbers of values.

    Attributes:
        constructors: Types, by module and name.
        other_records: Number of times that values name types beyond the first `MAX_TYPES`.
        values: Number of values read.
        not_opened: Number of sealed values that were skipped, because there is no cipher.
        not_shown: Number of the values in ``not_opened``, by kind, such as sealed or legacy.
        failures: Number of values that could not be read.
    """

    constructors: dict[tuple[str, str], Constructor] = field(default_factory=dict)
    other_records: int = 0
    values: int = 0
    not_opened: int = 0
    not_shown: Counter[Kind] = field(default_factory=Counter)
    failures: int = 0

    def add(self, cell: Cell, module: str, name: str, records: int) -> None:
        """Count a type that a value names.

        Args:
            cell: The value, with its row.
            module: Module of the type.
            name: Name of the type.
            records: Number of times that the value names the type.
        """
        pair = (_cut(module), _cut(name))
        if pair not in self.constructors and len(self.constructors) == MAX_TYPES:
            self.other_records += records
            return
        thread = owner_of(cell.where.names)
        thread = _cut(thread) if isinstance(thread, str) else excerpt(thread)
        self.constructors.setdefault(pair, Constructor(*pair, thread)).records += records


def inventory(
    store: RowStore,
    cipher: RingCipher | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
    report: Callable[[Event], None] | None = None,
) -> Inventory:
    """Count the types named in the values of a database. No type is imported or built.

    Args:
        store: A database.
        cipher: Opens sealed values; without a cipher, sealed values count as not opened.
        limits: Limits for decoding a value.
        batch: Maximum number of rows and bytes to read at a time.
        report: Called with progress, and with a failure for each unreadable value.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint import KeyRing, RingCipher
        >>> from sealpoint.admin.maintenance import SqliteRows
        >>> from sealpoint.admin.maintenance.inspect import inventory
        >>> with closing(SqliteRows("agent.db")) as store:
        ...     print(inventory(store, RingCipher(KeyRing.load("keys.toml"))).failures)
        0
    """
    found, opener = Inventory(), opener_of(cipher)

    def look(cell: Cell) -> None:
        found.values += 1
        if cipher is None and is_sealed(cell.tag):
            found.not_opened += 1
            found.not_shown[classify(cell.tag)[0]] += 1
            return
        opened = opener.parts(cell).opened
        if cell.is_plain_item:  # stores build no objects from plain JSON
            return
        if opened.inner not in KINDS:
            raise UnknownTypeError(f"Unknown serialization type: {excerpt(opened.inner)}")
        for (module, name), records in named_types(opened.data, opened.inner, limits).items():
            found.add(cell, module, name, records)

    total = sum(count.rows for count in store.count(damage=[]))  # `walk` reports damage
    for event in walk(store, look, total, store.columns, batch=batch):
        found.failures += isinstance(event, Failure)
        if report:
            report(event)
    return found


def opener_of(cipher: RingCipher | None) -> Opener:
    """Return an opener for sealed and unsealed values; without a cipher, for unsealed values only."""
    return Opener(RingCipher(KeyRing([])) if cipher is None else cipher, allow_plaintext=True)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."
