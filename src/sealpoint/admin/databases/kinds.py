"""The kinds of databases: how the name of one is recognised, and how it is opened.

A driver is imported when the first database of its kind is opened: Postgres needs an extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sealpoint.keys.entry import is_url

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.whole import Sentinel
    from sealpoint.admin.databases.rows import RowStore, WholeRowStore


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of databases."""

    is_named: Callable[[str], bool]
    is_file: bool  # of one host and one writer; others are named by URL, and can have several writers
    open: Callable[[str, bool], RowStore]  # with whether it is writable
    open_whole: Callable[[str, bool, str | None, Sentinel | None], WholeRowStore]  # also: thread, sentinel


def _open_postgres(url: str, writable: bool) -> RowStore:
    from sealpoint.admin.databases.postgres.rows import PostgresRows

    return PostgresRows(url, writable=writable)


def _open_whole_postgres(
    url: str, writable: bool, thread_id: str | None, sentinel: Sentinel | None
) -> WholeRowStore:
    from sealpoint.admin.databases.postgres.whole import PostgresWholeRows

    return PostgresWholeRows(url, writable=writable, thread_id=thread_id, sentinel=sentinel)


def _open_sqlite(path: str, writable: bool) -> RowStore:
    from sealpoint.admin.databases.sqlite.rows import SqliteRows

    return SqliteRows(path, writable=writable)


def _open_whole_sqlite(
    path: str, writable: bool, thread_id: str | None, sentinel: Sentinel | None
) -> WholeRowStore:
    from sealpoint.admin.databases.sqlite.rows import SqliteWholeRows

    del sentinel
    return SqliteWholeRows(path, writable=writable, thread_id=thread_id)


KINDS: Final = (
    Kind(is_url, False, _open_postgres, _open_whole_postgres),
    Kind(lambda name: "://" not in name, True, _open_sqlite, _open_whole_sqlite),
)


def find_kind(database: str) -> Kind | None:
    """Return the kind that a database's name has, or ``None``."""
    return next((kind for kind in KINDS if kind.is_named(database)), None)


def kind_of(database: str) -> Kind:
    """Return the kind of a database whose name was accepted; every other name is a path."""
    return find_kind(database) or KINDS[-1]
