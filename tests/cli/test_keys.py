"""`sealpoint keys`: what each command does to the ring, what it prints, and how it ends."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pty
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint import EncryptedSerializer
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.results.exits import Exit
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import KeyRing
from sealpoint.keys import ringfile
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.ringfile import read_ring_entries
from sealpoint.sqlite import SqliteSaver
from tests.cli.conftest import CODE, Ended, Run

EXAMPLE = Path(__file__).parents[2] / "keys.example"
FIELDS = {field.name for field in dataclasses.fields(RingEntry)} | {"transitions"}


def states(ring: Path) -> dict[str, str]:
    return {entry.id: entry.state.value for entry in read_ring_entries(ring)}


def database(folder: Path, ring: Path) -> Path:
    """A database with a row under the key that is active."""
    file = folder / "state.db"
    config: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    with SqliteSaver.from_conn_string(str(file), serde=EncryptedSerializer.from_key_file(ring)) as saver:
        saver.put(config, empty_checkpoint(), {}, {})
    return file


def explained(ended: Ended, code: Exit) -> str:
    """What a refusal says: nothing on stdout, an error and a hint on stderr."""
    assert (ended.code, ended.has_no_result) == (code, True)
    error, hint = ended.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error


def test_the_life_of_a_key(run: Run, ring: Path) -> None:
    """From `init` to a tombstone; after each command the ring loads."""
    steps = [
        ("generate", "k2"),
        ("promote", "k2"),
        ("disable", "k1", "--yes"),
        ("enable", "k1"),
        ("disable", "k1", "--yes"),
        ("destroy", "k1", "--no-database-check", "--yes", "--allow-unproven"),
    ]
    seen = []
    for step in steps:
        assert run("keys", *step).code == 0
        KeyRing.load(ring)
        seen.append(states(ring))
    assert [found["k1"] for found in seen] == [
        "active",
        "decrypt-only",
        "disabled",
        "decrypt-only",
        "disabled",
        "destroyed",
    ]
    assert seen[-1] == {"k1": "destroyed", "k2": "active"}
    assert not (ring.parent / "keys.d" / "k1.key").exists()


def test_init_makes_what_is_named(run: Run, tmp_path: Path) -> None:
    """With its folders, and with an id of this year by default."""
    file = tmp_path / "new" / "keys.toml"
    ended = run("keys", "init", "--keys", file, "--json")
    (key,) = ended.document["keys"]
    assert ended.document["ring"]["file"] == str(file)
    assert ended.document["ring"]["active"] == key["id"]
    assert KeyRing.load(file).active_id == key["id"]
    assert run("keys", "check", "--keys", file).code == 0


def test_init_wants_a_place(run: Run, tmp_path: Path) -> None:
    """It makes no ring where nobody asked for one, be it the place where one is looked for last."""
    error = explained(run("keys", "init"), Exit.USAGE)
    hint = run("keys", "init").err.splitlines()[1]
    assert "no path for the new ring file" in error
    assert "--keys" in hint
    assert "SEALPOINT_KEYS" in hint
    assert list(tmp_path.iterdir()) == []
    assert run("keys", "init", "--keys", ringfile.SYSTEM_PATH).code == Exit.DONE


def test_help_of_init_names_no_default_path(run: Run) -> None:
    """It says that there is none, and the option of the other commands names two."""
    shown = run("keys", "init", "--help").out
    assert "there is no default path" in shown
    assert "/etc/sealpoint/keys.toml" not in shown


def test_init_replaces_nothing(run: Run, ring: Path) -> None:
    assert "already exists" in explained(run("keys", "init"), Exit.USAGE)


@pytest.mark.parametrize(
    "words", [["list"], ["check"], ["show", "k1"], ["promote", "k1"], ["generate", "k2"]]
)
def test_json_is_the_documented_object(run: Run, ring: Path, words: list[str]) -> None:
    document = run("keys", *words, "--json").document  # which the published schema allows
    assert document["ring"]["file"] == str(ring)
    for key in document["keys"]:
        assert set(key) == FIELDS | ({"problem"} if words == ["check"] else set())


def test_json_form_is_in_the_help(run: Run) -> None:
    said = run("keys", "--help").out
    assert all(f'"{field}"' in said for field in FIELDS | {"keys", "problem"})
    assert "docs/results.md" in " ".join(said.split())


def test_list_needs_no_material(run: Run, ring: Path) -> None:
    run("keys", "generate", "k2")
    for file in (ring.parent / "keys.d").glob("*.key"):
        file.unlink()
    head, *rows = run("keys", "list").out.splitlines()
    assert head.split() == ["key", "state", "suite", "created", "destroyed", "source"]
    assert [row.split()[:2] for row in rows] == [["k1", "active"], ["k2", "staged"]]


def test_times_are_shown_in_utc(run: Run, ring: Path) -> None:
    """Whatever their zone in the ring file: the table has the date alone."""
    text = re.sub(r"created = \S+", "created = 2026-01-01T01:00:00+02:00", ring.read_text(), count=1)
    ring.write_text(text)
    assert run("keys", "list", "--json").document["keys"][0]["created"] == "2025-12-31T23:00:00+00:00"
    assert "2025-12-31" in run("keys", "list").out


def test_list_of_the_example(run: Run) -> None:
    """Also of a ring that is not to be loaded."""
    document = run("keys", "list", "--keys", EXAMPLE, "--json").document
    assert [(key["id"], key["source"]) for key in document["keys"]] == [
        ("k26b", "inline"),
        ("k26a", "inline"),
        ("k25", "file"),
    ]


def test_show_says_what_may_be_done(run: Run, ring: Path) -> None:
    run("keys", "generate", "k2")
    rows = dict(line.split(None, 1) for line in run("keys", "show", "k2").out.splitlines())
    assert (rows["id"], rows["state"], rows["transitions"]) == (
        "k2",
        "staged",
        "promote, compromise, destroy",
    )


@pytest.mark.claim("u12")
def test_material_is_never_shown(run: Run, ring: Path) -> None:
    """Not by any command, in no form."""
    run("keys", "generate", "k2")
    files = list((ring.parent / "keys.d").glob("*.key"))
    secrets = {form for file in files for form in (file.read_text().strip(), file.read_text().strip()[:12])}
    said = ""
    for words in (
        ["list"],
        ["check"],
        ["show", "k1"],
        ["promote", "k2"],
        ["disable", "k1", "--yes"],
        ["generate"],
    ):
        for form in ([], ["--json"]):
            ended = run("keys", *words, *form)
            said += ended.out + ended.err
    assert len(secrets) == 4
    assert not any(secret in said for secret in secrets)


def test_check_finds_each_key_that_is_not_to_be_had(run: Run, ring: Path) -> None:
    for key_id in ("k2", "k3"):
        run("keys", "generate", key_id)
    (ring.parent / "keys.d" / "k2.key").unlink()
    (ring.parent / "keys.d" / "k3.key").chmod(0o644)
    ended = run("keys", "check", "--json")
    problems = {key["id"]: key["problem"] for key in ended.document["keys"]}
    assert ended.code == Exit.KEYS
    assert problems["k1"] is None
    assert "No such file" in problems["k2"]
    assert "0644" in problems["k3"]
    assert ended.err.count("error: ") == ended.err.count("hint: ") == 2


def test_check_sees_an_index_key_that_is_wrong(run: Run, ring: Path) -> None:
    ring.write_text(ring.read_text() + "[[index]]\nsource = { env = 'SEALPOINT_NO_SUCH' }\n")
    assert run("keys", "check").code == Exit.KEYS


def test_missing_ring(run: Run, tmp_path: Path) -> None:
    """Where a ring is looked for, and it is not there."""
    for words in (["list"], ["generate"], ["promote", "k1"], ["check"]):
        explained(run("keys", *words), Exit.KEYS)
        explained(run("keys", *words, "--keys", tmp_path / "no.toml"), Exit.KEYS)


def test_broken_ring(run: Run, ring: Path) -> None:
    ring.write_text("version = 1\nkey = 7\n")
    explained(run("keys", "list"), Exit.USAGE)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["disable", "k1"], Exit.USAGE),
        (["enable", "k1"], Exit.USAGE),
        (["destroy", "k1", "--no-database-check", "--yes"], Exit.USAGE),
        (["generate", "k1"], Exit.USAGE),
        (["generate", "K"], Exit.USAGE),
        (["promote", "nosuch"], Exit.KEYS),
        (["show", "nosuch"], Exit.KEYS),
    ],
)
def test_refusals(run: Run, ring: Path, words: list[str], code: Exit) -> None:
    before = ring.read_bytes()
    explained(run("keys", *words), code)
    assert ring.read_bytes() == before


@pytest.mark.parametrize("kind", ["file", "env", "credential"])
@pytest.mark.parametrize(
    "words", [("destroy", "k2", "--no-database-check", "--yes"), ("wrap", "k2", "--with", "w"), ("check",)]
)
def test_source_with_a_nul(run: Run, ring: Path, kind: str, words: tuple[str, ...]) -> None:
    """TOML can write one, and no path, variable or credential can contain it."""
    run("keys", "generate", "k2")
    ring.write_text(ring.read_text().replace('file = "keys.d/k2.key"', rf'{kind} = "keys\u0000k2"'))
    error = explained(run("keys", *words), Exit.USAGE)
    assert f"source '{kind}' contains a NUL character" in error


def test_held_ring(run: Run, ring: Path) -> None:
    with holding(ring):
        explained(run("keys", "generate"), Exit.HELD)


# --- databases that are looked through --------------------------------------------------------


def test_promote_looks_through_databases(run: Run, ring: Path, tmp_path: Path) -> None:
    """The rows of one key are passed over, those of two are not."""
    file = database(tmp_path, ring)
    run("keys", "generate", "k2")
    assert run("keys", "promote", "k2", "--db", file).code == 0
    run("keys", "generate", "k3")
    error = explained(run("keys", "promote", "k3", "--db", file), Exit.FOUND)
    assert "rows under 'k1'" in error
    assert str(file) in error
    assert states(ring)["k3"] == "staged"
    assert run("keys", "promote", "k3").code == 0


def test_disable_looks_through_databases(run: Run, ring: Path, tmp_path: Path) -> None:
    """It is the step that stops agents. Where it is done already, nothing is asked again."""
    file = database(tmp_path, ring)
    for step in (("generate", "k2"), ("promote", "k2")):
        run("keys", *step)
    error = explained(run("keys", "disable", "k1", "--db", file), Exit.FOUND)
    assert f"cannot disable 'k1': {file} has " in error
    assert states(ring)["k1"] == "decrypt-only"
    assert run("keys", "disable", "k1", "--yes").code == 0
    assert run("keys", "disable", "k1", "--db", file).code == 0
    assert run("keys", "disable", "k1").code == 0


def test_a_disabled_key_whose_material_is_gone_stops_nothing_but_enable(run: Run, ring: Path) -> None:
    for step in (("generate", "k2"), ("promote", "k2"), ("disable", "k1", "--yes")):
        run("keys", *step)
    material = ring.parent / "keys.d" / "k1.key"
    material.rename(ring.parent / "elsewhere")
    assert KeyRing.load(ring).active_id == "k2"
    assert run("keys", "check").code == 0
    assert "key 'k1'" in explained(run("keys", "enable", "k1"), Exit.KEYS)
    assert states(ring)["k1"] == "disabled"
    (ring.parent / "elsewhere").rename(material)
    assert run("keys", "enable", "k1").code == 0


def test_promoting_says_that_the_ring_does_not_load_any_more(run: Run, ring: Path) -> None:
    """The key that goes still opens, so its material is needed; the move itself is done."""
    run("keys", "generate", "k2")
    (ring.parent / "keys.d" / "k1.key").unlink()
    ended = run("keys", "promote", "k2")
    assert (ended.code, states(ring)) == (Exit.DONE, {"k1": "decrypt-only", "k2": "active"})
    _, warning, hint = ended.err.splitlines()
    assert warning.startswith("warning: the ring cannot be loaded: ")
    assert "key 'k1'" in warning
    assert hint.startswith("hint: ")


def test_generate_says_which_file_goes_first(run: Run, ring: Path) -> None:
    said = run("keys", "generate", "k2").err
    file = ring.parent / "keys.d" / "k2.key"
    assert said == (
        f"Copy {file} and then the ring to every host."
        " When `keys check` passes on all hosts: sealpoint keys promote k2\n"
    )


@pytest.mark.claim("k9")
def test_destroy_looks_through_databases(run: Run, ring: Path, tmp_path: Path) -> None:
    file = database(tmp_path, ring)
    for step in (("generate", "k2"), ("promote", "k2"), ("disable", "k1", "--yes")):
        run("keys", *step)
    explained(run("keys", "destroy", "k1", "--yes", "--db", file), Exit.FOUND)
    assert states(ring)["k1"] == "disabled"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
    empty = explained(run("keys", "destroy", "k1", "--yes", "--db", file), Exit.USAGE)
    assert "has no value under any key of the ring" in empty
    assert states(ring)["k1"] == "disabled"
    ended = run("keys", "destroy", "k1", "--yes", "--db", file, "--allow-unrelated", "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["unrelated-allowed"])
    assert states(ring)["k1"] == "destroyed"


def test_destroy_asks_for_databases(run: Run, ring: Path) -> None:
    run("keys", "generate", "k2")
    assert "no database" in explained(run("keys", "destroy", "k2", "--yes"), Exit.USAGE)
    assert states(ring)["k2"] == "staged"


def test_missing_database(run: Run, ring: Path, tmp_path: Path) -> None:
    run("keys", "generate", "k2")
    explained(run("keys", "destroy", "k2", "--yes", "--db", tmp_path / "no.db"), Exit.USAGE)
    explained(run("keys", "promote", "k2", "--db", "postgresql://u:p@h/d"), Exit.USAGE)
    assert states(ring)["k2"] == "staged"


# --- questions --------------------------------------------------------------------------------


def test_destroy_asks_only_on_a_terminal(program: Run, run: Run, ring: Path) -> None:
    """What a pipe says is no answer."""
    run("keys", "generate", "k2")
    ended = program("keys", "destroy", "k2", "--no-database-check", answer="k2\n")
    assert "no terminal" in explained(ended, Exit.USAGE)
    assert states(ring)["k2"] == "staged"


@pytest.mark.parametrize("words", [[], ["--json"]], ids=str)
def test_disable_asks_only_on_a_terminal(program: Run, run: Run, ring: Path, words: list[str]) -> None:
    """Unless a database is examined. What a pipe says is no answer."""
    file = database(ring.parent, ring)
    run("keys", "generate", "k2")
    run("keys", "promote", "k2")
    before = ring.read_bytes()
    ended = program("keys", "disable", "k1", *words, answer="k1\n")
    assert "no terminal to ask for confirmation" in explained(ended, Exit.USAGE)
    assert ring.read_bytes() == before
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE checkpoints SET type = replace(type, '@k1', '@k2')")
    assert program("keys", "disable", "k1", "--db", file).code == Exit.DONE
    assert states(ring)["k1"] == "disabled"


def test_disable_without_a_terminal_asks_for_the_databases(program: Run, run: Run, ring: Path) -> None:
    for step in (("generate", "k2"), ("promote", "k2")):
        run("keys", *step)
    ended = program("keys", "disable", "k1")
    assert (ended.code, states(ring)["k1"]) == (Exit.USAGE, "decrypt-only")
    assert (
        "hint: name databases: --db DB or --db-env NAME; --yes disables the key without a search" in ended.err
    )


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [
        ("k1", Exit.DONE, "disabled"),
        ("yes", Exit.STOPPED, "decrypt-only"),
        ("", Exit.STOPPED, "decrypt-only"),
    ],
)
def test_disable_wants_the_id(
    run: Run, forked: Path, ring: Path, answer: str, code: Exit, state: str
) -> None:
    """If no database is searched: agents that still need the key would fail."""
    for step in (("generate", "k2"), ("promote", "k2")):
        run("keys", *step)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [str(forked), "keys", "disable", "k1", "--json"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, states(ring)["k1"]) == (code, state)
    assert "no database is searched" in done.stderr
    document = Ended(code, done.stdout, "").document
    reason = "no-database" if code is Exit.DONE else "not-completed"
    assert (document["ok"], document["reasons"]) == (None, [reason])
    assert ("Nothing was done." in done.stderr) is (code is not Exit.DONE)


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [("k2", Exit.FOUND, "destroyed"), ("yes", Exit.STOPPED, "staged"), ("", Exit.STOPPED, "staged")],
)
def test_destroy_wants_the_id(
    run: Run, forked: Path, ring: Path, answer: str, code: Exit, state: str
) -> None:
    run("keys", "generate", "k2")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [str(forked), "keys", "destroy", "k2", "--no-database-check"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == code
    assert "type the id of the key" in done.stderr
    assert states(ring)["k2"] == state


def test_destroying_twice_is_done(run: Run, ring: Path) -> None:
    """A run that was stopped can be repeated, without a question. It ends as the first one did."""
    file = database(ring.parent, ring)
    for key_id, words, code in (
        ("k2", ["--no-database-check"], Exit.FOUND),
        ("k3", ["--no-database-check", "--allow-unproven"], Exit.DONE),
        ("k4", ["--db", file], Exit.DONE),
    ):
        run("keys", "generate", key_id)
        assert run("keys", "destroy", key_id, "--yes", *words).code == code
        again = run("keys", "destroy", key_id, *[word for word in words if word == "--allow-unproven"])
        assert (again.code, "type the id of the key" in again.err) == (code, False)
        assert states(ring)[key_id] == "destroyed"


@pytest.mark.parametrize("gone", [False, True])
def test_destroying_says_what_became_of_the_file(run: Run, ring: Path, gone: bool) -> None:
    """It may have been taken away while the key was disabled, and is then not said to be removed."""
    run("keys", "generate", "k2")
    file = ring.parent / "keys.d" / "k2.key"
    if gone:
        file.rename(ring.parent / "safe")
    ended = run("keys", "destroy", "k2", "--yes", "--no-database-check", "--allow-unproven")
    assert ended.code == Exit.DONE
    assert ("did not remove the key's material" in ended.out) == gone
    assert ended.err.startswith("The key file was already gone." if gone else f"{file} is removed.")
    assert "Remove its copies" in ended.err
    assert not file.exists()


# --- advice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["enable", "k1"], "the key opens values already: there is nothing to enable"),
        (["enable", "k2"], "the key opens values already: there is nothing to enable"),
        (["disable", "k1"], "promote another key first: this key then only opens values"),
        (["disable", "k2"], "commands in this state: promote, compromise, destroy"),
        (["init"], "no file is overwritten; to add a key: sealpoint keys generate --keys "),
    ],
)
def test_advice_leads_on(run: Run, ring: Path, words: list[str], hint: str) -> None:
    """Nobody is told to promote a key in order to enable one."""
    run("keys", "generate", "k2")
    ended = run("keys", *words)
    explained(ended, Exit.USAGE)
    assert f"hint: {hint}" in ended.err


def test_shared_folder_is_closed_by_the_command_that_is_named(run: Run, ring: Path) -> None:
    ring.parent.chmod(0o777)
    hint = run("keys", "generate").err.partition("hint: ")[2]
    subprocess.run(["sh", "-c", hint.partition(",")[0]], check=True)
    assert run("keys", "generate").code == Exit.DONE


def test_init_where_no_folder_can_be_made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary account that names a place in /etc, which is not its own."""

    def refuse(folder: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "mkdir", refuse)
    ended = run("keys", "init", "--keys", ringfile.SYSTEM_PATH)
    assert "this account has no right to create" in explained(ended, Exit.KEYS)
    assert "--keys or $SEALPOINT_KEYS" in ended.err


