"""The kinds of databases: how the name of one is recognised, and how it is opened.

What opens one is imported with the first database of its kind.
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
    """A kind of databases."""

    is_named: Callable[[str], bool]
    is_file: bool  # of one host and one writer; others are named by URL, and can have several writers
    rows: str  # the classes, in this package
    whole_rows: str

    def open(self, name: str, **options: Any) -> RowStore:
        """Open one, which may be ``writable``."""
        store: RowStore = resolve_name(f"{__package__}.{self.rows}")(name, **options)
        return store

    def open_whole(self, name: str, **options: Any) -> WholeRowStore:
        """Open the whole rows of one; the options are also ``thread_id`` and ``sentinel``."""
        store: WholeRowStore = resolve_name(f"{__package__}.{self.whole_rows}")(name, **options)
        return store


KINDS: Final = (
    Kind(is_url, False, "postgres.rows:PostgresRows", "postgres.whole:PostgresWholeRows"),
    Kind(lambda name: "://" not in name, True, "sqlite.rows:SqliteRows", "sqlite.rows:SqliteWholeRows"),
)


def find_kind(database: str) -> Kind | None:
    """Return the kind that a database's name has, or ``None``."""
    return next((kind for kind in KINDS if kind.is_named(database)), None)


def kind_of(database: str) -> Kind:
    """Return the kind of a database whose name was accepted; every other name is a path."""
    return find_kind(database) or KINDS[-1]
