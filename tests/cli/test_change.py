"""`rotate` and `decrypt`: how each run ends, what it prints, and what stands in the database afterwards."""

from __future__ import annotations

import base64
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict

from sealpoint import KeyRing, RingCipher
from sealpoint.admin.cli import decrypt as decrypt_command
from sealpoint.admin.databases.sqlite import rows as sqlite_rows
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance import job, scrub
from sealpoint.admin.results.exits import Exit
from sealpoint.crypto.zstd import require_zstd
from sealpoint.errors import ScrubError
from tests.cli.conftest import CODE, Ended, Run
from tests.support.databases import foreign
from tests.support.databases.harm import flip
from tests.support.databases.postgres import K1, blobs, contents, put_blobs, set_up
from tests.support.databases.sealed import (
    AES_KEY,
    VALUES,
    make_cipher,
    opened,
    sealing,
    states,
    tags_of,
    values_of,
    write,
)
from tests.support.keys.rings import material_of, states_text
from tests.support.servers.postgres import schema, server

ROOT = Path(__file__).parents[2]
MANY = 400
"""So many that a run is met in the middle of it."""


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring that seals under k2 and opens with k1, named in the environment."""
    file = tmp_path / "ring.toml"
    set_ring(file, k2="active", k1="decrypt-only")
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    return file


def set_ring(file: Path, **states: str) -> None:
    """Write a ring; the id ``langgraph`` is LANGGRAPH_AES_KEY."""
    legacy = states.pop("langgraph", None)
    text = states_text(**states)
    if legacy:
        lines = ["[[key]]", "id = 'langgraph'", f"state = '{legacy}'", "suite = 'aes'"]
        text += "\n".join([*lines, f"source = {{ inline = '{AES_KEY.decode()}' }}", ""])
    file.write_text(text)
    file.chmod(0o600)


def add_rows(path: Path, number: int) -> None:
    """Put copies of a checkpoint into more threads."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
            " INSERT INTO checkpoints SELECT 'thread ' || n, checkpoint_ns, checkpoint_id, NULL, type,"
            " checkpoint, metadata FROM numbers, (SELECT * FROM checkpoints LIMIT 1)",
            (number,),
        )


def under(path: Path, key_id: str) -> int:
    """How many values are under a key."""
    with closing(sqlite3.connect(path)) as connection:
        counts = [
            connection.execute(
                f"SELECT count(*) FROM {table} WHERE type LIKE '%@' || ?", (key_id,)
            ).fetchone()[0]
            for table in ("checkpoints", "writes")
        ]
    return sum(counts)


def require_begun_again(run: Run, path: Path, *options: object) -> None:
    """The same command, run again, ends the work; then there is nothing more to do."""
    left = len(values_of(path)) - under(path, "k2")
    assert run("rotate", path, "--apply", "--json", *options).document["resealed"] == left
    again = run("rotate", path, "--apply", "--json", *options)
    assert (again.code, again.document["resealed"], again.document["left"]) == (Exit.DONE, 0, 0)
    assert set(opened(path, make_cipher("k2"))) == set(opened(path, make_cipher("k2", "k1")))


# --- 0: done --------------------------------------------------------------------------------------


def test_plan_changes_nothing(run: Run, path: Path) -> None:
    before = path.read_bytes()
    names = {file.name for file in path.parent.iterdir()}
    ended = run("rotate", path)
    assert (ended.code, path.read_bytes()) == (Exit.DONE, before)
    new = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.name not in names}
    assert new.keys() <= {"x.db-wal", "x.db-shm"}  # SQLite's own, which a reader may not remove
    assert not new.get("x.db-wal")
    _, *plan, verdict = ended.out.splitlines()
    assert [line.split()[:4] for line in plan] == [
        ["checkpoints", "sealed", "k1", "3"],
        ["writes", "sealed", "k1", "9"],
    ]
    assert all(line.endswith("to reseal") for line in plan)
    assert verdict == "not proven: this is a plan: nothing was changed"
    assert ended.err == "--apply carries it out\n"


