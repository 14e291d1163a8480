"""`--max-replica-lag`: a run waits for a real streaming replica, and takes no silence for an answer."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.connection import Replicas
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.workers import Pace, rotate_as
from sealpoint.admin.results.events import WAITING, Event, Progress
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.jobs import Options, Stop
from sealpoint.errors import StoppedError
from tests.postgres.test_commands import at
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.postgres import K2, blobs, opened, put_blobs, set_up
from tests.support.keys.rings import states_text, write
from tests.support.runs.results import require_valid
from tests.support.servers.postgres import schema, started
from tests.support.servers.standby import LAG, Standby

ROWS: Final = 1500
BOUND: Final = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def primary() -> Iterator[str]:
    """A server of its own: other tests would write WAL, too."""
    with started() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def standby(primary: str) -> Iterator[Standby]:
    with tempfile.TemporaryDirectory(prefix="sealpoint-") as folder:
        found = Standby(primary, Path(folder))
        try:
            yield found
        finally:
            found.stop()


@pytest.fixture
def url(primary: str) -> Iterator[str]:
    with schema(primary) as dsn:
        set_up(PostgresSaver, dsn)
        yield dsn


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only")))


@contextmanager
def slowed(primary: str, standby: Standby) -> Iterator[list[int]]:
    """The lags of a replica that replays for a moment only when it lags by more than the bound."""
    ended, lags = threading.Event(), list[int]()

    def alternate() -> None:
        with psycopg.connect(primary, autocommit=True) as connection:
            while not ended.wait(0.005):
                lags.extend(int(lag) for (lag,) in connection.execute(LAG) if lag is not None)
                if lags and lags[-1] > BOUND:
                    standby.replays(paused=False)
                    ended.wait(0.02)
                    standby.replays(paused=True)

    standby.replays(paused=True)
    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield lags
    finally:
        ended.set()
        thread.join()
        standby.replays(paused=False)


@pytest.mark.costly
@pytest.mark.parametrize("workers", [1, 2])
def test_the_lag_stays_within_twice_the_bound(
    primary: str, standby: Standby, url: str, keys: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a replica that replays slowly, whatever the batches are."""
    put_blobs(url, blobs(ROWS, size=6000))
    words = ["rotate", at(url), "--apply", "--keys", keys, "--workers", str(workers), "--verify", "none"]
    words += ["--max-lock-ms", "60000"]  # batches become as large as the bound allows
    standby.catch_up()
    with slowed(primary, standby) as lags:
        assert run([*words, "--max-replica-lag", str(BOUND), "--json"]) == Exit.DONE
    assert require_valid(json.loads(capsys.readouterr().out))["resealed"] == ROWS
    assert BOUND < max(lags) <= 2 * BOUND
    assert len(opened(url)) == ROWS


