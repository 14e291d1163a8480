"""`sealpoint rebind`: its plan, its exit codes, and what it says of rows that are left."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.maintenance.scrub import FRAGMENT_BYTES, MAX_FRAGMENTS
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases import foreign
from tests.support.databases.sealed import VALUES, tags_of, values_of, write
from tests.unit.maintenance.test_rebind import change

THREAD = "visit-4711-of-a-person-with-a-long-id"


def test_the_plan_names_what_would_be_done(run: Run, path: Path, keys: Path) -> None:
    write(path, "plain", "b")
    ended = run("rebind", path, "--json")
    plan = {(row["table"], row["kind"]): (row["rows"], row["action"]) for row in ended.document["plan"]}
    assert plan == {
        ("checkpoints", "sealed"): (3, "to bind"),
        ("checkpoints", "plaintext"): (3, "skipped: not sealed, add --allow-plaintext"),
        ("writes", "sealed"): (9, "to bind"),
        ("writes", "plaintext"): (9, "skipped: not sealed, add --allow-plaintext"),
    }
    assert ended.document["reasons"] == ["not-applied"]
    assert not any(".row@" in tag for tag in tags_of(path))


@pytest.mark.parametrize("words", [[], ["--unbind"]])
def test_the_plan_says_which_agents_can_read_on(run: Run, path: Path, keys: Path, words: list[str]) -> None:
    """Only where rows would change."""
    advice = 'first start every agent with SealedSaver(..., unbound="allow")'
    assert advice not in run("rebind", path, "--unbind").err
    if words:
        assert run("rebind", path, "--apply").code == Exit.DONE
    assert advice in run("rebind", path, *words).err
    assert run("rebind", path, "--apply", *words).code == Exit.DONE
    assert advice not in run("rebind", path, *words).err


def test_rows_that_are_left_end_in_3(run: Run, path: Path, keys: Path) -> None:
    write(path, "plain", "b")
    ended = run("rebind", path, "--apply")
    assert ended.code == Exit.FOUND
    assert ended.out.splitlines()[-1] == "not ok: some rows are not bound to their places"
    assert f"{VALUES} values not sealed: --allow-plaintext seals them" in ended.err
    found = run("rebind", path, "--apply", "--allow-plaintext", "--json")
    assert (found.code, found.document["reasons"]) == (Exit.DONE, ["plaintext-allowed"])
    assert (found.document["changed"], found.document["plaintext"], found.document["left"]) == (
        VALUES,
        VALUES,
        0,
    )


def test_there_and_back(run: Run, path: Path, keys: Path) -> None:
    for words, bound in (([], True), (["--unbind"], False)):
        found = run("rebind", path, "--apply", *words, "--json").document
        assert (found["changed"], found["left"], found["verified"], found["ok"]) == (VALUES, 0, VALUES, True)
        assert {".row@" in tag for tag in tags_of(path)} == {bound}
        again = run("rebind", path, "--apply", *words, "--json").document
        assert (again["changed"], again["ok"]) == (0, True)


@pytest.mark.parametrize("words", [[], ["--unbind"]])
def test_a_scrub_looks_for_what_the_run_has_replaced(
    run: Run, path: Path, keys: Path, words: list[str]
) -> None:
    """Values that were not sealed, in a run that binds, and bound ones in a run that unbinds."""
    if words:
        assert run("rebind", path, "--apply").code == Exit.DONE
    else:
        write(path, "plain", "b")
    old = [value.value for value in values_of(path) if len(value.value) >= FRAGMENT_BYTES]
    found = run("rebind", path, "--apply", "--allow-plaintext", "--scrub", *words, "--json").document
    assert (found["left"], found["scrubbed"]["found"]) == (0, [])
    assert found["scrubbed"]["fragments"] == len(old) < MAX_FRAGMENTS
    left = b"".join(file.read_bytes() for file in path.parent.glob("x.db*"))
    assert old
    assert not any(value in left for value in old)


def test_what_a_run_leaves_in_the_file_is_found(run: Run, path: Path, keys: Path) -> None:
    """Here a value is a part of a table that is no saver's."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE other AS SELECT type, checkpoint FROM checkpoints")
    ended = run("rebind", path, "--apply", "--scrub", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["old-content-found"])
    assert ended.document["scrubbed"]["found"]


def test_postgres_has_no_scrub(run: Run) -> None:
    ended = run("rebind", "postgresql://db/agents", "--apply", "--scrub")
    assert (ended.code, "Postgres has its own means" in ended.err) == (Exit.USAGE, True)


