"""Rebinding on Postgres: any mix of rows is read, sentinels come and go with them, forged rows are left."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.cli.app import run as program
from sealpoint.admin.databases.postgres import whole
from sealpoint.admin.databases.postgres.whole import PostgresWholeRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rebind import RebindOptions, rebind, sealing_sentinels
from sealpoint.base import empty_checkpoint
from sealpoint.errors import SchemaError, SealpointError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.postgres.processes import FORKS, lost_at_the_end, rotate_and_rebind_until, write_while_rebound
from tests.postgres.test_commands import at as at_url
from tests.support.databases.checkpoints import at
from tests.support.databases.postgres import K1, K2, saver_at
from tests.support.databases.rebinding import rebound, run, visible
from tests.support.databases.sealed import failures, moved
from tests.support.keys.rings import states_text, write

SERDE = EncryptedSerializer(K1)
CHECKPOINTS = 3
VALUES = 3 * CHECKPOINTS
"""Of a thread: a row, a blob and a write for each checkpoint."""


def put(url: str, thread_id: str = "t", wrapped: bool = False, ns: str = "", **more: Any) -> None:
    """Let a saver store checkpoints with values of every kind."""
    metadata: Any
    with saver_at(PostgresSaver, url, K1) as saver:
        target = SealedSaver(saver, serde=SERDE) if wrapped else saver
        config = at(thread_id)
        config["configurable"]["checkpoint_ns"] = ns
        for number in range(CHECKPOINTS):
            version = f"{number + 1:032}.5"
            values = {
                "text": f"é {number}",
                "flag": True,
                "none": None,
                "big": 2**80,
                "real": 1.0,
                "list": [number],
            }
            checkpoint: Any = {
                **empty_checkpoint(),
                "id": f"{number:06}",
                "channel_values": values,
                "channel_versions": dict.fromkeys(values, version),
                **more,
            }
            metadata = {"step": number, "user_id": "maria"}
            config = target.put(config, checkpoint, metadata, checkpoint["channel_versions"])
            target.put_writes(config, [("list", [number])], "task", "path")


def bare(url: str) -> list[Any]:
    with saver_at(PostgresSaver, url, K1) as saver:
        return sorted(saver.list(None), key=place_of)


def wrapped(url: str, **named: Any) -> list[Any]:
    with saver_at(PostgresSaver, url, K1) as saver:
        return sorted(SealedSaver(saver, serde=SERDE, **named).list(None), key=place_of)


def place_of(found: Any) -> tuple[str, ...]:
    """Of equal ids, Postgres returns any first."""
    return tuple(found.config["configurable"].values())


def query(url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode(), parameters or None).fetchall()


def change(url: str, statement: str, *parameters: Any) -> None:
    with psycopg.connect(url) as connection:
        assert connection.execute(statement.encode(), parameters or None).rowcount == 1


def sentinels(url: str) -> set[tuple[Any, ...]]:
    found = query(
        url, "SELECT thread_id, checkpoint_ns FROM checkpoint_blobs WHERE channel = '__sealpoint__'"
    )
    return set(found)


def test_nothing_is_readable_then(url: str) -> None:
    put(url)
    before = bare(url)
    rebound(url, K1)
    ((rows,),) = query(url, "SELECT string_agg(checkpoint::text || metadata::text, '') FROM checkpoints")
    assert "maria" not in rows
    assert "é" not in rows
    assert sentinels(url) == {("t", "")}
    assert wrapped(url) == before
    with pytest.raises(SealpointError):
        bare(url)
    rebound(url, K1, unbind=True)
    assert (bare(url), sentinels(url)) == (before, set())


def test_a_thread_without_blobs_is_loud_too(url: str) -> None:
    put(url)
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM checkpoint_blobs; DELETE FROM checkpoint_writes")
    before = bare(url)
    rebound(url, K1)
    assert wrapped(url) == before
    with pytest.raises(SealpointError):
        bare(url)


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_any_mix_of_rows_is_read(url: str, batches: int) -> None:
    """Of a run that ended at any batch, there and back, beside rows that the wrapper wrote itself."""
    put(url)
    put(url, "u")
    put(url, "w", wrapped=True)
    before = wrapped(url, unbound="allow")
    for unbind in (False, True):
        options = RebindOptions(batch=Batch(rows=4), unbind=unbind)
        sentinel = None if unbind else sealing_sentinels(K1)
        with (
            closing(PostgresWholeRows(url, writable=True, sentinel=sentinel)) as store,
            closing(rebind(store, K1, options)) as events,
        ):
            for _ in range(batches):
                next(events)
        assert wrapped(url, unbound="allow") == before
        rebound(url, K1, unbind=unbind)
        assert wrapped(url, unbound="allow" if unbind else "refuse") == before
    assert bare(url) == before
    assert sentinels(url) == set()


@pytest.mark.parametrize("part", ["checkpoints", "checkpoint_blobs", "checkpoint_writes"])
def test_each_table_may_be_first(url: str, part: str) -> None:
    """Rows, values and writes are bound independently of each other."""
    put(url)
    before = bare(url)
    with closing(PostgresWholeRows(url, writable=True, sentinel=sealing_sentinels(K1))) as store:
        store.columns = tuple(column for column in store.columns if column.table == part)
        list(rebind(store, K1, RebindOptions()))
    assert wrapped(url, unbound="allow") == before
    rebound(url, K1)
    assert wrapped(url) == before


@pytest.mark.parametrize("order", [("checkpoints",), ("checkpoint_writes",), ("checkpoint_blobs",), ()])
def test_sends_of_old_releases_are_read_in_any_mix(url: str, order: tuple[str, ...]) -> None:
    """PostgresSaver adds them from the writes to the parent, to checkpoints before version 4."""
    put(url, v=3)
    with saver_at(PostgresSaver, url, K1) as saver:
        for number in range(CHECKPOINTS):
            saver.put_writes(at("t", f"{number:06}"), [("__pregel_tasks", [number])], "sender")
    before = bare(url)
    assert before[2].checkpoint["channel_values"]["__pregel_tasks"] == [[1]]
    with closing(PostgresWholeRows(url, writable=True, sentinel=sealing_sentinels(K1))) as store:
        store.columns = tuple(column for column in store.columns if column.table in order)
        if order:
            list(rebind(store, K1, RebindOptions()))
    assert wrapped(url, unbound="allow") == before
    rebound(url, K1)
    assert wrapped(url) == before
    rebound(url, K1, unbind=True)
    assert bare(url) == before


def test_versions_that_are_numbers(url: str) -> None:
    """As of the first releases; a saver compares them with that of the sentinel."""
    put(url, v=3)
    numbered = (
        """UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions}', '{"list": 7}')"""
    )
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM checkpoint_blobs WHERE version NOT LIKE '%1.5'")
        connection.execute("UPDATE checkpoint_blobs SET version = '7'")
        connection.execute(numbered)
        connection.execute("UPDATE checkpoint_writes SET channel = '__pregel_tasks'")
    before = bare(url)
    rebound(url, K1)
    assert wrapped(url) == before


