"""A URL of several servers, as of a primary and what takes its place: all sessions of a run are on one."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlencode

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.shards import Shard, new_run
from tests.support.databases.postgres import set_up
from tests.support.servers.postgres import started

_HOLDS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"


@pytest.mark.costly
def test_a_range_is_held_where_it_is_worked_on() -> None:
    """Libpq chooses a server for each session; a lock on another one would exclude no process."""
    with started() as first, started() as second:
        both = [conninfo_to_dict(dsn) for dsn in (first, second)]
        for dsn in (first, second):
            set_up(PostgresSaver, dsn)
        hosts = ",".join(str(each["host"]) for each in both)
        query = urlencode({"host": hosts, "load_balance_hosts": "random"})
        for _ in range(8):
            shard = Shard(new_run(), "rotate", None, "b")
            with closing(PostgresRows(f"postgresql://postgres@/postgres?{query}", shard=shard)) as store:
                with store.hold():
                    assert store.connection.execute(_HOLDS).fetchone() == (1,)
                with psycopg.connect(first) as one, psycopg.connect(second) as other:
                    assert [each.execute(_HOLDS).fetchone() for each in (one, other)] == [(0,), (0,)]
