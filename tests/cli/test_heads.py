"""`sealpoint heads`, and `sealpoint verify` beside a thread store."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.results.exits import Exit
from sealpoint.errors import RolledBackError
from sealpoint.seal.heads import Kind
from sealpoint.threads import open_thread_store
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.cli.conftest import Ended, Run
from tests.postgres.test_commands import at
from tests.support.databases.bound import INDEX, SECRET, play, sealed_file, sealed_schema
from tests.support.databases.postgres import set_up
from tests.support.keys.rings import states_text
from tests.support.servers.postgres import schema, server

VARIABLE = "SEALPOINT_HEADS_URL"


@dataclass
class Scene:
    """A database of a graph, the words that name it, and its thread store."""

    words: list[str]
    database: str
    store: str
    ring: Path
    is_file: bool

    def play(self, thread_id: str, **options: Any) -> None:
        """Let a graph write a thread."""
        saver: Any = sealed_file if self.is_file else sealed_schema
        with (
            closing(open_thread_store(self.store)) as store,
            saver(self.database, threads=store, **options) as opened,
        ):
            play(opened, thread_id, runs=1)

    def sql(self, *statements: str) -> None:
        connect: Any = sqlite3.connect if self.is_file else psycopg.connect
        with closing(connect(self.database)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def name_in_ring(self, store: str) -> None:
        self.ring.write_text(f'{self.ring.read_text()}\n[threads]\nstore = "{store}"\n')


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring with an index key, and an empty thread store beside it."""
    monkeypatch.chdir(tmp_path)
    index = tmp_path / "index.key"
    index.write_text(INDEX.hex())
    index.chmod(0o600)
    ring = tmp_path / "keys.toml"
    text = states_text(k2="active", k1="decrypt-only")
    ring.write_text(f"{text}\n[[index]]\nid = 'index'\nsource = {{ file = 'index.key' }}\n")
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    SqliteThreadStore("threads.db", create=True).close()
    return ring


