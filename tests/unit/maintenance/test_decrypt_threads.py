"""A thread that has rows under its id and under a pseudonym is two histories, and never copied as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sealpoint.crypto import RingCipher
from sealpoint.errors import RowError
from sealpoint.maintenance.decrypt import decrypt
from tests.support.bound import PRIVATE, sealed_file
from tests.support.checkpoints import at, make
from tests.support.sealed import failures, make_ring


def put(saver: Any, checkpoint_id: str) -> None:
    saver.put(at("w"), make(checkpoint_id, text=checkpoint_id), {"step": 1}, {"text": 1})


@pytest.mark.parametrize("is_id_first", [True, False])
def test_two_histories_are_not_merged(tmp_path: Path, is_id_first: bool) -> None:
    """A process without pseudonyms does not find the thread, and begins another one under its id."""
    path, out = tmp_path / "a.db", tmp_path / "copy.db"
    with sealed_file(path, **PRIVATE) as hidden, sealed_file(path) as clear:
        put(hidden, "1")
        put(clear, "2")
        if is_id_first:
            hidden.conn.execute("UPDATE checkpoints SET rowid = 10 WHERE checkpoint_id = '1'")
            hidden.conn.commit()
    failed = failures([*decrypt(path, out, RingCipher(make_ring("k2")))])
    assert {type(failure.error) for failure in failed} == {RowError}
    assert "two histories" in str(failed[0].error)
    assert not out.exists()