def test_rotation_moves_all_and_is_then_done(run: Run, path: Path) -> None:
    before = opened(path, make_cipher("k1"))
    first = run("rotate", path, "--apply", "--json")
    document = first.document
    assert (first.code, first.err) == (Exit.DONE, "")
    assert (document["key"], document["applied"], document["resealed"]) == ("k2", True, VALUES)
    assert (document["verified"], document["left"], document["failed"]) == (VALUES, 0, 0)
    assert [(part["rows"], part["action"]) for part in document["plan"]] == [
        (3, "to reseal"),
        (9, "to reseal"),
    ]
    assert opened(path, make_cipher("k2")) == before
    assert run("rotate", path, "--apply", "--json").document["resealed"] == 0
    assert {part["action"] for part in run("rotate", path, "--json").document["plan"]} == {"done"}


@pytest.mark.parametrize(("check", "verified"), [("all", 412), ("sample", 5), ("none", None)])
def test_as_much_is_opened_once_more_as_is_asked_for(
    run: Run, path: Path, check: str, verified: int | None
) -> None:
    add_rows(path, MANY)
    assert run("rotate", path, "--apply", "--json", "--verify", check).document["verified"] == verified


def test_other_suite(run: Run, path: Path) -> None:
    assert run("rotate", path, "--apply", "--suite", "xaes256gcm").code == Exit.DONE
    assert {str(tag).partition("+")[2] for tag in tags_of(path)} == {"xaes256gcm@k2"}


def test_compression_says_what_the_active_key_has_sealed_already(run: Run, path: Path) -> None:
    note = f"{VALUES} values stay as before: already sealed under k2\n"
    assert note not in run("rotate", path, "--apply", "--compress", "zstd").err
    assert run("rotate", path, "--apply", "--compress", "zstd").err == note
    assert run("rotate", path, "--compress", "zstd").err == f"{note}--apply carries it out\n"
    assert run("rotate", path, "--apply", "--compress", "none").err == ""


