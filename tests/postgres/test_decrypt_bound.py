"""What `SealedSaver` wrote to Postgres, decrypted: the plain saver reads it as if nothing had been sealed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.results.events import Progress
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import RowError
from tests.graphs.graphs import SCRIPTS
from tests.graphs.openers import Entry, on_psycopg, wrapped
from tests.graphs.plays import plain, play
from tests.graphs.savers import ENTRIES, RING
from tests.postgres.test_bound import EDITS, change
from tests.postgres.test_decrypt import copy, exists, failures, leading_to, rows_of
from tests.postgres.test_schema import schema_of
from tests.support.databases.bound import PLAIN, PRIVATE, sealed_schema, write_schema
from tests.support.databases.checkpoints import at, make
from tests.support.databases.postgres import saver_at
from tests.support.databases.sealed import make_ring
from tests.support.servers.postgres import schema, server

KEYS = RingCipher(KeyRing(RING.keys))  # without the index key
K2 = RingCipher(make_ring("k2"))
ROWS = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
FORMS = pytest.mark.parametrize("options", [PLAIN, PRIVATE], ids=["plain", "private"])


@pytest.fixture
def more(pytestconfig: pytest.Config) -> Iterator[Callable[[], str]]:
    """Gives further empty databases."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(schema(server(pytestconfig)))


