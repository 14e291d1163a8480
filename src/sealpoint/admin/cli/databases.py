"""Which databases, keys and thread stores a command works on, named by its command line or the ring file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import all_databases
from sealpoint.admin.cli.output import say, warn
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.maintenance.decrypt import MAGIC, find_leftovers
from sealpoint.crypto import KeyRing, KeyState, RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import (
    ConfigError,
    DatabaseCorruptError,
    RingFileMissingError,
    SchemaError,
    SealpointError,
    ThreadStoreDownError,
    ThreadStoreMissingError,
)
from sealpoint.keys.ringfile import RingFile, find_ring_file, read_ring_entries, read_thread_store
from sealpoint.threads import open_thread_store
from sealpoint.threads.store import ThreadStore

if TYPE_CHECKING:
    from sealpoint.admin.databases.rows import RowStore
    from sealpoint.admin.maintenance.status import Share
    from sealpoint.keys.entry import RingEntry


class Databases(NamedTuple):
    """Databases that a command works on, by path or URL."""

    names: Sequence[str]
    ring_file: Path | None = None  # that lists them; `None` if the command line names them


def one_database(run: Run, argument: str | None, variable: str | None) -> str:
    """Return the one database that a command line names, or else the one that the ring file lists."""
    found = _find(run, *([] if one is None else [one] for one in (argument, variable)))
    if len(found.names) != 1:
        count = len(found.names) if found.ring_file else 0
        more = f"; the ring file lists {count}" if count else ""
        raise typer.BadParameter(f"name one database: DB, or --db-env NAME{more}", param_hint="DB")
    return found.names[0]


def find_databases(run: Run, arguments: Sequence[str] | None, variables: Sequence[str] | None) -> Databases:
    """Return all databases that a command line names; if it names none, those that the ring file lists."""
    found = _find(run, arguments, variables)
    if not found.names:
        raise typer.BadParameter("name at least one database: DB, or --db-env NAME", param_hint="DB...")
    return found


def _find(run: Run, arguments: Sequence[str] | None, variables: Sequence[str] | None) -> Databases:
    if named := all_databases(arguments, variables):
        return Databases(named)
    try:
        file = find_ring_file(run.keys)
    except RingFileMissingError:
        if run.keys is not None:
            raise
        return Databases(())
    return Databases(RingFile(file).databases, file)


_SUPERUSER: Final = (
    "connected as a superuser: a role that may only SELECT from the tables, and UPDATE them, is enough"
    " (docs/postgres.md#a-role-for-maintenance)"
)


def open_store(database: str, *, writable: bool = False) -> RowStore:
    """Open a database whose name `all_databases` has accepted, and warn of a superuser's rights."""
    with naming_other_files(database):
        store = kind_of(database).open(database, writable=writable)
    if getattr(store, "is_superuser", False):
        warn(_SUPERUSER)
    return store


@contextmanager
def naming_other_files(database: str) -> Iterator[None]:
    """Refuse an empty file, which SQLite takes for a database without tables, and what is no database."""
    is_file = kind_of(database).is_file
    try:
        yield
    except DatabaseCorruptError:
        if not is_file or _has_header(Path(database)):
            raise
        hint = "name a SQLite file that LangGraph or sealpoint wrote; if this was one, restore it from backup"
        raise SchemaError(f"{database} is not a SQLite database", hint=hint) from None
    except SchemaError:
        if not is_file or Path(database).stat().st_size:
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
    databases: Sequence[str], *, ring_file: Path | None = None, others: Sequence[RowStore] = ()
) -> Iterator[list[RowStore]]:
    """Open several databases, each once, and close them at the end.

    Those of ``others`` are open already, and are not opened again under another name. ``ring_file`` is the
    ring file that lists the databases, for the hint of an error.
    """
    warn_of_leftovers(*(Path(database) for database in databases if kind_of(database).is_file))
    with ExitStack() as stack:
        stores: list[RowStore] = []
        for database in databases:
            try:
                store = stack.enter_context(closing(open_store(database)))
            except SealpointError as error:
                if ring_file is not None:
                    listed = (
                        f"{ring_file} lists {database}: if it no longer exists, remove its [[database]] entry"
                    )
                    error.hint = f"{error.hint}; {listed}" if error.hint else listed
                raise
            if all(_place(store) != _place(other) for other in (*others, *stores)):
                stores.append(store)
        yield stores


