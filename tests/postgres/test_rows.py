"""The store's laws: each value once, in order and in batches; a batch is changed as a whole or not at all."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import product
from tempfile import TemporaryFile
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.databases.cells import Cell, InlineValue, Opener, Selection
from sealpoint.admin.databases.postgres.columns import BLOBS, SHALLOW_BLOBS, SHALLOW_METADATA, WRITES
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import MAX_TAGS, Batch, Rewritten, TagCount
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.base import empty_checkpoint
from sealpoint.errors import RowError, StoppedError
from tests.support.databases.checkpoints import at
from tests.support.databases.postgres import (
    EMPTY,
    K1,
    K2,
    blobs,
    contents,
    opened,
    put_blobs,
    put_writes,
    read_all,
    reseal,
    rewrite_all,
    saver_at,
)
from tests.support.servers.postgres import server

TAGS = (
    *("msgpack", "null", "", "k1", "x@k1", "msgpack+aes", "a+b+aes", "+aes", "aes"),
    *("msgpack+cobblestone256@k1", "msgpack+cobblestone256.row@k1", "msgpack+xaes256gcm@k2", "+@k1"),
    *(
        "msgpack+cobblestone256@k11",
        "msgpack+cobblestone256@1k1",
        "a%b+c@k_",
        "\\+@k1",
        "é+x@k1",
        "m.row@k1",
        "a.row@b+x@k1",
        None,
    ),
)
SELECTIONS = [
    Selection(key, plaintext, legacy, thread)
    for key, plaintext, legacy, thread in product(
        (None, "k1", "k.1"), (True, False), (True, False), (None, "t", "other")
    )
]
SELECTIONS += [
    Selection(plaintext=plaintext, legacy=legacy, with_key=key)
    for key, plaintext, legacy in product(("k1", "k_"), (True, False), (True, False))
]
SELECTIONS += [
    Selection(plaintext=plaintext, bound=bound) for plaintext, bound in product((True, False), repeat=2)
]


def tags_of(pages: list[list[Cell]]) -> list[Any]:
    return [value.tag for page in pages for value in page]


@pytest.mark.parametrize(
    "batch", [Batch(), Batch(rows=1), Batch(rows=4), Batch(size_bytes=1), Batch(12, 500)]
)
def test_every_value_is_read_once_and_in_order(store: PostgresRows, url: str, batch: Batch) -> None:
    put_blobs(url, [*blobs(25), EMPTY])
    put_writes(url, [(f"task {place}", place - 3, "n", *K1.seal("msgpack", b"x")) for place in range(9)])
    for table in store.columns[:2]:
        pages = read_all(store, table, batch=batch)
        with psycopg.connect(url) as connection:
            wanted = connection.execute(
                f"SELECT {', '.join(table.key)}, type, blob FROM {table.table} WHERE type <> 'empty'"
                f" ORDER BY {', '.join(table.key)}"
            ).fetchall()
        assert [(*value.where.key, value.tag, value.value) for page in pages for value in page] == wanted
        assert all(len(page) <= batch.rows for page in pages)


def test_a_batch_ends_with_the_value_that_fills_it(store: PostgresRows, url: str) -> None:
    sizes = [10, 10, 10, 100, 10, 5, 5, 5]
    put_blobs(url, [("t", "", "n", f"{place}", "bytes", b"x" * size) for place, size in enumerate(sizes)])
    pages = read_all(store, BLOBS, batch=Batch(rows=3, size_bytes=20))
    assert [[len(value.value) for value in page] for page in pages] == [[10, 10], [10, 100], [10, 5, 5], [5]]


def test_what_is_counted_is_what_is_stored(store: PostgresRows, url: str) -> None:
    put_blobs(url, [("t", "", "a", "1", "msgpack", b"12345"), ("t", "", "a", "2", "msgpack", b""), EMPTY])
    put_blobs(url, [("t", "", "b", "1", "empty", b"no"), ("t", "", "b", "2", "null", None)])
    put_writes(url, [("task", 0, "n", None, b"123")])
    assert store.count() == [
        TagCount("checkpoint_blobs", "empty", 1, 2),
        TagCount("checkpoint_blobs", "msgpack", 2, 5),
        TagCount("checkpoint_blobs", "null", 1, 0),
        TagCount("checkpoint_writes", None, 1, 3),
    ]


def test_more_tags_than_an_agent_could_make_are_refused(store: PostgresRows, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)"
            " SELECT 't', '', 'n', number, 'x+' || number, '' FROM generate_series(0, %s) AS number",
            (MAX_TAGS,),
        )
    with pytest.raises(RowError, match="'checkpoint_blobs' has over 100000 different tags"):
        store.count()


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_a_selection_takes_in_sql_what_it_takes_in_python(
    store: PostgresRows, url: str, selection: Selection
) -> None:
    put_writes(url, [(f"task {place}", 0, "n", tag, b"x") for place, tag in enumerate(TAGS)])
    wanted = [tag for tag in TAGS if selection.takes(tag) and selection.thread_id != "other"]
    found = tags_of(read_all(store, WRITES, selection, Batch(rows=5)))
    assert sorted(found, key=TAGS.index) == wanted


@pytest.mark.parametrize("batch", [Batch(), Batch(rows=4), Batch(size_bytes=1)])
def test_every_value_is_changed_once(store: PostgresRows, url: str, batch: Batch) -> None:
    """Channels without a value stay as they are, and what is under the key already is not seen."""
    put_blobs(url, [*blobs(20), EMPTY, ("t", "", "n", "2", *K2.seal("msgpack", b"under k2"))])
    put_writes(url, [(f"task {place}", place, "n", *K1.seal("msgpack", b"x")) for place in range(9)])
    before, values = contents(url), opened(url)
    places: list[Any] = []

    def change(value: Cell) -> tuple[str, bytes]:
        places.append((value.where.column.table, *value.where.key))
        return reseal(value)

    assert rewrite_all(store, change, Selection("k2"), batch) == [29, 0, 29]
    assert sorted(places) == sorted(place for place, (tag, _) in before.items() if str(tag).endswith("@k1"))
    assert opened(url) == values
    assert contents(url)["checkpoint_blobs", *EMPTY[:4]] == EMPTY[4:]
    assert outstanding(store, "k2") == []
    assert rewrite_all(store, change, Selection("k2"), batch) == [0, 0, 0]


def test_no_value_is_sent_back_to_the_server(url: str) -> None:
    """To compare it with what is there: parameters may stand in the server's log, and plaintext with them."""
    put_blobs(url, [("t", "", "c", "1", "bytes", b"a diagnosis")])

    def look(value: Cell) -> tuple[str, bytes] | None:
        return Opener(K2, allow_plaintext=True).reseal(value)

    with closing(PostgresRows(url, writable=True)) as store, TemporaryFile() as trace:
        store.connection.pgconn.trace(trace.fileno())
        assert store.rewrite(BLOBS, None, look).changed == 1
        store.connection.pgconn.untrace()
        trace.seek(0)
        sent = b"".join(line for line in trace if b"\tF\t" in line)
    assert b"Execute" in sent
    assert b"a diagnosis" not in sent