@pytest.fixture
def on_file(ring: Path, tmp_path: Path) -> Scene:
    """A SQLite file, where the kind of the database makes no difference."""
    made = Scene(["app.db"], str(tmp_path / "app.db"), "threads.db", ring, is_file=True)
    made.play("t")
    made.play("u")
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A database of each kind."""
    if request.param == "sqlite":
        yield request.getfixturevalue("on_file")
        return
    with schema(server(request.config)) as url:
        set_up(PostgresSaver, url)
        monkeypatch.setenv(VARIABLE, at(url))
        ring = request.getfixturevalue("ring")
        made = Scene(["--db-env", VARIABLE], url, "threads.db", ring, is_file=False)
        made.play("t")
        made.play("u")
        yield made


def require_same_text(run: Run, found: Ended, *words: object) -> None:
    """Check that the text of the same run ends with the word of the object."""
    shown = run(*words)
    assert shown.code == found.code
    starts = {True: "ok", False: "not ok: ", None: "not proven: "}
    assert shown.out.splitlines()[-1].startswith(starts[found.document["ok"]])
    assert SECRET not in shown.out + shown.err + found.out + found.err


def test_all_is_there(run: Run, scene: Scene) -> None:
    words = ["verify", *scene.words, "--threads", "threads.db"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True), ended
    heads = ended.document["heads"]
    assert heads["recorded"] > 5
    assert not any(heads[name] for name in ("not_recorded", "missing", "earlier", "put_back", "leaving"))
    require_same_text(run, ended, *words)


def test_what_is_missing_is_named(run: Run, scene: Scene) -> None:
    scene.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    words = ["verify", *scene.words, "--threads", "threads.db"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.UNOPENED, False)
    assert ended.document["reasons"] == ["heads-differ"]
    failures = ended.document["failures"]
    assert len(failures) == ended.document["heads"]["missing"] > 0
    assert {failure["error"] for failure in failures} == {"RolledBackError"}
    assert {failure["place"]["thread_id"] for failure in failures} == {"t"}
    assert all(failure["place"]["checkpoint_id"] in failure["message"] for failure in failures)
    require_same_text(run, ended, *words)
    shown = run(*words)
    assert shown.out.count(" is missing\n") == len(failures)
    assert "or a process without threads= wrote or deleted it (correct it first)" in shown.err
    assert "or a process without threads= wrote or deleted rows (correct it first)" in RolledBackError.hint
    assert shown.err.count("hint: ") == 1


def test_the_store_of_the_ring_is_used_unasked(run: Run, scene: Scene) -> None:
    scene.name_in_ring("threads.db")
    scene.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    ended = run("verify", *scene.words, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.UNOPENED, ["heads-differ"])
    SqliteThreadStore("new.db", create=True).close()
    other = run("verify", *scene.words, "--threads", "new.db", "--json")
    assert other.document["heads"]["other_store"] > 0
    assert other.document["heads"]["recorded"] == 0


def test_the_store_of_the_ring_may_be_left_out(run: Run, on_file: Scene) -> None:
    """A ring may be that of several databases, and a store is that of one."""
    on_file.name_in_ring("threads.db")
    on_file.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    ended = run("verify", "app.db", "--no-threads", "--json").document
    assert (ended["heads"], ended["options"]["no_threads"]) == (None, True)
    assert run("heads", "seal", "--pin", "pin.json").code == Exit.DONE
    for words in (["--threads", "threads.db"], ["--pin", "pin.json"]):
        both = run("verify", "app.db", "--no-threads", *words)
        assert (both.code, both.out) == (Exit.USAGE, "")
        assert "--no-threads" in both.err


def test_a_store_without_heads_shows_nothing(run: Run, on_file: Scene) -> None:
    SqliteThreadStore("new.db", create=True).close()
    on_file.sql("DELETE FROM checkpoints", "DELETE FROM writes")
    ended = run("verify", "app.db", "--threads", "new.db", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["no-rows", "no-heads"])


def test_values_without_checkpoints_show_nothing(run: Run, scene: Scene) -> None:
    """Values in a table of their own open, but no checkpoint is left to compare: all were deleted."""
    with closing(SqliteThreadStore("threads.db")) as store, opened_beside(scene, store) as saver:
        if not scene.is_file:
            scene.sql("CREATE TABLE kept AS SELECT * FROM checkpoint_blobs")
        for thread in "tu":
            saver.delete_thread(thread)
    if not scene.is_file:
        scene.sql("INSERT INTO checkpoint_blobs SELECT * FROM kept")
    words = ["verify", *scene.words, "--threads", "threads.db"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["no-rows"])
    require_same_text(run, ended, *words)


def test_verify_without_a_store_compares_nothing(run: Run, on_file: Scene) -> None:
    on_file.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    ended = run("verify", "app.db", "--json")
    assert ended.document["heads"] is None
    assert "heads-differ" not in ended.document["reasons"]
    assert run("heads", "seal", "threads.db", "--pin", "pin.json").code == Exit.DONE
    refused = run("verify", "app.db", "--pin", "pin.json")
    assert (refused.code, refused.out) == (Exit.USAGE, "")
    assert "--pin: a pin needs a thread store" in refused.err


def test_a_deleted_thread_that_was_put_back_is_named(run: Run, scene: Scene) -> None:
    postgres = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    tables = ("checkpoints", "writes") if scene.is_file else postgres
    scene.sql(*(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}" for table in tables))
    saver: Any = sealed_file if scene.is_file else sealed_schema
    with closing(SqliteThreadStore("threads.db")) as store, saver(scene.database, threads=store) as opened:
        opened.delete_thread("t")
    words = ["verify", *scene.words, "--threads", "threads.db"]
    assert run(*words, "--json").document["heads"]["put_back"] == 0
    for table in tables:
        scene.sql(f"INSERT INTO {table} SELECT * FROM kept_{table} WHERE thread_id = 't'")
    ended = run(*words, "--json")
    assert (ended.code, ended.document["reasons"][0]) == (Exit.UNOPENED, "heads-differ")
    assert ended.document["heads"]["put_back"] > 0
    assert {failure["error"] for failure in ended.document["failures"]} == {"DeletedCheckpointError"}


def test_a_deletion_that_did_not_end_is_not_proven(run: Run, on_file: Scene) -> None:
    with closing(SqliteThreadStore("threads.db")) as store:
        head = next(iter(store.heads()))
        store.append([head._replace(kind=Kind.LEAVING)])
    words = ["verify", "app.db", "--threads", "threads.db"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["deletions-interrupted"])
    assert "heads adopt" in run(*words).out
    assert run(*words, "--allow-unproven").code == Exit.DONE
    assert run("heads", "adopt", "app.db", "--threads", "threads.db", "--reason", "x").code == Exit.DONE
    assert run(*words).code == Exit.DONE


def test_rotation_and_rebind_change_no_head(run: Run, scene: Scene) -> None:
    scene.name_in_ring("threads.db")
    text = states_text(k3="active", k2="decrypt-only")
    _, index, rest = scene.ring.read_text().partition("[[index]]")
    scene.ring.write_text(text + index + rest)
    for words in (["rotate", "--apply"], ["rebind", "--apply"]):
        assert run(words[0], *scene.words, words[1], "--json").document["ok"] is True
    ended = run("verify", *scene.words, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True), ended
    assert [part["key"] for part in ended.document["opened"]] == ["k3"]
    assert ended.document["heads"]["not_recorded"] == 0


# --- adopt ----------------------------------------------------------------------------------------


def test_adopt_for_first_use(run: Run, scene: Scene) -> None:
    words = ["heads", "adopt", *scene.words, "--threads", "new.db", "--reason", "first use"]
    missing = run(*words)
    assert (missing.code, missing.out) == (Exit.USAGE, "")
    assert "--create" in missing.err
    ended = run(*words, "--create", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True), ended
    assert ended.document["adopted"]
    assert ended.document["stored"] > 5
    assert len(ended.document["other_stores"]) == 1
    checked = run("verify", *scene.words, "--threads", "new.db", "--json").document
    assert (checked["ok"], checked["heads"]["recorded"]) == (True, ended.document["stored"])
    again = run(*words, "--json").document
    assert (again["stored"], again["same"], again["other_stores"]) == (0, ended.document["stored"], [])
    with closing(open_thread_store("new.db")) as store:
        assert store.identity == ended.document["identity"]
    scene.store = "new.db"
    scene.play("v")
    assert run("verify", *scene.words, "--threads", "new.db").code == Exit.DONE


def test_adopt_after_a_backup_was_restored(run: Run, scene: Scene) -> None:
    """It asks first: what is missing is recorded as deleted."""
    scene.name_in_ring("threads.db")
    scene.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    words = ["heads", "adopt", *scene.words, "--reason", "backup of Monday"]
    refused = run(*words)
    assert (refused.code, refused.out) == (Exit.USAGE, "")
    assert "--yes" in refused.err
    assert run("verify", *scene.words).code == Exit.UNOPENED
    ended = run(*words, "--yes", "--json")
    assert (ended.document["ok"], ended.document["stored"]) == (True, 0)
    assert ended.document["deleted"] > 0
    assert ended.document["options"]["reason"] == "backup of Monday"
    assert run("verify", *scene.words).code == Exit.DONE


def test_adopt_of_an_earlier_store(run: Run, on_file: Scene) -> None:
    """It reaches the clock that the checkpoints name, and the heads that it lacks."""
    with closing(sqlite3.connect("threads.db")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    shutil.copy("threads.db", "yesterday.db")
    on_file.play("v")
    on_file.play("w")
    for file in (*Path().glob("threads.db-*"),):
        file.unlink()
    shutil.copy("yesterday.db", "threads.db")
    behind = run("verify", "app.db", "--threads", "threads.db", "--json").document
    assert behind["heads"]["not_recorded"] > 0
    adopted = run("heads", "adopt", "app.db", "--threads", "threads.db", "--reason", "x", "--json").document
    assert (adopted["stored"], adopted["deleted"]) == (behind["heads"]["not_recorded"], 0)
    assert run("verify", "app.db", "--threads", "threads.db").code == Exit.DONE


def test_nothing_is_adopted_if_a_checkpoint_does_not_open(run: Run, on_file: Scene) -> None:
    on_file.sql("UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 't'")
    words = ["heads", "adopt", "app.db", "--threads", "threads.db", "--reason", "x"]
    before = run("heads", "seal", "threads.db", "--json").document["pin"]["root"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.UNOPENED, ["values-failed"])
    assert not ended.document["adopted"]
    assert "nothing was recorded" in run(*words).out
    assert run("heads", "seal", "threads.db", "--json").document["pin"]["root"] == before


@pytest.mark.parametrize(("answer", "code"), [("yes", Exit.DONE), ("y", Exit.STOPPED), ("", Exit.STOPPED)])
@pytest.mark.parametrize(
    "line", ["adopt app.db --reason x --threads threads.db", "trim --before 2100-01-01 threads.db"]
)
def test_what_is_given_up_is_asked_on_a_terminal(
    run: Run, on_file: Scene, line: str, answer: str, code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_file.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    before = run("heads", "seal", "threads.db", "--json").document["pin"]["events"]
    ended = run("heads", *line.split())
    assert (ended.code, "To confirm, type yes:" in ended.err) == (code, True)
    after = run("heads", "seal", "threads.db", "--json").document["pin"]["events"]
    assert (before != after) == (code == Exit.DONE and line.startswith("adopt"))


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1001])
def test_adopt_wants_a_reason(run: Run, on_file: Scene, reason: str) -> None:
    ended = run("heads", "adopt", "app.db", "--threads", "threads.db", "--reason", reason)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert run("heads", "adopt", "app.db", "--threads", "threads.db").code == Exit.USAGE


# --- pins -----------------------------------------------------------------------------------------


@pytest.mark.claim("h21")
def test_both_put_back_together_are_noticed(run: Run, on_file: Scene, tmp_path: Path) -> None:
    """Without the pin they agree with each other."""
    for name in ("app.db", "threads.db"):
        shutil.copy(name, f"{name}.old")
        assert not Path(f"{name}-wal").exists() or not Path(f"{name}-wal").stat().st_size
    on_file.play("v")
    assert run("heads", "seal", "threads.db", "--pin", "pin.json").code == Exit.DONE
    words = ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json"]
    ended = run(*words, "--json")
    assert (ended.code, ended.document["pin"]) == (
        Exit.DONE,
        {name: value for name, value in json.loads(Path("pin.json").read_text()).items() if name != "pin"},
    )
    on_file.play("w")
    assert run(*words).code == Exit.DONE
    for name in ("app.db", "threads.db"):
        for file in tmp_path.glob(f"{name}-*"):
            file.unlink()
        shutil.copy(f"{name}.old", name)
    assert run(*words[:-2]).code == Exit.DONE
    ended = run(*words, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.UNOPENED, ["pin-differs"])
    require_same_text(run, ended, *words)
    on_file.play("x")  # and when the log is as long again
    on_file.play("y")
    assert run(*words, "--json").document["reasons"] == ["pin-differs"]


def test_an_edited_log_is_noticed(run: Run, on_file: Scene) -> None:
    assert run("heads", "seal", "threads.db", "--pin", "pin.json").code == Exit.DONE
    with closing(sqlite3.connect("threads.db")) as store, store:
        store.execute("UPDATE heads SET at = at - 1 WHERE seq = 3")
    words = ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json"]
    assert run(*words, "--json").document["reasons"] == ["pin-differs"]
    before = Path("pin.json").read_text()
    ended = run("heads", "seal", "threads.db", "--pin", "pin.json", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.UNOPENED, ["pin-differs"])
    assert Path("pin.json").read_text() == before


def test_a_pin_is_replaced_by_a_later_one(run: Run, on_file: Scene) -> None:
    first = run("heads", "seal", "threads.db", "--pin", "pin.json", "--json").document["pin"]
    on_file.play("v")
    second = run("heads", "seal", "threads.db", "--pin", "pin.json", "--json").document["pin"]
    assert second["events"] > first["events"]
    assert json.loads(Path("pin.json").read_text())["root"] == second["root"]
    assert [*Path().glob(".pin*")] == []
    shown = run("heads", "seal", "threads.db")
    assert f"root {second['root']}" in shown.out


def test_a_pin_by_a_link_is_that_of_the_other_volume(run: Run, on_file: Scene) -> None:
    """The pin is kept elsewhere: a link to it is followed, and never replaced by a file beside the store."""
    elsewhere = Path("elsewhere")
    elsewhere.mkdir()
    Path("pin.json").symlink_to("elsewhere/pin.json")
    words = ["heads", "seal", "threads.db", "--pin", "pin.json"]
    assert run(*words).code == Exit.USAGE
    assert (Path("pin.json").is_symlink(), [*elsewhere.iterdir()]) == (True, [])
    assert run("heads", "seal", "threads.db", "--pin", "elsewhere/pin.json").code == Exit.DONE
    on_file.play("v")
    events = run(*words, "--json").document["pin"]["events"]
    assert Path("pin.json").is_symlink()
    assert json.loads((elsewhere / "pin.json").read_text())["events"] == events


def test_a_pin_of_another_store_differs(run: Run, on_file: Scene) -> None:
    SqliteThreadStore("new.db", create=True).close()
    assert run("heads", "seal", "new.db", "--pin", "pin.json").code == Exit.DONE
    words = ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json"]
    assert run(*words, "--json").document["reasons"] == ["pin-differs"]


def test_a_pin_of_an_empty_store_shows_nothing(run: Run, ring: Path, tmp_path: Path) -> None:
    """Each later state of the store continues it: it is not proven, and the next pin replaces it."""
    SqliteThreadStore("threads.db", create=True).close()
    seal = ["heads", "seal", "threads.db", "--pin", "pin.json", "--json"]
    empty = run(*seal).document
    assert (empty["ok"], empty["pin"]["events"]) == (True, 0)
    Scene(["app.db"], str(tmp_path / "app.db"), "threads.db", ring, is_file=True).play("t")
    words = ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json", "--json"]
    ended = run(*words)
    assert (ended.code, ended.document["ok"], ended.document["reasons"]) == (Exit.FOUND, None, ["pin-empty"])
    made = run(*seal).document
    assert (made["ok"], made["pin"]["store"]) == (True, empty["pin"]["store"])
    assert made["pin"]["events"] > 0
    assert run(*words).document["ok"] is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\0",
        "[" * 5000,
        "[" * 100,
        '{"pin": 1}',
        '{"pin": 2, "store": "", "until": 0, "events": 0, "trimmed": 0, "root": "", "time": ""}',
        '{"pin": 1, "store": "", "until": true, "events": 0, "trimmed": 0, "root": "", "time": ""}',
        '{"pin": 1, "store": "", "until": 1e999, "events": 0, "trimmed": 0, "root": "", "time": ""}',
    ],
)
def test_a_file_that_is_not_a_pin(run: Run, on_file: Scene, text: str) -> None:
    Path("pin.json").write_text(text)
    for words in (
        ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json"],
        ["heads", "seal", "threads.db", "--pin", "pin.json"],
    ):
        ended = run(*words)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert "pin.json" in ended.err
    assert Path("pin.json").read_text() == text


def test_a_pin_that_is_missing(run: Run, on_file: Scene) -> None:
    ended = run("verify", "app.db", "--threads", "threads.db", "--pin", "none.json")
    assert (ended.code, ended.out) == (Exit.USAGE, "")


# --- trim -----------------------------------------------------------------------------------------


def test_trim_forgets_what_was_deleted(run: Run, on_file: Scene) -> None:
    on_file.name_in_ring("threads.db")
    with (
        closing(SqliteThreadStore("threads.db")) as store,
        sealed_file(Path(on_file.database), threads=store) as saver,
    ):
        saver.delete_thread("t")
    on_file.play("v")
    assert run("heads", "seal", "--pin", "pin.json").code == Exit.DONE
    early = run("heads", "trim", "--before", "2020-01-01", "--yes", "--json")
    assert (early.code, early.document["forgotten"]) == (Exit.DONE, 0)
    refused = run("heads", "trim", "--before", "2100-01-01")
    assert (refused.code, refused.out) == (Exit.USAGE, "")
    assert "put back unnoticed" in refused.err
    zoned = run("heads", "trim", "--before", "2020-01-01T01:00:00+02:00", "--yes", "--json")
    assert zoned.document["before"] == "2019-12-31T23:00:00Z"
    assert run("heads", "trim", "--before", "0001-01-01T00:00:00+02:00", "--yes").code == Exit.USAGE
    ended = run("heads", "trim", "--before", "2100-01-01", "--yes", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)
    assert ended.document["forgotten"] > 0
    words = ["verify", "app.db", "--pin", "pin.json"]
    pinned = run(*words, "--json")
    assert (pinned.code, pinned.document["reasons"]) == (Exit.FOUND, ["pin-trimmed"])
    seal, before = ("heads", "seal", "--pin", "pin.json", "--json"), Path("pin.json").read_bytes()
    kept = run(*seal)
    assert (kept.code, kept.document["reasons"]) == (Exit.FOUND, ["pin-trimmed"])
    assert "pin.json was not replaced" in kept.err
    assert Path("pin.json").read_bytes() == before
    replaced = run(*seal, "--allow-unproven")
    assert (replaced.code, replaced.document["reasons"]) == (Exit.DONE, ["pin-trimmed"])
    assert run(*words).code == Exit.DONE


@pytest.mark.parametrize("first", ["1", "2"])
def test_a_second_trim_of_smaller_numbers_is_a_trim(run: Run, on_file: Scene, first: str) -> None:
    """Clocks differ: the thread that was deleted first may have the later time. It was once `pin-differs`."""
    for thread in ("1", "2"):
        on_file.play(thread)
        with (
            closing(SqliteThreadStore("threads.db")) as store,
            sealed_file(Path(on_file.database), threads=store) as saver,
        ):
            saver.delete_thread(thread)
    on_file.play("v")
    with closing(sqlite3.connect("threads.db")) as connection, connection:
        connection.execute("UPDATE heads SET at = 1000 WHERE thread_id = ?", (first,))
    trim = ("heads", "trim", "threads.db", "--yes", "--before")
    assert run(*trim, "2000-01-01", "--json").document["forgotten"] > 0
    assert run("heads", "seal", "threads.db", "--pin", "pin.json").code == Exit.DONE
    assert run(*trim, "2100-01-01", "--json").document["forgotten"] > 0
    words = ["verify", "app.db", "--threads", "threads.db", "--pin", "pin.json"]
    assert run(*words, "--json").document["reasons"] == ["pin-trimmed"]


@pytest.mark.parametrize("date", ["", "yesterday", "2026-13-01", "9999999999"])
def test_trim_wants_a_date(run: Run, on_file: Scene, date: str) -> None:
    ended = run("heads", "trim", "threads.db", "--before", date, "--yes")
    assert (ended.code, ended.out) == (Exit.USAGE, "")


# --- a store on a server ---------------------------------------------------------------------------


@pytest.fixture
def remote(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of an empty Postgres database."""
    name, dsn = f"heads_{os.getpid()}", server(pytestconfig)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield at(make_conninfo(dsn, dbname=name))
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_store_in_postgres(run: Run, scene: Scene, remote: str) -> None:
    words = [*scene.words, "--reason", "first use"]
    empty = run("heads", "adopt", *words, "--threads", remote)
    assert (empty.code, empty.out) == (Exit.USAGE, "")
    scene.name_in_ring(remote)
    adopted = run("heads", "adopt", *words, "--create", "--json")
    assert (adopted.code, adopted.document["ok"]) == (Exit.DONE, True), adopted
    scene.store = remote
    scene.play("v")
    with closing(open_thread_store(remote)) as store:
        store.delete_thread("u")
    sealed = run("heads", "seal", "--pin", "pin.json", "--json").document["pin"]
    assert sealed["events"] > adopted.document["stored"]
    verified = run("verify", *scene.words, "--pin", "pin.json", "--json").document
    assert verified["reasons"] == ["heads-differ"]
    assert verified["heads"]["put_back"] > 0
    assert verified["heads"]["missing"] == 0
    scene.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
    both = run("verify", *scene.words, "--json").document["heads"]
    assert (both["put_back"], both["missing"] > 0) == (verified["heads"]["put_back"], True)
    trimmed = run("heads", "trim", "--before", "2100-01-01", "--yes", "--json").document
    assert trimmed["forgotten"] > 0
    assert run("heads", "adopt", *words, "--yes", "--json").document["ok"] is True
    again = run("verify", *scene.words, "--pin", "pin.json", "--json").document
    assert again["reasons"] == ["pin-trimmed"]