def test_one_thread_alone(url: str) -> None:
    """Its id is not part of a statement's text as it is."""
    name = "a%s{}'\\é"
    put(url, name)
    put(url, "b")
    assert moved(run(url, K1, thread_id="c")) == 0
    assert moved(run(url, K1, thread_id=name)) == VALUES
    assert sentinels(url) == {(name, "")}
    assert moved(run(url, K1, thread_id="b", unbind=True)) == 0
    assert moved(run(url, K1, thread_id=name, unbind=True)) == VALUES
    assert sentinels(url) == set()


# --- what is refused ------------------------------------------------------------------------------

FORGED = {
    "metadata has a sealed part": 'metadata = metadata || \'{"__sealpoint__": {"type": "msgpack"}}\'',
    "metadata is no object": "metadata = '[]'",
    "checkpoint is no object": "checkpoint = '[]'",
    "another id": 'checkpoint = checkpoint || \'{"id": "x"}\'',
    "no versions": "checkpoint = checkpoint - 'channel_versions'",
    "versions are no object": "checkpoint = checkpoint || '{\"channel_versions\": []}'",
    "names a sentinel": "checkpoint = jsonb_set(checkpoint, '{channel_versions,__sealpoint__}', '\"0\"')",
    "no id": "checkpoint_id = ''",
}


