"""The kinds of databases: how the name of one is recognised, and how it is opened.

The driver of Postgres, which is an extra, is imported with the first connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.databases.sqlite.rows import SqliteRows, SqliteWholeRows
from sealpoint.urls import is_url

WholeRowStore: TypeAlias = PostgresWholeRows | SqliteWholeRows


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of databases."""

    is_named: Callable[[str], bool]
    is_file: bool  # of one host and one writer; others are named by URL, and can have several writers
    open: Callable[..., RowStore]  # with its name, and whether it is ``writable``
    open_whole: Callable[..., WholeRowStore]  # also with ``thread_id`` and ``sentinel``


KINDS: Final = (
    Kind(is_url, False, PostgresRows, PostgresWholeRows),
    Kind(lambda name: "://" not in name, True, SqliteRows, SqliteWholeRows),
)


def find_kind(database: str) -> Kind | None:
    """Return the kind that a database's name has, or ``None``."""
    return next((kind for kind in KINDS if kind.is_named(database)), None)


def kind_of(database: str) -> Kind:
    """Return the kind of a database whose name was accepted; every other name is a path."""
    return find_kind(database) or KINDS[-1]
