"""What command lines name: arguments and options that several commands take, and what they stand for.

Databases, keys and thread stores are named by the command line, or else by the ring file.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.output import name_database, say, warn
from sealpoint.admin.databases.kinds import find_kind, kind_of
from sealpoint.admin.keys.change import describe_ring
from sealpoint.admin.maintenance.leftovers import MAGIC, find_leftovers
from sealpoint.admin.results.shards import Shard
from sealpoint.admin.results.tags import Kind
from sealpoint.errors import (
    ConfigError,
    DatabaseCorruptError,
    DatabaseMissingError,
    MaintenanceError,
    RingFileMissingError,
    SchemaError,
    SealpointError,
    ThreadStoreDownError,
    ThreadStoreMissingError,
    excerpt,
)
from sealpoint.keys.entry import LIBPQ_HINT, RingEntry
from sealpoint.keys.material import check_value
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile, find_ring_file, read_ring_entries
from sealpoint.seal.keys import KeyState
from sealpoint.seal.tag import JSON
from sealpoint.serde.limits import DEFAULT_LIMITS, MAX_PACKED_LEVELS, OF_COMMANDS, Limits
from sealpoint.urls import has_password, is_url

if TYPE_CHECKING:
    from sealpoint.admin.databases.rows import RowStore
    from sealpoint.admin.maintenance.status import Share
    from sealpoint.threads.store import ThreadStore

DatabaseArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DB", help="A SQLite file or a postgresql:// URL; else the one that the ring file lists."
    ),
]
DatabasesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DB...", help="SQLite files or postgresql:// URLs; else those that the ring file lists."
    ),
]
VariableOption = Annotated[
    str | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="Instead of DB, an environment variable with a postgresql:// URL, which may have a password.",
    ),
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="As DB, an environment variable that holds a postgresql:// URL. Give it once for each.",
    ),
]
AllowUnprovenOption = Annotated[
    bool, typer.Option("--allow-unproven", help="Exit with 0, and not with 3, if the result is not proven.")
]
KeyArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="The ring file; else $SEALPOINT_KEYS, $CREDENTIALS_DIRECTORY/sealpoint.keys"
        " or /etc/sealpoint/keys.toml.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
AllowPlaintextOption = Annotated[
    bool, typer.Option("--allow-plaintext", help="Accept values that are not sealed.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Apply the plan; without it, only show the plan.")]
ThreadsOption = Annotated[
    str | None,
    typer.Option(
        "--threads",
        metavar="STORE",
        help="The thread store: a SQLite file or a postgresql:// URL; else that of [threads] in the ring.",
    ),
]
PinOption = Annotated[
    Path | None,
    typer.Option("--pin", metavar="FILE", help="Fail unless the thread store extends this earlier pin."),
]


def parse_limits(given: str | Limits, others: Limits) -> Limits:
    """Return the limits that a command line gives, such as ``depth=200,records=500000``, and the others."""
    if isinstance(given, Limits):
        return given
    found = dict[str, int]()
    for part in given.split(","):
        name, _, number = part.strip().partition("=")
        found[name] = int(number) if re.fullmatch("[1-9][0-9]{,17}", number) else 0
        if name not in OF_COMMANDS or not found[name] or found.get("depth", 0) > MAX_PACKED_LEVELS:
            names = f"{', '.join(OF_COMMANDS)}, and depth is at most {MAX_PACKED_LEVELS}"
            raise typer.BadParameter(f"{excerpt(part)} is not NAME=NUMBER; names are {names}")
    return replace(others, **found)


def limits_option(others: Limits) -> Any:
    """Return the option for limits, of which a command line need not give all."""
    return typer.Option(
        "--limits",
        metavar="NAME=NUMBER,...",
        parser=lambda given: parse_limits(given, others),
        show_default=False,
        help="What your own values may be that no key has authenticated, such as depth=200,records=500000.",
    )


LimitsOption = Annotated[Limits, limits_option(DEFAULT_LIMITS)]


def require_number(number: float | None) -> float | None:
    """Refuse what is not a number: it is neither below a bound nor above one."""
    if number is not None and math.isnan(number):
        raise typer.BadParameter("it is not a number")
    return number


def number_option(name: str, unit: str, least: float, text: str, most: float = 1_000_000_000) -> Any:
    """Return an option for a number of a unit."""
    return typer.Option(name, min=least, max=most, callback=require_number, metavar=unit, help=text)


def require_text(text: str, name: str | None = None) -> None:
    """Refuse an argument whose bytes were not UTF-8: no database can be asked for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{excerpt(text)} is not UTF-8", param_hint=name) from None