def test_a_refused_row_is_named(run: Run, path: Path, keys: Path) -> None:
    change(path, "UPDATE checkpoints SET metadata = 'x' WHERE checkpoint_id = '000001'")
    ended = run("rebind", path, "--apply", "--json")
    (failed,) = ended.document["failures"]
    assert (ended.code, failed["error"], failed["place"]["checkpoint_id"]) == (
        Exit.UNOPENED,
        "MetadataError",
        "000001",
    )
    assert ended.document["reasons"] == ["values-failed", "not-bound"]


def test_a_run_that_stops_is_continued(run: Run, path: Path, keys: Path) -> None:
    ended = run("rebind", path, "--apply", "--max-seconds", "0", "--batch", "2", "--json")
    assert (ended.code, "ended-early" in ended.document["reasons"]) == (Exit.STOPPED, True)
    assert 0 < ended.document["left"] < VALUES
    assert run("rebind", path, "--apply").code == Exit.DONE


def test_metadata_stays_readable_where_it_is_asked_for(run: Run, path: Path, keys: Path) -> None:
    assert run("rebind", path, "--apply").code == Exit.DONE
    found = run("rebind", path, "--plain-metadata", "tenant", "--json").document["plan"]
    actions = {row["table"]: row["action"] for row in found}
    assert actions == {
        "checkpoints": "bound; to add readable metadata or fields where it lacks some",
        "writes": "bound",
    }
    assert run("rebind", path, "--index", "user_id", "--apply").code == Exit.KEYS  # the ring has no index key


@pytest.mark.parametrize(
    "words",
    [
        "--unbind --index user_id",
        "--unbind --plain-metadata tenant",
        "--index step",
        "--plain-metadata a --index a",
        "--plain-metadata __sealpoint__",
        "--workers 2",
        "--suite rot13",
    ],
)
def test_options_that_do_not_fit(run: Run, path: Path, keys: Path, words: str) -> None:
    ended = run("rebind", path, *words.split())
    assert (ended.code, ended.has_no_result) == (Exit.USAGE, True)


def test_another_environments_ring_is_refused(run: Run, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    assert run("keys", "init", "k1", "--keys", other).code == Exit.DONE
    assert run("rebind", path, "--apply", "--keys", other).code == Exit.KEYS
    assert not any(".row@" in tag for tag in tags_of(path))


@pytest.mark.parametrize("words", [[], ["--apply"], ["--apply", "--json"]], ids=str)
def test_a_thread_that_is_not_there_is_no_success(run: Run, path: Path, keys: Path, words: list[str]) -> None:
    """A misspelt id, or that of an agent whose threads have pseudonyms: nothing was bound."""
    ended = run("rebind", path, "--thread", "nobody", *words)
    assert ended.code == Exit.USAGE
    assert "the database has no values" not in ended.out
    if "--json" not in words:
        assert "--thread: no rows of thread 'nobody'" in ended.err
        assert f"`sealpoint inspect {path}` lists" in ended.err
    assert run("rebind", path, "--thread", "a", "--apply", "--json").document["changed"] == VALUES


def test_a_thread_id_that_is_no_text_is_refused(run: Run, path: Path, keys: Path) -> None:
    """As `inspect` refuses it: an argument that is not UTF-8."""
    assert run("rebind", path, "--thread", "\udcff").code == Exit.USAGE


def test_a_thread_is_named_as_it_is_printed(run: Run, path: Path, keys: Path) -> None:
    """An id that looks like the escape of another one is not taken for it."""
    for thread in ("b\x1b", r"b\x1b"):
        write(path, "k1", thread)
    assert run("rebind", path, "--thread", r"b\x1b", "--apply", "--json").document["changed"] == VALUES
    left = run("inspect", path, "--thread", r"b\\x1b", "--json").document["values"]
    assert not any(".row@" in value["tag"] for value in left)
    assert left


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("value", [THREAD.encode(), bytes(4096)], ids=["id", "filling"])
def test_what_was_readable_and_may_stay_is_no_old_content(run: Run, tmp_path: Path, value: bytes) -> None:
    """As an id of the row, or as the filling of a page. Fragments of other values are searched for."""
    path = foreign.write(tmp_path / "a.db", {THREAD: {"x": 1}})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET type = 'bytes', value = ?", (value,))
    ended = run("rebind", path, "--allow-plaintext", "--apply", "--scrub", "--json")
    scrubbed = ended.document["scrubbed"]
    assert (scrubbed["fragments"], scrubbed["found"], ended.document["ok"]) == (1, [], None)