def test_decrypted_copy_is_what_langgraphs_plain_saver_reads(run: Run, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain.db"
    before = path.read_bytes()
    ended = run("decrypt", path, "--out", out)
    assert (ended.code, ended.err) == (Exit.DONE, "")
    said = f"{VALUES} values were decrypted; every account that can read {out} can read them"
    assert ended.out.splitlines() == [said, "ok"]
    assert out.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == before
    assert [found[1] for found in states(out, None, "a")] == [
        found[1] for found in states(path, sealing("k1"), "a")
    ]


# --- 2: usage and configuration ---------------------------------------------------------------------

NAMES = "postgresql://db.example/agents"
WRONG: dict[str, list[str]] = {
    "workers on SQLite": ["rotate", "DB", "--workers", "2"],
    "scrub of a server": ["rotate", NAMES, "--scrub"],
    "unknown suite": ["rotate", "DB", "--suite", "rot13"],
    "suite that only reads": ["rotate", "DB", "--suite", "aes"],
    "unknown check": ["rotate", "DB", "--verify", "some"],
    "empty batch": ["rotate", "DB", "--batch", "0"],
    "rate of nothing": ["rotate", "DB", "--rate", "0"],
    "time before now": ["rotate", "DB", "--max-seconds", "-1"],
    "no lock at all": ["rotate", "DB", "--max-lock-ms", "0"],
    "no worker": ["rotate", "DB", "--workers", "0"],
    "no number": ["rotate", "DB", "--batch", "many"],
    "no database": ["rotate"],
    "missing database": ["rotate", "MISSING"],
    "folder": ["rotate", "."],
    "missing tables": ["rotate", "EMPTY"],
    "password": ["rotate", "postgresql://me:hunter2@db.example/agents"],
    "other server": ["rotate", "mysql://db.example/agents"],
    "key material": ["rotate", "DB", "--key", "0" * 64],
    "decrypt: no file to write": ["decrypt", "DB"],
    "decrypt: a server": ["decrypt", NAMES, "--out", "NEW"],
    "decrypt: something is there": ["decrypt", "DB", "--out", "EMPTY"],
    "decrypt: a folder without a name": ["decrypt", "DB", "--out", "/"],
    "decrypt: too long a name": ["decrypt", "DB", "--out", "n" * 300],
    "decrypt: no such folder": ["decrypt", "DB", "--out", "nowhere/new.db"],
    "decrypt: onto itself": ["decrypt", "DB", "--out", "DB"],
    "decrypt: missing database": ["decrypt", "MISSING", "--out", "NEW"],
    "decrypt: missing tables": ["decrypt", "EMPTY", "--out", "NEW"],
}


@pytest.mark.claim("u8")
@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["", "json"])
def test_wrong_usage_changes_nothing(
    run: Run, path: Path, tmp_path: Path, words: list[str], more: list[str]
) -> None:
    empty = tmp_path / "empty.db"
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute("CREATE TABLE other (x)")
    places = {"DB": path, "EMPTY": empty, "MISSING": tmp_path / "missing.db", "NEW": tmp_path / "new.db"}
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    apply = ["--apply"] if words[0] == "rotate" else []
    ended = run(*(places.get(word, word) for word in words), *apply, *more)
    assert (ended.code, ended.has_no_result) == (Exit.USAGE, True)
    assert ended.err.startswith("error: ")
    assert "hint: " in ended.err
    assert "hunter2" not in ended.err + ended.out
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# --- 3: found -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "option"), [("plain", "--allow-plaintext"), ("eax", "--allow-legacy"), ("gcm", "--allow-legacy")]
)
def test_what_we_did_not_seal_stays_unless_it_is_asked_for(
    run: Run, path: Path, keys: Path, kind: str, option: str
) -> None:
    set_ring(keys, k2="active", k1="decrypt-only", langgraph="decrypt-only")
    write(path, kind, "b")
    plan = run("rotate", path)
    assert (plan.code, plan.out.count(f"add {option}")) == (Exit.DONE, 2)
    ended = run("rotate", path, "--apply")
    assert ended.code == Exit.FOUND
    assert f"{VALUES} values are " in ended.err
    assert f": {option} " in ended.err
    assert run("rotate", path, "--apply", "--json").document["left"] == VALUES
    assert run("rotate", path, option).out.count("stays") == 0
    done = run("rotate", path, "--apply", "--json", option)
    assert (done.code, done.document["resealed"], done.document["left"]) == (Exit.DONE, VALUES, 0)


@pytest.mark.parametrize(("kind", "key_id"), [("k1", "k1"), ("eax", "langgraph")])
def test_advice_brings_rows_away_from_under_a_key(
    run: Run, path: Path, keys: Path, kind: str, key_id: str
) -> None:
    """Pasted with the database's name in it, after which the move that was refused is made."""
    set_ring(keys, k2="active", k1="decrypt-only", langgraph="decrypt-only")
    write(path, kind, "b")
    refused = run("keys", "disable", key_id, "--db", path)
    assert refused.code == Exit.FOUND
    program, *words = refused.err.rpartition(": ")[2].split()
    assert program == "sealpoint"
    assert run(*[path if word == "DB" else word for word in words]).code in (Exit.DONE, Exit.FOUND)
    assert run("keys", "disable", key_id, "--db", path).code == Exit.DONE


# --- 4: a value does not open -------------------------------------------------------------------


@pytest.fixture
def damaged(path: Path) -> Path:
    """The database with a bit flipped in one value."""
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, values_of(path)[1])
    return path


