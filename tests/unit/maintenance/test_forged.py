"""What an intruder put into a file does not become authentic, endless or large by upkeep."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import ormsgpack
import pytest

from sealpoint.base import empty_checkpoint
from sealpoint.databases.cells import Cell, require_decodable
from sealpoint.databases.failures import Failure
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import (
    DatabaseCorruptError,
    DecodeError,
    LimitError,
    OutputExistsError,
    SchemaError,
    UnknownTypeError,
)
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.rotate import rotate
from sealpoint.maintenance.scrub import scrub
from sealpoint.maintenance.verify import verify
from sealpoint.sqlite import schema
from tests.support.checkpoints import at
from tests.support.sealed import (
    failures,
    langgraph,
    make_cipher,
    make_ring,
    put,
    run,
    sealing,
    tags_of,
    values_of,
    write,
)


def nested(levels: int) -> bytes:
    """Extensions within each other: a decoder without a bound runs out of stack."""
    data = ormsgpack.packb(None)
    for _ in range(levels):
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    return data


@pytest.mark.parametrize(
    ("kind", "data", "error"),
    [
        ("msgpack", nested(300), LimitError),
        ("msgpack", b"\xc1", DecodeError),
        ("json", b"[" * 300 + b"]" * 300, DecodeError),
        ("null", b"x", DecodeError),
        ("pickle", b"", UnknownTypeError),
        ("made up", b"", UnknownTypeError),
    ],
)
def test_what_a_strict_reader_refuses_is_not_decodable(
    kind: str, data: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        require_decodable(kind, data)


@pytest.mark.parametrize(("kind", "data"), [("null", b""), ("bytes", b"\xc1"), ("json", b'{"a": [1]}')])
def test_ordinary_bytes_are_decodable(kind: str, data: bytes) -> None:
    require_decodable(kind, data)


def test_plaintext_that_would_end_a_reader_is_not_made_authentic(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    write(path, "plain", "a")
    value = values_of(path)[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, value, "msgpack", nested(300))
    with closing(SqliteRows(path, writable=True)) as store:
        events = list(rotate(store, make_cipher("k1"), allow_plaintext=True))
    (failed,) = (event for event in events if isinstance(event, Failure))
    assert isinstance(failed.error, LimitError)
    assert "msgpack" in tags_of(path)


@pytest.fixture
def relabelled(tmp_path: Path) -> Path:
    """Bytes that a user chose, under LANGGRAPH_AES_KEY, which somebody calls msgpack: no key covers that."""
    path = tmp_path / "legacy.db"
    with langgraph(path, sealing("eax")) as saver:
        config = saver.put(at("a"), empty_checkpoint(), {}, {})
        saver.put_writes(config, [("upload", nested(300))], "task")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET type = 'msgpack+aes' WHERE type = 'bytes+aes'")
    return path


def test_a_relabelled_value_that_would_end_a_reader_is_not_made_authentic(relabelled: Path) -> None:
    (failed,) = failures(run(relabelled, make_cipher("k2", "langgraph"), allow_legacy=True))
    assert (failed.table, type(failed.error)) == ("writes", LimitError)
    assert tags_of(relabelled) == {"msgpack+cobblestone256@k2", "msgpack+aes"}


def test_a_relabelled_value_that_would_end_a_reader_leaves_no_copy(relabelled: Path) -> None:
    out = relabelled.with_name("out.db")
    (failed,) = failures(list(decrypt(relabelled, out, make_cipher("k2", "langgraph"))))
    assert (failed.table, type(failed.error)) == ("writes", LimitError)
    assert not out.exists()


def test_a_failure_keeps_no_frame_alive(path: Path) -> None:
    """Frames hold the bytes of values, and a ring without the key fails every row: gigabytes would stay."""
    with closing(SqliteRows(path, writable=True)) as store:
        runs = [*verify(store, make_cipher("k9")), *rotate(store, make_cipher("k9"))]
    errors = [event.error for event in runs if isinstance(event, Failure)]
    assert errors
    assert not any(error.__traceback__ or error.__context__ or error.__cause__ for error in errors)


def test_row_ids_that_go_back_are_refused(tmp_path: Path) -> None:
    """Two bytes of the file set one back, and the same page would be read for ever."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 65536")
        connection.execute(schema.CREATE_CHECKPOINTS)
        rows = [(row_id, str(row_id)) for row_id in range(200, 2300)]
        statement = "INSERT INTO checkpoints (rowid, thread_id, checkpoint_id, type, checkpoint, metadata)"
        connection.executemany(f"{statement} VALUES (?, ?, '1', 'null', x'', x'7b7d')", rows)
    data = path.read_bytes()
    row_id = bytes([0x80 | 2199 >> 7, 2199 & 0x7F])
    data = re.sub(re.escape(row_id) + b"\x08", bytes([0x80 | 199 >> 7, 199 & 0x7F]) + b"\x08", data)
    path.write_bytes(data)
    with closing(SqliteRows(path)) as store, pytest.raises(DatabaseCorruptError):
        list(verify(store, make_cipher("k1"), allow_plaintext=True))
    with closing(SqliteRows(path)) as store, pytest.raises(DatabaseCorruptError):
        list(store.cleartext.records())


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_log_beside_the_name_of_a_copy_is_not_adopted(path: Path, suffix: str) -> None:
    log = path.with_name("out.db" + suffix)
    log.write_bytes(b"x")
    with pytest.raises(OutputExistsError):
        list(decrypt(path, path.with_name("out.db"), make_cipher("k1")))
    assert log.read_bytes() == b"x"


