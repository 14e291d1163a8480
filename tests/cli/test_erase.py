"""`sealpoint erase` and `erasures --again`, on what real savers and stores of LangGraph wrote."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.sqlite.base import VECTOR_MIGRATIONS

from sealpoint.admin.evidence.erasure import Erasure, hmac_of
from sealpoint.admin.maintenance import erase
from sealpoint.admin.results.exits import Exit
from sealpoint.base import uuid6
from sealpoint.errors import ThreadStoreDownError
from sealpoint.keys.ringfile import RingFile
from sealpoint.seal.heads import Kind
from sealpoint.threads import SqliteThreadStore
from tests.cli.conftest import Ended, Run
from tests.postgres.test_commands import at
from tests.support.databases.erasing import STEPS, Agents, make_ring
from tests.support.servers.postgres import schema, server, started
from tests.support.servers.standby import Standby

ALICE = "alice"
SOURCE = 'source = { file = "index.key" }'
KINDS = ("sqlite", "postgres")
APPLY = ("--apply", "--json")
Make = Callable[..., Agents]


@pytest.fixture(params=KINDS)
def make(
    request: pytest.FixtureRequest, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Makes a ring with a ledger, and agents on a database of each kind; the ring is named."""
    monkeypatch.setenv("SEALPOINT_KEYS", str(tmp_path / "keys.toml"))
    monkeypatch.chdir(tmp_path)

    def made(
        database: str, *, threads: bool = False, ledger: bool = True, pseudonyms: bool = False
    ) -> Agents:
        store = tmp_path / "threads.db" if threads else None
        ring = make_ring(tmp_path, ledger=ledger, threads=store)
        if ledger:
            assert run("ledger", "init").code == Exit.DONE
        return Agents(database, ring, pseudonyms, store)

    if request.param == "sqlite":
        yield lambda **options: made(str(tmp_path / "state.db"), **options)
        return
    own = nullcontext(server(request.config)) if request.param == "postgres" else started()
    with own as dsn, schema(dsn) as found:
        yield lambda **options: made(at(found), **options)


@pytest.fixture
def agents(make: Make) -> Agents:
    """Agents with two threads, and items of two users."""
    return filled(make())


def filled(agents: Agents) -> Agents:
    for thread_id in (ALICE, "bob"):
        agents.talk(thread_id)
    with agents.store() as store:
        for user in ("ada", "adam"):
            store.put(("users", user), "k", {"a": user})
            store.put(("users", user, "notes"), "k", {"a": user})
    return agents


def entries() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("ledger/entries.jsonl").read_text().splitlines()]


def document(found: dict[str, Any]) -> Erasure:
    name = found["recorded"].removeprefix("sha256:")
    (file,) = [each for each in Path("ledger").rglob("*") if name in each.name]
    return Erasure.parse(file.read_bytes())


def test_erases_a_thread_and_nothing_else(run: Run, agents: Agents) -> None:
    before = agents.rows()
    own = {place: rows for place, rows in before.items() if place[1] == ALICE}
    plan = run("erase", agents.database, "--thread", ALICE, "--json")
    assert (plan.code, plan.document["applied"], plan.document["ok"]) == (Exit.DONE, False, None)
    assert (agents.rows(), plan.document["recorded"]) == (before, None)
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    found = ended.document
    assert (ended.code, found["ok"], found["missing"], found["looks"]) == (Exit.DONE, True, [], 2)
    assert found["rows"] == plan.document["rows"]
    assert {table: sum(keys.values()) for table, keys in found["rows"].items()} == {
        table: rows for (table, _), rows in own.items()
    }
    assert found["rows"]["checkpoints"] == {"k1": STEPS}
    assert agents.rows() == {place: rows for place, rows in before.items() if place not in own}
    assert agents.values("bob") == [[f"bob {step}"] for step in reversed(range(STEPS))]
    assert run("verify", agents.database).code == Exit.DONE


