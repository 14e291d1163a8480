"""What is loaded by commands on a Postgres database, with a thread store and a ledger there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.threads import PostgresThreadStore
from tests.postgres.test_commands import at
from tests.postgres.test_schema import alter
from tests.support.databases.bound import play
from tests.support.loaded import LARGEST, lines_of, write_rings

RECORDED: Final = "--keys ledger.toml"
RUNS: Final = (
    "status {0}",
    "types {0}",
    "verify {0} --threads {0}",
    "ledger init --keys ledger.toml",
    f"rotate {{0}} --apply {RECORDED}",
    f"rebind {{0}} --apply {RECORDED}",
    f"report {{0}} --threads {{0}} --allow-unproven {RECORDED}",
    f"erase {{0}} --threads {{0}} --thread t --apply {RECORDED}",
)


@pytest.fixture
def threads(url: str) -> Iterator[PostgresThreadStore]:
    """A thread store in the schema in which commands look for one."""
    with closing(PostgresThreadStore(url, create=True)) as store:
        yield store
    alter(url, "DROP SCHEMA sealpoint_threads CASCADE")


def test_a_command_loads_what_it_uses(url: str, threads: PostgresThreadStore, tmp_path: Path) -> None:
    serde = EncryptedSerializer.from_key_file(write_rings(tmp_path))
    with PostgresSaver.from_conn_string(url) as saver:
        play(SealedSaver(saver, serde=serde, threads=threads, allow_shared_role=True), "t")
    found = lines_of(tmp_path, [line.format(at(url)) for line in RUNS])
    assert {words: number for words, number in found.items() if number > LARGEST} == {}
