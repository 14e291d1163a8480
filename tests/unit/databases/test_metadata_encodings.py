"""Sealed metadata is found however it is stored: as text or bytes, in any encoding, with escapes in keys."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.base import frame
from sealpoint.databases.cells import Selection
from sealpoint.databases.sqlite.columns import CHECKPOINTS, METADATA
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import KeyInUseError, RowError
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.rotate import outstanding
from sealpoint.maintenance.transitions import destroy_key
from tests.support.rings import states_text, write_ring
from tests.support.sealed import failures, make_cipher, moved, run, write
from tests.unit.databases.frames import KEY, document, put_metadata, sealed

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")
ESCAPED = {
    "plain": lambda text: text,
    "key": lambda text: text.replace(KEY, KEY.replace("_", r"\u005F", 1)),
    "last character": lambda text: text.replace(KEY, KEY[:-1] + r"\u005f"),
    "parts": lambda text: text.replace('"type"', r'"t\u0079pe"').replace('"value"', r'"v\u0061lue"'),
    "tag": lambda text: text.replace("msgpack+", r"msgpack\u002B"),
}


@pytest.fixture(params=["UTF-8", "UTF-16le", "UTF-16be"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Values under k2, in a file with this encoding."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"PRAGMA encoding = '{request.param}'; CREATE TABLE made (a); DROP TABLE made"
        )
    write(path, "k2", "a")
    return path


@pytest.fixture(params=["text", "bytes"])
def stored(request: pytest.FixtureRequest) -> type:
    return str if request.param == "text" else bytes


@pytest.fixture(params=ESCAPED)
def one_sealed(request: pytest.FixtureRequest, path: Path, stored: type) -> Path:
    """One checkpoint has its metadata sealed under k1."""

    def make(*key: str) -> Any:
        text = ESCAPED[request.param](document(sealed(K1, *key)))
        return text if stored is str else text.encode()

    put_metadata(path, make, "rowid = 2")
    return path


def test_it_is_counted_under_its_key(one_sealed: Path) -> None:
    with closing(SqliteRows(one_sealed)) as store:
        (left,) = outstanding(store, "k2")
        (cell,) = store.read(METADATA, None).cells
    assert (left.tag, left.rows) == ("msgpack+cobblestone256.row@k1", 1)
    assert left.size_bytes == len(frame.encode_value(cell.value))


def test_its_key_is_in_use(one_sealed: Path, tmp_path: Path) -> None:
    ring = write_ring(tmp_path, states_text(k2="active", k1="disabled"))
    with closing(SqliteRows(one_sealed)) as store, pytest.raises(KeyInUseError):
        destroy_key(ring, "k1", [store])


def test_it_is_rotated(one_sealed: Path) -> None:
    assert moved(run(one_sealed, K2)) == 1
    with closing(SqliteRows(one_sealed)) as store:
        assert outstanding(store, "k2") == []


@pytest.mark.parametrize(
    ("selection", "rows"), [(Selection(with_key="k2"), 3), (Selection(without_key="k2"), 0)]
)
def test_values_are_selected_by_their_tags(path: Path, selection: Selection, rows: int) -> None:
    with closing(SqliteRows(path)) as store:
        assert len(store.read(CHECKPOINTS, None, selection).cells) == rows


def test_no_copy_keeps_it_sealed(one_sealed: Path, tmp_path: Path) -> None:
    (failed,) = failures(list(decrypt(one_sealed, tmp_path / "out.db", K2)))
    assert isinstance(failed.error, RowError)


@pytest.mark.parametrize(
    "text", [r'{"a": "\u005f"}', r'{"a": "\\u005f_sealpoint__"}', r'{"\u005f": {}}', r"\u005f"]
)
def test_an_escape_alone_makes_no_frame(path: Path, stored: type, text: str) -> None:
    put_metadata(path, lambda *_: text if stored is str else text.encode())
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []
        assert list(store.read(METADATA, None).cells) == []


def test_an_interrupt_ends_the_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite drops the exceptions of functions that it calls."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sealpoint.databases.sqlite.frames.find_frame", interrupt)
    with closing(SqliteRows(path)) as store, pytest.raises(KeyboardInterrupt):
        store.count()