# --- the store is not as it should be -------------------------------------------------------------


LINES = [
    "verify app.db --threads",
    "heads adopt app.db --reason x --threads",
    "heads seal",
    "heads trim --before 2026-01-01 --yes",
]


@pytest.mark.parametrize("line", LINES)
def test_a_store_that_cannot_be_opened(run: Run, on_file: Scene, line: str) -> None:
    Path("text.db").write_text("no database at all" * 100)
    for name in ("missing.db", "no/such/folder.db", "text.db", "app.db"):
        ended = run(*line.split(), name, "--json")
        assert (ended.code, ended.has_no_result) == (Exit.USAGE, True), ended
        assert name.partition("/")[0] in ended.err
        assert "hint: " in ended.err
    assert not Path("missing.db").exists()


@pytest.mark.parametrize("line", LINES)
def test_a_password_in_the_name_of_a_store_is_refused(run: Run, on_file: Scene, line: str) -> None:
    ended = run(*line.split(), "postgresql://me:hunter2@localhost/x")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hunter2" not in ended.err
    on_file.name_in_ring("postgresql://me:hunter2@localhost/x")
    ended = run("verify", "app.db")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hunter2" not in ended.err


@pytest.mark.parametrize("line", LINES)
def test_a_server_that_is_down_may_come_back(run: Run, on_file: Scene, line: str) -> None:
    ended = run(*line.split(), "postgresql:///x?host=/nonexistent&connect_timeout=1", "--json")
    assert (ended.code, ended.has_no_result) == (Exit.STOPPED, True), ended