def test_value_that_does_not_open_is_named_and_the_others_move(run: Run, damaged: Path) -> None:
    ended = run("rotate", damaged, "--apply")
    assert ended.code == Exit.UNOPENED
    (named,) = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert "checkpoints thread_id='a' checkpoint_ns='' checkpoint_id='000001': IntegrityError" in named
    assert under(damaged, "k2") == VALUES - 1
    again = run("rotate", damaged, "--apply", "--json")
    assert (again.code, again.document["resealed"], again.document["left"]) == (Exit.UNOPENED, 0, 1)
    assert again.document["verified"] == VALUES - 1
    (failure,) = again.document["failures"]
    assert (failure["error"], failure["place"]["checkpoint_id"]) == ("IntegrityError", "000001")


def test_damage_under_the_active_key_is_named_beside_other_failures(run: Run, path: Path, keys: Path) -> None:
    """Only the verification opens what is done already. What the run has told it does not tell again."""
    write(path, "k2", "b")
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, next(value for value in values_of(path) if value.tag.endswith("@k2")))
    set_ring(keys, k2="active", k1="disabled")
    ended = run("rotate", path, "--apply", "--json")
    named = Counter(
        (failure["error"], failure["place"]["thread_id"]) for failure in ended.document["failures"]
    )
    assert ended.code == Exit.UNOPENED
    assert named == {("KeyDisabledError", "a"): VALUES, ("IntegrityError", "b"): 1}
    assert (ended.document["failed"], ended.document["verified"]) == (VALUES + 1, VALUES - 1)


def test_no_copy_is_made_if_a_value_does_not_open(run: Run, damaged: Path, tmp_path: Path) -> None:
    ended = run("decrypt", damaged, "--out", tmp_path / "new.db", "--json")
    assert (ended.code, ended.document["out"], ended.document["failed"]) == (Exit.UNOPENED, None, 1)
    assert not list(tmp_path.glob("*new.db*"))
    assert "no copy was made" in run("decrypt", damaged, "--out", tmp_path / "new.db").out


def test_advice_is_given_once_for_all_failures_of_a_kind(run: Run, path: Path, tmp_path: Path) -> None:
    write(path, "plain", "b")
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path)[:2]:
            flip(connection, value)
    copied = run("decrypt", path, "--out", tmp_path / "new.db")
    assert copied.err.count("error: ") == VALUES + 2
    damaged, plain = [line for line in copied.err.splitlines() if line.startswith("hint: ")]
    assert "accept it with --allow-plaintext" in plain
    assert f"sealpoint rebind {path} --allow-plaintext --apply" in plain
    assert damaged.startswith("hint: the row was changed")
    rotated = run("rotate", path, "--apply")
    assert rotated.err.count("error: ") == 2
    assert [line for line in rotated.err.splitlines() if line.startswith("hint: ")] == [damaged]
    assert run("decrypt", path, "--out", tmp_path / "new.db", "--json").err == ""


# --- 5: keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "states",
    [{"k2": "active"}, {"k2": "active", "k1": "disabled"}, {"k2": "active", "k1": "destroyed"}],
    ids=["missing", "disabled", "destroyed"],
)
def test_key_that_is_not_to_be_had(run: Run, path: Path, keys: Path, states: dict[str, str]) -> None:
    set_ring(keys, **states)
    before = values_of(path)
    plan = run("rotate", path)
    assert (plan.code, plan.out.count("no usable key")) == (Exit.KEYS, 2)
    ended = run("rotate", path, "--apply", "--json")
    assert (ended.code, ended.document["failed"], values_of(path)) == (Exit.KEYS, VALUES, before)
    set_ring(keys, k2="active", k1="decrypt-only")
    require_begun_again(run, path)


def test_damage_outweighs_a_missing_key(run: Run, damaged: Path, keys: Path) -> None:
    """Another ring would not open it."""
    write(damaged, "k3", "b")
    assert run("rotate", damaged, "--apply").code == Exit.UNOPENED


