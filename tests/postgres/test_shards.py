"""Ranges of threads: disjoint and complete whatever the ids are, held side by side, and merged."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sealpoint.admin.cli.app import run as run_program
from sealpoint.admin.databases.postgres.bounds import find_bounds
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.shards import Shard, new_run
from sealpoint.errors import HeldError, StoppedError
from tests.cli.conftest import Ended
from tests.cli.test_recording import TABLE
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.partitions import partition
from tests.support.databases.postgres import (
    K1,
    blobs,
    contents,
    make_store,
    opened,
    put_blobs,
    put_items,
    put_writes,
    saver_at,
)
from tests.support.keys.rings import states_text, write
from tests.support.runs.extent import by_extent

VALUE = K1.seal("msgpack", b"\x01")
HOSTILE = (
    "-rf /",
    "--apply",
    "'; DROP",
    '"',
    "\\x41",
    "a b\t\n",
    "\x1b[31m",
    "é",
    "🔒" * 70,
    "{}%s%%",
    "$(i)",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
Run = Callable[..., Ended]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring that names a ledger."""
    file = write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only") + TABLE)
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    assert run_program(["ledger", "init"]) == Exit.DONE
    return file


@pytest.fixture
def run(url: str, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the database."""
    parts = {key: value for key, value in conninfo_to_dict(url).items() if key != "password"}
    monkeypatch.setenv("DB", f"postgresql:///?{urlencode(parts, quote_via=quote)}")

    def call(*words: object) -> Ended:
        capsys.readouterr()
        named = [] if words[0] in ("merge", "ledger") else ["--db-env", "DB"]
        return Ended(run_program([*map(str, words), *named]), *capsys.readouterr())

    return call


def put(url: str, threads: list[str], channel: str = "c") -> None:
    put_blobs(url, [(thread, "", channel, f"{place}", *VALUE) for place, thread in enumerate(threads)])


def lines(ended: Ended) -> list[list[str]]:
    """The options of each range, as a shell reads them."""
    assert ended.code == Exit.DONE
    return [shlex.split(line) for line in ended.out.splitlines()]


def rows(ended: Ended) -> int:
    return sum(share["rows"] for share in ended.document["databases"][0]["shares"])


def test_ranges_of_hostile_ids_are_pasted_into_a_shell(url: str, run: Run, tmp_path: Path) -> None:
    """Each value is resealed once, by the range that has it, and the results are one verdict."""
    put(url, [*HOSTILE, "x" * 2000, "y"])
    values = opened(url)
    shown = run("shards", "--count", 5)
    assert all(line.isprintable() and len(line) < 1000 for line in shown.out.splitlines())
    files = list[Path]()
    for options in reversed(lines(shown)):
        processes = 1 if files else 2
        ended = run("rotate", "--apply", "--workers", processes, *options, "--json")
        assert (ended.code, ended.document["ok"], ended.document["left"]) == (Exit.DONE, True, 0)
        assert 0 < ended.document["resealed"] < 5
        files.append(tmp_path / f"{len(files)}.json")
        files[-1].write_text(ended.out, encoding="utf-8")
    assert (len(files), opened(url)) == (5, values)
    assert all(tag.endswith("@k2") for tag, _ in contents(url).values())
    vkey = tmp_path / "ledger" / "vkey"
    merged = run("merge", *files, "--vkey", vkey, "--json")
    assert (merged.code, merged.document["ok"]) == (Exit.DONE, True)
    for words, reason in (
        ((*files[1:], "--vkey", vkey), "ranges-missing"),
        ((*files, files[2], "--vkey", vkey), "ranges-overlap"),
        ((*files, vkey, "--vkey", vkey), "not-a-result"),
        (files, "signer-not-given"),
    ):
        merged = run("merge", *words, "--json")
        assert (merged.code, merged.document["ok"]) == (Exit.FOUND, None)
        assert reason in merged.document["reasons"]
    assert run("merge", *files, tmp_path / "none", "--vkey", vkey).code == Exit.USAGE
    entries = (tmp_path / "ledger" / "entries.jsonl").read_bytes().splitlines()
    recorded = [json.loads(entry)["subject"].keys() & {"run", "result"} for entry in entries]
    assert (recorded.count({"run"}), recorded.count({"run", "result"})) == (5, 5)
    ledger = b"".join(file.read_bytes() for file in (tmp_path / "ledger").rglob("*") if file.is_file())
    assert b"threads_from" not in ledger
    for thread in HOSTILE:
        assert json.dumps(thread)[1:-1].encode() not in ledger or len(thread) < 4


def test_objects_are_as_the_schema_has_them(url: str, run: Run) -> None:
    put(url, ["a", "b", "c"])
    shown = run("shards", "--count", 9, "--json")
    ranges = shown.document["ranges"]
    assert [(each["threads_from"], each["threads_below"]) for each in ranges] == [
        (None, "b"),
        ("b", "c"),
        ("c", None),
    ]
    assert shown.document["ok"] is None
    assert "3 ranges" in shown.err
    for command, ok in (("status", None), ("verify", True), ("rotate", None), ("rebind", None)):
        ended = run(command, *ranges[1]["arguments"], "--json")
        shard = ended.document["shard"]
        assert ended.document["ok"] is ok
        assert len(shard.pop("salt")) == 32
        bounds = {"threads_from": "b", "threads_below": "c"}
        assert shard == {"run": shown.document["run"], "command": command, **bounds}


@settings(
    max_examples=by_extent(12, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(threads=st.lists(TEXTS.filter(bool), min_size=1), number=st.integers(1, 6), others=st.lists(TEXTS))
def test_each_thread_is_in_one_range(url: str, threads: list[str], number: int, others: list[str]) -> None:
    """Also those that are written after the ranges were made, whatever their ids are."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE checkpoint_blobs")
    put(url, threads)
    with closing(PostgresRows(url)) as store:
        bounds = find_bounds(store, number)
    assert len(bounds) < min(number, len({*threads}) + 1)
    put(url, others, "later")
    found = list[tuple[Any, ...]]()
    for start, below in zip([None, *bounds], [*bounds, None], strict=True):
        with closing(PostgresRows(url, shard=Shard(new_run(), "status", start, below))) as store:
            cells = [cell.where.key for cell in store.read(store.columns[0], None).cells]
            assert sum(count.rows for count in store.count()) == len(cells)
            found += cells
    with closing(PostgresRows(url)) as store:
        assert found == [cell.where.key for cell in store.read(store.columns[0], None).cells]