@pytest.mark.parametrize("pseudonyms", [False, True])
def test_erases_a_namespace_with_all_below(run: Run, make: Make, pseudonyms: bool) -> None:
    agents = filled(make(pseudonyms=pseudonyms))
    before = agents.rows()
    ended = run("erase", agents.database, "--store-namespace", "users.ada", *APPLY)
    assert (ended.code, ended.document["rows"]) == (Exit.DONE, {"store": {"k1": 2}})
    assert agents.rows().total() == before.total() - 2
    with agents.store() as store:
        assert sorted(item.namespace for item in store.search(("users",))) == [
            ("users", "adam"),
            ("users", "adam", "notes"),
        ]
    assert document(ended.document).namespaces[0].last is not None


@pytest.mark.parametrize(("pseudonyms", "threads"), [(False, False), (True, True)])
def test_erases_a_thread_under_each_of_its_names(
    run: Run, make: Make, pseudonyms: bool, threads: bool
) -> None:
    agents = make(threads=threads, pseudonyms=pseudonyms)
    Agents(agents.database, agents.ring, False, agents.threads).talk(ALICE)
    other = Agents(agents.database, agents.ring, True, agents.threads)
    other.talk("bob")
    ended = run("erase", agents.database, "--thread", ALICE, "--thread", "bob", *APPLY)
    assert (ended.code, ended.document["threads"]) == (Exit.DONE, 2)
    assert agents.rows() == {}
    if threads:
        assert agents.threads is not None
        with closing(SqliteThreadStore(agents.threads)) as store:
            heads = [*store.heads()]
        assert (len(heads), {head.kind for head in heads}) == (2 * STEPS, {Kind.DELETED})
        assert run("verify", agents.database, "--allow-unproven").code == Exit.DONE


def test_the_ledger_has_it(run: Run, agents: Agents) -> None:
    ids = agents.talk("carol")
    options = ["--reason", "asked for", "--due", "30", "--sealed-since", "2026-01-01"]
    ended = run("erase", agents.database, "--thread", "carol", *options, *APPLY)
    found = document(ended.document)
    hmac = hmac_of(RingFile(agents.ring))
    (thread,) = found.threads
    assert (thread.names[0], thread.last, found.reason) == (hmac("carol"), ids[-1], "asked for")
    assert (found.due, found.sealed_since) == (ended.document["due"], "2026-01-01")
    assert [(key.id, key.state) for key in found.keys] == [("k1", "active"), ("k2", "staged")]
    assert found.counts == ended.document["rows"]
    begun, done = entries()[-2:]
    assert (begun["event"], begun["outcome"], begun["documents"]) == (
        "erase.begin",
        "begun",
        [ended.document["recorded"]],
    )
    assert (done["event"], done["outcome"]) == ("erase.end", "done")
    assert (done["counts"]["erased"], done["counts"]["looks"]) == (
        ended.document["erased"],
        ended.document["looks"],
    )
    assert "carol" not in "".join(each.read_text() for each in Path("ledger").rglob("*") if each.is_file())
    (one,) = run("erasures", "--json", "--allow-unproven").document["erasures"]
    assert (one["state"], one["keys"], one["threads"]) == (
        "cannot be completed by keys",
        ["k1", "k2"],
        1,
    )


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_files_of_one_name_are_told_apart(
    run: Run, agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of tenants, in a folder each: what was erased from one is not taken as erased from the other."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copyfile(agents.database, other / "state.db")
    first = run("erase", "state.db", "--thread", ALICE, *APPLY)
    assert document(first.document).database == str(tmp_path / "state.db")
    monkeypatch.chdir(other)
    second = run("erase", "state.db", "--thread", ALICE, *APPLY)
    monkeypatch.chdir(tmp_path)
    assert document(second.document).database == str(other / "state.db")


def test_nothing_is_recorded_without_a_ledger(run: Run, make: Make) -> None:
    agents = filled(make(ledger=False))
    refused = run("erase", agents.database, "--thread", ALICE, "--due", "30", "--apply")
    assert (refused.code, "names no ledger" in refused.err) == (Exit.USAGE, True)
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    assert (ended.code, ended.document["recorded"], ended.document["ok"]) == (Exit.DONE, None, True)
    text = run("erase", agents.database, "--thread", "bob", "--apply")
    assert "not recorded" in text.out
    assert {"alice", "bob"}.isdisjoint(agents.owners())


def test_an_id_that_is_not_there_is_not_erased(run: Run, agents: Agents) -> None:
    before, recorded = agents.rows(), entries()
    words = ("erase", agents.database, "--thread", "alise", "--thread", ALICE, "--store-namespace", "use")
    for more in ((), ("--apply",)):
        ended = run(*words, *more)
        assert (ended.code, "no rows of 'alise', 'use'" in ended.err) == (Exit.USAGE, True)
    assert (agents.rows(), entries()) == (before, recorded)
    ended = run(*words, "--allow-missing", *APPLY)
    assert (ended.code, ended.document["missing"]) == (Exit.DONE, ["alise", "use"])
    assert ALICE not in agents.owners()
    assert entries()[-1]["waived"] == ["missing"]


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_a_file_of_threads(run: Run, agents: Agents, tmp_path: Path) -> None:
    agents.talk("a\nb")
    file = tmp_path / "ids"
    file.write_text("alice\na\\nb\nalice\n")
    ended = run("erase", agents.database, "--threads-file", file, *APPLY)
    assert (ended.code, ended.document["threads"]) == (Exit.DONE, 2)
    assert agents.owners().isdisjoint({ALICE, "a\nb"})


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda file: None, "No such file"),
    "a folder": (Path.mkdir, "Is a directory"),
    "empty": (Path.touch, "line 1 is not an id as printed"),
    "an empty line": (lambda file: file.write_text("alice\n\nbob\n"), "line 2 is not an id as printed"),
    "a BOM": (lambda file: file.write_text("\ufeffalice\n", "utf-8"), "line 1 is not an id as printed"),
    "Latin-1": (lambda file: file.write_bytes(b"alice\n\xe9\n"), "line 2 is not an id as printed"),
    "a backslash": (lambda file: file.write_text("alice\na\\b\n"), "contains an invalid escape"),
}


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_of_threads_erases_nothing(run: Run, agents: Agents, tmp_path: Path, case: str) -> None:
    create, words = FILES[case]
    create(tmp_path / "ids")
    ended = run("erase", agents.database, "--threads-file", tmp_path / "ids", "--allow-missing", "--apply")
    assert (ended.code, words in ended.err) == (Exit.USAGE, True), ended.err
    assert ALICE in agents.owners()


