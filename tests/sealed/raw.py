"""Rows past every saver, under the same names on SQLite and on Postgres.

``checkpoints`` has ``metadata`` as a dict, and on Postgres ``checkpoint`` too; ``writes`` and, on Postgres,
``blobs`` have ``type`` and ``blob``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

Row = dict[str, Any]
CHECKPOINT: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")
KEYS: Final = {
    "checkpoints": CHECKPOINT,
    "writes": (*CHECKPOINT, "task_id", "idx"),
    "blobs": ("thread_id", "checkpoint_ns", "channel", "version"),
}


class Raw:
    """The rows of a database.

    Attributes:
        threads: What stands in ``thread_id`` for each thread: another text if there are pseudonyms.
    """

    tables: dict[str, str]
    placeholder: str

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.threads: dict[str, str] = {}

    def rows(self, table: str, **where: Any) -> list[Row]:
        """All rows with these values, in no order."""
        found = self.connection.execute(f"SELECT * FROM {self.tables[table]}")
        names = [column[0] for column in found.description]
        every = (self.decode(table, dict(zip(names, row, strict=True))) for row in found.fetchall())
        return [row for row in every if where.items() <= {k: row[k] for k in where}.items()]

    def row(self, table: str, **where: Any) -> Row:
        """The one row with these values."""
        (found,) = self.rows(table, **where)
        return found

    def delete(self, table: str, row: Row) -> None:
        """Delete the row with the key of ``row``, if there is one."""
        condition = " AND ".join(f"{name} = {self.placeholder}" for name in KEYS[table])
        self.connection.execute(
            f"DELETE FROM {self.tables[table]} WHERE {condition}", [row[name] for name in KEYS[table]]
        )

    def put(self, table: str, row: Row) -> None:
        """Put a row, in the place of that with its key."""
        self.delete(table, row)
        encoded = self.encode(table, row)
        places = ", ".join(self.placeholder for _ in encoded)
        self.connection.execute(
            f"INSERT INTO {self.tables[table]} ({', '.join(encoded)}) VALUES ({places})",
            list(encoded.values()),
        )

    def decode(self, table: str, row: Row) -> Row:
        raise NotImplementedError

    def encode(self, table: str, row: Row) -> Row:
        raise NotImplementedError

    def undone(self) -> Any:
        """Context in which everything that is done to the database is undone at the end."""
        raise NotImplementedError


class OnSqlite(Raw):
    tables = {"checkpoints": "checkpoints", "writes": "writes"}  # noqa: RUF012
    placeholder = "?"

    def decode(self, table: str, row: Row) -> Row:
        if table == "checkpoints":
            return {**row, "metadata": json.loads(row["metadata"])}
        return {("blob" if name == "value" else name): value for name, value in row.items()}

    def encode(self, table: str, row: Row) -> Row:
        if table == "checkpoints":
            given = row["metadata"]
            return {**row, "metadata": json.dumps(given).encode() if isinstance(given, dict) else given}
        return {("value" if name == "blob" else name): value for name, value in row.items()}

    @contextmanager
    def undone(self) -> Iterator[None]:
        before = sqlite3.connect(":memory:")
        self.connection.backup(before)
        try:
            yield
        finally:
            self.connection.commit()
            before.backup(self.connection)
            before.close()


class OnPostgres(Raw):
    tables = {  # noqa: RUF012
        "checkpoints": "checkpoints",
        "writes": "checkpoint_writes",
        "blobs": "checkpoint_blobs",
    }
    placeholder = "%s"

    def rows(self, table: str, **where: Any) -> list[Row]:
        found = self.connection.execute(f"SELECT * FROM {self.tables[table]}").fetchall()
        return [row for row in found if where.items() <= {k: row[k] for k in where}.items()]

    def encode(self, table: str, row: Row) -> Row:
        return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in row.items()}

    @contextmanager
    def undone(self) -> Iterator[None]:
        with self.connection.transaction(force_rollback=True):
            yield


class OnPostgresBesideAStore(OnPostgres):
    """Changes are committed, and undone by other ones: beside a thread store no transaction may be open."""

    @contextmanager
    def undone(self) -> Iterator[None]:
        before = {table: self.rows(table) for table in self.tables}
        try:
            yield
        finally:
            for table, rows in before.items():
                self.connection.execute(f"DELETE FROM {self.tables[table]}")
                for row in rows:
                    self.put(table, row)


ERRORS: Final = (sqlite3.Error, psycopg.Error)
"""What a database itself refuses."""