class PasswordNamedError(MaintenanceError):
    """A command line names a database with a password; neither the message nor the hint shows it."""

    def __init__(self) -> None:
        super().__init__("a password stands in the name of the database", hint=LIBPQ_HINT)

    def hint_for(self, words: Sequence[str]) -> str:
        """Return the command of ``words`` with a variable, or the hint of every such error."""
        found = [number for number, word in enumerate(words) if has_password(word)]
        if len(found) != 1 or not is_url(words[at := found[0]].removeprefix("--db=")):
            return self.hint
        before = words[: at - 1] if at and words[at - 1] == "--db" else words[:at]
        return (
            "run this in bash or zsh, and give it the URL, which is then not shown: read -rs DB_URL &&"
            f" export DB_URL && sealpoint {shlex.join([*before, '--db-env', 'DB_URL', *words[at + 1 :]])}"
        )


_ID: Final = re.compile(r"(?:[^\\]|\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))*")


def parse_id(text: str | None) -> str | None:
    """Return the id that commands print as ``text``, see `escape_id`: each backslash begins an escape."""
    if text is None:
        return None
    try:
        if not _ID.fullmatch(text):
            raise ValueError
        found = text.encode("raw_unicode_escape").decode("unicode_escape")
    except ValueError:
        doubled = text.replace("\\", "\\\\")
        raise typer.BadParameter(
            f"in {excerpt(text)} a backslash begins no escape; an id is given as it is printed,"
            f" and a backslash is written twice: {doubled}"
        ) from None
    require_text(found)
    return found


def id_option(name: str, metavar: str, text: str) -> Any:
    """Return an option for an id or a name, which is given as it is printed."""
    return typer.Option(name, metavar=metavar, callback=parse_id, help=text)


def each_option(name: str, metavar: str, text: str, parse: Callable[..., Any] | None = None) -> Any:
    """Return an option for several names."""
    return typer.Option(name, metavar=metavar, callback=parse, help=f"{text} Give it once for each.")


def require_storable(name: str, *ids: str | None) -> None:
    """Refuse ids that no database of this name has: Postgres stores no NUL characters."""
    if not kind_of(name).is_file and any("\0" in each for each in ids if each):
        raise typer.BadParameter("Postgres stores no id with a NUL character")


RANGE: Final[dict[str, Any]] = {
    "of_run": typer.Option("--run", metavar="ID", help="Only a range of `sealpoint shards`."),
    "threads_from": id_option("--threads-from", "ID", "With --run: only from this thread on."),
    "threads_below": id_option("--threads-below", "ID", "With --run: only before this thread."),
}


def shard_of(command: str, of_run: str | None, *bounds: str | None) -> Shard | None:
    """Return the range that a command line names by the options of `RANGE`, in their order."""
    shard = Shard(of_run or "", command, *bounds)
    if (of_run, *bounds) == (None, None, None):
        return None
    try:
        shard.time()
    except ValueError:
        why = "give it with a range as `sealpoint shards DB` prints both"
        raise typer.BadParameter(why, param_hint="--run") from None
    return shard


def require_whole(run: Run, when: object, why: str = "a range is of one database: name that one") -> None:
    """Refuse a range where there can be none."""
    if run.shard is not None and when:
        raise typer.BadParameter(why, param_hint="--run")


MAX_REASON_CHARS: Final = 1000


def require_reason(reason: str | None) -> str | None:
    """Refuse a reason that says nothing, or too much."""
    if reason is not None:
        require_text(reason)
        if not reason.strip() or len(reason) > MAX_REASON_CHARS:
            raise typer.BadParameter(f"give 1 to {MAX_REASON_CHARS} characters")
    return reason