def test_disable_says_that_it_looked_through_no_database(run: Run, ring: Path, tmp_path: Path) -> None:
    """Or through one that shows nothing."""
    file = database(tmp_path, ring)
    for step in (("generate", "k2"), ("promote", "k2")):
        run("keys", *step)
    ended = run("keys", "disable", "k1", "--yes")
    assert (ended.code, states(ring)["k1"]) == (Exit.DONE, "disabled")
    assert ended.out.splitlines()[-1] == "not proven: no database was examined"
    run("keys", "enable", "k1")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE checkpoints SET type = 'msgpack+cobblestone256@k2'")
    assert "warning" not in run("keys", "disable", "k1", "--db", file).err
    run("keys", "enable", "k1")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
    ended = run("keys", "disable", "k1", "--db", file)
    assert f"warning: {file} has no value under any key of the ring" in ended.err


def test_advice_is_for_the_same_ring(run: Run, ring: Path, tmp_path: Path) -> None:
    """Pasted as it stands it changes the ring that the command before it changed, and no other."""
    other = tmp_path / "the other" / "keys.toml"
    run("keys", "init", "k1", "--keys", other)
    before = ring.read_bytes()
    for words in (["generate", "k2"], ["disable", "k1", "--yes"]):
        said = run("keys", *words, "--keys", other).err.splitlines()[0]
        program, *advised = shlex.split(said.partition(": ")[2])
        ended = run(*advised)
        assert (program, ended.code) == ("sealpoint", Exit.DONE)
        assert "sealpoint" not in ended.err or ended.err.endswith(f"--keys '{other}'\n")
    assert states(other) == {"k1": "decrypt-only", "k2": "active"}
    assert ring.read_bytes() == before