OPTIONS: dict[str, list[str]] = {
    "no name": [],
    "an empty label": ["--store-namespace", "users..ada"],
    "no namespace": ["--store-namespace", ""],
    "no date": ["--thread", ALICE, "--sealed-since", "yesterday"],
    "a negative date": ["--thread", ALICE, "--due", "-1"],
}


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_erase_nothing(run: Run, agents: Agents, case: str) -> None:
    before = agents.rows()
    assert run("erase", agents.database, *OPTIONS[case], "--apply").code == Exit.USAGE
    assert agents.rows() == before


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_a_thread_store_that_is_not_there_prevents_it(run: Run, make: Make) -> None:
    agents = filled(make(threads=True))
    assert agents.threads is not None
    before, recorded = agents.rows(), entries()
    agents.threads.rename(agents.threads.with_name("away"))
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.USAGE
    assert (agents.rows(), entries()) == (before, recorded)


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_embeddings_go_too(run: Run, make: Make) -> None:
    agents = filled(make())
    with closing(sqlite3.connect(agents.database)) as connection:
        connection.executescript(VECTOR_MIGRATIONS[0])
        connection.execute(
            "INSERT INTO store_vectors (prefix, key, field_name) VALUES ('users.ada', 'k', 'x'),"
            " ('users.ada', 'left behind', 'x'), ('users.adam', 'k', 'x')"
        )
        connection.commit()
    ended = run("erase", agents.database, "--store-namespace", "users.ada", *APPLY)
    assert ended.document["rows"] == {"store": {"k1": 2}, "store_vectors": {"not sealed": 2}}
    assert agents.rows()["store_vectors", "users.adam"] == 1


