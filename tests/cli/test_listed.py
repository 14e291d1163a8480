"""Databases that the ring file lists: examined unasked, each once, and no more trusted than named ones."""

from __future__ import annotations

import json
import os
import pty
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict

from sealpoint.admin.cli.options import examined
from sealpoint.admin.maintenance import transitions
from sealpoint.admin.results.exits import Exit
from sealpoint.errors import HeldError, KeyInUseError
from sealpoint.keys.ringfile import read_ring_entries
from tests.cli.conftest import Ended, Run
from tests.postgres.test_commands import at
from tests.support.databases.postgres import blobs, put_blobs, set_up
from tests.support.databases.sealed import write
from tests.support.keys.rings import states_text
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server

TRANSITIONS = [["promote", "k4"], ["disable", "k1"], ["destroy", "k3", "--yes"]]


def lists(*names: str | Path) -> str:
    return "".join(f"\n[[database]]\npath = {json.dumps(str(name))}\n" for name in names)


@pytest.fixture
def keys(tmp_path: Path, keys: Path) -> Path:
    """A ring with a key for each transition."""
    keys.write_text(states_text(k2="active", k1="decrypt-only", k3="disabled", k4="staged"))
    return keys


def add(keys: Path, *names: str | Path) -> None:
    keys.write_text(keys.read_text() + lists(*names))


@pytest.fixture
def current(tmp_path: Path) -> Path:
    """A database with all values under k2."""
    file = tmp_path / "current.db"
    write(file, "k2", "a")
    return file


def states(keys: Path) -> dict[str, str]:
    return {entry.id: entry.state.value for entry in read_ring_entries(keys)}


def names(ended: Ended) -> list[str]:
    return [part["database"]["name"] for part in ended.document["databases"]]


# --- which databases ----------------------------------------------------------------------------------


def test_status_shows_all_that_are_listed(run: Run, keys: Path, path: Path, current: Path) -> None:
    add(keys, path.name, current)
    assert names(run("status", "--json")) == [str(path), str(current)]
    assert run("status", "--only", "k2").code == Exit.FOUND
    assert names(run("status", current, "--json")) == [str(current)]
    assert run("status", current, "--only", "k2").code == Exit.DONE


def test_status_of_none(run: Run, keys: Path) -> None:
    ended = run("status")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "name at least one database" in ended.err


ONE = ["verify", "rotate", "types", "trial", "inspect", "audit", "rebind"]


@pytest.mark.parametrize("command", ONE)
def test_the_one_database_need_not_be_named(run: Run, keys: Path, current: Path, command: str) -> None:
    add(keys, current.name)
    named, listed = (run(command, *more, "--json") for more in ([current], []))
    assert (listed.code, listed.document["reasons"]) == (named.code, named.document["reasons"])
    assert listed.document["database"]["name"] == str(current)


@pytest.mark.parametrize("command", ["trial", "inspect"])
def test_one_of_several_is_to_be_named(run: Run, keys: Path, path: Path, current: Path, command: str) -> None:
    add(keys, path, current)
    ended = run(command)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "name one database" in ended.err
    assert "the ring file lists 2" in " ".join(ended.err.split())


def test_report_is_about_all_that_are_listed(run: Run, keys: Path, path: Path, current: Path) -> None:
    add(keys, path, current)
    ended = run("report", "--json")
    found = json.loads(ended.out)["databases"]
    assert [part["database"]["name"] for part in found] == [str(path), str(current)]


@pytest.mark.parametrize("command", ["status", "verify", "types"])
def test_broken_ring_is_reported(run: Run, keys: Path, command: str) -> None:
    """It may list databases, so no command goes on without them."""
    keys.write_text(keys.read_text() + "\n[[database]]\npaht = 'x.db'\n")
    ended = run(command)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "unknown field 'paht'" in ended.err


# --- transitions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", TRANSITIONS, ids=" ".join)
def test_transition_looks_at_all(
    run: Run, keys: Path, tmp_path: Path, current: Path, words: list[str]
) -> None:
    """At those that are listed and those that are named; one by two names is one."""
    other, link = tmp_path / "other.db", tmp_path / "link.db"
    write(other, "k2", "b")
    link.symlink_to(current)
    add(keys, "current.db", "other.db")
    ended = run("keys", *words, "--db", link, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True) or words[0] == "destroy"
    assert names(ended) == [str(link), str(other)]


