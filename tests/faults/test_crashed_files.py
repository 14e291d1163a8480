"""SQLite files whose writer was killed in the middle of a transaction, with and without an attached database.

What such a crash leaves beside a file is lawful: every way of opening it rolls the transaction back.
"""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import SqliteThreadStore
from tests.support.databases.bound import cipher_of, play, sealed_file
from tests.support.databases.checkpoints import at
from tests.support.runs.extent import by_extent

KILLS: Final = by_extent(24, 60, 1000)
ROWS: Final = 300

WRITER: Final = """
import sqlite3, sys
main, attached = sys.argv[1:]
connection = sqlite3.connect(main, isolation_level=None)
names = ["main"]
if attached:
    connection.execute("ATTACH ? AS attached", (attached,))
    names.append("attached")
for name in names:
    connection.execute(f"PRAGMA {name}.journal_mode = DELETE")
    if not attached:  # so that pages reach the file before the commit; a super-journal is named at its end
        connection.execute(f"PRAGMA {name}.cache_size = 1")
print("begun", flush=True)
while True:
    connection.execute("BEGIN IMMEDIATE")
    for name in names:
        connection.execute(f"UPDATE {name}.filler SET number = number + 1, text = hex(randomblob(200))")
    connection.execute("COMMIT")
"""


def fill(path: Path) -> None:
    """Add a table that the writer changes in each transaction."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE filler (number INTEGER, text TEXT)")
        connection.executemany("INSERT INTO filler VALUES (0, ?)", [("x" * 400,)] * ROWS)


def kill_writer(main: Path, attached: Path | None, after: float) -> None:
    command = [sys.executable, "-c", WRITER, str(main), str(attached or "")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # type: ignore[union-attr]  # a pipe
        time.sleep(after)
        process.send_signal(signal.SIGKILL)


def numbers(path: Path) -> set[int]:
    with closing(sqlite3.connect(path)) as connection:
        return {number for (number,) in connection.execute("SELECT number FROM filler")}


def open_by_command(path: Path) -> None:
    SqliteRows(path, writable=True).close()


def open_by_saver(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path), serde=EncryptedSerializer(cipher_of())) as saver:
        saver.setup()


def open_by_sealed_saver(path: Path) -> None:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        SealedSaver(Theirs(connection), serde=EncryptedSerializer(cipher_of())).get_tuple(at("t"))


OPENING: Final = [open_by_command, open_by_saver, open_by_sealed_saver]


@pytest.mark.claim("f3")
@pytest.mark.costly
@pytest.mark.parametrize("place", ["alone", "main", "attached"])
def test_a_file_opens_after_a_crash(tmp_path: Path, place: str) -> None:
    path, other = tmp_path / "app.db", tmp_path / "other.db"
    with sealed_file(path) as saver:
        play(saver, "t", runs=1)
    for file in (path, other):
        fill(file)
    left = named = 0
    for round_ in range(100 * KILLS):  # on a busy machine few of the kills are in a transaction
        if round_ >= KILLS and left > KILLS // 20 and (place == "alone" or named):
            return
        pair = {"alone": (path, None), "main": (path, other), "attached": (other, path)}[place]
        kill_writer(*pair, after=random.random() / 50)
        journal = path.with_name("app.db-journal")
        if journal.exists() and journal.read_bytes()[:1] != b"\0":
            left += 1
            named += bool(re.search(rb"-mj[0-9A-F]{9}", journal.read_bytes()[-64:]))
        OPENING[round_ % len(OPENING)](path)
        assert len(numbers(path)) == 1
        if place != "alone":
            assert numbers(path) == numbers(other)  # both are rolled back, or neither
    pytest.fail(f"of {100 * KILLS} kills {left} left a journal, and {named} of them one with a super-journal")


def test_a_thread_store_opens_after_a_crash(tmp_path: Path) -> None:
    """Another program has changed it, in rollback mode and together with another database."""
    path, other = tmp_path / "threads.db", tmp_path / "other.db"
    SqliteThreadStore(path, create=True).close()
    fill(other)
    writer = WRITER.replace("SET number = number + 1, text = hex(randomblob(200))", "SET {changes[name]}")
    writer = writer.replace("{name}.filler", "{name}.{tables[name]}").replace(
        "print(",
        'tables = {"main": "filler", "attached": "store"}\n'
        'changes = {"main": "number = number + 1", "attached": "trimmed = trimmed + 1"}\nprint(',
    )
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", writer, str(other), str(path)], stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()  # type: ignore[union-attr]  # a pipe
            time.sleep(random.random() / 50)
            process.send_signal(signal.SIGKILL)
        with closing(SqliteThreadStore(path)) as store:
            trimmed = store.trimmed()
        assert numbers(other) == {trimmed}
