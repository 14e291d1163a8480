"""The kinds of databases: how to recognise the kind by a database's name, and how to open a database.

The modules of a kind are imported when the first database of this kind is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sealpoint.urls import is_url

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
    from sealpoint.admin.databases.rows import RowStore
    from sealpoint.admin.databases.sqlite.rows import SqliteWholeRows

WholeRowStore: TypeAlias = "PostgresWholeRows | SqliteWholeRows"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of database."""

    is_named: Callable[[str], bool]
    is_file: bool  # a file: one host, one writer; otherwise a URL, several writers
    rows: str  # module of the classes, in this package
    whole_rows: str

    def open(self, name: str, **options: Any) -> RowStore:
        """Open the named database; options such as ``writable`` are passed to its class."""
        store: RowStore = resolve_name(f"{__package__}.{self.rows}")(name, **options)
        return store

    def open_whole(self, name: str, **options: Any) -> WholeRowStore:
        """Open the named database as a store of whole rows; more options: ``thread_id`` and ``sentinel``."""
        store: WholeRowStore = resolve_name(f"{__package__}.{self.whole_rows}")(name, **options)
        return store


KINDS: Final = (
    Kind(is_url, False, "postgres.rows:PostgresRows", "postgres.whole:PostgresWholeRows"),
    Kind(lambda name: "://" not in name, True, "sqlite.rows:SqliteRows", "sqlite.rows:SqliteWholeRows"),
)


def find_kind(database: str) -> Kind | None:
    """Return the kind of a database by its name; ``None`` if the name is not accepted."""
    return next((kind for kind in KINDS if kind.is_named(database)), None)


def kind_of(database: str) -> Kind:
    """Return the kind of a database by its name; a name that `find_kind` refuses counts as a file's."""
    return find_kind(database) or KINDS[-1]