# --- trouble ----------------------------------------------------------------------------------


def test_full_disk(run: Run, ring: Path) -> None:
    """No file can be written: an early end that says so, with the ring as it was."""
    before = ring.read_bytes()
    command = ["sh", "-c", 'ulimit -f 0 && exec "$@"', "sh", *CODE, "keys", "generate", "k2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "File too large" in explained(Ended(done.returncode, done.stdout, done.stderr), Exit.STOPPED)
    assert ring.read_bytes() == before
    assert {path.name for path in ring.parent.iterdir()} == {"keys.toml", "keys.d"}
    assert {path.name for path in (ring.parent / "keys.d").iterdir()} == {".gitignore", "k1.key"}


def test_without_tomlkit(ring: Path) -> None:
    """Moves need it, and name the extra; looking does not."""
    blocked = (
        "import sys; sys.modules['tomlkit'] = None; from sealpoint.admin.cli import main; sys.exit(main())"
    )
    for words, code in ((["generate"], Exit.USAGE), (["list"], Exit.DONE)):
        command = [sys.executable, "-c", blocked, "keys", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert ("pip install 'sealpoint[cli]'" in done.stderr) == bool(code)


# --- compromised and expired keys -------------------------------------------------------------


def test_compromised_key_opens_and_every_command_reports_it(run: Run, ring: Path, tmp_path: Path) -> None:
    """On one line of stderr, also with --json; no command that would seal with it is left."""
    file = database(tmp_path, ring)
    run("keys", "generate", "k2")
    run("keys", "promote", "k2")
    assert run("keys", "compromise", "k1").code == Exit.DONE
    line = "warning: key 'k1' is compromised: rotate the values under the key, then destroy it"
    for words in (
        ["keys", "list", "--json"],
        ["keys", "check"],
        ["keys", "show", "k1"],
        ["keys", "generate", "k3"],
        ["status", file],
        ["verify", file],
        ["rotate", file],
    ):
        ended = run(*words)
        assert (words, ended.err.count(line)) == (words, 1)
    assert run("verify", file).code == Exit.DONE
    refused = run("keys", "promote", "k1")
    explained(refused, Exit.USAGE)
    assert states(ring)["k1"] == "compromised"


def test_active_key_is_not_compromised_before_another_is_promoted(run: Run, ring: Path) -> None:
    ended = run("keys", "compromise", "k1")
    explained(ended, Exit.USAGE)
    assert "promote another key first" in ended.err
    assert states(ring) == {"k1": "active"}


def test_key_that_was_compromised_never_seals_again(run: Run, ring: Path) -> None:
    """Disabled and enabled it is compromised, as it was."""
    run("keys", "generate", "k2")
    for words in (["compromise", "k2"], ["disable", "k2", "--yes"], ["enable", "k2"]):
        assert run("keys", *words).code == Exit.DONE
    assert states(ring)["k2"] == "compromised"
    explained(run("keys", "promote", "k2"), Exit.USAGE)


def test_expired_active_key_is_reported_and_seals(run: Run, ring: Path, tmp_path: Path) -> None:
    for expires, count in (
        ("2001-01-01T00:00:00Z", 1),
        ("2001-01-01T00:00:00", 1),
        ("2999-01-01T00:00:00Z", 0),
    ):
        text = re.sub(r"\nexpires = .*", "", ring.read_text())
        ring.write_text(text.replace("\nstate =", f"\nexpires = {expires}\nstate =", 1))
        ended = run("keys", "list")
        assert ended.err.count("the active key 'k1' has expired: promote another") == count
    ring.write_text(ring.read_text().replace("2999", "2001"))
    ended = run("status", database(tmp_path, ring))
    assert ended.err.count("has expired") == 1


def test_generate_writes_when_a_key_expires_and_who_owns_it(run: Run, ring: Path) -> None:
    owner = 'Ops "night" \\ Zürich'
    assert (
        run("keys", "generate", "k2", "--expires", "2027-06-01T12:00:00", "--owner", owner).code == Exit.DONE
    )
    key = json.loads(run("keys", "show", "k2", "--json").out)["keys"][0]
    assert (key["expires"], key["owner"]) == ("2027-06-01T12:00:00+00:00", owner)
    head, _, row = run("keys", "list").out.splitlines()
    assert head.split()[-2:] == ["expires", "owner"]
    assert row.split()[-5:] == ["2027-06-01", *owner.split()]
    explained(run("keys", "generate", "k3", "--owner", "two\nlines"), Exit.USAGE)


def test_times_of_transitions_are_shown(run: Run, ring: Path) -> None:
    run("keys", "generate", "k2")
    run("keys", "promote", "k2")
    run("keys", "disable", "k1", "--yes")
    first, second = json.loads(run("keys", "list", "--json").out)["keys"]
    assert all(first[name] for name in ("created", "activated", "retired", "disabled"))
    assert [second[name] is None for name in ("created", "activated", "retired")] == [False, False, True]
    run("keys", "destroy", "k1", "--no-database-check", "--yes")
    rows = dict(line.split(None, 1) for line in run("keys", "show", "k1").out.splitlines())
    assert (rows["source"], rows["location"], rows["material"]) == ("file", "keys.d/k1.key", "removed")


# --- what was waived, and the digest of a ring ------------------------------------------------


def test_show_names_the_checks_that_were_waived(run: Run, ring: Path) -> None:
    """In its text and in its object, as the ring has them; a key that was examined has none."""
    file = database(ring.parent, ring)
    for key_id, words in (("k2", ["--no-database-check"]), ("k3", ["--db", file])):
        run("keys", "generate", key_id)
        run("keys", "destroy", key_id, "--yes", *words)
    rows = dict(line.split(None, 1) for line in run("keys", "show", "k2").out.splitlines())
    assert rows["waived"] == "database-check"
    assert "waived" not in run("keys", "show", "k3").out
    waived = {key["id"]: key["waived"] for key in run("keys", "list", "--json").document["keys"]}
    assert waived == {"k1": [], "k2": ["database-check"], "k3": []}
    assert ring.read_text().count("waived = ") == 1


def digest_of(run: Run) -> str:
    digest = run("keys", "list", "--json").document["ring"]["digest"]
    assert isinstance(digest, str)
    return digest


def test_digest_of_a_ring_changes_with_states_and_not_with_dates(run: Run, ring: Path) -> None:
    """Nor with the order of the keys, comments, or the place of the file."""
    run("keys", "generate", "k2")
    seen = [digest_of(run)]
    for words in (
        ["promote", "k2"],
        ["disable", "k1", "--yes"],
        ["destroy", "k1", "--yes", "--no-database-check"],
    ):
        run("keys", *words)
        seen.append(digest_of(run))
    assert len(set(seen)) == 4
    text = ring.read_text()
    dated = re.sub(r"(created|activated|retired) = \S+", r"\1 = 2001-01-01T00:00:00Z", text)
    ring.write_text(f"# a comment\n{dated}")
    assert (dated != text, digest_of(run)) == (True, seen[-1])
    ring.write_text(text.replace('id = "k2"', 'id = "k9"').replace('active = "k2"', 'active = "k9"'))
    assert digest_of(run) not in seen


def test_digest_can_be_computed_by_others(run: Run, ring: Path) -> None:
    """From the ring's own fields, as the page describes it."""
    run("keys", "generate", "k2")
    document = run("keys", "list", "--json").document
    names = ("id", "state", "suite", "check", "source", "location")
    lines = sorted(json.dumps([key[name] for name in names]) + "\n" for key in document["keys"])
    assert document["ring"]["digest"] == "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()


def test_an_index_key_is_added_once(run: Run, ring: Path) -> None:
    """A second one would make all tokens of the first useless."""
    done = run("keys", "generate", "--index", "--keys", ring)
    assert done.code == Exit.DONE
    assert "keys.d/index.key" in done.err
    loaded = KeyRing.load(ring)
    assert loaded.index_key("metadata") == KeyRing.load(ring).index_key("metadata")
    text = ring.read_text()
    again = run("keys", "generate", "--index", "--keys", ring)
    assert again.code == Exit.USAGE
    assert "already has an index key" in again.err
    assert ring.read_text() == text


def test_an_index_key_has_no_id(run: Run, ring: Path) -> None:
    """It is not one of the keys that values are sealed under."""
    text = ring.read_text()
    assert run("keys", "generate", "k9", "--index", "--keys", ring).code == Exit.USAGE
    assert ring.read_text() == text


@pytest.mark.parametrize("has_own", [False, True], ids=["new", "with a .gitignore"])
def test_git_adds_no_key(run: Run, tmp_path: Path, has_own: bool) -> None:
    """Of `keys init`, `keys generate` and `init`; a .gitignore that is there stays."""
    repository = tmp_path / "repository"
    for name, words in {
        "keys": ["keys", "init", "k1"],
        "generated": ["keys", "init", "k1"],
        "first": ["init", "state.db", "--yes"],
    }.items():
        folder = repository / name
        (folder / "keys.d").mkdir(parents=True, mode=0o700)
        if has_own:
            (folder / "keys.d" / ".gitignore").write_text("# mine\n*.key\n")
        subprocess.run([*CODE, *words, "--keys", folder / "keys.toml"], cwd=folder, check=True)
        if name == "generated":
            if not has_own:
                (folder / "keys.d" / ".gitignore").unlink()  # as of an earlier release
            run("keys", "generate", "k2", "--keys", folder / "keys.toml")
        if has_own:
            assert (folder / "keys.d" / ".gitignore").read_text() == "# mine\n*.key\n"
    git = ["git", "-C", str(repository)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    added = subprocess.run([*git, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "keys/keys.toml" in added
    assert not [path for path in added if path.endswith(".key")]
