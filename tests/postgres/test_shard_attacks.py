"""What a range alone does not show: other keys, a lost hold, and rows that are bound in other ranges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.maintenance.job import Job
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Ended
from tests.postgres.test_schema import alter
from tests.postgres.test_shards import keys, lines, put, run
from tests.support.databases.postgres import K1, contents, put_blobs, saver_at
from tests.support.keys.rings import material_of, states_text, write

__all__ = ["keys", "run"]
Run = Callable[..., Ended]


def put_threads(url: str, *threads: str) -> None:
    """Store a checkpoint and a write of each."""
    with saver_at(PostgresSaver, url, K1) as saver:
        for thread in threads:
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            values = {"channel_values": {"x": [1]}, "channel_versions": {"x": "1"}, "versions_seen": {}}
            checkpoint: Any = {"v": 4, "id": "1", "ts": "", **values}
            config = saver.put(config, checkpoint, {}, {"x": "1"})
            saver.put_writes(config, [("x", [2])], "task")


@pytest.mark.parametrize("rebound", [[], [1], [0, 1]], ids=["none", "one", "all"])
def test_rows_that_are_bound_in_some_ranges_alone_are_not_proven(
    url: str, run: Run, tmp_path: Path, rebound: list[int]
) -> None:
    """The verdict of all ranges is that of the whole."""
    put_threads(url, "a", "b")
    parts, files = lines(run("shards", "--count", 2)), list[Path]()
    for place in rebound:
        assert run("rebind", "--apply", *parts[place], "--json").document["ok"] is True
    for options in parts:
        ended = run("verify", *options, "--json")
        assert ended.document["ok"] is True
        files.append(tmp_path / f"{len(files)}.json")
        files[-1].write_text(ended.out, encoding="utf-8")
    whole = run("verify", "--json").document
    words = ("merge", *files, "--vkey", tmp_path / "ledger" / "vkey")
    assert all(": verify: ok\n" in line for line in run(*words).out.splitlines(keepends=True)[:2])
    merged = run(*words, "--json").document
    assert (merged["ok"], merged["reasons"]) == (whole["ok"], whole["reasons"])
    assert merged["reasons"] == (["unbound"] if len(rebound) == 1 else [])


def test_range_without_sealed_values_is_not_sealed_under_the_keys_of_another_database(
    url: str, run: Run, keys: Path
) -> None:
    """The ring is tried on the rest of the database, also if the range has nothing to try it on."""
    put(url, ["a"])
    put_blobs(url, [("b", "", "c", "1", "msgpack", b"\x01")])
    sealed, plain = lines(run("shards", "--count", 2))
    before, right = contents(url), keys.read_text(encoding="utf-8")
    write(keys, states_text(k7="active"))
    for command in ("rotate", "rebind"):
        ended = run(command, "--apply", "--allow-plaintext", *plain)
        assert ended.code == Exit.KEYS
        assert "under keys that the ring does not have" in ended.err
    assert contents(url) == before
    write(keys, right)
    assert run("rotate", "--apply", "--allow-plaintext", *plain).code == Exit.DONE
    assert run("rotate", "--apply", *sealed).code == Exit.DONE
    assert {tag for tag, _ in contents(url).values()} == {"msgpack+cobblestone256@k2"}


def test_range_whose_hold_was_lost_is_not_done(url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session does nothing meanwhile: another run may have worked on the range."""
    put(url, ["a", "b"])
    verify, (_, options) = Job._verify, lines(run("shards", "--count", 2))
    ended = run("rotate", "--apply", *options, "--json")
    assert ended.document["ok"] is True

    def ending(job: Job) -> None:
        with psycopg.connect(url) as admin:
            found = admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE %s",
                ("SELECT pg_advisory_unlock%/* sealpoint % rotate %*/",),
            )
            assert found.fetchall() == [(True,)]
        verify(job)

    monkeypatch.setattr(Job, "_verify", ending)
    ended = run("rotate", "--apply", *options, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.STOPPED, None)


@pytest.mark.parametrize("command", ["verify", "rotate"])
def test_document_of_a_range_says_that_it_is_one(url: str, run: Run, tmp_path: Path, command: str) -> None:
    """The ledger's document of a range has no bounds, which are ids, and is not that of a whole database."""
    put(url, ["a", "b"])
    apply = ["--apply"] * (command == "rotate")
    _, options = lines(run("shards", "--count", 2))
    assert run(command, *apply, *options, "--json").document["ok"] is True
    assert run(command, *apply, "--json").document["ok"] is True
    folder = tmp_path / "ledger" / "documents"
    found = [json.loads(file.read_bytes())["options"] for file in folder.iterdir()]
    assert sorted(each.get("run", "") for each in found) == ["", options[0].removeprefix("--run=")]


def test_checkpoints_are_not_bound_under_the_keys_of_another_database(url: str, run: Run, keys: Path) -> None:
    """Binding seals checkpoints that no key has sealed, also of a range with nothing else."""
    put_threads(url, "a", "b")
    alter(url, "DELETE FROM checkpoint_blobs WHERE thread_id = 'b'")
    alter(url, "DELETE FROM checkpoint_writes WHERE thread_id = 'b'")
    alter(url, "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions}', '{}')")
    before, (_, options), right = contents(url), lines(run("shards", "--count", 4)), keys.read_text()
    write(keys, states_text(k7="active"))
    for words in ([], options):
        ended = run("rebind", "--apply", *words)
        assert (ended.code, ended.out) == (Exit.KEYS, "")
        assert contents(url) == before
    keys.write_text(right)
    assert run("rebind", "--apply", *options, "--json").document["ok"] is True
    assert contents(url) != before


def test_hosts_with_other_material_of_one_id_are_not_merged(
    url: str, run: Run, keys: Path, tmp_path: Path
) -> None:
    """No range has a value by which the other's key shows, and the ring file has no check values."""
    put(url, ["a", "b"])
    own, files = keys.read_text(encoding="utf-8"), list[Path]()
    other = own.replace(material_of("k2").hex(), material_of("kX").hex())
    for ring, options in zip((own, other), lines(run("shards", "--count", 2)), strict=True):
        keys.write_text(ring, encoding="utf-8")
        ended = run("rotate", "--apply", *options, "--json")
        assert ended.document["ok"] is True
        files.append(tmp_path / f"{len(files)}.json")
        files[-1].write_text(ended.out, encoding="utf-8")
    merged = run("merge", *files, "--vkey", tmp_path / "ledger" / "vkey", "--json").document
    assert (merged["ok"], merged["reasons"]) == (None, ["rings-differ"])