@pytest.mark.parametrize("column", ["type", "channel"])
def test_long_texts_of_a_forger_end_a_batch_too(store: PostgresRows, url: str, column: str) -> None:
    put_writes(url, [("task", number, "c", *K1.seal("msgpack", b"x")) for number in range(4)])
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE checkpoint_writes SET {column} = repeat('x', 5000000) || idx".encode())
    assert len(store.read(WRITES, None, batch=Batch(size_bytes=6_000_000)).cells) == 2
    assert all(len(str(count.tag)) <= 100 for count in store.count())


@pytest.mark.parametrize("end", ["@k2", "@k1", ""])
@pytest.mark.parametrize("plus", ["+", ""])
def test_a_long_tag_is_counted_as_it_is_selected(store: PostgresRows, url: str, plus: str, end: str) -> None:
    """Also if what tells comes late in it."""
    put_blobs(url, [("t", "", "c", "1", f"{'x' * 80}{plus}{'x' * 80}{end}", b"")])
    selection = Selection(without_key="k2")
    (count,) = store.count()
    assert selection.takes(count.tag) == bool(store.read(BLOBS, None, selection).cells)


def test_a_column_that_has_become_null_is_passed_over(store: PostgresRows, url: str) -> None:
    put_writes(url, [("task", 0, "c", *K1.seal("msgpack", b"x"))])
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE checkpoint_writes ALTER channel DROP NOT NULL")
        connection.execute("UPDATE checkpoint_writes SET channel = NULL")
    assert "channel" not in dict(store.key_texts())


def test_what_change_leaves_stays(store: PostgresRows, url: str) -> None:
    put_blobs(url, blobs(6))
    before = contents(url)
    assert rewrite_all(store, lambda value: None, batch=Batch(rows=4)) == [0, 0, 6]
    assert contents(url) == before


