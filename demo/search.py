"""Reading a database without a key: by SQL, and as the bytes of its files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Database:
    """Everything that is readable in a database.

    Attributes:
        rows: How many rows each type tag has: (table, type, count).
        values: All values from the serializer, concatenated.
        file: The bytes of the database file.
        wal: The bytes of its write-ahead log.
    """

    rows: list[tuple[str, str, int]]
    values: bytes
    file: bytes
    wal: bytes

    @classmethod
    def look(cls, path: Path) -> Self:
        """Read the tables and the files of the database at ``path``."""
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT 'checkpoints', type, count(*) FROM checkpoints GROUP BY type UNION ALL"
                " SELECT 'writes', type, count(*) FROM writes GROUP BY type"
            ).fetchall()
            values = connection.execute(
                "SELECT checkpoint FROM checkpoints UNION ALL SELECT value FROM writes"
            ).fetchall()
        wal = path.with_name(f"{path.name}-wal")
        return cls(
            rows,
            b"\n".join(value for (value,) in values),
            path.read_bytes(),
            wal.read_bytes() if wal.exists() else b"",
        )

    def holds(self, text: str) -> tuple[bool, bool, bool]:
        """Return whether ``text`` is found in a value, in the file and in the log."""
        sought = text.encode()
        return sought in self.values, sought in self.file, sought in self.wal
