"""`sealpoint erase` that is killed at any step, and under agents that write the same thread."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.cli.app import run
from sealpoint.admin.evidence import verify_ledger
from sealpoint.admin.evidence.erasure import Erasure, hmac_of
from sealpoint.admin.evidence.folder import Folder
from sealpoint.admin.maintenance import erase
from sealpoint.admin.results.exits import Exit
from sealpoint.keys.ringfile import RingFile
from sealpoint.seal.heads import Kind
from sealpoint.threads import SqliteThreadStore
from tests.faults.eraser import killed, process, write_until
from tests.postgres.test_commands import at
from tests.support.databases.erasing import Agents, make_ring
from tests.support.servers.postgres import schema, server

MOST_STEPS = 60


@pytest.fixture(params=["sqlite", "postgres"])
def agents(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Agents]:
    ring = make_ring(tmp_path, threads=tmp_path / "threads.db")
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    monkeypatch.chdir(tmp_path)
    assert run(["ledger", "init"]) == Exit.DONE
    if request.param == "sqlite":
        yield Agents(str(tmp_path / "state.db"), ring, True, tmp_path / "threads.db")
        return
    with schema(server(request.config)) as dsn:
        yield Agents(at(dsn), ring, True, tmp_path / "threads.db")


def live(agents: Agents, thread_id: str) -> bool:
    """Whether the thread store remembers a checkpoint of a thread that was not deleted."""
    with closing(SqliteThreadStore(agents.threads)) as store:  # type: ignore[arg-type]
        return any(
            head.kind is not Kind.DELETED for head in store.heads() if head.spot.thread_id == thread_id
        )


def entries(event: str) -> list[dict[str, Any]]:
    """The entries that are signed: a kill may have cut off another one."""
    head = verify_ledger(Path("ledger")).checkpoint
    lines = Path("ledger/entries.jsonl").read_bytes().splitlines()[: head.size if head else 0]
    return [entry for line in lines if (entry := json.loads(line))["event"] == event]


def require_true(agents: Agents, column: str, rows: int, before: int, *, was_live: bool) -> None:
    """Check that what the ledger says of the last run is so; ``before`` had begun before it."""
    verdict = verify_ledger(Path("ledger"))
    assert not verdict.problems, verdict
    begun, ended = entries("erase.begin"), [entry["run"] for entry in entries("erase.end")]
    left = sum(number for (_, name), number in agents.rows().items() if name == column)
    has_begun = len(begun) > before
    if has_begun and begun[-1]["run"] in ended:
        assert (left, live(agents, column)) == (0, False)
    if left < rows or live(agents, column) is not was_live:  # nothing goes that is not in the ledger
        assert has_begun
        erasure = Erasure.parse(Folder(Path("ledger")).read_document(begun[-1]["documents"][0]))
        assert hmac_of(RingFile(agents.ring))("alice") in erasure.threads[0].names


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_the_ledger_never_says_more_than_was_done(agents: Agents, kills: int) -> None:
    """Each kill is followed by a run that completes the erasure, or is killed as well."""
    chance, killings, words = (
        random.Random(kills),
        0,
        ["erase", agents.database, "--thread", "alice", "--allow-missing", "--apply"],
    )
    agents.talk("bob")
    others = agents.rows()
    where = count(1) if kills > MOST_STEPS else iter(lambda: chance.randrange(1, 40), 0)
    while killings < kills:
        agents.talk("alice")
        (column,) = {name for _, name in agents.rows()} - {name for _, name in others}
        code = 9
        while code == 9:
            rows = sum(number for (_, name), number in agents.rows().items() if name == column)
            was_live, before = live(agents, column), len(entries("erase.begin"))
            code = killed(words, next(where) % MOST_STEPS + 1, chance.randrange(1 << 30))
            assert code in (Exit.DONE, 9)
            killings += code == 9
            require_true(agents, column, rows, before, was_live=was_live)
            if chance.random() < 0.5:
                assert run(words) == Exit.DONE
                code = Exit.DONE
        assert agents.rows() == others
        assert not live(agents, column)
    assert [value[0] for value in agents.values("bob")] == ["bob 2", "bob 1", "bob 0"]
    assert run(["verify", agents.database, "--allow-unproven"]) == Exit.DONE


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seconds", [pytest.param(1, marks=pytest.mark.costly), pytest.param(20, marks=pytest.mark.soak)]
)
def test_under_writers_no_row_is_left(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """It ends while they write, and says then that it has not completed."""
    monkeypatch.setattr(erase, "MAX_LOOKS", 6)
    stop, words = (
        tmp_path / "stop",
        ["erase", agents.database, "--thread", "alice", "--allow-missing", "--apply"],
    )
    agents.talk("alice")
    agents.talk("bob")
    writers: list[Any] = []
    for number, thread_id in enumerate(("alice", "alice", "bob")):
        writers.append(process(write_until, agents, thread_id, stop, tmp_path / f"{number}.ids"))
    while agents.rows().total() < 100:  # all have begun
        time.sleep(0.1)
    end, codes = time.monotonic() + seconds, list[int]()
    while time.monotonic() < end:
        codes.append(run(words))
    stop.touch()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert {*codes} <= {Exit.DONE, Exit.STOPPED}
    assert run(words) == Exit.DONE
    (_,) = {name for table, name in agents.rows()}
    assert not live(agents, "alice")
    said = json.loads((tmp_path / "2.ids").read_text())
    with agents.saver() as saver:
        there = {found.checkpoint["id"] for found in saver.list({"configurable": {"thread_id": "bob"}})}
    assert {*said} <= there
    assert len(said) > seconds
    assert run(["verify", agents.database, "--allow-unproven"]) == Exit.DONE
