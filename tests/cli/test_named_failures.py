"""What a run names as a failure makes its result not ok, with a thread store and without one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.results.events import Failure, Failures, failure_reasons
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import REFUTING
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import RingCipher
from sealpoint.errors import SealpointError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.seal.places import CHECKPOINT
from sealpoint.threads import SqliteThreadStore
from tests.cli.conftest import Run
from tests.support.databases.bound import INDEX
from tests.support.databases.headers import packed_header
from tests.support.keys.rings import make_cipher, states_text

AT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
CHANGES = {
    "a write of a call": "DELETE FROM writes WHERE channel = 'a'",
    "a write of another result": "UPDATE writes SET value = x'00' WHERE channel = 'b'",
    "readable metadata": """UPDATE checkpoints SET metadata = '{"step": 2}'""",
    "an index of a write": "UPDATE writes SET channel = '__error__' WHERE channel = 'a'",
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed checkpoint with two writes of one call, and the thread store of its saver."""
    ring, path = tmp_path / "keys.toml", tmp_path / "state.db"
    (tmp_path / "index.key").write_text(INDEX.hex())
    ring.write_text(states_text(k1="active") + "\n[[index]]\nid = 'index'\nsource = { file = 'index.key' }\n")
    for file in (ring, tmp_path / "index.key"):
        file.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    with (
        closing(sqlite3.connect(path, check_same_thread=False)) as connection,
        closing(SqliteThreadStore(tmp_path / "threads.db", create=True)) as threads,
    ):
        serde = EncryptedSerializer.from_key_file(ring)
        saver = SealedSaver(SqliteSaver(connection), serde=serde, threads=threads)
        place = saver.put(AT, empty_checkpoint(), {"step": 1}, {})
        saver.put_writes(place, [("a", 1), ("b", 2)], "task")
    return path


@pytest.mark.parametrize("threads", [True, False], ids=["thread store", "alone"])
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_named_is_not_ok(run: Run, path: Path, what: str, threads: bool) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(CHANGES[what])
    words = ["--threads", path.with_name("threads.db")] if threads else []
    ended = run("verify", path, "--json", *words)
    assert ended.document["failures"]
    assert ended.document["ok"] is False
    assert ended.code == Exit.UNOPENED
    assert run("verify", path, *words).code == Exit.UNOPENED
    assert run("report", path, "--json", *words).document["ok"] is False


@pytest.mark.parametrize("rest", [b"\xc0", b"\xc1\xff", b"\xa1x", b"\x92"])
def test_bytes_behind_a_document_are_refused(run: Run, path: Path, rest: bytes) -> None:
    serde = EncryptedSerializer.from_key_file(path.with_name("keys.toml"))
    assert isinstance(serde.cipher, RingCipher)
    names = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1f0a"}
    kind, document = serde.encode({**empty_checkpoint(), "id": "1f0a"})
    header = packed_header({"metadata": {}, "parent": None})
    with closing(sqlite3.connect(path)) as connection, connection:
        for data in (document, document + rest):
            sealed = serde.cipher.seal(kind, header + data, row=CHECKPOINT.row(names))
            connection.execute("DELETE FROM checkpoints WHERE thread_id = 't'")
            connection.execute("INSERT INTO checkpoints VALUES ('t', '', '1f0a', NULL, ?, ?, '{}')", sealed)
            connection.commit()
            ended = run("verify", path, "--json")
            assert ended.code == (Exit.DONE if data == document else Exit.UNOPENED)
            assert [each["error"] for each in ended.document["failures"]] == (
                [] if data == document else ["DecodeError"]
            )


def _errors(cls: type[Exception] = SealpointError) -> list[type[Exception]]:
    return [cls, *(each for direct in cls.__subclasses__() for each in _errors(direct))]


@pytest.mark.parametrize("tag", ["msgpack", "msgpack+cobblestone256.row@k1", None])
@pytest.mark.parametrize("cls", dict.fromkeys(_errors()), ids=lambda cls: cls.__name__)
def test_every_error_that_is_counted_refutes(cls: type[Exception], tag: str | None) -> None:
    """Whatever else was found, in a run with a ring or without one."""
    body = {"__init__": lambda self: None, "__str__": lambda self: "cause"}
    for cipher in (None, make_cipher()):
        failures = Failures(cipher=cipher)
        failures.add(Failure("writes.value", {}, tag, type("Each", (cls,), body)()))
        reasons = failure_reasons(failures)
        assert reasons
        assert REFUTING.issuperset(reasons)