def test_looks_until_nothing_is_left(run: Run, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer stores a checkpoint behind each of the first looks; one that never ends is an end, too."""
    monkeypatch.setattr(erase, "MAX_PAUSE_SECONDS", 0)
    looks, late = erase.Erasing._record, 3

    def record(self: erase.Erasing) -> int:
        found = looks(self)
        if self.looks <= late and found == 0:
            agents.talk(ALICE, "late", steps=1)
        return found

    monkeypatch.setattr(erase.Erasing, "_record", record)
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    assert (ended.code, ended.document["looks"] > late) == (Exit.DONE, True)
    assert ALICE not in agents.owners()
    late = 10**9
    agents.talk(ALICE)
    monkeypatch.setattr(erase, "MAX_LOOKS", 5)
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    assert (ended.code, ended.document["ok"], ended.document["looks"]) == (Exit.STOPPED, None, 5)
    assert "stop the agents" in ended.err
    assert entries()[-1]["outcome"] == "stopped"


def test_ctrl_c_ends_it_where_it_is(run: Run, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch after it goes, the ledger does not say that it is done, and the next run completes it."""
    genuine, before = erase.Deletion._delete, agents.rows()

    def delete(self: erase.Deletion, table: str, rows: Any, stop: Any) -> None:
        genuine(self, table, rows, stop)
        if rows and not stop.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(erase.Deletion, "_delete", delete)
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    assert (ended.code, ended.document["ok"], ended.document["reasons"]) == (7, None, ["ended-early"])
    assert 0 < before.total() - agents.rows().total() == ended.document["erased"]
    assert (entries()[-1]["outcome"], entries()[-1]["counts"]["erased"]) == (
        "stopped",
        ended.document["erased"],
    )
    assert run("erasures", "--json", "--allow-unproven").document["erasures"][0]["state"] == "not ended"
    monkeypatch.setattr(erase.Deletion, "_delete", genuine)
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    assert ALICE not in {name for table, name in agents.rows()}


def test_a_thread_store_that_fails_ends_it_before_any_row_goes(
    run: Run, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = filled(make(threads=True))
    before = agents.rows()

    def fail(*_: object) -> None:
        raise ThreadStoreDownError("it is gone")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteThreadStore, "delete_thread", fail)
        assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.STOPPED
    assert (agents.rows(), entries()[-1]["outcome"]) == (before, "stopped")
    ended = run("erase", agents.database, "--thread", ALICE, "--apply")
    assert (ended.code, "until `sealpoint heads trim`" in ended.err) == (Exit.DONE, True)


# --- keys -----------------------------------------------------------------------------------------


def copy_of(agents: Agents, tmp_path: Path) -> str:
    """A copy of the database as it is: of a file with the log that is not yet in it, or of a schema."""
    if agents.is_file:
        copy = tmp_path / "copy.db"
        with agents.connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("UPDATE checkpoints SET type = type WHERE 1")
            connection.commit()
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{agents.database}{suffix}", f"{copy}{suffix}")
        return str(copy)
    with agents.connected() as connection:
        (name,) = connection.execute("SELECT current_schema() AS name").fetchone().values()
        connection.execute(f"CREATE SCHEMA {name}_threads")  # which the fixture drops, too
        for table in ("checkpoints", "checkpoint_writes", "checkpoint_blobs", "checkpoint_migrations"):
            new = f"{name}_threads.{table}"
            connection.execute(f"CREATE TABLE {new} (LIKE {table} INCLUDING ALL)")
            connection.execute(f"INSERT INTO {new} SELECT * FROM {table}")
    return agents.database.replace(name, f"{name}_threads")


def rotate(run: Run, agents: Agents, old: str, new: str) -> None:
    for words in (
        ("keys", "promote", new, "--db", agents.database),
        ("rotate", agents.database, "--apply"),
        ("keys", "disable", old, "--db", agents.database),
    ):
        assert run(*words).code == Exit.DONE, words


def require_keys_to_go(run: Run, agents: Agents, backup: str, tmp_path: Path) -> None:
    """A backup opens until every key of the time of the erasure is destroyed; then with a copy of one."""
    forgotten = tmp_path / "forgotten"
    forgotten.mkdir()
    shutil.copyfile(agents.ring, forgotten / "keys.toml")
    for name in ("k1", "index"):
        shutil.copyfile(tmp_path / f"{name}.key", forgotten / f"{name}.key")
    text = (forgotten / "keys.toml").read_text().partition("[ledger]")[0]
    (forgotten / "keys.toml").write_text(re.sub(r"\[\[key\]\]\nid = \"k2\"(.*\n){4}", "", text))
    for file in forgotten.iterdir():
        file.chmod(0o600)
    rotate(run, agents, "k1", "k2")
    words = ("--thread", ALICE, "--sealed-since", datetime.now(UTC).date().isoformat(), "--due", "30")
    assert run("erase", agents.database, *words, "--apply").code == Exit.DONE

    def state() -> tuple[str, list[str]]:
        (found,) = run("erasures", "--json", "--allow-unproven").document["erasures"]
        return found["state"], found["keys"]

    assert state() == ("deleted", ["k1", "k2"])
    assert run("keys", "generate", "k3").code == Exit.DONE
    rotate(run, agents, "k2", "k3")
    assert run("keys", "destroy", "k2", "--yes", "--db", agents.database).code == Exit.DONE
    assert state() == ("deleted", ["k1"])
    assert run("keys", "enable", "k1").code == Exit.DONE
    assert run("verify", backup).code == Exit.DONE  # it opens, so it is not complete
    assert run("keys", "disable", "k1", "--db", agents.database).code == Exit.DONE
    assert run("keys", "destroy", "k1", "--yes", "--db", agents.database).code == Exit.DONE
    assert state() == ("complete", [])
    ended = run("verify", backup, "--json")
    assert (ended.code, ended.document["opened"]) == (Exit.KEYS, [])
    assert ended.document["failed"] == ended.document["rows"]
    opened = run("verify", backup, "--keys", forgotten / "keys.toml", "--json")
    assert (opened.code, opened.document["failed"]) == (Exit.DONE, 0)
    assert agents.values("bob") == [[f"bob {step}"] for step in reversed(range(STEPS))]
    assert run("erasures", "--again", backup, "--allow-unproven").code == Exit.FOUND
    assert state()[0] == "came back"


def test_a_backup_two_rotations_back(run: Run, make: Make, tmp_path: Path) -> None:
    agents = make()
    agents.talk(ALICE)
    agents.talk("bob")
    require_keys_to_go(run, agents, copy_of(agents, tmp_path), tmp_path)


@pytest.mark.costly
@pytest.mark.parametrize("make", ["a server of its own"], indirect=True)
def test_a_base_backup_two_rotations_back(run: Run, make: Make, tmp_path: Path) -> None:
    """The files of the server, as they are restored."""
    agents = make()
    agents.talk(ALICE)
    agents.talk("bob")
    with tempfile.TemporaryDirectory(prefix="sealpoint-") as folder:
        backup = Standby(agents.database, Path(folder))
        try:
            backup.promote()
            require_keys_to_go(run, agents, at(backup.url), tmp_path)
        finally:
            backup.stop()


# --- again ----------------------------------------------------------------------------------------


def again(run: Run, agents: Agents, *more: str) -> Ended:
    return run("erasures", "--again", agents.database, "--allow-unproven", "--json", *more)


def back_up(agents: Agents, tmp_path: Path) -> Callable[[], None]:
    """Copy the database; the result puts back what was there, and leaves what is newer."""
    if agents.is_file:
        shutil.copyfile(agents.database, tmp_path / "backup.db")

        def restore() -> None:
            with closing(sqlite3.connect(agents.database)) as connection:
                connection.execute("ATTACH ? AS old", (str(tmp_path / "backup.db"),))
                for table in ("checkpoints", "writes", "store"):
                    connection.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM old.{table}")
                connection.commit()

        return restore
    tables = ("checkpoints", "checkpoint_writes", "checkpoint_blobs", "store")
    with agents.connected() as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE old_{table} AS SELECT * FROM {table}")

    def put_back() -> None:
        with agents.connected() as connection:
            for table in tables:
                connection.execute(f"INSERT INTO {table} SELECT * FROM old_{table} ON CONFLICT DO NOTHING")

    return put_back


@pytest.mark.parametrize(("pseudonyms", "threads"), [(False, False), (True, True)])
def test_only_what_was_erased_goes_again(
    run: Run, make: Make, tmp_path: Path, pseudonyms: bool, threads: bool
) -> None:
    """The id is in use again when the backup is restored: nothing of what is newer is lost."""
    agents = filled(make(pseudonyms=pseudonyms, threads=threads))
    whole, restore = agents.rows(), back_up(agents, tmp_path)
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    assert again(run, agents, "--apply").document["search"]["found"] == 0
    agents.talk(ALICE, "new", steps=2)
    new = agents.rows()
    found = again(run, agents, "--apply").document
    assert (found["search"]["found"], found["search"]["newer"] > 0) == (0, True)
    assert agents.rows() == new
    restore()
    ended = again(run, agents)
    assert (ended.code, ended.document["ok"]) == (Exit.FOUND, False)
    assert ended.document["reasons"][0] == "came-back"
    assert agents.rows().total() > new.total()
    done = again(run, agents, "--apply")
    assert (done.code, done.document["search"]["erased"]) == (Exit.DONE, ended.document["search"]["found"])
    assert agents.rows() == new
    assert agents.values(ALICE) == [["new alice 1"], ["new alice 0"]]
    assert agents.values("bob") == [[f"bob {step}"] for step in reversed(range(STEPS))]
    assert whole.total() > 0
    assert again(run, agents).code == Exit.DONE


def test_new_rows_on_top_of_a_backup_stay(run: Run, agents: Agents, tmp_path: Path) -> None:
    """Also the values that they share with old rows. One that continues an old one is shown."""
    restore = back_up(agents, tmp_path)
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    restore()
    with agents.saver() as saver:
        config: Any = {"configurable": {"thread_id": ALICE, "checkpoint_ns": ""}}
        last = saver.get_tuple(config)
        checkpoint = {**last.checkpoint, "id": str(uuid6())}
        versions = {**checkpoint["channel_versions"], "more": "1"}
        checkpoint |= {"channel_versions": versions}
        checkpoint["channel_values"] = {**checkpoint["channel_values"], "more": ["new"]}
        saver.put(last.config, checkpoint, {"source": "loop", "step": 9}, {"more": "1"})
    done = again(run, agents, "--apply").document["search"]
    assert done["found"] == done["erased"] + 1
    with agents.saver() as saver:
        (left,) = saver.list(config)
    assert left.checkpoint["channel_values"] == {"said": [f"{ALICE} 2"], "more": ["new"]}


def test_what_a_run_wrote_that_was_under_way_is_shown(run: Run, agents: Agents) -> None:
    """As one does with ``durability="exit"``: one checkpoint, after the end, with the state from before."""
    config: Any = {"configurable": {"thread_id": ALICE, "checkpoint_ns": ""}}
    with agents.saver() as saver:
        last = saver.get_tuple(config)
        assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
        checkpoint = {**last.checkpoint, "id": str(uuid6())}
        saver.put(last.config, checkpoint, {"source": "loop", "step": 9}, checkpoint["channel_versions"])
    wrote = agents.rows()
    ended = again(run, agents, "--apply")
    assert ended.code == Exit.FOUND
    assert ended.document["reasons"][0] == "came-back"
    assert (ended.document["search"]["found"], ended.document["search"]["erased"]) == (1, 0)
    assert agents.rows() == wrote
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    assert again(run, agents).code == Exit.DONE


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_with_another_index_key_nothing_is_shown(run: Run, agents: Agents, tmp_path: Path) -> None:
    """It makes other HMACs: all of it is back, and none is found."""
    restore = back_up(agents, tmp_path)
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    restore()
    text = agents.ring.read_text()
    begin = text.index("[[index]]")
    end = text.find("\n[", begin + 1)
    agents.ring.write_text(text[:begin] + (text[end + 1 :] if end > 0 else ""))
    (tmp_path / "index.key").unlink()
    assert run("keys", "generate", "--index").code == Exit.DONE
    ended = again(run, agents)
    assert (ended.document["search"]["found"], ended.document["ok"]) == (0, None)
    assert "not-compared" in ended.document["reasons"]


def test_items_of_a_namespace_that_had_none_are_newer(
    run: Run, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who comes later: their items are not back."""
    words = ("--thread", ALICE, "--store-namespace", "users.eve", "--allow-missing", "--apply")
    with monkeypatch.context() as patch:
        patch.setattr("sealpoint.admin.evidence.recorder.now", lambda: "2026-01-01T00:00:00Z")
        assert run("erase", agents.database, *words).code == Exit.DONE
    with agents.store() as store:
        store.put(("users", "eve"), "k", {"a": "new"})
    ended = again(run, agents)
    assert (ended.code, ended.document["search"]["newer"]) == (Exit.DONE, 1)


def test_what_no_id_tells_is_shown(run: Run, agents: Agents, tmp_path: Path) -> None:
    """Ids that LangGraph did not make, and items."""
    restore = back_up(agents, tmp_path)
    words = ("--thread", ALICE, "--store-namespace", "users.ada")
    assert run("erase", agents.database, *words, "--apply").code == Exit.DONE
    restore()
    with agents.connected() as connection:
        rename(connection, agents)
    before = agents.rows()
    ended = again(run, agents, "--apply")
    assert (ended.code, ended.document["reasons"][0]) == (Exit.FOUND, "came-back")
    assert ended.document["search"]["found"] > ended.document["search"]["erased"]
    assert {place for place in before if place not in agents.rows()} == set()
    assert ended.document["erasures"][0]["state"] == "came back"
    end = entries()[-1]
    assert (end["event"], end["subject"]["erasure"]) == (
        "erase.again",
        [ended.document["erasures"][0]["document"]],
    )


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
@pytest.mark.parametrize("when", ["before", "after"])
def test_without_the_index_key_nothing_is_shown(run: Run, agents: Agents, tmp_path: Path, when: str) -> None:
    """Neither if the ring had none when it was erased, nor if it has none when it is looked for."""
    restore, text = back_up(agents, tmp_path), agents.ring.read_text()

    def take_index() -> None:
        agents.ring.write_text(
            text.replace("[[index]]\nid", "# [[index]]\n# id").replace(SOURCE, f"# {SOURCE}")
        )

    if when == "before":
        take_index()
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    restore()
    if when == "after":
        take_index()
    ended = run("erasures", "--again", agents.database, "--json")
    assert (ended.code, "not-compared" in ended.document["reasons"]) == (Exit.FOUND, True)


def rename(connection: Any, agents: Agents) -> None:
    tables = ("checkpoints", "writes") if agents.is_file else ("checkpoints", "checkpoint_writes")
    for table in tables:
        connection.execute(
            f"UPDATE {table} SET checkpoint_id = 'x' || checkpoint_id WHERE thread_id = 'alice'"
        )
    if agents.is_file:
        connection.commit()


def test_an_id_of_the_future_lets_nothing_be_erased(run: Run, agents: Agents) -> None:
    """A forged id that is greater than all would else make every later conversation an old one."""
    last = "ffffffff-ffff-6fff-bfff-ffffffffffff"
    with agents.connected() as connection:
        table = "writes" if agents.is_file else "checkpoint_writes"
        greatest = "(SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'alice')"
        change = f"UPDATE {table} SET checkpoint_id = '{last}'"
        connection.execute(f"{change} WHERE thread_id = 'alice' AND checkpoint_id = {greatest}")
        if agents.is_file:
            connection.commit()
    ended = run("erase", agents.database, "--thread", ALICE, *APPLY)
    assert document(ended.document).threads[0].last is None
    agents.talk(ALICE, "new")
    new = agents.rows()
    again(run, agents, "--apply")
    assert agents.rows() == new


def test_a_thread_and_a_namespace_of_one_name_are_two(run: Run, agents: Agents) -> None:
    with agents.store() as store:
        store.put((ALICE,), "k", {"a": 1})
    assert run("erase", agents.database, "--thread", "users", "--apply").code == Exit.USAGE
    assert run("erase", agents.database, "--store-namespace", "bob", "--apply").code == Exit.USAGE
    assert run("erase", agents.database, "--thread", ALICE, "--apply").code == Exit.DONE
    assert {table for table, name in agents.rows() if name == ALICE} == {"store"}
    agents.talk("users")
    assert run("erase", agents.database, "--store-namespace", "users", "--apply").code == Exit.DONE
    before = agents.rows()
    assert again(run, agents, "--apply").document["search"]["found"] == 0
    assert agents.rows() == before
    ended = run("erase", agents.database, "--store-namespace", ALICE, "--thread", "bob", *APPLY)
    assert (ended.code, ended.document["missing"]) == (Exit.DONE, [])