@pytest.mark.parametrize("words", [["promote", "k4"], ["destroy", "k1", "--yes"]], ids=" ".join)
def test_rows_in_a_listed_database_prevent_it(run: Run, keys: Path, path: Path, words: list[str]) -> None:
    if words[0] == "destroy":
        keys.write_text(states_text(k2="active", k1="disabled"))
    add(keys, path.name)
    before = keys.read_bytes()
    ended = run("keys", *words)
    assert (ended.code, ended.out) == (Exit.FOUND, "")
    assert f"error: cannot {words[0]} '{words[1]}': {path} has " in ended.err
    assert keys.read_bytes() == before


def test_destroy_needs_no_name(run: Run, keys: Path, current: Path) -> None:
    """And the entry of the key says of no check that it was waived."""
    add(keys, current.name)
    ended = run("keys", "destroy", "k3", "--yes", "--json")
    (key,) = ended.document["keys"]
    assert (key["state"], key["waived"], names(ended)) == ("destroyed", [], [str(current)])


def test_destroy_of_a_listed_database_without_rows(run: Run, keys: Path, path: Path) -> None:
    """It may be a new file in place of the right one."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("checkpoints", "writes"):
            connection.execute(f"DELETE FROM {table}")
    add(keys, path)
    assert "has no value under any key of the ring" in run("keys", "destroy", "k3", "--yes").err
    assert states(keys)["k3"] == "disabled"


@pytest.mark.parametrize("named", [True, False])
def test_check_that_is_waived_is_recorded(
    run: Run, keys: Path, path: Path, current: Path, named: bool
) -> None:
    """Also if a named database was examined, and those that are listed were not."""
    keys.write_text(states_text(k2="active", k1="disabled"))
    add(keys, path)
    words = ["--db", current] if named else []
    ended = run("keys", "destroy", "k1", "--yes", "--no-database-check", *words, "--json")
    (key,) = ended.document["keys"]
    assert (ended.code, key["waived"]) == (Exit.FOUND, ["database-check"])
    assert "database-check-waived" in ended.document["reasons"]
    assert names(ended) == [str(current)][: int(named)]


def test_promote_without_the_check(run: Run, keys: Path, path: Path) -> None:
    """In an emergency, with rows under an older key."""
    add(keys, path)
    ended = run("keys", "promote", "k4", "--no-database-check", "--json")
    assert (ended.code, states(keys)["k4"]) == (Exit.DONE, "active")
    assert ended.document["options"] == {"no_database_check": True}


# --- disable ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "reasons"),
    [
        ([], Exit.FOUND, ["not-completed"]),
        (["--yes"], Exit.DONE, ["key-in-use"]),
        (["--no-database-check"], Exit.USAGE, ["not-completed"]),
        (["--no-database-check", "--yes"], Exit.DONE, ["no-database"]),
    ],
    ids=str,
)
def test_disable_without_a_terminal(
    program: Run, keys: Path, path: Path, words: list[str], code: Exit, reasons: list[str]
) -> None:
    add(keys, path)
    ended = program("keys", "disable", "k1", *words, "--json", answer="k1\n")
    assert (ended.code, ended.document["reasons"]) == (code, reasons)
    assert states(keys)["k1"] == ("disabled" if code is Exit.DONE else "decrypt-only")


def test_disable_despite_rows_says_where_they_are(run: Run, keys: Path, path: Path) -> None:
    add(keys, path)
    ended = run("keys", "disable", "k1", "--yes")
    assert f"warning: {path} has 12 rows under 'k1', which no longer open" in ended.err
    last = "not proven: databases have values under the key, which no longer open"
    assert ended.out.splitlines()[-1] == last
    assert "key-in-use" not in run("keys", "disable", "k1", "--json").document["reasons"]


def test_disable_of_a_named_database_is_refused_as_ever(run: Run, keys: Path, path: Path) -> None:
    """A script that names a database wants it to have no rows under the key, also if it says --yes."""
    for _ in range(2):
        ended = run("keys", "disable", "k1", "--yes", "--db", path)
        assert (ended.code, states(keys)["k1"]) == (Exit.FOUND, "decrypt-only")
        add(keys, path)


@pytest.mark.parametrize(
    ("answer", "code", "state"), [("k1", Exit.DONE, "disabled"), ("yes", Exit.STOPPED, "decrypt-only")]
)
def test_disable_asks_on_a_terminal(
    forked: Path, keys: Path, path: Path, current: Path, answer: str, code: Exit, state: str
) -> None:
    add(keys, current, path)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [str(forked), "keys", "disable", "k1", "--json"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, states(keys)["k1"]) == (code, state)
    asked = "values under the key will not open. To confirm, type the id of the key:"
    assert f"{path} has 12 rows under 'k1': {asked}" in done.stderr
    assert str(current) not in done.stderr


def test_disable_does_not_ask_if_there_are_no_rows(program: Run, keys: Path, current: Path) -> None:
    add(keys, current)
    ended = program("keys", "disable", "k1", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)


# --- between look and act -----------------------------------------------------------------------------


def test_row_that_comes_after_the_look_prevents_it(keys: Path, current: Path) -> None:
    """The look of `disable` before it asks is not the last one."""
    add(keys, current)
    with examined(keys, [], with_listed=True) as found:
        write(current, "k1", "b")
        with pytest.raises(KeyInUseError):
            transitions.disable_key(keys, "k1", found.stores, listed=found.entries)
    assert states(keys)["k1"] == "decrypt-only"


@pytest.mark.parametrize(
    ("change", "key_id"),
    [(transitions.promote_key, "k4"), (transitions.disable_key, "k1"), (transitions.destroy_key, "k3")],
)
def test_entry_that_comes_after_the_look_prevents_it(
    keys: Path, path: Path, current: Path, change: Callable[..., object], key_id: str
) -> None:
    add(keys, current)
    with examined(keys, [], with_listed=True) as found:
        add(keys, path)
        before = keys.read_bytes()
        with pytest.raises(HeldError, match=r"\[\[database\]\] entries of .* were changed during this run"):
            change(keys, key_id, found.stores, listed=found.entries)
    assert keys.read_bytes() == before


def test_destroyed_key_needs_no_database_again(run: Run, keys: Path) -> None:
    """Its rows were looked for before the entry was marked: what is left to do is to remove its file."""
    keys.write_text(states_text(k2="active", k3="destroyed") + lists("missing.db"))
    assert run("keys", "destroy", "k3", "--yes", "--allow-unproven").code == Exit.DONE


# --- what cannot be opened ----------------------------------------------------------------------------


def lay(place: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "empty file":
            place.touch()
        case "other file":
            place.write_bytes(b"no database\n" * 100)
        case "huge file":
            place.touch()
            os.truncate(place, 1 << 40)
        case "dangling link":
            place.symlink_to(place.with_name("nothing"))
        case "device":
            place.symlink_to("/dev/zero")


KINDS = ["missing", "pipe", "folder", "empty file", "other file", "huge file", "dangling link", "device"]


@pytest.mark.parametrize("words", [["status"], *(["keys", *each] for each in TRANSITIONS)], ids=" ".join)
@pytest.mark.parametrize("kind", KINDS)
def test_database_that_cannot_be_opened_refuses(
    run: Run, keys: Path, tmp_path: Path, current: Path, words: list[str], kind: str
) -> None:
    place = tmp_path / "place.db"
    lay(place, kind)
    add(keys, current, place)
    before = keys.read_bytes()
    ended = run(*words)
    assert ended.code == Exit.USAGE
    assert (str(current) in ended.out) is (words == ["status"])  # which shows the others
    assert str(place) not in ended.out
    assert str(place) in ended.err.splitlines()[0]
    listed = f"{keys} lists {place}: if it no longer exists, remove its [[database]] entry"
    assert ended.err.splitlines()[1].startswith("hint: ")
    assert listed in ended.err
    assert keys.read_bytes() == before
    if words[0] == "keys":
        assert run(*words, "--no-database-check", "--yes" if words[1] == "disable" else "--json").code in (
            Exit.DONE,
            Exit.FOUND,
        )


@pytest.mark.costly
@pytest.mark.broad(every=2)
@pytest.mark.parametrize("words", [["status"], ["verify"], *(["keys", *each] for each in TRANSITIONS)])
def test_server_that_never_answers(run: Run, keys: Path, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"postgresql://127.0.0.1:{listening.getsockname()[1]}/agents?connect_timeout=2"
        keys.write_text(f"{keys.read_text()}\n[[database]]\nurl = '{url}'\n")
        ended = run(*words)
    assert (ended.code, ended.out) == (Exit.STOPPED, "")
    assert (f"{keys} lists {url}" in ended.err) is (words != ["verify"])


# --- Postgres -----------------------------------------------------------------------------------------


def test_schema_of_a_server(run: Run, keys: Path, pytestconfig: pytest.Config) -> None:
    """Two schemas of one database are two, also if their names are shown without the schema."""
    with schema(server(pytestconfig)) as one, schema(server(pytestconfig)) as two:
        for dsn in (one, two):
            set_up(PostgresSaver, dsn)
        put_blobs(two, blobs(3))
        text = "".join(f"\n[[database]]\nurl = '{at(dsn)}'\n" for dsn in (one, two))
        keys.write_text(keys.read_text() + text)
        found = run("status", "--json").document["databases"]
        assert len({part["database"]["identity"]["schema"] for part in found}) == 2
        ended = run("keys", "disable", "k1")
        assert (ended.code, states(keys)["k1"]) == (Exit.FOUND, "decrypt-only")
        once = run("keys", "disable", "k1", "--yes", "--db", at(one), "--json")
        assert (once.code, len(once.document["databases"])) == (Exit.DONE, 2)
        assert once.document["reasons"] == ["key-in-use", "unrelated-allowed"]


def test_service(
    run: Run, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(3))
        parts = conninfo_to_dict(dsn)
        lines = ["[agents]", *(f"{name}={value}" for name, value in parts.items())]
        (tmp_path / "services").write_text("\n".join(lines) + "\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        keys.write_text(keys.read_text() + "\n[[database]]\nservice = 'agents'\n")
        assert names(run("status", "--json")) == ["postgresql:///?service=agents"]
        refused = run("keys", "promote", "k4")
        assert (refused.code, "postgresql:///?service=agents has 3 rows" in refused.err) == (Exit.FOUND, True)


# --- the law ------------------------------------------------------------------------------------------

FILES = ("a.db", "b.db", "c.db")
SPELLINGS = ("{}", "./{}", "sub/../{}", "link-{}", "sub/link-{}", "{folder}/{}")
spellings = st.builds(
    lambda spelling, file: (spelling, file), st.sampled_from(SPELLINGS), st.sampled_from(FILES)
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=by_extent(20, 60), deadline=None
)
@given(named=st.lists(spellings, max_size=4), listed=st.lists(spellings, max_size=4, unique=True))
def test_each_database_is_looked_at_once(
    tmp_path: Path,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: list[tuple[str, str]],
    listed: list[tuple[str, str]],
) -> None:
    """Of any mix of named and listed databases, however each is spelled; and no other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir(exist_ok=True)
    for file in FILES:
        if not (tmp_path / file).exists():
            write(tmp_path / file, "k2", "a")
            (tmp_path / f"link-{file}").symlink_to(file)
            (tmp_path / "sub" / f"link-{file}").symlink_to(tmp_path / file)

    def spelled(each: list[tuple[str, str]]) -> list[str]:
        return [spelling.format(file, folder=tmp_path) for spelling, file in each]

    # Two spellings of one path that are the same text once they are joined to the folder are refused.
    unique = {str(tmp_path / text): text for text in spelled(listed)}
    keys.write_text(states_text(k2="active") + lists(*unique.values()))
    with examined(keys, spelled(named), with_listed=True) as found:
        looked = [Path(store.name).resolve() for store in found.stores]
    assert len(set(looked)) == len(looked)
    assert set(looked) == {tmp_path / file for _, file in [*named, *listed]}
    assert {Path(store.name).resolve() for store in found.named} == {tmp_path / file for _, file in named}
