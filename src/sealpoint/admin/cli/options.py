"""Options that several commands share, and functions that open the databases and rings that they name.

If the command line names no database or no thread store, those that the ring file names are used.
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
        metavar="DB", help="A SQLite file or a postgresql:// URL. Default: the database in the ring file."
    ),
]
DatabasesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DB...", help="SQLite files or postgresql:// URLs. Default: all databases in the ring file."
    ),
]
VariableOption = Annotated[
    str | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="Instead of DB: an environment variable with a postgresql:// URL; it may contain a password.",
    ),
]
VariablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--db-env",
        metavar="NAME",
        help="An environment variable with the postgresql:// URL of a DB. Can be repeated.",
    ),
]
AllowUnprovenOption = Annotated[
    bool, typer.Option("--allow-unproven", help="Exit with 0 instead of 3 if the result is not proven.")
]
KeyArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="The ring file. Default: $SEALPOINT_KEYS, $CREDENTIALS_DIRECTORY/sealpoint.keys"
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
        help="The thread store: SQLite file or postgresql:// URL. Default: [threads] in the ring file.",
    ),
]
PinOption = Annotated[
    Path | None,
    typer.Option("--pin", metavar="FILE", help="Fail unless the thread store continues the log of this pin."),
]


def parse_limits(given: str | Limits, others: Limits) -> Limits:
    """Parse limits such as ``depth=200,records=500000``; the limits left out are those of ``others``."""
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
    """Return the option ``--limits``; limits that it leaves out are taken from ``others``."""
    return typer.Option(
        "--limits",
        metavar="NAME=NUMBER,...",
        parser=lambda given: parse_limits(given, others),
        show_default=False,
        help="Raise the limits for decoding unsealed values of your own, such as depth=200,records=500000.",
    )


LimitsOption = Annotated[Limits, limits_option(DEFAULT_LIMITS)]


def require_number(number: float | None) -> float | None:
    """Refuse NaN: every comparison with NaN is false, so that no check of bounds would refuse it."""
    if number is not None and math.isnan(number):
        raise typer.BadParameter("NaN is not a number")
    return number


def number_option(name: str, unit: str, least: float, text: str, most: float = 1_000_000_000) -> Any:
    """Return an option for a number between ``least`` and ``most``; ``unit`` is shown in the help."""
    return typer.Option(name, min=least, max=most, callback=require_number, metavar=unit, help=text)


def require_text(text: str, name: str | None = None) -> None:
    """Refuse an argument that is not UTF-8, because databases store text as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{excerpt(text)} is not UTF-8", param_hint=name) from None


class PasswordNamedError(MaintenanceError):
    """A command line contains the password of a database; message and hint do not show the password."""

    def __init__(self) -> None:
        super().__init__("the URL of the database contains a password", hint=LIBPQ_HINT)

    def hint_for(self, words: Sequence[str]) -> str:
        """Return the command of ``words`` with ``--db-env`` in place of the URL, or else a general hint."""
        found = [number for number, word in enumerate(words) if has_password(word)]
        if len(found) != 1 or not is_url(words[at := found[0]].removeprefix("--db=")):
            return self.hint
        before = words[: at - 1] if at and words[at - 1] == "--db" else words[:at]
        return (
            "run this in bash or zsh, and paste the URL, which is not shown: read -rs DB_URL &&"
            f" export DB_URL && sealpoint {shlex.join([*before, '--db-env', 'DB_URL', *words[at + 1 :]])}"
        )


_ID: Final = re.compile(r"(?:[^\\]|\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))*")


def parse_id(text: str | None) -> str | None:
    """Return the id that commands print as ``text``: the inverse of `escape_id`."""
    if text is None:
        return None
    try:
        if not _ID.fullmatch(text):
            raise ValueError
        found = text.encode("raw_unicode_escape").decode("unicode_escape")
    except ValueError:
        doubled = text.replace("\\", "\\\\")
        raise typer.BadParameter(
            f"{excerpt(text)} contains an invalid escape; give the id as commands print it,"
            f" with each backslash doubled: {doubled}"
        ) from None
    require_text(found)
    return found