def _place(store: RowStore) -> object:
    """Return what two names of one database have in common."""
    # Copies of a Postgres cluster have the numbers of the original, so that the URL counts there too.
    return store.name if store.kind == "postgres" else store.kind, store.identity


class Examined(NamedTuple):
    """Open databases that are examined before a key changes its state, each once."""

    named: list[RowStore]  # by the command line
    listed: list[RowStore]  # by the ring file alone
    entries: tuple[str, ...] | None  # all that the ring file lists; `None` if these are not examined

    @property
    def stores(self) -> list[RowStore]:
        """All of them."""
        return [*self.named, *self.listed]


@contextmanager
def examined(file: Path, named: Sequence[str], *, with_listed: bool) -> Iterator[Examined]:
    """Open the databases to examine before a key changes its state, and close them at the end."""
    entries = RingFile(file).databases if with_listed else None
    with (
        opened(named) as stores,
        opened(entries or (), ring_file=file, others=stores) as listed,
    ):
        yield Examined(stores, listed, entries)


def open_ring(run: Run) -> KeyRing:
    """Load the ring with all its material, report its keys, and record it."""
    ring = KeyRing.load(run.keys).load_material()
    read_entries(run, find_ring_file(ring.path))
    return ring


def read_entries(run: Run, file: Path) -> tuple[RingEntry, ...]:
    """Return what a ring file says about its keys, report them, and record the ring."""
    entries = read_ring_entries(file)
    report_keys(entries)
    run.result.uses_ring(file, entries)
    return entries


def report_keys(entries: Iterable[RingEntry]) -> None:
    """Warn of each key that is compromised, and of an active key that has expired. Nothing is refused."""
    for entry in entries:
        if entry.state is KeyState.COMPROMISED:
            warn(f"key {entry.id!r} is compromised: rotate what is under it, then destroy it")
        elif entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            warn(f"the active key {entry.id!r} has expired: promote another")


def find_entries(run: Run) -> Sequence[RingEntry] | None:
    """Return what the ring says about its keys, and record it; ``None`` if none is named, and none found."""
    try:
        file = find_ring_file(run.keys)
    except RingFileMissingError:
        if run.keys is not None:
            raise
        return None
    return read_entries(run, file)


def say_if_unknown(entries: Sequence[RingEntry] | None, shares: Iterable[Share]) -> None:
    """Say that the states of keys are not known, if sealed values were found and no ring."""
    if entries is None and any(share.suite for share in shares):
        say("no ring file was found: the states of keys are not known")


def find_cipher(run: Run, store: RowStore) -> RingCipher | None:
    """Return what opens the store's values, or ``None`` if none is sealed, or no ring is found."""
    if run.keys is None and not any(is_sealed(count.tag) for count in store.count()):
        return None
    try:
        return RingCipher(open_ring(run))
    except RingFileMissingError as error:
        if run.keys is not None:
            raise
        say(f"{error}: sealed values are not opened (--keys FILE)")
        return None


TIMEOUT_SECONDS: Final = 10.0  # of a call to a thread store: agents write to it meanwhile

ThreadsOption = Annotated[
    str | None,
    typer.Option(
        "--threads",
        metavar="STORE",
        help="The thread store: a SQLite file or a postgresql:// URL; else that of [threads] in the ring.",
    ),
]


def find_threads(named: str | None, keys: Path | None) -> str | None:
    """Return the name of the thread store: that of the command line, or that of the ring file."""
    store = read_thread_store(keys) if named is None else named
    return None if store is None else all_databases([store], None)[0]


def require_threads(run: Run, named: str | None) -> str:
    """Return the name of the thread store, or refuse the command line."""
    try:
        store = find_threads(named, run.keys)
    except RingFileMissingError:
        if run.keys is not None:
            raise
        store = None
    if store is None:
        raise typer.BadParameter(
            "name the thread store, or add [threads] to the ring file", param_hint="STORE"
        )
    return store


@contextmanager
def opened_threads(name: str, *, create: bool = False) -> Iterator[ThreadStore]:
    """Open a thread store, and close it at the end."""
    try:
        store = open_thread_store(name, create=create, timeout=TIMEOUT_SECONDS)
    except ThreadStoreDownError as error:
        is_server = not kind_of(name).is_file or name.startswith("service=")
        if is_server and not isinstance(error, ThreadStoreMissingError):  # it may be started again
            raise
        raise ConfigError(str(error), hint=error.hint) from None
    with closing(store):
        yield store