@pytest.mark.costly
def test_a_replica_that_replays_nothing_is_waited_for(
    standby: Standby, url: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as the run may take; and without the option for no moment."""
    put_blobs(url, blobs(ROWS, size=6000))
    words = ["rotate", at(url), "--apply", "--keys", keys, "--verify", "none"]
    standby.catch_up()
    standby.replays(paused=True)
    try:
        assert run([*words, "--max-replica-lag", str(BOUND), "--max-seconds", "3"]) == Exit.STOPPED
        with closing(Replicas(url)) as replicas:
            assert BOUND < replicas.lag_bytes() <= 2 * BOUND
            assert run(words) == Exit.DONE
            assert replicas.lag_bytes() > 2 * BOUND
    finally:
        standby.replays(paused=False)


@pytest.mark.costly
def test_a_run_says_that_it_waits_and_can_be_stopped(standby: Standby, url: str) -> None:
    put_blobs(url, blobs(200, size=6000))
    options = Options(max_lag_bytes=BOUND // 8)
    stop, waits = Stop(), list[Event]()
    pace = Pace(stop, options, url)
    standby.catch_up()
    standby.replays(paused=True)
    try:
        with closing(PostgresRows(url, writable=True)) as store:
            for event in pace.limit(rotate_as(options, store, K2)):
                waits += [event] if isinstance(event, Progress) and event.table == WAITING else []
                if len(waits) == 3:
                    stop.set()
    finally:
        standby.replays(paused=False)
    assert pace.stopped
    assert len(waits) == 3
    assert len({*waits}) == 1  # nothing is changed meanwhile


@pytest.mark.costly
def test_a_replica_that_is_lost_ends_the_run(
    standby: Standby, url: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lag is not known, and may be that of a server that is gone: all that is done stays."""
    put_blobs(url, blobs(50))
    with closing(Replicas(url)) as replicas:
        assert replicas.lag_bytes() >= 0
        standby.stop()
        try:
            wait_until(lambda: not states(url))
            with pytest.raises(StoppedError, match="lost its connection"):
                replicas.lag_bytes()
            for command in ("rotate", "rebind"):
                words = [command, at(url), "--apply", "--keys", keys, "--max-replica-lag", "1000"]
                assert run(words) == Exit.USAGE
                assert "error: no replica is connected" in capsys.readouterr().err
            with closing(PostgresRows(url)) as store:
                assert [count.tag[-2:] for count in store.count()] == ["k1"]
        finally:
            standby.start()


@pytest.mark.costly
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_role_that_sees_no_replica_is_refused(
    standby: Standby, url: str, keys: str, workers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it is shown is NULL, which is no lag of nothing."""
    put_blobs(url, blobs(50))
    name = f"{schema_of(url)}_role"
    alter(
        url,
        f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema_of(url)} TO {name};"
        f" GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA {schema_of(url)} TO {name}",
    )
    try:
        role = at(make_conninfo(url, user=name))
        words = [
            "rotate",
            role,
            "--apply",
            "--keys",
            keys,
            "--max-replica-lag",
            "9999999",
            "--workers",
            workers,
        ]
        assert run(words) == Exit.USAGE
        told = capsys.readouterr().err
        assert "no right to see how far replicas are behind" in told
        assert "GRANT pg_read_all_stats" in told
        with closing(PostgresRows(url)) as store:
            assert [count.tag[-2:] for count in store.count()] == ["k1"]
        alter(url, f"GRANT pg_read_all_stats TO {name}")
        assert run(words) == Exit.DONE
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_file_has_no_replicas(tmp_path: Path, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        SqliteSaver(connection).setup()
    words = ["rotate", str(tmp_path / "a.db"), "--apply", "--keys", keys, "--max-replica-lag", "1000"]
    assert run(words) == Exit.USAGE
    assert "a SQLite file has no replicas" in capsys.readouterr().err


@given(
    lag=st.one_of(st.none(), st.integers(1, 2**40)),
    rate=st.one_of(st.none(), st.floats(0.001, 1e9)),
    rows=st.integers(1, 10_000),
    workers=st.integers(1, 64),
)
def test_batches_of_all_workers_fit_into_the_bound(
    lag: int | None, rate: float | None, rows: int, workers: int
) -> None:
    options = Options(max_lag_bytes=lag, rows_per_second=rate, batch=Batch(rows=rows), workers=workers)
    batch = options.paced_batch
    assert 1 <= batch.rows <= rows
    assert 1 <= batch.size_bytes <= Batch().size_bytes
    assert rate is None or batch.rows <= max(1, rate)
    assert lag is None or batch.rows == 1 or batch.rows * workers * 40_960 <= lag
    assert lag is None or batch.size_bytes == 1 or batch.size_bytes * workers * 4 <= lag


def states(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM pg_stat_replication")]


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.05)


@pytest.mark.costly
def test_a_replica_before_and_after_a_failover_is_another_database() -> None:
    """What was changed last may be lost by a failover, and its collation may be of another system."""
    with started() as primary, schema(primary) as url, tempfile.TemporaryDirectory() as folder:
        set_up(PostgresSaver, url)
        name = f"{schema_of(url)}_role"
        alter(url, f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema_of(url)} TO {name};")
        alter(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema_of(url)} TO {name};")

        def identity(dsn: str) -> dict[str, object]:
            with closing(PostgresRows(make_conninfo(dsn, user=name))) as store:
                return store.identity

        Path(folder).chmod(0o755)
        standby = Standby(primary, Path(folder))
        copy, own = make_conninfo(url, host=conninfo_to_dict(standby.url)["host"]), identity(url)
        try:
            found = [own.copy(), identity(copy)]
            standby.promote()
            found.append(identity(copy))
        finally:
            standby.stop()
    assert [each.pop("timeline") for each in found] == ["00000001", None, "00000002"]
    del own["timeline"]
    assert found == [own] * 3
    assert None not in own.values()
