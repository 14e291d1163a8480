"""The tables of a real saver, partitioned in each way that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How tables are partitioned.

    Attributes:
        by: What comes after PARTITION BY; ``{}`` is the key.
        key: A column of the key; the values of checkpoints have no ``checkpoint_id``, but ``thread_id``.
        parts: For each partition its name's end, of which table it is, and what comes after the table's name.
    """

    by: str
    key: str
    parts: tuple[tuple[str, str, str], ...]

    def statements(self, table: str) -> list[str]:
        """Return what replaces a table by a partitioned one with the same rows."""
        key = "thread_id" if table == "checkpoint_blobs" else self.key
        return [
            f"ALTER TABLE {table} RENAME TO old",
            f"CREATE TABLE {table} (LIKE old INCLUDING ALL) PARTITION BY {self.by.format(key)}",
            *(
                f"CREATE TABLE {table}{end} PARTITION OF {table}{parent} {bounds.format(key)}"
                for end, parent, bounds in self.parts
            ),
            f"INSERT INTO {table} SELECT * FROM old",
            "DROP TABLE old",
        ]


_HASHED: Final = tuple(
    (f"_p{number}", "", f"FOR VALUES WITH (MODULUS 5, REMAINDER {number})") for number in range(5)
)
# Ids of checkpoints begin with a digit, and those of most threads in these tests with ``thread``.
_RANGED: Final = (
    ("_low", "", "FOR VALUES FROM (MINVALUE) TO ('1f1')"),
    ("_high", "", "FOR VALUES FROM ('1f1') TO ('thread 2')"),
    ("_others", "", "DEFAULT"),
)
_NESTED: Final = (
    ("_low", "", "FOR VALUES FROM (MINVALUE) TO ('thread 1') PARTITION BY HASH ({})"),
    ("_even", "_low", "FOR VALUES WITH (MODULUS 2, REMAINDER 0)"),
    ("_odd", "_low", "FOR VALUES WITH (MODULUS 2, REMAINDER 1)"),
    ("_others", "", "DEFAULT"),
)

PARTITIONINGS: Final = {
    "range and hash": Partitioning("RANGE ({})", "thread_id", _NESTED),
    "hash of thread_id": Partitioning("HASH ({})", "thread_id", _HASHED),
    "hash of checkpoint_id": Partitioning("HASH ({})", "checkpoint_id", _HASHED),
    "range of thread_id": Partitioning("RANGE ({})", "thread_id", _RANGED),
    "range of checkpoint_id": Partitioning("RANGE ({})", "checkpoint_id", _RANGED),
}


def partition(url: str, name: str, tables: Sequence[str] = TABLES) -> None:
    """Replace the tables of a saver by partitioned ones with the same rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table in tables:
            for statement in PARTITIONINGS[name].statements(table):
                connection.execute(statement.encode())