def test_a_value_that_is_null_can_be_changed(store: PostgresRows, url: str) -> None:
    """Alone in its batch too, where nothing says of what type its bytes are."""
    put_blobs(url, [("t", "", "n", "1", "null", None)])
    assert rewrite_all(store, lambda value: ("bytes", b"x")) == [1, 0, 1]
    assert contents(url) == {("checkpoint_blobs", "t", "", "n", "1"): ("bytes", b"x")}


def test_what_change_raises_leaves_the_batch_as_it_was(store: PostgresRows, url: str) -> None:
    put_blobs(url, blobs(6))
    before, seen = contents(url), []

    def change(value: Cell) -> tuple[str, bytes]:
        seen.append(value)
        if len(seen) == 4:
            raise ZeroDivisionError
        return reseal(value)

    with pytest.raises(ZeroDivisionError):
        store.rewrite(BLOBS, None, change)
    assert contents(url) == before
    assert rewrite_all(store, reseal) == [6, 0, 6]


def test_a_value_that_is_no_longer_what_was_read_is_left(store: PostgresRows, url: str) -> None:
    """Its row is locked, so only the same transaction can do that: the guard is there all the same."""
    put_blobs(url, blobs(3))
    change_rows = iter(["blob = '\\x00'", "type = 'other'", "channel = 'other'"])

    def change(value: Cell) -> tuple[str, bytes]:
        schema = store.connection.execute(
            "SELECT nspname FROM pg_namespace WHERE oid = %s", (store._found.schema_oid,)
        ).fetchone()
        assert schema is not None
        store.connection.execute(
            f"UPDATE {schema[0]}.checkpoint_blobs SET {next(change_rows)} WHERE version = %s",
            value.where.key[3:],
        )
        return "new", b"new"

    done = store.rewrite(BLOBS, None, change)
    assert (done.seen, done.changed, done.raced) == (3, 0, 3)
    assert {tag for tag, _ in contents(url).values()} == {"msgpack+cobblestone256@k1", "other"}


def test_locks_last_no_longer_than_is_told(store: PostgresRows, url: str) -> None:
    put_blobs(url, blobs(3))
    done = store.rewrite(BLOBS, None, reseal)
    assert done.lock_seconds > 0
    assert done._replace(lock_seconds=0) == Rewritten(3, 3, 0, done.size_bytes, 0, None)
    assert store.rewrite(BLOBS, None, reseal, Selection("k2")) == (0, 0, 0, 0, 0.0, None)


def test_a_store_that_is_not_writable_changes_nothing(url: str) -> None:
    put_blobs(url, blobs(3))
    store = PostgresRows(url)
    try:
        with pytest.raises(StoppedError, match="write"):
            store.rewrite(BLOBS, None, reseal)
        assert store.count()
    finally:
        store.close()


def test_a_key_that_is_no_text_is_told(pytestconfig: pytest.Config) -> None:
    """Only a server that checks no encoding holds such a row."""
    dsn = server(pytestconfig)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE loose TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        try:
            loose = make_conninfo(dsn, dbname="loose")
            with saver_at(PostgresSaver, loose) as saver:
                saver.conn.execute("SET client_encoding = utf8")
                saver.setup()
                saver.conn.execute("INSERT INTO checkpoint_blobs VALUES (E'\\xff', '', 'n', '1', 'null', '')")
            with closing(PostgresRows(loose, writable=True)) as store:
                assert [count.rows for count in store.count()] == [1]
                with pytest.raises(RowError, match="encoding"):
                    store.rewrite(BLOBS, None, reseal)
        finally:
            connection.execute("DROP DATABASE loose")


# --- with real savers -----------------------------------------------------------------------------


def put_checkpoints(saver: Any, threads: int = 3) -> list[Any]:
    """Put two checkpoints and some writes into each thread; return how to find the last ones."""
    found = []
    for number in range(threads):
        config: Any = at(f"thread {number}")
        for step in range(2):
            version = f"{step:032}.0.1"
            channels = {
                "n": step,
                "text": "ä",
                "none": None,
                "yes": True,
                "x": 0.5,
                "big": {"n": [number, step]},
            }
            versions = {**dict.fromkeys(channels, version), "unset": version}
            checkpoint = {
                **empty_checkpoint(),
                "id": f"{step:06}",
                "channel_values": channels,
                "channel_versions": versions,
            }
            config = saver.put(config, checkpoint, {"step": step, "user": f"u{number}"}, versions)
            saver.put_writes(config, [("n", step), ("big", {"n": "w" * 300})], f"task {step}", "path")
        found.append(config)
    return found


