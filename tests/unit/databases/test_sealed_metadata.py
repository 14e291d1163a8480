"""A sealed value inside the JSON of a SQLite metadata column is a value like any other."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.databases.cells import Selection
from sealpoint.databases.rows import Batch
from sealpoint.databases.sqlite.columns import METADATA
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import BlobError, IntegrityError, RowError, TagError
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.inventory import inventory
from sealpoint.maintenance.rotate import outstanding, rotate
from sealpoint.maintenance.status import status
from sealpoint.maintenance.verify import verify
from tests.support.sealed import failures, make_cipher, moved, run, write
from tests.unit.databases.frames import BODY, KEY, PLAIN, document, put_metadata, seal_metadata, sealed

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")
LABEL = "checkpoints.metadata"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Values under k2, and plain metadata."""
    path = tmp_path / "app.db"
    write(path, "k2", "a")
    return path


def metadata_of(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            metadata for (metadata,) in connection.execute("SELECT metadata FROM checkpoints ORDER BY rowid")
        ]


def test_a_key_that_only_seals_metadata_is_in_use(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []
    seal_metadata(path, K1, "checkpoint_id = '000001'")
    with closing(SqliteRows(path)) as store:
        (left,) = outstanding(store, "k2")
    assert (left.table, left.tag, left.rows) == (LABEL, "msgpack+cobblestone256.row@k1", 1)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_metadata_is_searched_once_while_no_other_connection_commits(path: Path, mode: str) -> None:
    """It stands behind the largest value of each row."""
    write(path, "k1", "b")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    searched = list[str]()
    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        store.connection.set_trace_callback(
            lambda statement: searched.append(statement) if "metadata" in statement else None
        )
        assert moved([*rotate(store, K2)]) == 12
        assert not outstanding(store, "k2")
        assert not failures([*verify(store, K2)])
        assert len(searched) == 1
        seal_metadata(path, K1, "checkpoint_id = '000001' AND thread_id = 'a'")
        assert [count.table for count in outstanding(store, "k2")] == [LABEL]
        assert len(store.read(METADATA, None).cells) == 1


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_metadata_that_is_sealed_after_it_was_counted_is_read(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    with closing(SqliteRows(path, writable=True)) as store:
        assert outstanding(store, "k2") == []
        seal_metadata(path, K1, "checkpoint_id = '000001'")
        assert store.rewrite(
            METADATA, None, lambda cell: K2.reseal(cell.tag, cell.value, row=cell.row)
        ).changed
        assert outstanding(store, "k2") == []
        seal_metadata(path, K1, "checkpoint_id = '000002'")
        assert len(outstanding(store, "k2")) == 1


def test_metadata_that_a_writer_seals_during_a_pass_is_sealed_anew(path: Path) -> None:
    write(path, "k1", "b")
    late = iter(["checkpoint_id = '000001'"])

    def seal(_: Any) -> None:
        for rows in late:
            seal_metadata(path, K1, rows)

    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        assert moved([*rotate(store, K2, before_change=seal)]) == 12 + 2
        assert not outstanding(store, "k2")
        assert not failures([*verify(store, K2)])


def test_rotation_seals_metadata_anew_and_leaves_the_other_keys(path: Path) -> None:
    seal_metadata(path, K1, "checkpoint_id <> '000002'", big=2**70, rate=0.1)
    before = metadata_of(path)
    assert moved(run(path, K2, batch=Batch(rows=1))) == 2
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []
        assert failures(list(verify(store, K2))) == []
        assert {cell.tag for cell in store.read(METADATA, None).cells} == {"msgpack+cobblestone256.row@k2"}
    for old, new in zip(before, metadata_of(path), strict=True):
        assert type(old) is type(new)
        assert {**json.loads(old), KEY: None} == {**json.loads(new), KEY: None}
    assert metadata_of(path)[2] == before[2]  # plain metadata, byte for byte


@pytest.mark.parametrize("as_text", [True, False])
def test_metadata_is_written_back_as_it_was_read(path: Path, as_text: bool) -> None:
    """As text or as bytes, and with the same JSON around the frame."""
    frames: dict[str, Any] = {}

    def make(*key: str) -> str | bytes:
        text = document(frames.setdefault(key[-1], sealed(K1, *key)))
        return text if as_text else text.encode()

    put_metadata(path, make)
    run(path, K2)
    for metadata, old in zip(metadata_of(path), frames.values(), strict=True):
        assert isinstance(metadata, str if as_text else bytes)
        text = metadata if isinstance(metadata, str) else metadata.decode()
        new = json.loads(text)[KEY]
        assert text == document(new)
        assert new != old


def test_plain_metadata_is_no_value(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        assert {count.table for count in store.count()} == {"checkpoints", "writes"}
    for metadata in (
        json.dumps({**PLAIN, "note": f'"{KEY}"'}),
        json.dumps({**PLAIN, "nested": {KEY: {"type": "msgpack+cobblestone256@k1", "value": ""}}}),
        json.dumps({**PLAIN, f"{KEY}x": 1}),
        "no JSON",
        None,
        7,
    ):
        put_metadata(path, lambda *_, data=metadata: data)
        with closing(SqliteRows(path)) as store:
            assert {share.table for share in status(store)} == {"checkpoints", "writes"}
            assert list(store.read(METADATA, None).cells) == []


FRAME = {"type": "msgpack+cobblestone256.row@k1", "value": "AAAA"}
FORGED = [
    (document(7), BlobError),
    (document([]), BlobError),
    (document({}), BlobError),
    (document({"type": FRAME["type"]}), BlobError),
    (document({**FRAME, "value": "%%%"}), BlobError),
    (document({**FRAME, "value": 7}), BlobError),
    (document({**FRAME, "type": None}), TagError),
    (document({**FRAME, "type": "msgpack"}), TagError),
    (document({**FRAME, "type": "msgpack+aes"}), TagError),
    (document(FRAME), BlobError),
    ("{" + document(FRAME), BlobError),
    (document(FRAME)[:-1] + f', "{KEY}": {{}}}}', BlobError),
    ('{"a": NaN, ' + document(FRAME)[1:], BlobError),
]


@pytest.mark.parametrize(("metadata", "error"), FORGED)
def test_a_forged_frame_is_reported_and_never_sealed(path: Path, metadata: str, error: type) -> None:
    put_metadata(path, lambda *_: metadata, "checkpoint_id = '000001'")
    before = metadata_of(path)
    run(path, K2, allow_plaintext=True, allow_legacy=True, check_keys=False)
    assert metadata_of(path) == before
    with closing(SqliteRows(path)) as store:
        (failure,) = failures(list(verify(store, K2, allow_plaintext=True)))
        assert (failure.table, type(failure.error)) == (LABEL, error)
        assert sum(share.rows for share in status(store) if share.table == LABEL) == 1
        assert outstanding(store, "k2") != []


def test_metadata_moved_to_another_row_does_not_open(path: Path) -> None:
    seal_metadata(path, K1)
    one, other, *rest = metadata_of(path)
    changed = iter([other, one, *rest])
    put_metadata(path, lambda *_: next(changed))
    found = failures(run(path, K2))
    assert [(failure.place["checkpoint_id"], type(failure.error)) for failure in found] == [
        ("000000", IntegrityError),
        ("000001", IntegrityError),
    ]


def test_a_writer_who_changes_metadata_meanwhile_wins(path: Path) -> None:
    seal_metadata(path, K1, "checkpoint_id = '000001'")
    late = document(sealed(K2, "a", "", "000001"), step=2).encode()

    def interfere(_: Any) -> None:
        put_metadata(path, lambda *_: late, "checkpoint_id = '000001'")

    with closing(SqliteRows(path, writable=True)) as store, store.hold():
        *_, last = rotate(store, K2, before_change=interfere)
    assert (last.changed, last.raced) == (0, 1)  # type: ignore[union-attr]
    assert metadata_of(path)[1] == late


@pytest.mark.parametrize("selection", [Selection("k1"), Selection(with_key="k1"), Selection(thread_id="b")])
def test_a_selection_takes_sealed_metadata_as_any_value(path: Path, selection: Selection) -> None:
    write(path, "k1", "b")
    put_metadata(path, lambda *key: document(sealed(K1 if key[0] == "b" else K2, *key)))
    with closing(SqliteRows(path)) as store:
        everything = store.read(METADATA, None).cells
        assert len(everything) == 6
        wanted = [
            cell
            for cell in everything
            if selection.takes(cell.tag) and selection.thread_id in (None, cell.where.names["thread_id"])
        ]
        assert list(store.read(METADATA, None, selection).cells) == wanted
        assert len(wanted) == 3


def test_types_in_sealed_metadata_are_read(path: Path) -> None:
    seal_metadata(path, K1)
    with closing(SqliteRows(path)) as store:
        found = inventory(store, K2)
        assert (found.values, found.failures) == (sum(count.rows for count in store.count()), 0)
        cells = store.read(METADATA, None).cells
        opened = [K2.open(cell.tag, cell.value, row=cell.row).typed for cell in cells]
    assert opened == [("msgpack", BODY)] * 3


def test_a_copy_with_sealed_metadata_is_not_made(path: Path, tmp_path: Path) -> None:
    seal_metadata(path, K1, "checkpoint_id = '000001'")
    (failure,) = failures(list(decrypt(path, tmp_path / "out.db", K2)))
    assert (failure.place["checkpoint_id"], type(failure.error)) == ("000001", RowError)
    assert not (tmp_path / "out.db").exists()