@pytest.mark.parametrize("line", [line for line in LINES if "verify" not in line and "seal" not in line])
def test_a_store_that_is_locked(run: Run, on_file: Scene, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealpoint.admin.cli.options.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("sealpoint.threads.sqlite.MAINTENANCE_SECONDS", 0.1)
    with closing(sqlite3.connect("threads.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ended = run(*line.split(), "threads.db", "--json")
    assert (ended.code, ended.has_no_result) == (Exit.STOPPED, True), ended
    assert run(*line.split(), "threads.db").code == Exit.DONE


def test_hostile_ids_are_printed_escaped(run: Run, scene: Scene) -> None:
    scene.play("\x1b[2Jbad\u202e'; --")
    scene.sql("DELETE FROM checkpoints WHERE thread_id LIKE '%bad%'")
    words = ["verify", *scene.words, "--threads", "threads.db"]
    ended = run(*words)
    assert ended.code == Exit.UNOPENED
    assert "\\x1b[2Jbad\\u202e" in ended.out
    assert all(line.isprintable() for line in (ended.out + ended.err).splitlines())
    assert run(*words, "--json").document["failures"][0]["place"]["thread_id"].startswith("\x1b[2Jbad")


def test_a_ring_without_an_index_key_has_no_heads(run: Run, on_file: Scene) -> None:
    text, _, _ = on_file.ring.read_text().partition("[[index]]")
    on_file.ring.write_text(text)
    ended = run("verify", "app.db", "--threads", "threads.db", "--json")
    assert (ended.code, ended.has_no_result) == (Exit.KEYS, True)


def test_a_store_that_fails_during_the_run(run: Run, on_file: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun on stdout is one object, and it says that the run ended early."""
    with closing(sqlite3.connect("threads.db")) as store, store:
        store.execute("UPDATE heads SET kind = 9 WHERE seq = 3")
    ended = run("verify", "app.db", "--threads", "threads.db", "--json")
    assert ended.code == Exit.STOPPED
    assert (ended.document["complete"], ended.document["reasons"]) == (False, ["ended-early"])


# --- unbinding what a store remembers --------------------------------------------------------------------


def opened_beside(scene: Scene, store: Any, **options: Any) -> Any:
    saver: Any = sealed_file if scene.is_file else sealed_schema
    return saver(scene.database, threads=store, **options)


def newest(scene: Scene, store: Any) -> list[Any]:
    """What a saver beside the store reads of each thread, which may be unbound."""
    with opened_beside(scene, store, unbound="allow") as saver:
        return [saver.get_tuple({"configurable": {"thread_id": thread}}) for thread in "tu"]


@pytest.mark.parametrize("is_named", [False, True])
def test_rows_that_a_store_remembers_are_not_unbound_unasked(run: Run, scene: Scene, is_named: bool) -> None:
    """Because rows name it, or, where they were only adopted, the ring file does."""
    if is_named:
        assert run("rebind", *scene.words, "--unbind", "--allow-thread-store", "--apply").code == Exit.DONE
        assert run("rebind", *scene.words, "--apply").code == Exit.DONE
        scene.name_in_ring("threads.db")
    for words in ([], ["--apply"]):
        ended = run("rebind", *scene.words, "--unbind", *words)
        assert ended.code == Exit.USAGE
        assert "the rows to unbind are recorded in a thread store" in ended.err
        assert "--allow-thread-store" in ended.err
    assert run("verify", *scene.words, "--bound", "--no-threads").code == Exit.DONE


def test_adopted_rows_are_read_unbound_and_nothing_else_is(run: Run, scene: Scene) -> None:
    with closing(SqliteThreadStore("threads.db")) as store:
        before = newest(scene, store)
        scene.sql("CREATE TABLE kept AS SELECT * FROM checkpoints")
        unbound = run("rebind", *scene.words, "--unbind", "--apply", "--allow-thread-store", "--json")
        assert (unbound.code, unbound.document["options"]["allow_thread_store"]) == (Exit.DONE, True)
        with pytest.raises(RolledBackError):
            newest(scene, store)
        adopting = [
            "heads",
            "adopt",
            *scene.words,
            "--threads",
            "threads.db",
            "--reason",
            "unbound",
            "--json",
        ]
        first, second = (run(*adopting).document for _ in range(2))
        assert (first["stored"], first["unbound"], first["ok"]) == (second["same"], 0, True)
        assert second["stored"] == 0
        assert newest(scene, store) == before
        assert (
            run("verify", *scene.words, "--threads", "threads.db", "--json").document["heads"]["earlier"] == 0
        )
        # The bound rows of before count as an earlier state.
        scene.sql(
            "DELETE FROM checkpoints WHERE thread_id = 't'",
            "INSERT INTO checkpoints SELECT * FROM kept WHERE thread_id = 't'",
        )
        with pytest.raises(RolledBackError):
            newest(scene, store)
        scene.sql("DELETE FROM checkpoints WHERE thread_id = 't'")
        with pytest.raises(RolledBackError):
            newest(scene, store)


def test_rows_that_are_bound_again_are_read_beside_the_store(run: Run, scene: Scene) -> None:
    with closing(SqliteThreadStore("threads.db")) as store:
        before = newest(scene, store)
        assert run("rebind", *scene.words, "--unbind", "--apply", "--allow-thread-store").code == Exit.DONE
        assert run("rebind", *scene.words, "--apply").code == Exit.DONE
        assert newest(scene, store) == before
        with opened_beside(scene, store) as saver:
            assert [saver.get_tuple({"configurable": {"thread_id": thread}}) for thread in "tu"] == before