def states(saver: Any, configs: list[Any]) -> list[Any]:
    found = [saver.get_tuple(config) for config in configs]
    return [(each.checkpoint, each.metadata, each.pending_writes) for each in found]


@pytest.mark.parametrize(
    ("saver", "fixture"), [(PostgresSaver, "url"), (ShallowPostgresSaver, "shallow_url")]
)
def test_what_a_saver_wrote_is_read_as_before(
    request: pytest.FixtureRequest, saver: Any, fixture: str
) -> None:
    url = request.getfixturevalue(fixture)
    with saver_at(saver, url, K1) as sealed:
        configs = put_checkpoints(sealed)
        before = states(sealed, configs)
    store = PostgresRows(url, writable=True)
    try:
        assert len([*rotate(store, K2, batch=Batch(rows=3))]) > 3
        assert outstanding(store, "k2") == []
    finally:
        store.close()
    with saver_at(saver, url, K2) as sealed:
        assert states(sealed, configs) == before


def test_a_shallow_database_has_no_versions(shallow_url: str) -> None:
    with saver_at(ShallowPostgresSaver, shallow_url, K1) as sealed:
        put_checkpoints(sealed)
    store = PostgresRows(shallow_url, writable=True)
    try:
        assert store.columns == (SHALLOW_BLOBS, WRITES, SHALLOW_METADATA)
        (value, *_), *_ = read_all(store, SHALLOW_BLOBS, batch=Batch(rows=1))
        assert value.where.row == {
            "table": "values",
            "thread_id": "thread 0",
            "checkpoint_ns": "",
            "channel": "big",
        }
    finally:
        store.close()


def test_a_value_knows_the_coordinates_that_it_may_be_bound_to(store: PostgresRows, url: str) -> None:
    put_blobs(url, [("t", "ns", "n", "7", "msgpack", b"x")])
    put_writes(url, [("task", -1, "__error__", "msgpack", b"x")])
    (((value,),), ((write,),)) = (read_all(store, table) for table in store.columns[:2])
    values = {"table": "values", "thread_id": "t", "checkpoint_ns": "ns", "channel": "n", "version": "7"}
    assert value.where.row == values
    writes = {"table": "writes", "thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}
    assert write.where.row == writes | {"task_id": "task", "channel": "__error__"}
    assert write.where.names["idx"] == -1


@pytest.mark.parametrize(
    ("saver", "fixture"), [(PostgresSaver, "url"), (ShallowPostgresSaver, "shallow_url")]
)
def test_what_is_readable_beside_the_values_is_told(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, saver: Any, fixture: str
) -> None:
    """Also over several pages."""
    monkeypatch.setattr("sealpoint.admin.databases.postgres.rows._METADATA_ROWS", 2)
    monkeypatch.setattr("sealpoint.admin.databases.postgres.rows._NAME_ROWS", 2)
    url = request.getfixturevalue(fixture)
    with saver_at(saver, url, K1) as sealed:
        put_checkpoints(sealed)
    store = PostgresRows(url)
    try:
        inline, metadata, names = (
            [*store.inline()],
            [*(record.metadata for record in store.records())],
            [*store.key_texts()],
        )
    finally:
        store.close()
    if saver is PostgresSaver:
        kinds = {"n": "number", "none": "null", "text": "string", "x": "number", "yes": "boolean"}
        assert inline == [InlineValue(channel, kind, 6) for channel, kind in kinds.items()]
        assert len(metadata) == 6
    else:  # it keeps nothing there, and one checkpoint for each thread
        assert inline == []
        assert len(metadata) == 3
    assert '{"step": 1, "user": "u2"}' in metadata
    told = Counter(names)
    assert [told["thread_id", f"thread {number}"] for number in range(3)] == [3, 3, 3]  # once for each table
    assert told["checkpoint_ns", ""] == 3
    assert told["channel", "big"] == 2
    assert told["task_path", "path"] == 1


def test_inline_values_of_no_known_shape_are_passed_over(store: PostgresRows, url: str) -> None:
    with psycopg.connect(url) as connection:
        for number, values in enumerate(("[1]", "null", '"text"', '{"a": {"b": 1}}')):
            connection.execute(
                "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('t', %s, %s)",
                (str(number), f'{{"channel_values": {values}}}'),
            )
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('t', '', '1')"
        )
    assert [*store.inline()] == [InlineValue("a", "object", 1)]