REASON: Final[Any] = typer.Option(
    "--reason", metavar="TEXT", callback=require_reason, show_default=False, help="Why, for the record."
)
AllowStoreOption = Annotated[
    str | None,
    typer.Option(
        "--allow-store",
        metavar="REASON",
        callback=require_reason,
        help="Accept what LangGraph's Store and caches leave readable. The reason is recorded.",
    ),
]


def all_databases(arguments: Sequence[str] | None, variables: Sequence[str] | None) -> list[str]:
    """Return all databases that a command line names."""
    for argument in arguments or ():
        # Every account can read the arguments of a process (ps), and a shell keeps them in its history.
        if has_password(argument):
            raise PasswordNamedError
        kind = find_kind(argument)
        if kind is None:
            raise DatabaseMissingError(f"{excerpt(argument)} is neither a path nor a URL of Postgres")
        if not kind.is_file:
            require_text(argument, "DB")
    return [*(arguments or ()), *map(_from_environment, variables or ())]


def _from_environment(variable: str) -> str:
    url = os.environ.get(variable)
    if url is None:
        hint = f"export {variable}=postgresql://..., in the environment of this command alone"
        raise DatabaseMissingError(f"the environment variable {excerpt(variable)} is not set", hint=hint)
    if kind_of(url).is_file:  # what it holds is not shown: it may have a password
        hint = "it must begin with postgresql://; a SQLite file is named as DB"
        raise DatabaseMissingError(f"{excerpt(variable)} does not hold a URL of Postgres", hint=hint)
    return url


def one_database(run: Run, argument: str | None, variable: str | None) -> str:
    """Return the one database that a command line names, or else the one that the ring file lists."""
    names, ring_file = _find(run, *([] if one is None else [one] for one in (argument, variable)))
    if len(names) != 1:
        more = f"; the ring file lists {len(names)}" if ring_file and names else ""
        raise typer.BadParameter(f"name one database: DB, or --db-env NAME{more}", param_hint="DB")
    named = shlex.quote(names[0]) if variable is None else f"--db-env {shlex.quote(variable)}"
    name_database(named if run.keys is None else f"{named} --keys {shlex.quote(str(run.keys))}")
    return names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDatabase:
    """How a command line names its one database; a command that takes several runs on each of them."""

    database: DatabaseArgument = None
    variable: VariableOption = None

    def find(self, run: Run) -> str:
        """Return its name, see `one_database`."""
        return one_database(run, self.database, self.variable)

    @contextmanager
    def opened(self, run: Run) -> Iterator[RowStore]:
        """Open it, and close it at the end; the command's object has it."""
        with opened([self.find(run)], run=run) as (store,):
            run.looks_at(store)
            yield store


def find_databases(
    run: Run, arguments: Sequence[str] | None, variables: Sequence[str] | None
) -> tuple[Sequence[str], Path | None]:
    """Return all databases that a command line names; if it names none, those that the ring file lists.

    With them comes the ring file, if it lists them.
    """
    found = _find(run, arguments, variables)
    if not found[0]:
        raise typer.BadParameter("name at least one database: DB, or --db-env NAME", param_hint="DB...")
    require_whole(run, len(found[0]) > 1)
    return found


def _find(
    run: Run, arguments: Sequence[str] | None, variables: Sequence[str] | None
) -> tuple[Sequence[str], Path | None]:
    if named := all_databases(arguments, variables):
        return named, None
    file = find_ring(run)
    return (RingFile(file).databases, file) if file else ((), None)


def find_ring(run: Run) -> Path | None:
    """Return the ring file; ``None`` if none is named, and none found."""
    try:
        return run.ring_file
    except RingFileMissingError:
        if run.keys is not None:
            raise
        return None


def open_store(database: str, run: Run | None = None, **options: Any) -> RowStore:
    """Open a database whose name `all_databases` has accepted, and warn of a superuser's rights."""
    if run is not None and run.shard is not None:
        require_whole(run, kind_of(database).is_file, "SQLite lets one process write at a time: leave it out")
        options["shard"] = run.shard
    with naming_other_files(database):
        store = kind_of(database).open(database, **options)
    if getattr(store, "is_superuser", False):
        warn(
            "connected as a superuser: a role that may only SELECT from the tables, and UPDATE them, is"
            " enough (docs/postgres.md#a-role-for-maintenance)"
        )
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
    """Warn of each folder that a killed run of `decrypt` left next to these files."""
    for folder in sorted({folder for file in files for folder in (file.parent, file.resolve().parent)}):
        for left in find_leftovers(folder):
            warn(
                f"{left} is from a decrypt that was killed, and may hold opened values",
                f"if no decrypt runs there, remove it: rm -r {shlex.quote(str(left))}",
            )


