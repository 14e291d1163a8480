"""Inventory: counts of the types that a database's values name. Nothing is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.crypto.kinds import KINDS
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.cells import Cell, open_cell
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.rows import BATCH, Batch, Event, Progress, RowStore
from sealpoint.errors import SealpointError, UnknownTypeError, excerpt
from sealpoint.maintenance.bound import take_apart
from sealpoint.maintenance.verify import pages
from sealpoint.serde.allowlist import SAFE_TYPES
from sealpoint.serde.inert import inventory as named_types
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

# Names also come from unauthenticated values: a forged one may name any number of types.
MAX_TYPES: Final = 10_000
MAX_NAME_CHARS: Final = 200


@dataclass(slots=True)
class Constructor:
    """A type that values name.

    Attributes:
        module: Its module, as the bytes name it; truncated, with ``...``, after `MAX_NAME_CHARS`.
        name: Its name, truncated in the same way.
        thread: The first thread with a value that names it; also truncated.
        records: How often it is named.
    """

    module: str
    name: str
    thread: str
    records: int = 0

    @property
    def pair(self) -> tuple[str, str]:
        """Its entry in an allowlist."""
        return self.module, self.name

    @property
    def is_safe(self) -> bool:
        """Whether a strict serializer builds it by default."""
        return self.pair in SAFE_TYPES

    @property
    def is_nameable(self) -> bool:
        """Whether the name is possible in Python, so that an allowlist may contain it."""
        return all(part.isidentifier() for part in f"{self.module}.{self.name}".split("."))


@dataclass(slots=True)
class Inventory:
    """The results.

    Attributes:
        constructors: By (module, name), in the order of reading; at most `MAX_TYPES`.
        other_records: Number of records with other types.
        values: Values that were read.
        not_opened: Sealed values that were skipped for lack of a cipher.
        failures: Values that did not open, or do not match their tag.
    """

    constructors: dict[tuple[str, str], Constructor] = field(default_factory=dict)
    other_records: int = 0
    values: int = 0
    not_opened: int = 0
    failures: int = 0

    def add(self, cell: Cell, module: str, name: str, records: int) -> None:
        """Count a type that a value names."""
        pair = (_cut(module), _cut(name))
        if pair not in self.constructors and len(self.constructors) == MAX_TYPES:
            self.other_records += records
            return
        found = self.constructors.setdefault(pair, Constructor(*pair, _thread(cell)))
        found.records += records


def inventory(
    store: RowStore,
    cipher: RingCipher | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
    report: Callable[[Event], None] | None = None,
) -> Inventory:
    """Count the types that are named in the values of a database. Nothing is imported or built.

    Args:
        store: A database.
        cipher: Opens sealed values; without it they are skipped and counted.
        limits: Limits of a value; exceeding them is a failure.
        batch: How much to read at a time.
        report: Called with the progress after each batch, and with each failure.
    """
    found = Inventory()
    opener = RingCipher(KeyRing([])) if cipher is None else cipher
    total = sum(count.rows for count in store.count(damage=[]))  # the walk meets the damage
    size = 0
    for column in store.columns:
        for page in pages(store, column, batch=batch):
            for cell in page.cells:
                size += len(cell.value) if isinstance(cell.value, bytes) else 0
                failure = _take(found, cell, opener, limits, pass_over=cipher is None)
                if failure and report:
                    report(failure)
            if report:
                report(Progress(column.label, found.values, total, 0, 0, size, 0.0))
    return found


def _take(
    found: Inventory, cell: Cell, cipher: RingCipher, limits: Limits, *, pass_over: bool
) -> Failure | None:
    found.values += 1
    if pass_over and is_sealed(cell.tag):
        found.not_opened += 1
        return None
    try:
        opened = take_apart(cell, open_cell(cipher, cell, allow_plaintext=True)).opened
        if opened.inner not in KINDS:
            raise UnknownTypeError(f"Unknown serialization type: {excerpt(opened.inner)}")
        names = named_types(opened.data, opened.inner, limits)
    except SealpointError as error:
        found.failures += 1
        return failure(cell, error)
    for (module, name), records in names.items():
        found.add(cell, module, name, records)
    return None


def _thread(cell: Cell) -> str:
    thread: Any = cell.where.names.get("thread_id")
    return _cut(thread) if isinstance(thread, str) else excerpt(thread)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."
