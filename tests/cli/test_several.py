"""Several databases on one command line: a result for each, and the worst of them as the exit code."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.cli.app import SEVERAL
from sealpoint.admin.maintenance import audit
from sealpoint.admin.maintenance.job import Job
from sealpoint.admin.results.exits import Exit, worst
from sealpoint.admin.results.reasons import Reason
from tests.cli.conftest import Run
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import write
from tests.support.keys.rings import states_text

READING = ["verify", "audit", "types", "rotate", "rebind", "scrub"]
CHANGING = [["rotate", "--apply"], ["rebind", "--apply"], ["scrub", "--apply"]]


@pytest.fixture
def keys(keys: Path) -> Path:
    """A ring under whose active key the databases are."""
    keys.write_text(states_text(k1="active"))
    return keys


@pytest.fixture
def make(tmp_path: Path, keys: Path) -> Callable[[str], Path]:
    """Makes a database with a thread, and under this name."""

    def call(name: str) -> Path:
        write(tmp_path / name, "k1", "a")
        return tmp_path / name

    return call


def test_all_that_change_and_read_one_database_are_tried() -> None:
    assert set(READING) == SEVERAL


@pytest.mark.parametrize("words", [*([each] for each in READING), *CHANGING], ids=" ".join)
def test_each_has_the_result_that_it_has_alone(
    run: Run, make: Callable[[str], Path], words: list[str]
) -> None:
    """In the order of the command line, and the object of each is as of a run on it alone."""
    one, two = make("one.db"), make("two.db")
    ended = run(*words, one, two, "--json")
    alone = [run(*words, each, "--json") for each in (one, two)]
    document = ended.document
    assert [part["database"]["name"] for part in document["databases"]] == [str(one), str(two)]
    for part, single in zip(document["databases"], alone, strict=True):
        assert part.keys() == single.document.keys()
        assert part["run"] == document["run"]
        if "--apply" not in words:
            assert (part["ok"], part["reasons"]) == (single.document["ok"], single.document["reasons"])
    assert ended.code == worst(Exit(each.code) for each in alone)
    assert document["errors"] == []


def lay_foreign(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE other (x)")


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "no file at"),
    "text": (lambda file: file.write_text("no database"), "is not a SQLite database"),
    "empty": (Path.touch, "is empty: it has no checkpoints"),
    "foreign": (lay_foreign, ""),
    "folder": (Path.mkdir, ""),
}


@pytest.mark.broad("kind")
@pytest.mark.parametrize("words", [*([each] for each in READING), *CHANGING, ["status"]], ids=" ".join)
@pytest.mark.parametrize("kind", OTHERS)
def test_one_that_is_none_of_ours_is_null_and_named(
    run: Run, make: Callable[[str], Path], tmp_path: Path, words: list[str], kind: str
) -> None:
    """Whatever its place, the others have their results, and the exit code is not theirs."""
    lay, said = OTHERS[kind]
    other = tmp_path / "other.db"
    lay(other)
    one, two = make("one.db"), make("two.db")
    for places in ([other, one, two], [one, other, two], [one, two, other]):
        ended = run(*words, *places, "--json")
        document = ended.document
        found = [each and each["database"]["name"] for each in document["databases"]]
        assert found == [None if each == other else str(each) for each in places]
        (error,) = document["errors"]
        assert error["database"] == str(other)
        assert str(other) in error["message"]
        assert said in error["message"]
        assert f"error: {error['message']}" in ended.err
        assert "not-completed" in document["reasons"]
        assert document["ok"] is not True
        assert ended.code == Exit.USAGE


def test_all_fail(run: Run, keys: Path, tmp_path: Path) -> None:
    ended = run("verify", tmp_path / "no.db", tmp_path / "none.db", "--json")
    assert (ended.code, ended.document["databases"], ended.document["ok"]) == (Exit.USAGE, [None, None], None)
    assert len(ended.document["errors"]) == 2


def test_the_worst_code_and_all_reasons(run: Run, make: Callable[[str], Path], tmp_path: Path) -> None:
    """A value that does not open counts more than a file that is not there, and is not followed by `ok`."""
    good, bad = make("good.db"), make("bad.db")
    insert(bad, [("msgpack", b"\x07")])
    for places in ([bad, tmp_path / "no.db", good], [good, tmp_path / "no.db", bad]):
        ended = run("verify", *places)
        assert ended.code == Exit.UNOPENED
        lines = ended.out.splitlines()
        assert [line for line in lines if line.endswith(".db:")] == [f"{place}:" for place in places]
        assert lines.count("ok") == 1
        assert lines[-1] == "not ok: values do not open"
        document = run("verify", *places, "--json").document
        assert (document["ok"], document["reasons"]) == (False, ["values-failed", "not-completed"])


def test_all_good_is_ok(run: Run, make: Callable[[str], Path]) -> None:
    ended = run("verify", make("one.db"), make("two.db"))
    assert (ended.code, ended.out.splitlines()[-1]) == (Exit.DONE, "ok")


def test_order_of_codes() -> None:
    """What was found, then what must be corrected, then what may be run again."""
    order = [Exit(int(digit)) for digit in "14532670"]
    for place, code in enumerate(order):
        assert all(worst([other, code]) is code for other in order[place:])
    assert worst([]) is Exit.DONE


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--threads", "s.db"],
        ["verify", "--pin", "p"],
        ["rebind", "--thread", "a"],
        ["types", "--emit"],
    ],
    ids=" ".join,
)
def test_option_of_one_database_is_refused(run: Run, make: Callable[[str], Path], words: list[str]) -> None:
    ended = run(*words, make("one.db"), make("two.db"))
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert f"Invalid value for {words[1]}: this option applies to one database, and there are 2" in ended.err


def test_thread_store_of_the_ring_is_of_one_database(
    run: Run, make: Callable[[str], Path], keys: Path
) -> None:
    one, two = make("one.db"), make("two.db")
    keys.write_text(f"{keys.read_text()}\n[threads]\nstore = 'threads.db'\n")
    ended = run("verify", one, two)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "name that database, or add --no-threads" in ended.err
    assert run("verify", one, two, "--no-threads").code == Exit.DONE


def lists(keys: Path, *names: Path) -> None:
    keys.write_text(
        keys.read_text() + "".join(f"\n[[database]]\npath = {json.dumps(str(each))}\n" for each in names)
    )


@pytest.mark.parametrize("command", READING)
def test_those_that_are_listed(run: Run, make: Callable[[str], Path], keys: Path, command: str) -> None:
    """All are read unasked; what changes them wants their names."""
    one, two = make("one.db"), make("two.db")
    lists(keys, one, two)
    found = run(command, "--json").document["databases"]
    assert [each["database"]["name"] for each in found] == [str(one), str(two)]
    if [command, "--apply"] in CHANGING:
        before = one.read_bytes(), two.read_bytes()
        ended = run(command, "--apply")
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert "name the databases to change: the ring file lists 2" in " ".join(ended.err.split())
        assert (one.read_bytes(), two.read_bytes()) == before


def test_ledger_has_all_of_them(run: Run, make: Callable[[str], Path], keys: Path, tmp_path: Path) -> None:
    one, two, no = make("one.db"), make("two.db"), tmp_path / "no.db"
    folder = tmp_path / "ledger"
    table = "[ledger]\ndir = 'ledger'\norigin = 'example.org/agents'\nsigner = { file = 'ledger.key' }\n"
    keys.write_text(f"{keys.read_text()}\n{table}")
    assert run("ledger", "init").code == Exit.DONE
    ended = run("verify", one, no, two)
    assert "ledger head: " in ended.err
    *_, begun, end = run("ledger", "show", "--json").document["entries"]
    for entry in (begun, end):
        assert entry["subject"]["database"] == [str(one), str(no), str(two)]
    (file,) = (folder / "documents").iterdir()
    evidence = json.loads(file.read_bytes())
    assert [part["database"]["name"] for part in evidence["databases"]] == [str(one), str(two)]
    assert end["exit"] == Exit.USAGE
    alone = run("verify", one, "--json").document
    assert evidence["counts"]["rows"] == 2 * alone["rows"]
    assert Reason.NOT_COMPLETED in evidence["reasons"]


def test_max_seconds_is_the_time_of_all(run: Run, make: Callable[[str], Path], keys: Path) -> None:
    one, two = make("one.db"), make("two.db")
    keys.write_text(states_text(k2="active", k1="decrypt-only"))
    ended = run("rotate", one, two, "--apply", "--max-seconds", 0, "--json")
    assert ended.code == Exit.STOPPED
    assert [each["stopped"] for each in ended.document["databases"]] == [True, True]


def test_signal_ends_the_run_and_not_only_one_database(
    run: Run, make: Callable[[str], Path], keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are left are not begun, and are named."""
    one, two = make("one.db"), make("two.db")
    keys.write_text(states_text(k2="active", k1="decrypt-only"))
    before, rotate = two.read_bytes(), Job._rotate

    def interrupted(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        rotate(job)

    monkeypatch.setattr(Job, "_rotate", interrupted)
    ended = run("rotate", one, two, "--apply", "--json")
    first, second = ended.document["databases"]
    assert (ended.code, first["stopped"], second) == (Exit.STOPPED, True, None)
    (error,) = ended.document["errors"]
    assert error["message"] == f"{two}: not examined: a signal ended the run"
    assert two.read_bytes() == before


def test_bug_in_one_ends_all(run: Run, make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed is one object all the same, and says that it is not complete."""
    one, two = make("one.db"), make("two.db")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(audit, "audit", fail)
    ended = run("audit", one, two, "--json")
    assert (ended.code, ended.document["databases"]) == (Exit.BUG, [None, None])
    assert ended.document["reasons"] == ["not-completed"]


def test_password_refuses_the_whole_command(run: Run, make: Callable[[str], Path]) -> None:
    ended = run("verify", make("one.db"), "postgresql://user:hunter2@host/db")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "hunter2" not in ended.err


def test_variables_can_be_repeated(
    run: Run, make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is not there hides no other database, and is named as its variable."""
    for name in ("FIRST", "SECOND"):
        monkeypatch.setenv(name, "postgresql://u:hunter2@127.0.0.1:1/agents?connect_timeout=1")
    ended = run("verify", make("one.db"), "--db-env", "FIRST", "--db-env", "SECOND", "--json")
    assert ended.code == Exit.STOPPED
    assert [each and each["ok"] for each in ended.document["databases"]] == [True, None, None]
    assert [each["database"] for each in ended.document["errors"]] == ["$FIRST", "$SECOND"]
    assert "hunter2" not in ended.out + ended.err