def _has_header(file: Path) -> bool:
    """Whether a file begins as every SQLite database does, or has a log from which it may be recovered."""
    if any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return True
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def opened(
    databases: Sequence[str], *, ring_file: Path | None = None, others: Sequence[RowStore] = (), **more: Any
) -> Iterator[list[RowStore]]:
    """Open several databases, each once, and close them at the end; ``more`` is of `open_store`.

    Those of ``others`` are open already, and are not opened again under another name. ``ring_file`` is the
    ring file that lists the databases, for the hint of an error.
    """
    warn_of_leftovers(*(Path(database) for database in databases if kind_of(database).is_file))
    with ExitStack() as stack:
        stores: list[RowStore] = []
        for database in databases:
            try:
                store = stack.enter_context(closing(open_store(database, **more)))
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
    if run.shard is not None and run.result.ring is not None and ring.active_id is not None:
        # Hosts may have other material of the same id, and the digest has no check value that no entry has.
        run.result.ring["check"] = check_value(ring.require_active().material)
    return ring


def read_entries(run: Run, file: Path) -> tuple[RingEntry, ...]:
    """Return what a ring file says about its keys, and record the ring.

    Warns of each key that is compromised, and of an active key that has expired; nothing is refused.
    """
    entries = read_ring_entries(file)
    run.result.ring = {"file": str(file), **describe_ring(entries)}
    for entry in entries:
        if entry.state is KeyState.COMPROMISED:
            warn(f"key {entry.id!r} is compromised: rotate what is under it, then destroy it")
        elif entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            warn(f"the active key {entry.id!r} has expired: promote another")
    return entries


def find_entries(run: Run) -> Sequence[RingEntry] | None:
    """Return what the ring says about its keys, and record it; ``None`` if none is named, and none found."""
    file = find_ring(run)
    return None if file is None else read_entries(run, file)


def say_if_unknown(entries: Sequence[RingEntry] | None, shares: Iterable[Share]) -> None:
    """Say that the states of keys are not known, if sealed values were found and no ring."""
    if entries is None and any(share.suite for share in shares):
        say("no ring file was found: the states of keys are not known")


def warn_of_json(shares: Iterable[Share]) -> None:
    """Warn of unsealed ``json`` values, if there are any: an agent in JavaScript may have written them."""
    saved = (share for share in shares if share.kind is Kind.PLAINTEXT and not share.is_plain_item)
    if any(JSON in share.types for share in saved):
        text = "the database has values of type json, which LangGraph.js writes: it reads no sealed value"
        warn(
            text,
            "early LangGraph for Python wrote this type, too: seal them if no agent in JavaScript uses them",
        )


TIMEOUT_SECONDS: Final = 10.0  # of a call to a thread store: agents write to it meanwhile


def find_threads(named: str | None, keys: Path | None) -> str | None:
    """Return the name of the thread store: that of the command line, or that of the ring file."""
    store = RingFile(keys).thread_store if named is None else named
    if store is not None and has_password(store):
        raise MaintenanceError("a password stands in the name of the thread store", hint=LIBPQ_HINT)
    return None if store is None else all_databases([store], None)[0]


@contextmanager
def opened_threads(name: str, *, create: bool = False) -> Iterator[ThreadStore]:
    """Open a thread store, and close it at the end."""
    from sealpoint.threads import open_thread_store

    try:
        store = open_thread_store(name, create=create, timeout=TIMEOUT_SECONDS)
    except ThreadStoreDownError as error:
        is_server = not kind_of(name).is_file or name.startswith("service=")
        if is_server and not isinstance(error, ThreadStoreMissingError):  # it may be started again
            raise
        raise ConfigError(str(error), hint=error.hint) from None
    with closing(store):
        yield store
