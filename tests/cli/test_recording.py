"""What commands record in the ledger that the ring names: before they begin, and when they have ended."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.cli import app
from sealpoint.admin.cli.app import COMMANDS
from sealpoint.admin.evidence import VerifierKey, verify_ledger
from sealpoint.admin.evidence.recorder import Act, Recorder
from sealpoint.admin.keys.edit import create_ring
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.result import Result
from sealpoint.keys.ringfile import RingFile
from sealpoint.threads import Head, Kind, Spot, SqliteThreadStore
from tests.cli.conftest import CODE, Run
from tests.support.databases.sealed import write

TABLE = '\n[ledger]\ndir = "ledger"\norigin = "example.org/agents"\nsigner = { file = "ledger.key" }\n'


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring that names a ledger, which is not yet created."""
    file = tmp_path / "keys.toml"
    create_ring(file, "k1")
    file.write_text(file.read_text() + TABLE)
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    return file


@pytest.fixture
def ledger(ring: Path, run: Run) -> Path:
    assert run("ledger", "init").code == Exit.DONE
    return ring.parent / "ledger"


def entries(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ledger / "entries.jsonl").read_bytes().splitlines()]


def new(ledger: Path, seen: int = 1) -> list[tuple[str, str, int | None]]:
    """The entries after the first ``seen``: event, outcome and exit code of each."""
    return [(each["event"], each["outcome"], each["exit"]) for each in entries(ledger)[seen:]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with a sealed thread of another ring."""
    file = tmp_path / "state.db"
    write(file, "k2", "a")
    return file


def test_every_event_has_a_command_and_is_on_the_page() -> None:
    assert app.EVENTS.keys() <= COMMANDS
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    events = {"ring.drift", "ledger.recovered"}.union(*app.EVENTS.values())
    assert {event for event in events if f"`{event}`" not in page} == set()


def test_init_makes_a_signing_key_and_prints_the_verifier_key(ring: Path, run: Run) -> None:
    ended = run("ledger", "init")
    key = VerifierKey.parse(ended.out.strip())
    assert key.name == "example.org/agents"
    assert (ring.parent / "ledger.key").stat().st_mode & 0o777 == 0o600
    head = ended.err.strip().splitlines()[-1]
    assert head.startswith("ledger head: example.org/agents 1 ")
    (first,) = entries(ring.parent / "ledger")
    assert (first["event"], first["subject"]) == ("ledger.init", {"vkey": str(key)})
    (ring.parent / "ledger.key").unlink()
    assert run("ledger", "init").code == Exit.USAGE
    assert not (ring.parent / "ledger.key").exists()


def test_keys_through_their_states(ledger: Path, run: Run) -> None:
    words = [
        ("generate", "k2"),
        ("promote", "k2"),
        ("disable", "k1", "--yes"),
        ("enable", "k1"),
        ("compromise", "k1"),
        ("destroy", "k1", "--no-database-check", "--yes"),
    ]
    for each in words:
        run("keys", *each)
    ends = [each for each in entries(ledger) if each["outcome"] != "begun"][1:]
    assert [each["event"] for each in ends] == [
        "key.stage",
        "key.promote",
        "key.disable",
        "key.enable",
        "key.compromise",
        "key.destroy",
    ]
    assert [each["subject"]["key"] for each in ends] == ["k2", "k2", "k1", "k1", "k1", "k1"]
    assert ends[-1]["waived"] == ["database-check"]
    assert [each["ring"]["active"] for each in ends] == ["k1", *["k2"] * 5]
    assert "ring.drift" not in [each["event"] for each in entries(ledger)]
    assert verify_ledger(ledger).unended == 0


def test_listed_databases_are_recorded_as_named_ones_are(ledger: Path, run: Run, tmp_path: Path) -> None:
    """Of a transition all that it examines; of another command those that are named, or else those."""
    write(tmp_path / "a.db", "k2", "a")
    write(tmp_path / "b.db", "k2", "a")
    ring = tmp_path / "keys.toml"
    ring.write_text(ring.read_text() + "\n[[database]]\npath = 'a.db'\n")
    run("keys", "generate", "k3")
    listed, other = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    for words, databases in (
        (["keys", "promote", "k3"], [listed]),
        (["keys", "disable", "k1", "--yes", "--db", other], [other, listed]),
        (["keys", "disable", "k1", "--yes", "--no-database-check"], None),
        (["keys", "enable", "k1"], None),
        (["verify"], [listed]),
        (["verify", other], [other]),
        (["report"], [listed]),
    ):
        run(*words)
        assert entries(ledger)[-1]["subject"].get("database") == databases


def test_key_that_is_named_by_the_command_is_recorded(ledger: Path, run: Run) -> None:
    run("keys", "generate")
    begun, done = entries(ledger)[1:]
    assert begun["subject"] == {"key": None}
    assert done["subject"]["key"].startswith("k26")


def test_refusals_are_recorded(ledger: Path, run: Run) -> None:
    assert run("keys", "promote", "k9").code == Exit.KEYS
    assert run("keys", "compromise", "k1").code == Exit.USAGE
    assert new(ledger) == [
        ("key.promote", "begun", None),
        ("key.promote", "refused", Exit.KEYS),
        ("key.compromise", "begun", None),
        ("key.compromise", "refused", Exit.USAGE),
    ]


def test_error_object_and_entries_are_of_one_run(ledger: Path, run: Run) -> None:
    ended = run("keys", "promote", "k9", "--json")
    assert {each["run"] for each in entries(ledger)[1:]} == {ended.document["run"]}


def test_findings_are_recorded_with_their_document(ledger: Path, run: Run, database: Path) -> None:
    ended = run("verify", database, "--json")
    assert ended.code == Exit.KEYS
    begun, done = entries(ledger)[1:]
    assert (begun["event"], begun["outcome"], begun["documents"]) == ("verify", "begun", [])
    assert begun["subject"] == {"database": [str(database)]}
    assert (done["outcome"], done["exit"], done["run"]) == ("refused", Exit.KEYS, ended.document["run"])
    assert done["counts"]["failed"] == ended.document["failed"] > 0
    (file,) = (ledger / "documents").iterdir()
    assert done["documents"] == [f"sha256:{file.stem}"]
    document = json.loads(file.read_bytes())
    assert (document["run"], document["ok"]) == (ended.document["run"], False)
    assert "failures" not in document
    assert document["databases"][0]["database"] == ended.document["database"]


def test_rotation_is_recorded_and_its_plan_is_not(ledger: Path, run: Run, tmp_path: Path) -> None:
    seal(tmp_path / "own.db", ledger)
    run("rotate", tmp_path / "own.db")
    assert new(ledger) == []
    assert run("rotate", tmp_path / "own.db", "--apply", "--verify", "sample").code == Exit.DONE
    assert new(ledger) == [("rotate.begin", "begun", None), ("rotate.end", "done", Exit.DONE)]
    assert entries(ledger)[-1]["waived"] == ["verify-sample"]


def seal(path: Path, ledger: Path) -> None:
    """Write a thread that the ring beside the ledger has sealed."""
    from sealpoint.base import empty_checkpoint
    from sealpoint.crypto import KeyRing, RingCipher
    from sealpoint.serde import EncryptedSerializer
    from sealpoint.sqlite import SqliteSaver

    serde = EncryptedSerializer(RingCipher(KeyRing.load(ledger.parent / "keys.toml")))
    with SqliteSaver.from_conn_string(str(path), serde=serde) as saver:
        config = {"configurable": {"thread_id": "thread of a person", "checkpoint_ns": ""}}
        checkpoint = empty_checkpoint() | {"channel_values": {"secret": "a value"}}
        saver.put(config, checkpoint, {}, {"secret": "1"})  # type: ignore[arg-type]


def test_a_change_of_some_of_several_databases_is_not_recorded_as_refused(
    ledger: Path, run: Run, tmp_path: Path
) -> None:
    """What is refused has changed nothing; here one database was changed, and another was not."""
    path, missing = tmp_path / "plain.db", tmp_path / "missing.db"
    write(path, "plain", "a")
    ended = run("rotate", path, missing, "--allow-plaintext", "--apply")
    assert (ended.code, "no file at" in ended.err) == (Exit.USAGE, True)
    assert run("rotate", missing, f"{missing}2", "--apply").code == Exit.USAGE
    assert [each[1:] for each in new(ledger) if each[0] == "rotate.end"] == [
        ("stopped", Exit.USAGE),
        ("refused", Exit.USAGE),
    ]


def test_root_of_a_thread_store_is_recorded(ledger: Path, run: Run, tmp_path: Path) -> None:
    """Who has the head of the ledger has the root of the store too."""
    with closing(SqliteThreadStore(tmp_path / "threads.db", create=True)) as store:
        store.append([Head(Spot("t", "", "1"), Kind.PUT, bytes(16))])
    ended = run("heads", "seal", str(tmp_path / "threads.db"), "--json")
    assert new(ledger) == [("heads.seal", "begun", None), ("heads.seal", "done", 0)]
    assert entries(ledger)[-1]["subject"]["pin"] == json.loads(ended.out)["pin"]


@pytest.mark.parametrize("with_index", [True, False])
def test_thread_is_recorded_as_its_hmac(ledger: Path, run: Run, tmp_path: Path, with_index: bool) -> None:
    """Neither a thread's id nor a value is in the ledger, whether or not there is an index key."""
    if with_index:
        run("keys", "generate", "--index")
    seal(tmp_path / "own.db", ledger)
    shown = run("inspect", tmp_path / "own.db", "--thread", "thread of a person")
    assert "a value" in shown.out
    run("decrypt", tmp_path / "own.db", "--out", tmp_path / "open.db")
    run("verify", tmp_path / "own.db", "--json")
    run("rebind", tmp_path / "own.db", "--thread", "thread of a person", "--apply")
    begun, _, copy, *_ = [each for each in entries(ledger) if each["event"] in {"inspect", "decrypt"}]
    assert (str(begun["subject"]["thread"]).startswith("hmac-sha256:")) is with_index
    assert copy["subject"]["out"] == str(tmp_path / "open.db")
    for file in ledger.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert b"thread of a person" not in data
            assert b"a value" not in data


def test_passwords_are_not_recorded(ledger: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "postgresql://user:hunter2@127.0.0.1:1/none")
    assert run("verify", "postgresql://user:hunter2@127.0.0.1:1/none").code == Exit.USAGE
    run("verify", "--db-env", "DB")
    assert entries(ledger)[-1]["subject"] == {"database": ["$DB"]}
    assert all(b"hunter2" not in file.read_bytes() for file in ledger.rglob("*") if file.is_file())


def test_ring_that_was_changed_by_hand_is_recorded(ledger: Path, ring: Path, run: Run) -> None:
    run("keys", "generate", "k2")
    before = entries(ledger)[-1]["ring"]
    ring.write_text(ring.read_text().replace('"staged"', '"decrypt-only"'))
    run("keys", "disable", "k2", "--yes")
    drift, begun, done = entries(ledger)[3:]
    assert (drift["event"], drift["subject"]) == ("ring.drift", {"was": before["digest"]})
    assert drift["ring"] == begun["ring"] != before
    assert done["outcome"] == "done"


def recorder(ring: Path) -> Recorder:
    """Of a command that has read the ring and not begun, as another process."""
    file = RingFile(ring)
    assert file.ledger is not None
    return Recorder(file, file.ledger, Result("keys generate"), Act("key.stage", "key.stage"))


def test_commands_that_overlap_are_not_a_change_by_hand(ledger: Path, ring: Path, run: Run) -> None:
    """The second has read the ring before the first changed it. It was once `ring.drift`."""
    second = recorder(ring)
    run("keys", "generate", "k2")
    second.begin()
    second.end("done", 0, None)
    assert "ring.drift" not in [each["event"] for each in entries(ledger)]


def test_a_change_while_a_command_runs_names_its_run(ledger: Path, ring: Path, run: Run) -> None:
    """The first has changed the ring, and its end is not recorded yet: by its run, or by hand."""
    run("keys", "generate", "k2")
    first = recorder(ring)
    first.begin()
    before = entries(ledger)[-1]
    ring.write_text(ring.read_text().replace('"staged"', '"decrypt-only"'))
    run("keys", "generate", "k3")
    (drift,) = [each for each in entries(ledger) if each["event"] == "ring.drift"]
    assert drift["subject"] == {"was": before["ring"]["digest"], "during": [before["run"]]}


# --- a ledger that cannot be written refuses the command -----------------------------------


def test_begin_is_on_the_disk_before_the_effect(
    ledger: Path, ring: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    text = ring.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        ended = run("keys", "generate", "k2", "--json")
    assert (ended.code, ended.has_no_result) == (Exit.STOPPED, True)
    assert "the ledger in" in ended.err
    assert (ring.read_text(), new(ledger)) == (text, [])


def test_ledger_that_is_not_created_refuses_the_command(ring: Path, run: Run) -> None:
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.USAGE
    assert "sealpoint ledger init" in ended.err
    assert "k2" not in ring.read_text()


def test_ring_that_cannot_be_read_refuses_commands_that_need_none(
    ledger: Path, ring: Path, run: Run, tmp_path: Path
) -> None:
    """It may name a ledger: the end of a log must not be removed without a record."""
    store = tmp_path / "threads.db"
    with closing(SqliteThreadStore(store, create=True)) as threads:
        threads.append([Head(Spot("t", "", "1"), kind, bytes(16)) for kind in (Kind.PUT, Kind.DELETED)])
        threads.append([Head(Spot("t", "", "2"), Kind.PUT, bytes(16))])
    trim = ("heads", "trim", str(store), "--before", "2999-01-01", "--yes")
    text = ring.read_text()
    for damage in (lambda: ring.chmod(0o660), lambda: ring.write_text("version ="), ring.unlink):
        damage()
        for words in (trim, ("heads", "seal", str(store))):
            assert run(*words).code in (Exit.KEYS, Exit.USAGE)
            assert run(*words, "--keys", str(ring)).code in (Exit.KEYS, Exit.USAGE)
    with closing(SqliteThreadStore(store)) as threads:
        assert threads.trimmed() == 0
    ring.write_text(text)
    ended = run(*trim)
    assert (ended.code, ended.out.splitlines()[0]) == (Exit.DONE, "records of deleted checkpoints removed: 1")
    assert new(ledger) == [("heads.trim", "begun", None), ("heads.trim", "done", 0)]


def test_signer_that_is_missing_or_another_refuses_the_command(ledger: Path, ring: Path, run: Run) -> None:
    key = ring.parent / "ledger.key"
    key.rename(key.with_suffix(".away"))
    assert run("keys", "generate", "k2").code == Exit.KEYS
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.KEYS
    assert "the ledger belongs to" in ended.err
    ring.write_text(ring.read_text().replace('signer = { file = "ledger.key" }\n', ""))
    assert "names no signer" in run("keys", "generate", "k2").err
    assert "k2" not in ring.read_text()


def test_tampered_ledger_refuses_the_command(ledger: Path, ring: Path, run: Run) -> None:
    with (ledger / "entries.jsonl").open("ab") as file:
        file.write(b"{}\n")
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.FOUND
    assert "k2" not in ring.read_text()


@pytest.mark.parametrize("place", ["nothing", "link", "file"])
def test_ledger_without_a_folder_of_documents_refuses_the_command(
    ledger: Path, ring: Path, run: Run, place: str
) -> None:
    """The end would not be recorded."""
    documents = ledger / "documents"
    documents.rename(ledger.parent / "elsewhere")
    if place == "link":
        documents.symlink_to(ledger.parent / "elsewhere")
    elif place == "file":
        documents.touch()
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.FOUND
    assert "must be a folder" in ended.err
    assert "k2" not in ring.read_text()
    assert new(ledger) == []


def test_end_that_cannot_be_recorded_is_reported(
    ledger: Path, ring: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sealpoint.admin.evidence import recorder

    genuine = recorder.Recorder.begin

    def begin_and_remove(self: Any) -> None:
        genuine(self)
        (ledger / "checkpoint").unlink()

    monkeypatch.setattr(recorder.Recorder, "begin", begin_and_remove)
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.USAGE
    assert "the command has ended, but its end is not in the ledger" in ended.err
    assert "k2" in ring.read_text()
    assert new(ledger) == [("key.stage", "begun", None)]


def test_run_that_is_killed_is_seen_as_not_ended(ledger: Path, run: Run) -> None:
    code = (
        "import os; from sealpoint.admin.keys import edit; edit.stage_key = lambda *_, **__: os._exit(9);"
        "from sealpoint.admin.cli.app import run; run(['keys', 'generate', 'k2'])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert new(ledger) == [("key.stage", "begun", None)]
    ended = run("ledger", "verify", "--json")
    assert (ended.document["unended"], ended.document["ok"]) == (1, None)


# --- without a ledger -----------------------------------------------------------------------


def test_without_a_ledger_nothing_of_it_is_imported(tmp_path: Path) -> None:
    create_ring(tmp_path / "keys.toml", "k1")
    code = (
        "import sys; from sealpoint.admin.cli.app import run; code = run(['keys', 'generate', 'k2']);"
        "print(code, [name for name in sys.modules if name.startswith('sealpoint.admin.evidence')])"
    )
    environment = os.environ | {"SEALPOINT_KEYS": str(tmp_path / "keys.toml")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"0 []"
    assert b"ledger head" not in done.stderr


# --- the commands of the ledger ---------------------------------------------------------------


def test_verify_needs_key_and_pin(ledger: Path, run: Run, tmp_path: Path) -> None:
    vkey = (ledger / "vkey").read_text().strip()
    pin = tmp_path / "ticket.txt"
    pin.write_text(run("keys", "generate", "k2").err.strip().rpartition("ledger head: ")[2])
    run("keys", "promote", "k2")
    bare = run("ledger", "verify", "--json")
    assert (bare.code, bare.document["ok"]) == (Exit.FOUND, None)
    assert bare.document["reasons"] == ["signer-not-given", "pin-not-given"]
    assert run("ledger", "verify", "--allow-unproven").code == Exit.DONE
    whole = run("ledger", "verify", "--vkey", vkey, "--pin", pin, "--pin", ledger / "checkpoint", "--json")
    assert (whole.code, whole.document["ok"], whole.document["pins"]) == (Exit.DONE, True, 2)
    assert (whole.document["entries"], whole.document["documents"]) == (5, 2)
    shown = run("ledger", "verify", "--vkey", vkey, "--pin", pin)
    assert shown.out.splitlines()[-1] == "ok"


def test_a_pin_is_the_line_as_it_was_printed(ledger: Path, run: Run, tmp_path: Path) -> None:
    """The whole line is what a ticket has, and what `--help` and docs/evidence.md call a pin."""
    pin = tmp_path / "ticket.txt"
    pin.write_text(run("keys", "generate", "k2").err.splitlines()[-1] + "\n")
    assert pin.read_text().startswith("ledger head: ")
    ended = run("ledger", "verify", "--vkey", ledger / "vkey", "--pin", pin, "--json")
    assert (ended.code, ended.document["ok"], ended.document["pins"]) == (Exit.DONE, True, 1)
    pin.write_text(pin.read_text().replace(" 3 ", " 2 "))
    ended = run("ledger", "verify", "--vkey", ledger / "vkey", "--pin", pin, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["ledger-differs"])


def test_a_verifier_key_that_is_no_file_either_is_named(ledger: Path, run: Run) -> None:
    ended = run("ledger", "verify", "--vkey", "vkey.text")
    assert ended.code == Exit.USAGE
    assert "--vkey: 'vkey.text' is neither a file nor a key in the form NAME+ID+KEY" in ended.err


def test_a_ledger_that_is_gone_is_not_to_be_named_again(ledger: Path, run: Run) -> None:
    """The ring names it already: the folder is to be restored, and a new ledger is not the first advice."""
    ledger.rename(ledger.with_name("elsewhere"))
    ended = run("keys", "generate", "k2")
    assert ended.code == Exit.USAGE
    hint = next(line for line in ended.err.splitlines() if line.startswith("hint: "))
    assert hint.startswith("hint: restore the folder of the ledger")
    assert "add [ledger] with dir and origin" not in ended.err


def test_show_has_the_roots_of_pins_and_no_objects(ledger: Path, run: Run, tmp_path: Path) -> None:
    SqliteThreadStore(tmp_path / "threads.db", create=True).close()
    sealed = run("heads", "seal", str(tmp_path / "threads.db"), "--json").document
    shown = run("ledger", "show").out
    assert f"pin {sealed['pin']['root']}\n" in shown
    assert "{" not in shown


def test_verify_names_what_is_wrong(ledger: Path, run: Run) -> None:
    file = ledger / "entries.jsonl"
    file.write_bytes(file.read_bytes().replace(b"ledger.init", b"ledger.exit"))
    ended = run("ledger", "verify", "--vkey", ledger / "vkey")
    assert ended.code == Exit.FOUND
    assert ended.out.splitlines()[-1].startswith("not ok: the entries of the ledger do not match")
    assert "error: the entries do not match the signed checkpoint" in ended.err


def test_entry_that_is_damaged_is_a_finding(ledger: Path, run: Run) -> None:
    """Also for a command that reads the last entry alone: of the length that it had."""
    file = ledger / "entries.jsonl"
    file.write_bytes(file.read_bytes().replace(b'{"actor"', b'{"acter"'))
    assert run("ledger", "show").code == Exit.FOUND
    ended = run("keys", "generate", "k2")
    assert (ended.code, "the last entry is not valid" in ended.err) == (Exit.FOUND, True)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["checkpoint", "entries.jsonl", "vkey"])
def test_pipe_in_the_place_of_a_file_is_a_finding(ledger: Path, run: Run, name: str) -> None:
    """No command waits for a process that writes into it; `ledger show` reads the entries alone."""
    (ledger / name).unlink()
    os.mkfifo(ledger / name)
    commands = [("verify",), ("prove", "0"), *([("show",)] if name == "entries.jsonl" else [])]
    for command in [*(("ledger", *each) for each in commands), ("keys", "generate", "k2")]:
        ended = run(*command)
        assert (ended.code, "is not a regular file" in ended.err) == (Exit.FOUND, True), command


def test_ledger_is_read_without_a_ring(ledger: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assessor has a copy of the folder, and neither the ring nor its keys."""
    monkeypatch.delenv("SEALPOINT_KEYS")
    for words in (["show"], ["prove", "0"], ["verify", "--allow-unproven"]):
        assert run("ledger", *words, "--ledger", ledger).code == Exit.DONE


@pytest.mark.parametrize("columns", [80, 120])
def test_show_fits_a_terminal(ledger: Path, run: Run, database: Path, columns: int) -> None:
    run("verify", database)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    subprocess.run([*CODE, "ledger", "show"], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    lines = re.sub(r"\x1b\[\d*m", "", os.read(ours, 10_000).decode()).splitlines()
    os.close(ours)
    assert all(len(line) <= columns for line in lines)
    assert [line.split()[:4] for line in lines[:1]] == [["seq", "at", "event", "outcome"]]
    assert any("  refused " in line for line in lines)


def test_proof_and_entry(ledger: Path, run: Run) -> None:
    document = run("ledger", "prove", "0", "--json").document
    assert document["entry"].encode() == (ledger / "entries.jsonl").read_bytes().rstrip()
    assert document["proof"] == run("ledger", "prove", "0").out
    assert run("ledger", "prove", "9").code == Exit.USAGE


def test_show_escapes_what_it_shows(ledger: Path, run: Run, tmp_path: Path) -> None:
    run("verify", tmp_path / "\x1b[31m\u202e.db")
    shown = run("ledger", "show")
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    assert all(line.isascii() for line in (ledger / "entries.jsonl").read_bytes().splitlines())


def test_new_signer_continues_the_old_ledger(ledger: Path, ring: Path, run: Run) -> None:
    ring.write_text(ring.read_text().replace('"ledger"', '"ledger-2"').replace("ledger.key", "ledger-2.key"))
    assert run("ledger", "init", "--previous", ledger).code == Exit.DONE
    (first,) = entries(ring.parent / "ledger-2")
    assert first["subject"]["previous"]["checkpoint"] == (ledger / "checkpoint").read_text()
    assert first["subject"]["previous"]["vkey"] == (ledger / "vkey").read_text().strip()


SIGN = """
import base64, sys
from pathlib import Path
from sealpoint.crypto.signing import SigningKey
key = SigningKey(bytes(range(32)))
print(base64.b64encode(key.sign(sys.stdin.buffer.read())).decode())
"""


def test_command_signs(ring: Path, run: Run, tmp_path: Path) -> None:
    from tests.support.keys.ledgers import OTHER_SIGNER, SIGNER

    script = tmp_path / "sign.py"
    script.write_text(SIGN)
    command = f"signer = {{ command = [{sys.executable!r}, {str(script)!r}] }}"
    ring.write_text(ring.read_text().replace('signer = { file = "ledger.key" }', command))
    assert "is not known" in run("ledger", "init").err
    wrong = run("ledger", "init", "--vkey", OTHER_SIGNER.key)
    assert (wrong.code, "printed no valid signature of" in wrong.err) == (Exit.KEYS, True)
    assert run("ledger", "init", "--vkey", SIGNER.key).code == Exit.DONE
    assert run("keys", "generate", "k2").code == Exit.DONE
    assert not verify_ledger(ring.parent / "ledger", SIGNER.key).problems


@pytest.mark.costly
def test_commands_wait_for_each_other(ledger: Path) -> None:
    """Two runs at once, each with a begin and an end, on one ledger."""
    commands = [[*CODE, "keys", "enable", "k1"] for _ in range(4)]
    running = [subprocess.Popen(each, stderr=subprocess.DEVNULL) for each in commands]
    for each in running:
        each.wait()
    found = entries(ledger)[1:]
    assert len(found) == 8
    assert verify_ledger(ledger).unended == 0
    assert len({each["run"] for each in found}) == 4