PLAN, APPLY, COPY = ["rotate", "DB"], ["rotate", "DB", "--apply"], ["decrypt", "DB", "--out", "NEW"]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        *(("no ring", words) for words in (PLAN, APPLY, COPY)),
        *(("no material", words) for words in (PLAN, APPLY, COPY)),
        *(("no active key", words) for words in (PLAN, APPLY)),
    ],
)
def test_ring_that_is_of_no_use(
    run: Run, path: Path, keys: Path, tmp_path: Path, trouble: str, words: list[str]
) -> None:
    if trouble == "no ring":
        keys.unlink()
    elif trouble == "no material":
        keys.write_text(keys.read_text().replace("inline", "env", 1))
    else:
        set_ring(keys, k1="decrypt-only")
    before = path.read_bytes()
    ended = run(*({"DB": path, "NEW": tmp_path / "new.db"}.get(word, word) for word in words))
    assert (ended.code, ended.out, path.read_bytes()) == (Exit.KEYS, "", before)
    assert "hint: " in ended.err


def test_copy_needs_no_active_key(run: Run, path: Path, keys: Path, tmp_path: Path) -> None:
    set_ring(keys, k1="decrypt-only")
    assert run("decrypt", path, "--out", tmp_path / "new.db").code == Exit.DONE


# --- 6: another run -----------------------------------------------------------------------------


def test_another_run_holds_the_database(run: Run, path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    with holding(path), holding(tmp_path / "new.db"):
        ended = run("rotate", path, "--apply")
        assert (ended.code, ended.out, path.read_bytes()) == (Exit.HELD, "", before)
        assert "another run holds x.db" in ended.err
        assert run("rotate", path).code == Exit.DONE  # a plan needs nothing of it
        assert run("decrypt", path, "--out", tmp_path / "new.db").code == Exit.HELD
    require_begun_again(run, path)


# --- 7: stopped early ---------------------------------------------------------------------------


def test_time_is_up(run: Run, path: Path) -> None:
    ended = run("rotate", path, "--apply", "--batch", 2, "--max-seconds", 0)
    assert ended.code == Exit.STOPPED
    assert "run the same command again" in ended.err
    assert under(path, "k2") == 2
    require_begun_again(run, path)


@pytest.mark.parametrize("check", ["all", "none"])
def test_no_time_is_too_short_for_nothing(run: Run, tmp_path: Path, check: str) -> None:
    """What the run may not move would be there after any number of runs."""
    plain = tmp_path / "plain.db"
    write(plain, "plain", "a")
    ended = run("rotate", plain, "--apply", "--max-seconds", 0, "--verify", check)
    assert ended.code == Exit.FOUND
    assert ended.err == f"{VALUES} values are not sealed: --allow-plaintext seals them\n"


def test_time_is_up_while_values_are_opened_once_more(run: Run, path: Path) -> None:
    """The same command would open no more of them in the same time."""
    assert run("rotate", path, "--apply", "--verify", "none").code == Exit.DONE
    ended = run("rotate", path, "--apply", "--max-seconds", 0)
    assert ended.code == Exit.STOPPED
    assert f"check them with `sealpoint verify {path}`" in ended.err
    assert "run the same command again" not in ended.err


def test_rate_spreads_the_rows(run: Run, path: Path) -> None:
    """At a row in a thousand seconds the second one would not come before the time is up."""
    options = ["--rate", 0.001, "--max-seconds", 0.05]
    assert run("rotate", path, "--apply", *options).code == Exit.STOPPED
    assert under(path, "k2") == 1
    assert run("rotate", path, "--apply", "--rate", 1e9).code == Exit.DONE


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, int], None]:
    """Has a function that yields events meet real SIGINTs after the first event."""

    def prepare(module: Any, name: str, times: int) -> None:
        genuine = getattr(module, name)

        def replaced(*args: Any, **options: Any) -> Iterator[Any]:
            with closing(genuine(*args, **options)) as events:
                yield next(events)
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)
                yield from events

        monkeypatch.setattr(module, name, replaced)

    return prepare