def id_option(name: str, metavar: str, text: str) -> Any:
    """Return an option for an id or a name, in the form in which commands print it."""
    return typer.Option(name, metavar=metavar, callback=parse_id, help=text)


def each_option(name: str, metavar: str, text: str, parse: Callable[..., Any] | None = None) -> Any:
    """Return an option that can be repeated."""
    return typer.Option(name, metavar=metavar, callback=parse, help=f"{text} Can be repeated.")


def require_storable(name: str, *ids: str | None) -> None:
    """Refuse ids with NUL characters for a Postgres database, which cannot store them."""
    if not kind_of(name).is_file and any("\0" in each for each in ids if each):
        raise typer.BadParameter("Postgres cannot store an id with a NUL character")


RANGE: Final[dict[str, Any]] = {
    "of_run": typer.Option("--run", metavar="ID", help="Work on one range: its id from `sealpoint shards`."),
    "threads_from": id_option("--threads-from", "ID", "With --run: first thread of the range."),
    "threads_below": id_option("--threads-below", "ID", "With --run: end of the range, exclusive."),
}


def shard_of(command: str, of_run: str | None, *bounds: str | None) -> Shard | None:
    """Return the range of threads given by the options of `RANGE`; ``None`` without these options."""
    shard = Shard(of_run or "", command, *bounds)
    if (of_run, *bounds) == (None, None, None):
        return None
    try:
        shard.time()
    except ValueError:
        why = "copy the options of a range as `sealpoint shards DB` prints them"
        raise typer.BadParameter(why, param_hint="--run") from None
    return shard


def require_whole(run: Run, when: object, why: str = "a range is of one database: name one") -> None:
    """Refuse the options of a range of threads if ``when`` is true."""
    if run.shard is not None and when:
        raise typer.BadParameter(why, param_hint="--run")


MAX_REASON_CHARS: Final = 1000


def require_reason(reason: str | None) -> str | None:
    """Refuse a reason that is blank or too long."""
    if reason is not None:
        require_text(reason)
        if not reason.strip() or len(reason) > MAX_REASON_CHARS:
            raise typer.BadParameter(f"give 1 to {MAX_REASON_CHARS} characters")
    return reason


REASON: Final[Any] = typer.Option(
    "--reason", metavar="TEXT", callback=require_reason, show_default=False, help="Reason, which is recorded."
)
AllowStoreOption = Annotated[
    str | None,
    typer.Option(
        "--allow-store",
        metavar="REASON",
        callback=require_reason,
        help="Accept unsealed values in LangGraph's Store and caches, for a reason that is recorded.",
    ),
]


def all_databases(arguments: Sequence[str] | None, variables: Sequence[str] | None) -> list[str]:
    """Return the databases of a command line: its arguments, and the URLs in environment variables."""
    for argument in arguments or ():
        # Every account can read the arguments of a process (ps), and shells keep arguments in their history.
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
    if kind_of(url).is_file:  # do not show the variable's value: it may contain a password
        hint = "the variable must begin with postgresql://; give a SQLite file as the argument DB"
        raise DatabaseMissingError(f"{excerpt(variable)} does not contain a URL of Postgres", hint=hint)
    return url