@pytest.mark.parametrize("what", FORGED.values(), ids=FORGED)
def test_a_row_that_no_saver_writes_is_left(url: str, what: str) -> None:
    """And no sentinel is added to its thread."""
    put(url)
    change(url, f"UPDATE checkpoints SET {what} WHERE checkpoint_id = '000001'")
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM checkpoints WHERE checkpoint_id IN ('000000', '000002')")
    before = query(url, "SELECT * FROM checkpoints")
    events = run(url, K1)
    (failed,) = failures(events)
    assert (failed.table, isinstance(failed.error, SealpointError)) == ("checkpoints", True)
    assert moved(events) == VALUES - CHECKPOINTS
    assert query(url, "SELECT * FROM checkpoints") == before
    assert sentinels(url) == set()


MOVED = {
    "older row": "checkpoint_id = '000009'",
    "metadata": "metadata = metadata || '{\"step\": 9}'",
    "no values": "checkpoint = checkpoint - 'channel_values'",
    "another version": "checkpoint = jsonb_set(checkpoint, '{channel_versions,list}', '\"9\"')",
    "sealed part": "metadata = jsonb_set(metadata, '{__sealpoint__,value}', '\"AAAA\"')",
}


@pytest.mark.parametrize("what", MOVED.values(), ids=MOVED)
def test_what_was_moved_is_not_unbound(url: str, what: str) -> None:
    put(url)
    rebound(url, K1)
    change(url, f"UPDATE checkpoints SET {what} WHERE checkpoint_id = '000001'")
    events = run(url, K1, unbind=True)
    assert (len(failures(events)), moved(events)) == (1, VALUES - 1)
    assert sentinels(url) == {("t", "")}


def test_edits_without_effect_are_gone_after_the_way_back(url: str) -> None:
    """What stands open in the row of a bound checkpoint is not what is restored."""
    put(url)
    before = bare(url)
    rebound(url, K1)
    edit = """UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_values,text}', '"forged"')
        WHERE checkpoint_id = '000002'"""
    change(url, edit)
    rebound(url, K1, unbind=True)
    assert bare(url) == before


@pytest.mark.parametrize("value", ["a\0b", float("nan")])
def test_what_postgres_cannot_store_is_not_unbound(url: str, value: object) -> None:
    checkpoint: Any = {
        **empty_checkpoint(),
        "channel_values": {"odd": value},
        "channel_versions": {"odd": "1"},
    }
    with saver_at(PostgresSaver, url, K1) as saver:
        SealedSaver(saver, serde=SERDE).put(at("odd"), checkpoint, {}, checkpoint["channel_versions"])
    events = run(url, K1, unbind=True)
    assert (len(failures(events)), moved(events)) == (1, 0)


def test_a_missing_value_is_not_unbound(url: str) -> None:
    put(url)
    rebound(url, K1)
    change(url, "DELETE FROM checkpoint_blobs WHERE channel = 'list' AND version LIKE '%1.5'")
    events = run(url, K1, unbind=True)
    assert (len(failures(events)), moved(events)) == (1, VALUES - 2)


def test_rows_of_a_shallow_saver_have_no_places(shallow_url: str) -> None:
    with pytest.raises(SchemaError, match="shallow"):
        PostgresWholeRows(shallow_url)


# --- others at work -------------------------------------------------------------------------------


def test_locked_rows_leave_no_sentinel(url: str) -> None:
    """An agent has a checkpoint locked: it is skipped, and its thread looks as before."""
    put(url, "free")
    put(url, "held")
    with psycopg.connect(url) as agent:
        agent.execute("SELECT FROM checkpoints WHERE thread_id = 'held' FOR UPDATE")
        with (
            closing(PostgresWholeRows(url, writable=True, sentinel=sealing_sentinels(K1))) as store,
            closing(rebind(store, K1, RebindOptions())) as events,
        ):
            assert moved([next(events) for _ in range(3)]) == 2 * VALUES - CHECKPOINTS
        assert sentinels(url) == {("free", "")}
    rebound(url, K1)
    assert sentinels(url) == {("free", ""), ("held", "")}


def test_a_sentinel_that_an_agent_is_about_to_store(url: str) -> None:
    """The run waits for it before it locks a row, so that the two never wait for each other."""
    put(url)
    sentinel = "INSERT INTO checkpoint_blobs VALUES ('t', '', '__sealpoint__', '0', %s, %s)"
    with psycopg.connect(url) as agent:
        agent.execute(sentinel, sealing_sentinels(K1)("t", ""))
        thread = Thread(target=rebound, args=(url, K1))
        thread.start()
        while not waiting(url):
            pass
        agent.execute("SET lock_timeout = '1s'")
        agent.execute("UPDATE checkpoints SET parent_checkpoint_id = parent_checkpoint_id")
    thread.join()
    assert len(wrapped(url)) == CHECKPOINTS