def test_interrupt_while_values_are_opened_once_more(
    run: Run, path: Path, interrupted: Callable[[Any, str, int], None]
) -> None:
    """All is moved; that it opens has not been shown yet."""
    add_rows(path, 2500)
    interrupted(job, "verify", 1)
    ended = run("rotate", path, "--apply", "--json")
    assert (ended.code, ended.document["stopped"], ended.document["left"]) == (Exit.STOPPED, True, 0)
    assert 0 < ended.document["verified"] < 2500
    assert ended.err == "SIGINT: ending after this batch; a second signal ends at once\n"


def test_second_interrupt_ends_at_once(
    run: Run, path: Path, interrupted: Callable[[Any, str, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost then either, nobody is kept out, and Ctrl-C is what it was before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with monkeypatch.context():
        interrupted(job, "rotate_as", 2)
        ended = run("rotate", path, "--apply", "--batch", 2)
        assert (ended.code, ended.out) == (Exit.STOPPED, "")
        assert "Traceback" not in ended.err
        assert under(path, "k2") == 2
        monkeypatch.undo()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_interrupt_of_decrypt_leaves_no_copy(
    run: Run, path: Path, tmp_path: Path, interrupted: Callable[[Any, str, int], None]
) -> None:
    interrupted(decrypt_command, "decrypt_file", 1)
    ended = run("decrypt", path, "--out", tmp_path / "new.db", "--json")
    assert (ended.code, ended.document["out"]) == (Exit.STOPPED, None)
    assert not list(tmp_path.glob("*new.db*"))


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_process_after_its_batch(run: Run, path: Path, number: signal.Signals) -> None:
    """The real program, met while it waits; the rate would keep it busy for an hour."""
    add_rows(path, MANY)
    command = [*CODE, "rotate", str(path), "--apply", "--json", "--batch", "4", "--rate", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not under(path, "k2") and process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        process.send_signal(number)
        ended = Ended(0, *process.communicate())
    moved = ended.document["resealed"]
    assert process.returncode == Exit.STOPPED
    assert ended.err == f"{number.name}: ending after this batch; a second signal ends at once\n"
    assert ended.document["stopped"]
    assert moved == under(path, "k2") > 0
    assert moved % 4 == 0
    assert ended.document["left"] == VALUES + MANY - moved
    require_begun_again(run, path)


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("words", [["rotate", "DB", "--apply"], ["decrypt", "DB", "--out", "NEW"]])
def test_full_disk(run: Run, path: Path, tmp_path: Path, words: list[str]) -> None:
    """As a quota would: no file may grow beyond some kilobytes."""
    add_rows(path, MANY)
    places = {"DB": path, "NEW": tmp_path / "new.db"}
    command = [*CODE, *(str(places.get(word, word)) for word in words)]
    limited = ["/bin/sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.STOPPED, "")
    assert "Traceback" not in done.stderr
    assert "hint: make room" in done.stderr
    assert not list(tmp_path.glob("*new.db*"))
    assert run(*(places.get(word, word) for word in words)).code == Exit.DONE


# --- scrub --------------------------------------------------------------------------------------

READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM checkpoints").fetchone()
print("reading", flush=True)
sys.stdin.read()
"""


def test_scrub_says_who_is_in_its_way(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotation is done and told all the same; the scrub is for another time."""
    monkeypatch.setattr(sqlite_rows, "READERS_TIMEOUT_MS", 50)
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        ended = run("rotate", path, "--apply", "--scrub", "--json")
        reader.communicate()
    assert ended.code == Exit.STOPPED
    assert f"process {reader.pid} (" in ended.err
    assert (ended.document["resealed"], ended.document["left"], ended.document["scrubbed"]) == (
        VALUES,
        0,
        None,
    )
    again = run("rotate", path, "--apply", "--scrub")
    assert (again.code, "only for old tags" in again.out, "found nothing" in again.out) == (0, True, True)


def test_scrub_clears_and_says_what_it_looked_for(run: Run, path: Path) -> None:
    old = [value.value[:64] for value in values_of(path) if len(value.value) > 64]
    scrubbed = run("rotate", path, "--apply", "--scrub", "--json").document["scrubbed"]
    assert (scrubbed["fragments"], scrubbed["found"]) == (VALUES, [])
    left = b"".join(file.read_bytes() for file in path.parent.glob("x.db*"))
    assert not any(blob in left for blob in old)


def test_longest_lock_has_the_scrub_in_it(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a scrub that then could not empty the log: it had written the whole file anew."""
    found = scrub.Scrubbed(4096, 3, (), lock_seconds=17.0)
    monkeypatch.setattr(scrub, "scrub", lambda *args: found)
    ended = run("rotate", path, "--apply", "--scrub", "--json")
    assert (ended.document["longest_lock_ms"], ended.document["scrubbed"]["lock_seconds"]) == (17000.0, 17.0)

    def fail(*_: object) -> None:
        error = ScrubError("the log cannot be emptied")
        error.lock_seconds = 18.0
        raise error

    monkeypatch.setattr(scrub, "scrub", fail)
    assert run("rotate", path, "--apply", "--scrub", "--json").document["longest_lock_ms"] == 18000.0


def test_scrub_measures_its_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((5.0, 22.0))
    monkeypatch.setattr(scrub, "perf_counter", lambda: next(now))
    assert scrub.scrub(path, make_cipher("k1").ring).lock_seconds == 17.0


@pytest.mark.parametrize("apply", [[], ["--apply"]])
def test_scrub_of_a_large_or_live_database_is_announced(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, apply: list[str]
) -> None:
    assert "warning" not in run("rotate", path, "--scrub").err
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        monkeypatch.setattr(sqlite_rows, "READERS_TIMEOUT_MS", 50)
        ended = run("rotate", path, "--scrub", *apply)
        reader.communicate()
    warning = next(line for line in ended.err.splitlines() if line.startswith("warning: --scrub will write"))
    assert f"process {reader.pid} (" in warning
    monkeypatch.setattr(scrub, "_BYTES_PER_SECOND", path.stat().st_size / 30)
    assert f"lock {path} for about 3" in run("rotate", path, "--scrub", *apply).err


def test_scrub_that_finds_something_says_where(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scrub.Scrubbed(4096, 3, (("x.db-wal", 77),))
    monkeypatch.setattr(scrub, "scrub", lambda *args: found)
    ended = run("rotate", path, "--apply", "--scrub")
    assert (ended.code, "found: x.db-wal at byte 77" in ended.out) == (Exit.FOUND, True)


# --- Postgres -----------------------------------------------------------------------------------


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_share_a_server_and_signals_reach_none_of_them(
    run: Run, pytestconfig: pytest.Config, number: signal.Signals
) -> None:
    """A terminal, or what stops a service, sends them to every process; the run ends as it always does."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(MANY))
        url = url_of(dsn)
        before = {place: K1.open(*sealed).typed for place, sealed in contents(dsn).items()}
        options = ["--workers", "2", "--batch", "4", "--rate", "16"]
        command = [*CODE, "rotate", url, "--apply", "--json", *options]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            while all(tag.endswith("k1") for tag, _ in contents(dsn).values()) and process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            os.killpg(process.pid, number)
            stopped = Ended(0, *process.communicate())
        assert process.returncode == Exit.STOPPED
        warning, *told = stopped.err.splitlines()
        assert warning.startswith("warning: connected as a superuser")
        assert told == [f"{number.name}: ending after this batch; a second signal ends at once"]
        assert 0 < stopped.document["resealed"] == MANY - stopped.document["left"]
        ended = run("rotate", url, "--apply", "--json")
        assert ended.err.splitlines() == [warning]
        assert (ended.code, ended.document["resealed"]) == (Exit.DONE, stopped.document["left"])
        k2 = make_cipher("k2")
        assert {place: k2.open(*sealed).typed for place, sealed in contents(dsn).items()} == before


@pytest.mark.costly
def test_workers_end_with_the_program_that_is_killed(pytestconfig: pytest.Config) -> None:
    """Nobody is left who writes; the rate would keep them busy for a minute."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(MANY))
        command = [*CODE, "rotate", url_of(dsn), "--apply", "--workers", "2", "--rate", "6"]
        with subprocess.Popen(command, start_new_session=True) as process:
            while all(tag.endswith("k1") for tag, _ in contents(dsn).values()) and process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            process.kill()
        with suppress(ProcessLookupError):
            while True:
                os.killpg(process.pid, 0)
        assert any(tag.endswith("k1") for tag, _ in contents(dsn).values())


def url_of(dsn: str) -> str:
    """A connection string as a URL without a password."""
    parts = {key: value for key, value in conninfo_to_dict(dsn).items() if key != "password"}
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


# --- what is never shown, and what the pages say ------------------------------------------------


@pytest.mark.claim("u12")
def test_key_material_is_never_shown(run: Run, path: Path, keys: Path, tmp_path: Path) -> None:
    """In none of the ways that these commands end, and in no encoding."""
    calls: list[list[object]] = [
        ["rotate", path, "--apply", "--max-seconds", 0, "--batch", 1],
        ["rotate", path, "--apply", "--scrub"],
        ["decrypt", path, "--out", tmp_path / "new.db"],
        ["decrypt", path, "--out", tmp_path / "new.db"],
    ]
    shown = ""
    for ring in ({"k2": "active"}, {"k2": "active", "k1": "decrypt-only"}):
        set_ring(keys, **ring)
        for call in calls:
            for more in ([], ["--json"]):
                ended = run(*call, *more)
                shown += ended.out + ended.err
    keys.write_text(keys.read_text().replace("version", "verson"))
    shown += run("rotate", path).err
    assert "k2" in shown
    for key_id in ("k1", "k2"):
        material = material_of(key_id)
        for secret in (
            material.decode(),
            material.hex(),
            base64.b64encode(material).decode(),
            repr(material),
        ):
            assert secret[:40] not in shown


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"\bsealpoint ((?:(?:heads|keys|ledger) )?[a-z]+)\b([^`\n|;&>]*)")
OPTION = re.compile(r"--[a-z][a-z-]+")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_options_that_there_are(run: Run, page: Path) -> None:
    for command, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
        named = set(OPTION.findall(rest)) - {"--help", "--version"}
        if named:
            ended = run(*command.split(), "--help")
            assert (ended.code, named - set(OPTION.findall(ended.out))) == (0, set()), command


@pytest.mark.parametrize(("command", "name"), [("rotate", "rotation.md"), ("decrypt", "decrypt.md")])
def test_page_has_every_option(run: Run, command: str, name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    options = set(OPTION.findall(run(command, "--help").out)) - {"--help"}
    assert {option for option in options if f"`{option}" not in page} == set()


def test_page_has_every_exit_code() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.partition("## Exit codes\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d) \|", table, re.MULTILINE) == [str(code.value) for code in sorted(Exit)]


@pytest.mark.parametrize(
    "words", [["verify"], ["types"], ["rotate", "--apply"], ["inspect", "--thread", "t", "--last"], ["trial"]]
)
def test_without_zstd_compressed_values_are_not_damaged(
    run: Run, tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """The command ends, and says what is to be installed: nothing is shown or refuted."""
    path = foreign.write(tmp_path / "a.db", {"t": {}})
    keys.write_text(states_text(k1="active", k2="decrypt-only"))
    ring = KeyRing.load(keys)
    keys.write_text(states_text(k2="active", k1="decrypt-only"))
    sealed = RingCipher(ring, follow=False).seal("bytes", bytes(4096), compress=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", sealed)
        connection.execute("UPDATE writes SET type = ?, value = ?", sealed)
    for name in ("compression", "compression.zstd", "backports", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    require_zstd.cache_clear()
    ended = run(words[0], path, *words[1:], "--json")
    require_zstd.cache_clear()
    document = ended.document
    assert (ended.code, document["ok"]) == (Exit.USAGE, None)
    assert "pip install 'sealpoint[zstd]'" in ended.err
