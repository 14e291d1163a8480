"""Metadata of a SQLite file is never sealed: what looks like a sealed value there is ordinary metadata."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.rotate import outstanding
from sealpoint.errors import RowError
from tests.support.databases.sealed import failures, make_cipher, moved, run, write
from tests.unit.databases.frames import document, put_metadata, sealed

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")
ESCAPED = r"\u005f_sealpoint__"


@pytest.fixture(params=["frame", "escaped", "forged"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Values under k2, and metadata that seems to be sealed under k1."""
    path = tmp_path / "app.db"
    write(path, "k2", "a")

    def make(*key: str) -> bytes:
        text = document(7 if request.param == "forged" else sealed(K1, *key))
        return (text.replace("__sealpoint__", ESCAPED) if request.param == "escaped" else text).encode()

    put_metadata(path, make, "checkpoint_id = '000001'")
    return path


def test_it_is_no_value(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        assert {count.table for count in store.count()} == {"checkpoints", "writes"}
        assert outstanding(store, "k2") == []


def test_audit_shows_it_as_readable(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        found = audit(store, ("user_id",))
    (field,) = (field for field in found.metadata.fields if field.key == "__sealpoint__")
    assert field.known is None
    assert not found.is_silent


def test_rotation_leaves_it(path: Path) -> None:
    def metadata() -> list[bytes]:
        with closing(sqlite3.connect(path)) as connection:
            return [row[0] for row in connection.execute("SELECT metadata FROM checkpoints ORDER BY rowid")]

    before = metadata()
    assert "__sealpoint__" in json.loads(before[1])
    assert moved(run(path, make_cipher("k3", "k2"))) > 0
    assert metadata() == before


def test_no_copy_has_it(path: Path, tmp_path: Path) -> None:
    (failed,) = failures(list(decrypt(path, tmp_path / "out.db", K2)))
    assert (failed.place["checkpoint_id"], type(failed.error)) == ("000001", RowError)
    assert not (tmp_path / "out.db").exists()