def waiting(url: str) -> bool:
    return bool(query(url, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"))


@pytest.mark.costly
def test_workers_share_the_rows(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEALPOINT_KEYS", str(write(tmp_path / "keys.toml", states_text(k1="active"))))
    for number in range(8):
        put(url, f"t{number}")
    before = bare(url)
    line = ["rebind", at_url(url), "--apply", "--workers", "3", "--batch", "5", "--json"]
    assert program(line) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["changed"], found["left"], found["ok"]) == (8 * VALUES, 0, True)
    assert wrapped(url) == before
    assert program([*line, "--unbind"]) == 0
    assert bare(url) == before


def test_an_index_is_added_to_bound_rows(url: str) -> None:
    put(url)
    rebound(url, K1)
    sealed = "SELECT metadata -> '__sealpoint__' FROM checkpoints ORDER BY checkpoint_id"
    before = query(url, sealed)
    assert moved(run(url, K1, visible=visible("user_id"))) == CHECKPOINTS
    assert query(url, sealed) == before
    assert query(url, "SELECT DISTINCT metadata ->> 'user_id' FROM checkpoints") == [("maria",)]
    assert moved(run(url, K1, visible=visible("user_id"))) == 0
    assert len(wrapped(url)) == CHECKPOINTS


@pytest.mark.parametrize("steps", [15, pytest.param(1_700, marks=pytest.mark.soak)])
def test_nothing_that_agents_write_meanwhile_is_lost(url: str, tmp_path: Path, steps: int) -> None:
    """Three workers rotate and bind in turns; of four agents, which write 12 times a step, two are bare."""
    end = tmp_path / "end"
    agents = {"a": (False, True), "b": (True, True), "c": (False, False), "d": (True, False)}
    with ProcessPoolExecutor(7, mp_context=FORKS) as pool:
        workers = [pool.submit(rotate_and_rebind_until, url, end, 20) for _ in range(3)]
        writers = [pool.submit(write_while_rebound, url, name, steps, *how) for name, how in agents.items()]
        try:
            assert [writer.result() for writer in writers] == [0] * len(agents)
        finally:
            end.touch()
        assert sum(worker.result() for worker in workers) > 0
    rebound(url, K2)
    with saver_at(PostgresSaver, url) as saver:
        sealed = SealedSaver(saver, serde=EncryptedSerializer(K2))
        assert [lost_at_the_end(sealed, name, steps) for name in agents] == [0] * len(agents)
    assert sentinels(url) == {(name, "") for name in agents}


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_values_of_a_long_thread_are_looked_up_by_key(url: str, analyzed: bool) -> None:
    """Rows are locked meanwhile: reading all values of the thread for each checkpoint takes seconds."""
    with saver_at(PostgresSaver, url) as saver, psycopg.connect(url, autocommit=True) as connection:
        saver.setup()
        connection.execute("""
            INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata)
            SELECT 't', n::text, jsonb_build_object('channel_versions', jsonb_build_object('a', n)), '{}'
            FROM generate_series(1, 200) AS n""")
        connection.execute("""
            INSERT INTO checkpoint_blobs (thread_id, channel, version, type, blob)
            SELECT 't', 'a', n::text, 'msgpack', 'x' FROM generate_series(1, 2000) AS n""")
        if analyzed:
            connection.execute("ANALYZE")
        statement = whole._CHANNELS.format("checkpoints", blobs="checkpoint_blobs")
        keys = [["t"] * 200, [""] * 200, [str(n + 1) for n in range(200)]]
        assert len(connection.execute(statement, keys).fetchall()) == 200
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", keys).fetchone()
    assert found is not None
    assert rows_read(found[0][0]["Plan"], "checkpoint_blobs") == 200


def rows_read(plan: dict[str, Any], table: str) -> int:
    """How many rows of a table a plan has read, those that it dropped included."""
    here = sum(plan.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter"))
    own = here * plan["Actual Loops"] if plan.get("Relation Name") == table else 0
    return round(own) + sum(rows_read(part, table) for part in plan.get("Plans", ()))