@pytest.mark.parametrize("partitioning", [None, "hash of thread_id", "range of thread_id"])
def test_ranges_are_about_equal(url: str, partitioning: str | None) -> None:
    if partitioning is not None:
        partition(url, partitioning)
    put(url, [f"{number:04}" for number in range(1000) for _ in range(1 + number % 3)])
    with closing(PostgresRows(url)) as store:
        bounds = find_bounds(store, 8)
    assert len(bounds) == 7
    put_writes(url, [])
    for start, below in zip([None, *bounds], [*bounds, None], strict=True):
        with closing(PostgresRows(url, shard=Shard(new_run(), "status", start, below))) as store:
            assert abs(sum(count.rows for count in store.count()) - 2000 / 8) < 5


def test_items_are_of_the_range_without_a_start(url: str, run: Run) -> None:
    make_store(url)
    put(url, ["a", "b"])
    put_items(url, [("p", "k", "{}")])
    first, second = lines(run("shards", "--count", 2))
    assert [rows(run("status", *options, "--json")) for options in (first, second)] == [2, 1]
    assert run("rebind", "--allow-plaintext", "--apply", *second, "--json").document["left"] == 0
    assert run("rebind", "--allow-plaintext", "--apply", *first, "--json").document["left"] == 0
    for options, values in ((first, 2), (second, 1)):
        ended = run("verify", *options, "--json")
        assert (ended.code, ended.document["rows"]) == (Exit.DONE, values), ended.err


def test_database_without_threads_has_one_range(url: str, run: Run) -> None:
    ((option,),) = lines(run("shards", "--count", 3))
    assert run("rotate", "--apply", option).code == Exit.DONE


@pytest.mark.parametrize("checks", ["rebind", "verify"])
def test_a_range_of_whole_threads(url: str, run: Run, checks: str) -> None:
    """Checkpoints, their values and writes are in one range, and sentinels are of its threads alone."""
    with saver_at(PostgresSaver, url, K1) as saver:
        for thread in ("a", "b", "c"):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            values = {"channel_values": {"x": [1]}, "channel_versions": {"x": "1"}, "versions_seen": {}}
            checkpoint: Any = {"v": 4, "id": "1", "ts": "", **values}
            config = saver.put(config, checkpoint, {}, {"x": "1"})
            saver.put_writes(config, [("x", [2])], "task")
    parts = lines(run("shards", "--count", 3))
    assert len(parts) == 3
    if checks == "verify":
        alter(
            url,
            "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{id}', '2') WHERE thread_id = 'c'",
        )
        found = [run("verify", *options, "--json").document for options in parts]
        assert [(each["rows"], each["failed"]) for each in found] == [(2, 0), (2, 0), (2, 1)]
        return
    assert run("rebind", "--apply", *parts[1], "--json").document["ok"] is True
    assert {place[1] for place, (tag, _) in contents(url).items() if ".row" in tag} == {"b"}
    assert run("rebind", "--apply", "--unbind", *parts[0], "--json").document["changed"] == 0
    assert run("rebind", "--apply", "--unbind", *parts[1], "--json").document["ok"] is True
    assert not any(".row" in tag for tag, _ in contents(url).values())