def read(url: str) -> list[str]:
    """All that LangGraph's saver reads, and all that its tables hold, without what differs between runs."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        reading: Any = PostgresSaver(connection)
        found = [
            text(each._replace(pending_writes=sorted(each.pending_writes or (), key=text)))
            for each in reading.list(None)
        ]
        for table in ROWS:
            for row in connection.execute(f"SELECT * FROM {table}".encode()):
                blob = row.pop("blob", None)
                value = blob if blob is None else reading.serde.loads_typed((row["type"], blob))
                found.append(text([table, {**row, "value": value}]))
    return sorted(found)


def text(value: Any) -> str:
    """A value without ids, times, and the random ends of versions."""
    return _RANDOM.sub("<random>", repr(plain(_in_order(value))))


def _in_order(value: Any) -> Any:
    """The same with dicts in the order of their keys, as far as they are JSON."""
    if type(value) is dict:
        return {name: _in_order(value[name]) for name in sorted(value, key=str)}
    return value


_RANDOM = re.compile(r"(?<=\d{32}\.)[0-9.e-]+|<id>\.[0-9.e-]+|\d{4}-\d\d-\d\dT[0-9:.+]+")


@pytest.mark.broad
@FORMS
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "delta 210"])
def test_the_copy_is_as_if_nothing_had_been_sealed(
    more: Callable[[], str], monkeypatch: pytest.MonkeyPatch, script: str, options: dict[str, Any]
) -> None:
    entry = Entry("postgres", wrapped(on_psycopg(PostgresSaver), **options))
    monkeypatch.setitem(ENTRIES, "sealed", entry)
    bare, url = more(), more()
    play(script, "LangGraph PostgresSaver", bare, False)
    play(script, "sealed", url, True)
    out = f"{schema_of(url)}_out"
    try:
        assert failures(copy(url, out, KEYS)) == []
        assert read(leading_to(url, out)) == read(bare)
    finally:
        change(url, f"DROP SCHEMA IF EXISTS {out} CASCADE")


@pytest.fixture(params=[PLAIN, PRIVATE], ids=["plain", "private"])
def bound(request: pytest.FixtureRequest, url: str) -> str:
    write_schema(url, **request.param)
    return url


@pytest.mark.broad
@pytest.mark.parametrize("batch", [Batch(), Batch(rows=2), Batch(size_bytes=1)])
def test_nothing_of_sealedsaver_is_left(bound: str, out: str, batch: Batch) -> None:
    before = rows_of(bound, schema_of(bound))
    events = copy(bound, out, K2, batch=batch)
    assert not failures(events)
    after = rows_of(bound, out)
    assert "__sealpoint__" not in str(after)
    assert {row[0] for table in ROWS for row in after[table]} == {"t"}
    assert rows_of(bound, schema_of(bound)) == before
    sentinels = sum(row[2] == "__sealpoint__" for row in before["checkpoint_blobs"])
    assert len(after["checkpoint_blobs"]) == len(before["checkpoint_blobs"]) - sentinels > 0
    done = [event for event in events if isinstance(event, Progress)][-1]
    sealed = str(before).count(".row@k2")
    assert (done.rows, done.total, done.changed) == (sealed, sealed, sealed)


@pytest.mark.broad
@pytest.mark.parametrize("edit", sorted(EDITS.keys() - {"sentinel", "id"}))
def test_an_edited_row_leaves_no_copy(bound: str, out: str, edit: str) -> None:
    statement, cause = EDITS[edit]
    change(bound, statement)
    found = failures(copy(bound, out, K2))
    assert found
    assert all(failure.place for failure in found)
    assert cause in " ".join(str(failure.error).lower() for failure in found)
    assert not exists(bound, out)


READABLE = {
    "values": "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_values}', '7')",
    "document": "UPDATE checkpoints SET checkpoint = '[]'",
    "frame": "UPDATE checkpoints SET metadata = jsonb_set(metadata, '{__sealpoint__}', '7')",
}


@pytest.mark.broad
@pytest.mark.parametrize("edit", READABLE)
def test_a_row_of_another_form_leaves_no_copy(bound: str, out: str, edit: str) -> None:
    change(bound, READABLE[edit])
    found = failures(copy(bound, out, K2))
    assert {failure.table for failure in found} == {"checkpoints.metadata"}
    assert not exists(bound, out)


def test_what_reading_does_not_use_is_not_in_the_copy(bound: str, out: str) -> None:
    copy(bound, out, K2)
    expected = rows_of(bound, out)
    change(
        bound,
        f"DROP SCHEMA {out} CASCADE",
        EDITS["sentinel"][0],
        EDITS["id"][0],
        "UPDATE checkpoints SET metadata = metadata - 'source',"
        " checkpoint = jsonb_set(checkpoint, '{channel_values,name}', '\"x\"')",
        "UPDATE checkpoint_writes SET task_path = 'x', idx = idx + 100",
    )
    assert not failures(copy(bound, out, K2))
    assert rows_of(bound, out) == expected


def test_a_parent_that_a_saver_has_removed_is_not_in_the_copy(bound: str, out: str) -> None:
    change(bound, "UPDATE checkpoints SET parent_checkpoint_id = NULL")
    assert not failures(copy(bound, out, K2))
    assert {row[3] for row in rows_of(bound, out)["checkpoints"]} == {None}


def test_writes_without_their_checkpoints_are_opened_too(bound: str, out: str) -> None:
    copy(bound, out, K2)
    expected = [row[1:] for row in rows_of(bound, out)["checkpoint_writes"]]
    change(
        bound,
        f"DROP SCHEMA {out} CASCADE",
        "DELETE FROM checkpoints",
        "UPDATE checkpoint_writes SET task_path = 'x', idx = idx + 100",
    )
    (thread_id,) = {row[0] for row in rows_of(bound, schema_of(bound))["checkpoint_writes"]}
    assert not failures(copy(bound, out, K2))
    found = rows_of(bound, out)["checkpoint_writes"]
    assert sorted(row[1:] for row in found) == sorted(expected)
    assert {row[0] for row in found} == {thread_id}  # only checkpoints name the thread


def test_a_write_that_is_stored_twice_leaves_no_copy(bound: str, out: str) -> None:
    columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path"
    change(
        bound,
        f"INSERT INTO checkpoint_writes ({columns}) SELECT {columns.replace('idx', '77')}"
        " FROM checkpoint_writes WHERE ctid = (SELECT ctid FROM checkpoint_writes LIMIT 1)",
    )
    with pytest.raises(RowError, match="same key"):
        copy(bound, out, K2)
    assert not exists(bound, out)


def test_unbound_rows_are_copied_as_they_are(bound: str, out: str) -> None:
    with saver_at(PostgresSaver, bound, K2) as saver:
        checkpoint: Any = {**make(LATE, lines=["a"], name="inline"), "channel_versions": {"lines": "1"}}
        saver.put(at("late"), checkpoint, {"step": 0}, {"lines": "1"})
        saver.put_writes(at("late", LATE), [("lines", ["b"])], "task")
        (expected,) = saver.list(at("late"))
    assert not failures(copy(bound, out, K2))
    assert expected in [*read_all(leading_to(bound, out))]


LATE = "1f000000-0000-6000-8000-000000000000"

NO_JSON = {"NUL": "a\0b", "surrogate": "a\ud800", "NaN": float("nan"), "infinity": float("-inf")}


@pytest.mark.parametrize("kind", NO_JSON)
def test_values_that_json_does_not_have_are_failures(url: str, out: str, kind: str) -> None:
    put_inline(url, NO_JSON[kind])
    (found,) = failures(copy(url, out, K2))
    assert isinstance(found.error, RowError)
    assert found.place["checkpoint_id"] == LATE
    assert "cannot be stored as JSON" in str(found.error)
    assert not exists(url, out)


@pytest.mark.parametrize(
    "value", ["\\u0000", "\\\\u0000", "\\", '\x01"\\', "häßlich \U0001f600", 0.1, 2**70, -0.0]
)
def test_other_inline_values_are_kept(url: str, out: str, value: Any) -> None:
    put_inline(url, value)
    assert not failures(copy(url, out, K2))
    (found,) = read_all(leading_to(url, out))
    assert found.checkpoint["channel_values"] == {"name": value}


def test_a_large_value_in_metadata_is_opened(url: str, out: str) -> None:
    """With its frame, metadata is larger than metadata alone may be."""
    put_inline(url, "x" * 13_000_000)
    assert not failures(copy(url, out, K2))
    (found,) = read_all(leading_to(url, out))
    assert len(found.checkpoint["channel_values"]["name"]) == 13_000_000


def put_inline(url: str, value: Any) -> None:
    with sealed_schema(url) as saver:
        checkpoint: Any = {**make(LATE, name=value), "channel_versions": {"name": "1"}}
        saver.put(at("t"), checkpoint, {"step": 0}, {"name": "1"})


def read_all(url: str) -> list[Any]:
    with saver_at(PostgresSaver, url) as saver:
        return [*saver.list(None)]


def test_two_histories_of_a_thread_are_not_merged(url: str, out: str) -> None:
    """A process without pseudonyms does not find the thread, and begins another one under its id."""
    for options, checkpoint_id in ((PRIVATE, "1"), (PLAIN, "2")):
        with sealed_schema(url, **options) as saver:
            saver.put(at("w"), make(checkpoint_id, text=checkpoint_id), {"step": 1}, {"text": 1})
    failed = failures(copy(url, out, K2))
    assert {type(failure.error) for failure in failed} == {RowError}
    assert "two histories" in str(failed[0].error)
    assert not exists(url, out)
