"""Real graphs on `SealedSaver`, decrypted: the bare saver reads the copy as if nothing had been sealed."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.graphs.graphs import SCRIPTS
from tests.graphs.openers import Entry, on_sqlite3
from tests.graphs.plays import plain, play
from tests.graphs.savers import ENTRIES
from tests.support.databases.bound import INDEX, PLAIN, PRIVATE
from tests.support.databases.sealed import failures, make_ring

CIPHER = RingCipher(KeyRing(make_ring("k2").keys, index=INDEX))
COLUMNS = {
    "checkpoints": "thread_id, length(checkpoint_id), parent_checkpoint_id IS NULL, type",
    "writes": "thread_id, channel, idx, task_path, type",
}


def read(path: str | Path) -> list[str]:
    """All that LangGraph's saver reads, and the columns that have no ids made at random."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        listed = Theirs(connection).list(None)
        found = [
            text(each._replace(pending_writes=sorted(each.pending_writes or (), key=text))) for each in listed
        ]
        for table, columns in COLUMNS.items():
            found += map(text, connection.execute(f"SELECT {columns} FROM {table}"))
    return sorted(found)


def text(value: Any) -> str:
    """A value without what differs from run to run: ids, times, and the random ends of versions."""
    return _RANDOM.sub("<random>", repr(plain(value)))


_RANDOM = re.compile(r"<id>\.[0-9.e-]+|\d{4}-\d\d-\d\dT[0-9:.+]+")


@pytest.mark.broad
@pytest.mark.parametrize("options", [PLAIN, PRIVATE], ids=["plain", "private"])
@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "delta 210"])
def test_the_copy_is_as_if_nothing_had_been_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, options: dict[str, Any]
) -> None:
    def wrapped(connection: Any, serde: object) -> Any:
        return SealedSaver(Theirs(connection), serde=EncryptedSerializer(CIPHER), **options)

    monkeypatch.setitem(ENTRIES, "sealed", Entry("file", on_sqlite3(wrapped)))
    play(script, "LangGraph SqliteSaver", str(tmp_path / "plain.db"), False)
    play(script, "sealed", str(tmp_path / "sealed.db"), True)
    ring = RingCipher(make_ring("k2"))  # which has no index key
    assert failures([*decrypt(tmp_path / "sealed.db", tmp_path / "copy.db", ring)]) == []
    assert read(tmp_path / "copy.db") == read(tmp_path / "plain.db")