def one_database(run: Run, argument: str | None, variable: str | None) -> str:
    """Return the one database of the command line; if it names none, the one in the ring file."""
    names, ring_file = _find(run, *([] if one is None else [one] for one in (argument, variable)))
    if len(names) != 1:
        more = f"; the ring file lists {len(names)}" if ring_file and names else ""
        raise typer.BadParameter(f"name one database: DB, or --db-env NAME{more}", param_hint="DB")
    named = shlex.quote(names[0]) if variable is None else f"--db-env {shlex.quote(variable)}"
    name_database(named if run.keys is None else f"{named} --keys {shlex.quote(str(run.keys))}")
    return names[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDatabase:
    """The options that name one database. A command for several databases runs once for each database."""

    database: DatabaseArgument = None
    variable: VariableOption = None

    def find(self, run: Run) -> str:
        """Return the path or URL of the database."""
        return one_database(run, self.database, self.variable)

    @contextmanager
    def opened(self, run: Run) -> Iterator[RowStore]:
        """Open the database, name it in the run's result, and close it at the end."""
        with opened([self.find(run)], run=run) as (store,):
            run.looks_at(store)
            yield store


def find_databases(
    run: Run, arguments: Sequence[str] | None, variables: Sequence[str] | None
) -> tuple[Sequence[str], Path | None]:
    """Return the databases of the command line; if it names none, those in the ring file.

    Also returns the ring file, or ``None`` if the command line names the databases.
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
    """Return the path of the ring file; ``None`` if no ring file is named or found."""
    try:
        return run.ring_file
    except RingFileMissingError:
        if run.keys is not None:
            raise
        return None


def open_store(database: str, run: Run | None = None, **options: Any) -> RowStore:
    """Open a database by a path or URL that `all_databases` has accepted; warn if the role is a superuser."""
    if run is not None and run.shard is not None:
        require_whole(run, kind_of(database).is_file, "SQLite allows one writer at a time: leave out --run")
        options["shard"] = run.shard
    with naming_other_files(database):
        store = kind_of(database).open(database, **options)
    if getattr(store, "is_superuser", False):
        warn(
            "connected as a superuser: a role with SELECT and UPDATE on the tables is"
            " enough (docs/postgres.md#a-role-for-maintenance)"
        )
    return store


@contextmanager
def naming_other_files(database: str) -> Iterator[None]:
    """Explain errors of the ``with`` block whose cause is an empty file, or a file of another program."""
    is_file = kind_of(database).is_file
    try:
        yield
    except DatabaseCorruptError:
        if not is_file or _has_header(Path(database)):
            raise
        hint = "name a SQLite file that LangGraph or sealpoint wrote, or restore this file from a backup"
        raise SchemaError(f"{database} is not a SQLite database", hint=hint) from None
    except SchemaError:
        if not is_file or Path(database).stat().st_size:
            raise
        hint = "is it the right file? SQLite creates an empty file for every name that does not exist"
        raise SchemaError(f"{database} is empty: it has no checkpoints", hint=hint) from None


def warn_of_leftovers(*files: Path) -> None:
    """Warn of folders that a killed `decrypt` left next to these files."""
    for folder in sorted({folder for file in files for folder in (file.parent, file.resolve().parent)}):
        for left in find_leftovers(folder):
            warn(
                f"{left} was left by a `decrypt` that was killed, and may contain decrypted values",
                f"if no `decrypt` is running, remove the folder: rm -r {shlex.quote(str(left))}",
            )


def _has_header(file: Path) -> bool:
    """Return whether a file has the SQLite header, or a log from which SQLite may recover the header."""
    if any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return True
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def opened(
    databases: Sequence[str], *, ring_file: Path | None = None, others: Sequence[RowStore] = (), **more: Any
) -> Iterator[list[RowStore]]:
    """Open several databases, and close them at the end; ``more`` are options of `open_store`.

    A database with two names is opened once; databases in ``others`` are open, and are not opened again.
    ``ring_file`` is the ring file that lists the databases, for the hint of an error.
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
    """Return a value that is equal for two names of the same database."""
    # A copy of a Postgres cluster has the original's system identifier, so compare the URL, too.
    return store.name if store.kind == "postgres" else store.kind, store.identity


class Examined(NamedTuple):
    """Open databases, each once, in which rows under a key are counted before the key changes its state."""

    named: list[RowStore]  # on the command line
    listed: list[RowStore]  # in the ring file only
    entries: tuple[str, ...] | None  # databases in the ring file; `None` if not examined

    @property
    def stores(self) -> list[RowStore]:
        """All of these databases: ``named`` and ``listed``."""
        return [*self.named, *self.listed]


@contextmanager
def examined(file: Path, named: Sequence[str], *, with_listed: bool) -> Iterator[Examined]:
    """Open the databases in which to count rows before a key changes its state; close them at the end."""
    entries = RingFile(file).databases if with_listed else None
    with (
        opened(named) as stores,
        opened(entries or (), ring_file=file, others=stores) as listed,
    ):
        yield Examined(stores, listed, entries)


def open_ring(run: Run) -> KeyRing:
    """Load the ring with key material, warn of compromised or expired keys, add the ring to the result."""
    ring = KeyRing.load(run.keys).load_material()
    read_entries(run, find_ring_file(ring.path))
    if run.shard is not None and run.result.ring is not None and ring.active_id is not None:
        # Hosts may have different material for an id: a digest covers only the check values in the ring file.
        run.result.ring["check"] = check_value(ring.require_active().material)
    return ring


def read_entries(run: Run, file: Path) -> tuple[RingEntry, ...]:
    """Return the key entries of a ring file, and add the ring to the result.

    Warns of each compromised key, and of an active key that has expired; both are accepted.
    """
    entries = read_ring_entries(file)
    run.result.ring = {"file": str(file), **describe_ring(entries)}
    for entry in entries:
        if entry.state is KeyState.COMPROMISED:
            warn(f"key {entry.id!r} is compromised: rotate the values under the key, then destroy it")
        elif entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            warn(f"the active key {entry.id!r} has expired: promote another key")
    return entries


def find_entries(run: Run) -> Sequence[RingEntry] | None:
    """Return the ring's key entries, and add the ring to the result; ``None`` if no ring file is found."""
    file = find_ring(run)
    return None if file is None else read_entries(run, file)


def say_if_unknown(entries: Sequence[RingEntry] | None, shares: Iterable[Share]) -> None:
    """If sealed values but no ring file were found, say that the states of keys are not known."""
    if entries is None and any(share.suite for share in shares):
        say("no ring file was found: the states of keys are not known")


def warn_of_json(shares: Iterable[Share]) -> None:
    """Warn of unsealed ``json`` values: LangGraph.js may have written them, and cannot read sealed values."""
    saved = (share for share in shares if share.kind is Kind.PLAINTEXT and not share.is_plain_item)
    if any(JSON in share.types for share in saved):
        text = "the database has values of type json; LangGraph.js writes these, and reads no sealed value"
        warn(
            text,
            "early LangGraph for Python wrote json, too: seal these values if no JavaScript agent uses them",
        )


TIMEOUT_SECONDS: Final = 10.0  # for a call to a thread store that agents write to meanwhile


def find_threads(named: str | None, keys: Path | None) -> str | None:
    """Return the path or URL of the thread store: from the command line, or else from the ring file."""
    store = RingFile(keys).thread_store if named is None else named
    if store is not None and has_password(store):
        raise MaintenanceError("the URL of the thread store contains a password", hint=LIBPQ_HINT)
    return None if store is None else all_databases([store], None)[0]


@contextmanager
def opened_threads(name: str, *, create: bool = False) -> Iterator[ThreadStore]:
    """Open a thread store, and close it at the end."""
    from sealpoint.threads import open_thread_store

    try:
        store = open_thread_store(name, create=create, timeout=TIMEOUT_SECONDS)
    except ThreadStoreDownError as error:
        is_server = not kind_of(name).is_file or name.startswith("service=")
        if is_server and not isinstance(error, ThreadStoreMissingError):  # the server may be restarted
            raise
        raise ConfigError(str(error), hint=error.hint) from None
    with closing(store):
        yield store