def test_a_trigger_that_comes_during_a_run_ends_it(path: Path) -> None:
    """And each further run on the same store."""
    with closing(SqliteRows(path, writable=True)) as store:
        with closing(sqlite3.connect(path)) as connection, connection:
            body = "BEGIN UPDATE writes SET channel = 'x'; END"
            connection.execute(f"CREATE TRIGGER t AFTER UPDATE ON checkpoints {body}")
        for _ in range(2):
            with pytest.raises(SchemaError):
                list(rotate(store, make_cipher("k2", "k1")))
    assert not any(value.where.names.get("channel") == "x" for value in values_of_unchecked(path))


def values_of_unchecked(path: Path) -> list[Cell]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER t")
    return values_of(path)


def test_an_index_that_comes_during_a_run_does_not_end_it(path: Path) -> None:
    with closing(SqliteRows(path, writable=True)) as store:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE INDEX i ON writes (channel)")
        list(rotate(store, make_cipher("k2", "k1")))
    assert {str(tag).rpartition("@")[2] for tag in tags_of(path)} == {"k2"}


def test_an_index_that_disagrees_is_named_and_can_be_built_again(path: Path) -> None:
    """Its table is complete: a backup is not needed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE INDEX i ON writes (type)")
        connection.execute("CREATE TABLE other AS SELECT * FROM writes LIMIT 0")
        connection.execute("CREATE INDEX empty ON other (type)")
        connection.execute("PRAGMA writable_schema = ON")
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'empty'"
        connection.execute(f"UPDATE sqlite_master SET rootpage = ({root}) WHERE name = 'i'")
        connection.execute("DELETE FROM sqlite_master WHERE name IN ('other', 'empty')")
    cipher, number = make_cipher("k2", "k1"), len(values_of(path))
    with (
        closing(SqliteRows(path, writable=True)) as store,
        pytest.raises(DatabaseCorruptError, match="an index of the file disagrees") as caught,
    ):
        list(rotate(store, cipher))
    assert "REINDEX" in caught.value.hint
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("REINDEX")
    with closing(SqliteRows(path, writable=True)) as store:
        list(rotate(store, cipher))
    assert len(values_of(path)) == number
    assert {str(tag).rpartition("@")[2] for tag in tags_of(path)} == {"k2"}


def test_scrub_tells_a_key_from_one_whose_id_goes_on(path: Path) -> None:
    """Rows of k1 that somebody keeps in a table of their own are found beside live rows of k10."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE kept AS SELECT type, value FROM writes")
    with closing(SqliteRows(path, writable=True)) as store:
        list(rotate(store, make_cipher("k10", "k1")))
    assert scrub(path, make_ring("k10", "k1")).found
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE kept")
    assert not scrub(path, make_ring("k10", "k1")).found


def test_long_tags_are_counted_by_how_they_begin(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path)[:2]:
            put(connection, value, "x" * 100_000 + str(value.where.locator), value.value)
    with closing(SqliteRows(path)) as store:
        assert max(len(str(count.tag)) for count in store.count()) == 100
