"""A sealed value inside the JSON of a Postgres metadata column is a value like any other."""

from __future__ import annotations

from typing import Any

import psycopg

from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.maintenance.rotate import outstanding
from tests.postgres.databases import K1, K2, blobs, put_blobs
from tests.unit.databases.frames import document, sealed

LABEL = "checkpoints.metadata"


def put_checkpoint(url: str, checkpoint_id: str, metadata: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata)"
            " VALUES ('t', '', %s, '{}', %s)",
            (checkpoint_id, metadata),
        )


def seal_metadata(url: str, *ids: str, **more: Any) -> None:
    for checkpoint_id in ids:
        put_checkpoint(url, checkpoint_id, document(sealed(K1, "t", "", checkpoint_id), **more))


def test_a_key_that_only_seals_metadata_is_in_use(store: PostgresRows, url: str) -> None:
    put_blobs(url, blobs(3, K2))
    assert outstanding(store, "k2") == []
    seal_metadata(url, "1")
    (left,) = outstanding(store, "k2")
    assert (left.table, left.tag, left.rows) == (LABEL, "msgpack+cobblestone256.row@k1", 1)
