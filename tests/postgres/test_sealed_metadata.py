"""A sealed value inside the JSON of a Postgres metadata column is a value like any other."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import psycopg
import pytest

from sealpoint.admin.databases.cells import Cell, Opener
from sealpoint.admin.databases.postgres.columns import METADATA
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure
from tests.support.databases.frames import BODY, KEY, PLAIN, document, sealed
from tests.support.databases.postgres import K1, K2, blobs, put_blobs

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


def metadata_of(url: str) -> dict[str, Any]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT checkpoint_id, metadata FROM checkpoints").fetchall())


@pytest.mark.parametrize("batch", [Batch(), Batch(rows=1)])
def test_rotation_seals_metadata_anew_and_leaves_the_other_keys(url: str, batch: Batch) -> None:
    put_blobs(url, blobs(3))
    seal_metadata(url, "1", "2", "3", big=2**70)
    put_checkpoint(url, "4", json.dumps(PLAIN))
    before = metadata_of(url)
    with closing(PostgresRows(url, writable=True)) as store:
        assert not [event for event in rotate(store, K2, batch=batch) if isinstance(event, Failure)]
        assert outstanding(store, "k2") == []
        events = [*verify(store, K2)]
        cells = store.read(METADATA, None).cells
    assert not [event for event in events if isinstance(event, Failure)]
    assert [K2.open(cell.tag, cell.value, row=cell.row).typed for cell in cells] == [("msgpack", BODY)] * 3
    after = metadata_of(url)
    assert after["4"] == before["4"]
    for checkpoint_id in "123":
        assert after[checkpoint_id] != before[checkpoint_id]
        assert {**after[checkpoint_id], KEY: None} == {**before[checkpoint_id], KEY: None}


def test_what_is_no_value_or_a_forged_one(store: PostgresRows, url: str) -> None:
    put_blobs(url, blobs(1, K2))
    for number, plain in enumerate((PLAIN, {"nested": {KEY: {}}}, {f"{KEY}x": 1})):
        put_checkpoint(url, f"plain {number}", json.dumps(plain))
    assert {count.table for count in store.count()} == {"checkpoint_blobs"}
    tag = "msgpack+cobblestone256.row@k1"
    forged = [
        7, [], {}, {"type": tag}, {"type": tag, "value": "%%"}, {"type": tag, "value": 7},
        {"type": None, "value": "AAAA"}, {"type": "msgpack", "value": "AAAA"},
        {"type": "msgpack+aes", "value": "AAAA"}, {"type": tag, "value": "AAAA"},
    ]  # fmt: skip
    for number, frame in enumerate(forged):
        put_checkpoint(url, f"forged {number}", document(frame))
    before = metadata_of(url)
    events = [*rotate(store, K2, allow_plaintext=True, allow_legacy=True, check_keys=False)]
    assert metadata_of(url) == before
    assert len([event for event in events if isinstance(event, Failure)]) == len(forged)
    assert sum(count.rows for count in outstanding(store, "k2")) == len(forged)


def test_a_writer_who_changes_metadata_meanwhile_wins(store: PostgresRows, url: str) -> None:
    seal_metadata(url, "1")
    late = json.loads(document(sealed(K2, "t", "", "1"), step=2))

    def change(cell: Cell) -> tuple[str, bytes]:
        put = "UPDATE checkpoints SET metadata = %s WHERE checkpoint_id = '1'"
        store.connection.execute(put.replace("checkpoints", table), (json.dumps(late),))
        return Opener(K2).reseal(cell)

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT quote_ident(current_schema())").fetchone()
        assert row is not None
        table = f"{row[0]}.checkpoints"
    done = store.rewrite(METADATA, None, change)
    assert (done.seen, done.changed, done.raced) == (1, 0, 1)
    assert metadata_of(url)["1"] == late
