"""Opening what a command names: databases and the ring."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sealpoint.cli.output import say, warn
from sealpoint.crypto import KeyRing, KeyState, RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import (
    DatabaseCorruptError,
    RingFileMissingError,
    SchemaError,
    SealpointError,
)
from sealpoint.keys.databasetable import is_url
from sealpoint.keys.ringfile import RingFile, find_ring_file, read_ring_entries
from sealpoint.maintenance.partial import MAGIC, find_leftovers

if TYPE_CHECKING:
    from sealpoint.databases.postgres.rows import PostgresRows
    from sealpoint.databases.rows import RowStore
    from sealpoint.keys.entry import RingEntry
    from sealpoint.maintenance.result import Result
    from sealpoint.maintenance.status import Share

_SUPERUSER: Final = (
    "connected as a superuser: a role that may only SELECT from the tables, and UPDATE them, is enough"
    " (docs/postgres.md#a-role-for-maintenance)"
)


def open_store(database: str, *, writable: bool = False) -> RowStore:
    """Open a database, named as `sealpoint.cli.databases` gives it.

    Raises:
        DatabaseMissingError: If nothing is there.
        SchemaError: If the file is empty, or not a SQLite database.
    """
    if is_url(database):
        return open_postgres(database, writable=writable)
    from sealpoint.databases.sqlite.rows import SqliteRows

    with naming_other_files(database):
        return SqliteRows(database, writable=writable)


def open_postgres(url: str, *, writable: bool = False) -> PostgresRows:
    """Open a Postgres database, and warn of a superuser's rights.

    Raises:
        DatabaseMissingError: If the connection fails.
        SchemaError: If it has no tables of a saver.
    """
    from sealpoint.databases.postgres.rows import PostgresRows

    rows = PostgresRows(url, writable=writable)
    if rows.is_superuser:
        warn(_SUPERUSER)
    return rows


@contextmanager
def naming_other_files(database: str) -> Iterator[None]:
    """Refuse an empty file, which SQLite takes for a database without tables, and what is no database.

    Raises:
        SchemaError: If the file is empty, or not a SQLite database.
        DatabaseCorruptError: If it is a damaged one.
    """
    try:
        yield
    except DatabaseCorruptError:
        if _has_header(Path(database)):
            raise
        hint = "name a SQLite file that LangGraph or sealpoint wrote; if this was one, restore it from backup"
        raise SchemaError(f"{database} is not a SQLite database", hint=hint) from None
    except SchemaError:
        if Path(database).stat().st_size:
            raise
        hint = "is it the right file? SQLite makes an empty one of every name that is not there"
        raise SchemaError(f"{database} is empty: it has no checkpoints", hint=hint) from None


def warn_of_leftovers(*files: Path) -> None:
    """Warn of each folder that a killed run of `decrypt` left beside these files."""
    for folder in sorted({folder for file in files for folder in (file.parent, file.resolve().parent)}):
        for left in find_leftovers(folder):
            hint = f"if no decrypt runs there, remove it: rm -r {shlex.quote(str(left))}"
            warn(f"{left} is from a decrypt that was killed, and may hold opened values", hint)


def _has_header(file: Path) -> bool:
    """Whether a file begins as every SQLite database does, or has a log from which it may be recovered."""
    if any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return True
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def opened(
    databases: Sequence[str], *, ring_file: Path | None = None, beside: Sequence[RowStore] = ()
) -> Iterator[list[RowStore]]:
    """Open several databases, each once, and close them at the end.

    Args:
        databases: As `sealpoint.cli.databases` names them.
        ring_file: The ring file that lists them, for the hint of an error; ``None`` if none does.
        beside: Databases that are open already. They are not opened again under another name.
    """
    warn_of_leftovers(*(Path(database) for database in databases if not is_url(database)))
    with ExitStack() as stack:
        stores: list[RowStore] = []
        for database in databases:
            with explaining(database, ring_file):
                store = stack.enter_context(closing(open_store(database)))
            if all(_place(store) != _place(other) for other in (*beside, *stores)):
                stores.append(store)
        yield stores


def _place(store: RowStore) -> object:
    """Return what two names of one database have in common."""
    # Copies of a Postgres cluster have the numbers of the original, so that the URL counts there too.
    return store.name if store.kind == "postgres" else store.kind, store.identity


@contextmanager
def explaining(database: str, ring_file: Path | None) -> Iterator[None]:
    """Add to the hint of an error that a ring file lists the database."""
    try:
        yield
    except SealpointError as error:
        if ring_file is not None:
            listed = f"{ring_file} lists {database}: if it no longer exists, remove its [[database]] entry"
            error.hint = f"{error.hint}; {listed}" if error.hint else listed
        raise


class Examined(NamedTuple):
    """Open databases that are examined before a key changes its state, each once.

    Attributes:
        named: Those that the command line names.
        listed: Those that only the ring file lists.
        entries: All that the ring file lists, by path or URL; ``None`` if these are not examined.
    """

    named: list[RowStore]
    listed: list[RowStore]
    entries: tuple[str, ...] | None

    @property
    def stores(self) -> list[RowStore]:
        """All of them."""
        return [*self.named, *self.listed]


@contextmanager
def examined(file: Path, named: Sequence[str], *, with_listed: bool) -> Iterator[Examined]:
    """Open the databases to examine before a key changes its state, and close them at the end.

    Args:
        file: The ring file.
        named: What the command line names.
        with_listed: Whether to examine also those that the ring file lists.
    """
    entries = RingFile(file).databases if with_listed else None
    with (
        opened(named) as stores,
        opened(entries or (), ring_file=file, beside=stores) as listed,
    ):
        yield Examined(stores, listed, entries)


def open_ring(path: Path | None, result: Result) -> KeyRing:
    """Load the ring with all its material, report its keys, and record it.

    ``None`` looks in the usual places.
    """
    ring = KeyRing.load(path).load_material()
    read_entries(find_ring_file(ring.path), result)
    return ring


def read_entries(file: Path, result: Result) -> tuple[RingEntry, ...]:
    """Return what a ring file says about its keys, report them, and record the ring."""
    entries = read_ring_entries(file)
    report_keys(entries)
    result.uses_ring(file, entries)
    return entries


def report_keys(entries: Iterable[RingEntry]) -> None:
    """Warn of each key that is compromised, and of an active key that has expired. Nothing is refused."""
    for entry in entries:
        if entry.state is KeyState.COMPROMISED:
            warn(f"key {entry.id!r} is compromised: rotate what is under it, then destroy it")
        elif entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            warn(f"the active key {entry.id!r} has expired: promote another")


def find_entries(keys: Path | None, result: Result) -> Sequence[RingEntry] | None:
    """Return what the ring says about its keys, and record it.

    ``None`` looks in the usual places, and gives ``None`` if no ring is there.
    """
    try:
        file = find_ring_file(keys)
    except RingFileMissingError:
        if keys is not None:
            raise
        return None
    return read_entries(file, result)


def say_if_unknown(entries: Sequence[RingEntry] | None, shares: Iterable[Share]) -> None:
    """Say that the states of keys are not known, if sealed values were found and no ring."""
    if entries is None and any(share.suite for share in shares):
        say("no ring file was found: the states of keys are not known")


def find_cipher(store: RowStore, keys: Path | None, result: Result) -> RingCipher | None:
    """Return what opens the store's values, or ``None`` if none is sealed, or no ring is found."""
    sealed = any(is_sealed(count.tag) for count in store.count())
    if keys is None and not sealed:
        return None
    try:
        return RingCipher(open_ring(keys, result))
    except RingFileMissingError as error:
        if keys is not None:
            raise
        say(f"{error}: sealed values are not opened (--keys FILE)")
        return None
