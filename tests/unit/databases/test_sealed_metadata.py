"""Metadata of a SQLite file is never sealed: what looks like a sealed value there is ordinary metadata."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.errors import RowError
from tests.support.databases.frames import document, put_metadata, sealed
from tests.support.databases.sealed import failures, make_cipher, write


@pytest.mark.parametrize("kind", ["frame", "escaped", "forged"])
def test_a_frame_is_no_value_and_is_readable_and_in_no_copy(tmp_path: Path, kind: str) -> None:
    path, out = tmp_path / "app.db", tmp_path / "out.db"
    write(path, "k2", "a")

    def make(*key: str) -> bytes:
        text = document(7 if kind == "forged" else sealed(make_cipher("k1"), *key))
        return (text.replace("__sealpoint__", r"\u005f_sealpoint__") if kind == "escaped" else text).encode()

    put_metadata(path, make, "checkpoint_id = '000001'")
    with closing(SqliteRows(path)) as store:
        assert {count.table for count in store.count()} == {"checkpoints", "writes"}
        found = audit(store, ("user_id",))
    assert {field.key: field.known for field in found.metadata.fields}["__sealpoint__"] is None
    assert not found.is_silent
    (failed,) = failures(list(decrypt(path, out, make_cipher("k2", "k1"))))
    assert (failed.place["checkpoint_id"], type(failed.error)) == ("000001", RowError)
    assert not out.exists()
