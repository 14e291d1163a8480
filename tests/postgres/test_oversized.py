"""Rows that are larger than what is read: the server stores them compressed, in a few megabytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.sql import SQL

from sealpoint.admin.databases.postgres.columns import CHECKPOINTS
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.schemacopy import decrypt_schema
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Event
from sealpoint.errors import RowError, SealpointError
from sealpoint.guards.limits import MAX_VALUE_BYTES
from tests.postgres.test_damage import failures_of
from tests.support.databases.checkpoints import make
from tests.support.databases.postgres import K2, blobs, put_blobs, read_all, saver_at

pytestmark = pytest.mark.costly  # a quarter of a gigabyte in each

ROWS: Final = 5
BATCHES: Final = [Batch(), Batch(rows=1), Batch(rows=2)]


def swell(url: str, statement: str) -> None:
    """Run an UPDATE in which {} is a text larger than what is read."""
    with psycopg.connect(url) as connection:
        connection.execute(SQL(statement).format(SQL(f"repeat('x', {MAX_VALUE_BYTES + 2000})")))


@pytest.fixture(params=["blob = {}::bytea", "type = {}"], ids=["value", "type"])
def swollen(url: str, request: pytest.FixtureRequest) -> str:
    """A database with one row that is too large."""
    put_blobs(url, blobs(ROWS))
    swell(url, f"UPDATE checkpoint_blobs SET {request.param} WHERE version = '00000002'")
    return url


def require_refused(events: Sequence[Event]) -> None:
    (failed,) = failures_of([*events])
    assert failed.place["version"] == "00000002"
    assert isinstance(failed.error, RowError)
    assert str(failed.error) == f"a row has over {MAX_VALUE_BYTES} bytes"


def test_the_row_is_refused_and_the_others_are_read(swollen: str) -> None:
    """Whatever of it is large, and wherever it stands in its batch."""
    with closing(PostgresRows(swollen, writable=True)) as store:
        for batch in BATCHES:
            require_refused([*verify(store, K2, batch=batch)])
        require_refused([*rotate(store, K2, batch=Batch(rows=3), allow_plaintext=True)])
        moved = {count.tag: count.rows for count in store.count()}
    assert moved["msgpack+cobblestone256@k2"] == ROWS - 1


def test_no_copy_is_made_of_it(swollen: str, out: str) -> None:
    with closing(PostgresRows(swollen)) as store, pytest.raises(RowError, match="a row has over"):
        [*decrypt_schema(store, out, K2)]


def test_whole_rows_are_refused_too(url: str) -> None:
    """JSON is counted as the text that would be sent."""
    with saver_at(PostgresSaver, url) as saver:
        for number in range(3):
            config = {"configurable": {"thread_id": f"t{number}", "checkpoint_ns": ""}}
            saver.put(config, make(f"{number:06}"), {}, {})
    half = SQL("to_jsonb({})").format(SQL(f"repeat('x', {MAX_VALUE_BYTES // 2})")).as_string()
    with psycopg.connect(url) as connection:
        connection.execute(
            f"UPDATE checkpoints SET metadata = {half}, checkpoint = {half} WHERE thread_id = 't1'".encode()
        )
    with closing(PostgresWholeRows(url)) as store:
        values = {cell.where.key[0]: cell.value for page in read_all(store, CHECKPOINTS) for cell in page}
    assert [isinstance(values[name], SealpointError) for name in ("t0", "t1", "t2")] == [False, True, False]
