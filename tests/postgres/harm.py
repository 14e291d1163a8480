"""Harm done to a server's tables, as a bad disk does it."""

from __future__ import annotations

from typing import Final

import psycopg

OUT_OF_ROW: Final = 20_000
"""So many sealed bytes are not kept in their row, but in the TOAST table beside it."""


def lose_values(url: str, where: str, of: str = "blob", table: str = "checkpoint_blobs") -> None:
    """Take away what a table, or a partition, keeps of some rows in its TOAST table; they point to it still.

    ``of`` is a column, as bytes.
    """
    _lose(
        url,
        table,
        f"chunk_id IN (SELECT chunk_id FROM {{0}} JOIN {table}"
        f" ON chunk_seq = 0 AND chunk_data = substr({of}, 1, length(chunk_data)) WHERE {where})",
    )


def lose_item(url: str, number: int) -> None:
    """Take away the value of an item, by its turn among those that ``store`` keeps in its TOAST table."""
    one = f"SELECT DISTINCT chunk_id FROM {{0}} ORDER BY 1 LIMIT 1 OFFSET {number:d}"
    _lose(url, "store", f"chunk_id = ({one})")


def _lose(url: str, table: str, where: str) -> None:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT reltoastrelid, reltoastrelid::regclass::text FROM pg_class WHERE oid = %s::regclass",
            (table,),
        ).fetchone()
        assert row is not None
        oid, toast = row
        set_kind = "UPDATE pg_class SET relkind = %s WHERE oid = %s"  # as what it is, nobody may write to it
        connection.execute(set_kind, ("r", oid))
        assert connection.execute(f"DELETE FROM {toast} WHERE {where.format(toast)}".encode()).rowcount
        connection.execute(set_kind, ("t", oid))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"VACUUM {table}".encode())  # until then the server may find what is deleted