# --- holds ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(url: str, *shard: str | None, command: str = "rotate") -> Iterator[None]:
    """Hold a database, or a range: its run, start and end."""
    named = Shard(str(shard[0]), command, *shard[1:]) if shard else None
    with closing(PostgresRows(url, shard=named)) as store, store.hold():
        yield


def refusal(url: str, *shard: str | None, command: str = "rotate") -> str:
    with pytest.raises(HeldError) as caught, held(url, *shard, command=command):
        pass
    return str(caught.value).partition("\n")[0]


def test_ranges_of_one_run_are_held_side_by_side(url: str) -> None:
    """And nothing else is: the refusal names what is held."""
    this, other = new_run(), new_run()
    with held(url, this, None, "b"), held(url, this, "b", "c"):
        for refused, command in (
            ((this, None, None), "rotate"),
            ((this, "a", "bb"), "rotate"),
            ((this, "b", "c"), "rotate"),
            ((this, "c", None), "rebind"),
            ((other, "c", None), "rotate"),
            ((), "rotate"),
        ):
            said = refusal(url, *refused, command=command)
            assert re.search(rf"session \d+ of 'sealpoint' \(run '{this}', command 'rotate', ", said)
            assert "threads_below 'b'" in said or "threads_from 'b', threads_below 'c'" in said
        with held(url, this, "c", None):
            pass
    with closing(PostgresRows(url)) as store:
        for shard in ((), (other, None, "x")):  # all are released, also by a session that stays
            with held(url, *shard), contextlib.suppress(HeldError), store.hold():
                pass
            with store.hold():
                pass
    with held(url):
        assert re.search(r"session \d+ of 'sealpoint'$", refusal(url, this, None, "b"))


def test_a_holder_that_is_killed_holds_nothing(url: str) -> None:
    shard = (new_run(), "a", "b")
    with ExitStack() as stack, psycopg.connect(url) as admin:
        stack.enter_context(held(url, *shard))
        pid = refusal(url, *shard).partition("session ")[2].split()[0]
        admin.execute("SELECT pg_terminate_backend(%s::int, 10000)", (pid,))
        with held(url, *shard):
            pass
        with pytest.raises(StoppedError):
            stack.close()


def test_a_range_that_is_not_shown_is_excluded(url: str) -> None:
    """Of another role, whose statements the server does not show. Ids that look like a mark are none."""
    name, schema, this = f"{schema_of(url)}_role", schema_of(url), new_run()
    alter(url, f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {name};")
    alter(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name};")
    try:
        with held(url, this, None, "b"):
            said = refusal(make_conninfo(url, user=name), this, "b", None)
            assert re.search(r"session \d+ of 'sealpoint'$", said)
        with held(url, this, None, "*/ /* sealpoint"), held(url, this, "*/ /* sealpoint", None):
            pass
    finally:
        alter(url, f"DROP OWNED BY {name}; DROP ROLE {name};")


def test_a_range_is_refused_where_there_is_none(url: str, run: Run, tmp_path: Path) -> None:
    put(url, ["a", "b"])
    this = f"--run={new_run()}"
    for words in (
        ["rotate", "--threads-from=a"],
        ["rotate", "--run=1"],
        ["rotate", "--run=0b2a1a0e-2d8a-4b0a-9d35-1b9a3f0e7a55"],
        ["rotate", this, "--threads-below="],
        ["rotate", this, f"--threads-below={'x' * 201}"],
        ["rotate", this, "--threads-below=\\x00"],
        ["rebind", this, "--thread=a"],
        ["verify", this, "--threads", tmp_path / "threads.db"],
        ["verify", this, tmp_path / "x.db"],
        ["status", this, tmp_path / "x.db"],
    ):
        ended = run(*words)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert "--run" in ended.err


def test_status_of_ranges_is_that_of_the_whole(url: str, run: Run) -> None:
    """Beside a writer it is between what there was before and what there is after."""
    put_blobs(url, blobs(99))
    parts = lines(run("shards", "--count", 3))

    def count() -> int:
        return sum(rows(run("status", *options, "--json")) for options in parts)

    assert count() == rows(run("status", "--json")) == 99
    end = threading.Event()

    def write_on() -> None:
        for number in itertools.takewhile(lambda _: not end.is_set(), itertools.count()):
            put_blobs(url, [(f"thread {number % 3}", "", "new", f"{number}", *VALUE)])

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for _ in range(3):
            before, between, after = rows(run("status", "--json")), count(), rows(run("status", "--json"))
            assert 99 <= before <= between <= after
    finally:
        end.set()
        writer.join()
    assert count() == rows(run("status", "--json")) > 99
