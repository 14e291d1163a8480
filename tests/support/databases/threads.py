"""Thread stores beside the databases of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sealpoint.threads import PostgresThreadStore, SqliteThreadStore, ThreadStore


def is_postgres(place: str) -> bool:
    """Whether a place is a DSN, and not a path."""
    return "search_path" in place


def open_store(place: str, **options: Any) -> ThreadStore:
    """Open the store of a database, which is created if there is none.

    Args:
        place: The database: a path, or a DSN of `schema`. Its store is a file beside it, or another schema.
        options: As for the store.
    """
    options = {"create": True, "timeout": 30, **options}
    if is_postgres(place):
        name = schema_of(place)
        return PostgresThreadStore(make_conninfo(place, options=""), schema=name, **options)
    return SqliteThreadStore(file_of(place), **options)


def schema_of(place: str) -> str:
    """Return the schema of the store of a database."""
    return f"{str(conninfo_to_dict(place)['options']).partition('=')[2]}_threads"


def file_of(place: str) -> Path:
    """Return the file of the store of a database; its name begins otherwise than that of the database."""
    return Path(place).with_name(f"heads-{Path(place).name}")


@contextmanager
def thread_store(place: str, **options: Any) -> Iterator[ThreadStore]:
    """Open the store of a database, and close it afterwards."""
    with closing(open_store(place, **options)) as store:
        yield store
