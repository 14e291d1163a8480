"""No command prints a character that moves a cursor, or turns a line round, wherever it met the text."""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from sealpoint.admin.results.exits import Exit
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.cli.conftest import Ended, Run
from tests.cli.test_hostile import NAMES
from tests.support.databases.bound import INDEX, write_file
from tests.support.databases.foreign import insert
from tests.support.keys.rings import states_text

HOSTILE: Final = f"{NAMES}\x7f\u2066[red]"
LEDGER: Final = "\n[ledger]\ndir = 'ledger'\norigin = 'example.org'\nsigner = { file = 'ledger.key' }\n"

COMMANDS: Final = [
    "status app.db",
    "verify app.db",
    "verify app.db --bound",
    "verify app.db --pin pin.json",
    "audit app.db",
    "types app.db",
    "types app.db --emit",
    "trial app.db",
    "inspect app.db",
    "report",
    "rotate app.db",
    "rebind app.db",
    "scrub app.db",
    "decrypt app.db --out copy.db",
    "heads seal",
    "heads seal --pin pin.json",
    "heads trim --before 2026-01-31 --yes",
    "heads adopt app.db --reason test --yes",
    "keys list",
    "keys check",
]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database and its thread store, whose texts are an attacker's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.key").write_text(INDEX.hex())
    (tmp_path / "index.key").chmod(0o600)
    ring = tmp_path / "keys.toml"
    text = states_text(k2="active", k1="decrypt-only")
    ring.write_text(
        f"{text}\n[[index]]\nid = 'index'\nsource = {{ file = 'index.key' }}\n"
        "[threads]\nstore = 'threads.db'\n"
    )
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    SqliteThreadStore("threads.db", create=True).close()
    write_file(tmp_path / "app.db")
    insert(
        tmp_path / "app.db",
        [("msgpack", b"\xa1\x9b"), (HOSTILE, b"x"), (f"{HOSTILE}+aes", b"x")],
        thread=HOSTILE,
    )
    with closing(sqlite3.connect("threads.db")) as connection, connection:
        connection.execute("UPDATE store SET identity = ?", (HOSTILE,))
    (tmp_path / "pin.json").write_text(json.dumps({"version": 1, "store": HOSTILE, "events": 0}))
    return tmp_path


@pytest.fixture
def ledger(tmp_path: Path, ring: Path, run: Run) -> Path:
    """A ledger whose last entry is an attacker's."""
    with ring.open("a") as stream:
        stream.write(LEDGER)
    assert run("ledger", "init").code == Exit.DONE
    entries = tmp_path / "ledger" / "entries.jsonl"
    first = json.loads(entries.read_text().splitlines()[0])
    first |= {"seq": 1, "subject": {HOSTILE: HOSTILE}, "event": HOSTILE, "actor": {"host": HOSTILE}}
    with entries.open("a") as stream:
        stream.write(f"{json.dumps(first)}\n")
    return tmp_path / "ledger"


def require_quiet(ended: Ended) -> None:
    shown = {sign for sign in ended.out + ended.err if unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp")}
    assert shown <= {"\n"}, ended


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("words", COMMANDS)
def test_hostile_text_is_escaped(run: Run, hostile: Path, words: str, as_json: bool) -> None:
    ended = run(*words.split(), *["--json"] * (as_json and "--emit" not in words))
    assert ended.code in set(Exit) - {Exit.BUG}
    require_quiet(ended)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("words", ["show", "verify", "prove 0", "prove 1"])
def test_hostile_entries_are_escaped(run: Run, ledger: Path, words: str, as_json: bool) -> None:
    ended = run("ledger", *words.split(), *["--json"] * as_json)
    assert ended.code in set(Exit) - {Exit.BUG}
    require_quiet(ended)


def test_the_identity_of_a_store_is_one_line(run: Run, hostile: Path) -> None:
    """A newline in it begins no line of its own."""
    ended = run("heads", "seal")
    assert ended.code == Exit.DONE
    assert len(ended.out.splitlines()) == 3
    assert ended.out.startswith(r"thread store \x1b]0;t\x07")


@pytest.mark.parametrize("name", ["a\x9b31m", "a\u202eb", "a\x7fb"], ids=ascii)
def test_a_signature_of_another_key_is_refused_with_controls_in_its_name(
    run: Run, ledger: Path, name: str
) -> None:
    """Nothing verifies the line, and a proof has it unchanged."""
    note = ledger / "checkpoint"
    signature = note.read_text().splitlines()[-1].split(" ")[2]
    before = note.read_text()
    note.write_text(f"{before}\u2014 witness.example {signature}\n")
    assert run("ledger", "prove", "0").out.endswith(f"\u2014 witness.example {signature}\n")
    note.write_text(f"{before}\u2014 {name} {signature}\n")
    ended = run("ledger", "prove", "0")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "control characters" in ended.err
    require_quiet(ended)
