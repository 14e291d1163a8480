"""What commands are pointed at: a database by path or URL, and the ring."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from sealpoint.cli.screen import warn
from sealpoint.crypto import KeyRing, KeyState
from sealpoint.errors import DatabaseCorruptError, DatabaseMissingError, PasswordError, SchemaError, excerpt
from sealpoint.keys.ringfile import read_ring_entries
from sealpoint.maintenance.partial import MAGIC, find_leftovers

if TYPE_CHECKING:
    from sealpoint.databases.rows import RowStore
    from sealpoint.keys.entry import RingEntry

DatabaseArgument = Annotated[
    str, typer.Argument(metavar="DB", show_default=False, help="A SQLite file or a postgresql:// URL.")
]
DatabasesArgument = Annotated[
    list[str], typer.Argument(metavar="DB...", show_default=False, help="SQLite files or postgresql:// URLs.")
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        show_default=False,
        help="The ring file; else $SEALPOINT_KEYS, $CREDENTIALS_DIRECTORY/sealpoint.keys"
        " or /etc/sealpoint/keys.toml.",
    ),
]

_SUPERUSER: Final = (
    "connected as a superuser: a role that may only SELECT from the tables, and UPDATE two of them, is enough"
    " (docs/rotation.md, A role for maintenance)"
)
_SCHEMES: Final = ("postgresql://", "postgres://")
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_PARAMETERS: Final = re.compile(r"(?:^|[?&\s])([^=?&\s]+)\s*=")


def is_url(database: str) -> bool:
    """Whether a database is named by a URL of Postgres."""
    return database.startswith(_SCHEMES)


def open_store(database: str, *, writable: bool = False) -> RowStore:
    """Open a database.

    Raises:
        PasswordError: If a password stands in it.
        DatabaseMissingError: If it is neither a path nor a URL of Postgres, or nothing is there.
    """
    _require_no_password(database)
    if is_url(database):
        require_text(database, "DB")
        from sealpoint.databases.postgres.rows import PostgresRows

        rows = PostgresRows(database, writable=writable)
        if rows.is_superuser:
            warn(_SUPERUSER)
        return rows
    if "://" in database:
        raise DatabaseMissingError(f"{excerpt(database)} is neither a path nor a URL of Postgres")
    from sealpoint.databases.sqlite.rows import SqliteRows

    with naming_other_files(database):
        return SqliteRows(database, writable=writable)


@contextmanager
def naming_other_files(database: str) -> Iterator[None]:
    """Say of a file that it is empty, which SQLite takes for a database without tables, or no database."""
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
    """Name what killed runs of `decrypt` left in the folders of these files."""
    for folder in sorted({folder for file in files for folder in (file.parent, file.resolve().parent)}):
        for left in find_leftovers(folder):
            hint = f"if no decrypt runs there, remove it: rm -r {shlex.quote(str(left))}"
            warn(f"{left} is from a decrypt that was killed, and may hold opened values", hint)


def _has_header(file: Path) -> bool:
    """Whether a file begins as every SQLite database does, or has a log with which it may be mended."""
    if any(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return True
    with file.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def opened(databases: Sequence[str], *, writable: bool = False) -> Iterator[list[RowStore]]:
    """Open several databases, and close them at the end."""
    warn_of_leftovers(*(Path(database) for database in databases if not is_url(database)))
    with ExitStack() as stack:
        stores = []
        for database in databases:
            stores.append(open_store(database, writable=writable))
            stack.callback(stores[-1].close)
        yield stores


def open_ring(path: Path | None) -> KeyRing:
    """Load the ring with all its material, and report its keys; ``None`` looks in the usual places."""
    ring = KeyRing.load(path).load_material()
    report_keys(read_ring_entries(ring.path))
    return ring


def report_keys(entries: Iterable[RingEntry]) -> None:
    """Warn of each key that is compromised, and of an active key that has expired. Nothing is refused."""
    for entry in entries:
        if entry.state is KeyState.COMPROMISED:
            warn(f"key {entry.id!r} is compromised: rotate what is under it, then destroy it")
        elif entry.state is KeyState.ACTIVE and entry.is_expired(datetime.now(UTC)):
            warn(f"the active key {entry.id!r} has expired: promote another")


def require_text(text: str, name: str) -> None:
    """Refuse an argument whose bytes were not UTF-8: no database can be asked for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{excerpt(text)} is not UTF-8", param_hint=name) from None


def _require_no_password(database: str) -> None:
    """Refuse a password in the three places where libpq takes one; the message shows nothing of it."""
    front, found, rest = database.partition("://")
    user, at, _ = (rest if found else front).partition("/")[0].partition("@")
    named = {unquote(name) for name in _PARAMETERS.findall(database)}
    if (found and at and ":" in user) or named & _SECRETS:
        raise PasswordError("a password stands in the name of the database")
