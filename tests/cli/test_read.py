"""The commands that only read: what they print, how they end, and what they never show."""

from __future__ import annotations

import ast
import gc
import json
import os
import pty
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage

from sealpoint.admin.cli.app import run
from sealpoint.admin.cli.output import ShownFailures
from sealpoint.admin.results.events import Failure, Failures, failure_reasons
from sealpoint.admin.results.exits import Exit, result_code
from sealpoint.admin.results.result import Result
from sealpoint.errors import IntegrityError
from tests.support.databases.foreign import GOLDEN, K1, SECRET, insert, write
from tests.support.databases.sealed import write as write_rows
from tests.support.runs.results import require_valid

COMMANDS = ["status", "audit", "types", "trial", "inspect", "verify"]
PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
EVIL = "\x1b[31m\x07\x9b\x7f\u202e\r\x00"


@dataclass
class Ticket:
    """A type that no serializer knows by itself."""

    number: int


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring file that has to be named, and none in the usual places."""
    monkeypatch.delenv("SEALPOINT_KEYS", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setattr("sealpoint.keys.ringfile.SYSTEM_PATH", tmp_path / "none.toml")
    (tmp_path / "k1.key").touch(mode=0o600)
    (tmp_path / "k1.key").write_bytes(K1)
    ring = tmp_path / "ring.toml"
    ring.write_text(
        'version = 1\nactive = "k1"\n[[key]]\nid = "k1"\nstate = "active"\nsource = { file = "k1.key" }\n'
    )
    ring.chmod(0o644)
    return ring


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A database in which all is sealed under k1."""
    return write(tmp_path / "sealed.db", {"t1": {"m": [HumanMessage(SECRET)], "t": Ticket(7)}}, sealed=True)


@pytest.fixture
def plaintext(tmp_path: Path) -> Path:
    """The same, with nothing sealed."""
    return write(tmp_path / "plain.db", {"t1": {"m": [HumanMessage(SECRET)], "t": Ticket(7)}})


def called(*arguments: object) -> int:
    """The exit code of the program."""
    return run([str(argument) for argument in arguments])


def document(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """What the program prints with ``--json``."""
    assert called(*arguments, "--json") == code
    return require_valid(json.loads(capsys.readouterr().out))


# --- status -----------------------------------------------------------------------------------


def test_status_of_several_without_a_ring(
    sealed: Path, plaintext: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("status", sealed, plaintext) == 0
    shown = capsys.readouterr()
    first, second = shown.out.removeprefix(f"{sealed}:\n").split(f"\n{plaintext}:\n")
    assert len(re.findall(r"\w+ +sealed +cobblestone256 +k1 +- +1 +\d+ +msgpack", first)) == 2
    assert len(re.findall(r"\w+ +plaintext +- +- +- +1 +\d+ +msgpack", second)) == 2
    assert "states of keys are not known" in shown.err


def test_status_with_a_ring_shows_states(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the key itself is gone: only the ring file is read."""
    (keys.parent / "k1.key").unlink()
    insert(sealed, [("msgpack+xaes256gcm@k9", b"")])
    (part,) = document(capsys, "status", sealed, "--keys", keys)["databases"]
    assert {(share["key_id"], share["state"]) for share in part["shares"]} == {
        ("k1", "active"),
        ("k9", "not in the ring"),
    }


@pytest.mark.parametrize(
    ("rows", "key", "code"),
    [
        ([], "k1", 0),
        ([], "k2", 2),
        ([("msgpack", b"")], "k2", 2),
        ([("msgpack", b"")], "k1", 3),
        ([("msgpack+aes", b"")], "k1", 3),
        ([("no tag+", b"")], "k1", 3),
        ([("msgpack+xaes256gcm@k1", b"")], "k1", 0),
    ],
)
def test_status_ends_with_3_for_a_value_under_anything_else(
    sealed: Path, keys: Path, rows: list[tuple[str, bytes]], key: str, code: int
) -> None:
    insert(sealed, rows)
    assert called("status", sealed, "--only", key, "--keys", keys) == code


def test_key_that_the_ring_does_not_hold_is_a_mistake(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a ring nobody knows that it is one, and all that can be said is how much is not under it."""
    assert called("status", sealed, "--only", "k1z", "--keys", keys) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[0]) == ("", "error: no key 'k1z' in the ring (held: k1)")
    assert called("status", sealed, "--only", "k1z") == 3
    said = capsys.readouterr().out.splitlines()[-2:]
    assert said == ["2 values are not under 'k1z'", "not ok: some values are under other keys, or not sealed"]


def test_status_says_how_many_are_not_under_the_key(
    sealed: Path, plaintext: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("status", sealed, plaintext, "--only", "k1") == 3
    assert "2 values are not under 'k1'" in capsys.readouterr().out
    insert(sealed, [("msgpack", b"")])
    assert called("status", sealed, "--only", "k1") == 3
    assert "1 value is not under 'k1'" in capsys.readouterr().out


def test_status_refuses_a_ring_that_is_named_and_missing_or_broken(sealed: Path, keys: Path) -> None:
    assert called("status", sealed, "--keys", keys.parent / "missing.toml") == 5
    keys.write_text("version = 2")
    assert called("status", sealed, "--keys", keys) == 2


# --- audit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_sealed", "configurable", "options", "code"),
    [
        (True, {}, [], 0),
        (True, {}, ["--strict"], 0),
        (True, {"user_email": "ada@example.com"}, [], 0),
        (True, {"user_email": "ada@example.com"}, ["--strict"], 3),
        (False, {}, [], 3),
        (False, {}, ["--strict"], 3),
    ],
)
def test_audit_ends_with_3_for_values_and_if_strict_for_all(
    tmp_path: Path, is_sealed: bool, configurable: dict[str, Any], options: list[str], code: int
) -> None:
    path = write(tmp_path / "a.db", sealed=is_sealed, configurable=configurable)
    assert called("audit", path, *options) == code
    assert called("audit", path, *options, "--json") == code


@pytest.mark.parametrize("name", ["older.db", "langgraph-aes.db"])
def test_audit_of_what_langgraph_wrote(name: str) -> None:
    assert called("audit", GOLDEN / name) == 3


def test_audit_shows_what_is_readable_beside_the_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.db", {"ada@example.com": {}}, sealed=True, configurable={"plan": "gold-12"})
    insert(path, [("null+cobblestone256@k1", b"")], "no json")
    assert called("audit", path) == 0
    shown = capsys.readouterr()
    assert re.search(r"^plan +1 +text +7: aaaa-99$", shown.out, re.MULTILINE)
    assert re.search(r"^thread_id +1 +15: aaa@aaaaaaa.aaa$", shown.out, re.MULTILINE)
    assert "1 of 2 checkpoints have metadata that is not strict JSON" in shown.out
    assert "3 of 3 values are sealed" in shown.out


def test_audit_shows_the_states_of_keys(sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As status does, and like it without a ring that is not there."""
    assert {share["state"] for share in document(capsys, "audit", sealed)["shares"]} == {None}
    found = document(capsys, "audit", sealed, "--keys", keys)
    assert {share["state"] for share in found["shares"]} == {"active"}
    assert called("audit", sealed, "--keys", keys.parent / "missing.toml") == 5


# --- types ------------------------------------------------------------------------------------


def test_types_of_plaintext_need_no_ring(plaintext: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("types", plaintext) == 0
    shown = capsys.readouterr()
    assert re.search(
        r"^langchain_core.messages.human.HumanMessage +1 +t1 +built in$", shown.out, re.MULTILINE
    )
    assert re.search(rf"^{re.escape(__name__)}.Ticket +1 +t1 +-$", shown.out, re.MULTILINE)
    assert shown.err == ""


def test_types_of_values_that_name_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "x.db", "plain", "a")
    assert called("types", tmp_path / "x.db") == 0
    assert "no value names a type" in capsys.readouterr().out


def test_types_of_sealed_values(sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without = document(capsys, "types", sealed, code=5)
    assert (without["types"], without["not_opened"], without["values"]) == ([], 2, 2)
    assert (without["ok"], without["reasons"]) == (None, ["not-asked", "not-opened"])
    found = document(capsys, "types", sealed, "--keys", keys)
    assert [part["name"] for part in found["types"]] == ["HumanMessage", "Ticket"]
    assert (found["not_opened"], found["failed"], found["failures"]) == (0, 0, [])


def test_what_emit_prints_is_an_allowlist(
    plaintext: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("types", plaintext, "--emit") == 0
    emitted = capsys.readouterr().out
    assert ast.literal_eval(emitted) == [(__name__, "Ticket")]
    (tmp_path / "allow.py").write_text(emitted)
    assert called("types", plaintext, "--allow", tmp_path / "allow.py") == 0


@pytest.mark.parametrize(
    ("allow", "code"),
    [
        ([f"{__name__}:Ticket"], 0),
        (["a.b:C", f"{__name__}:Ticket"], 0),
        (["a.b:C"], 3),
        ([f"{__name__}:Ticke"], 3),
    ],
)
def test_types_ends_with_3_for_a_name_that_is_not_allowed(
    plaintext: Path, allow: list[str], code: int
) -> None:
    options = [part for name in allow for part in ("--allow", name)]
    assert called("types", plaintext, *options) == code
    assert called("types", plaintext, *options, "--json") == code


def test_allowlist_says_nothing_of_values_that_were_not_opened(sealed: Path) -> None:
    """A check that saw no value does not pass."""
    assert called("types", sealed, "--allow", f"{__name__}:Ticket") == 5


def test_allowlist_says_nothing_of_types_that_were_not_listed(
    plaintext: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More names than are listed are not all allowed, whatever stands on the list."""
    monkeypatch.setattr("sealpoint.admin.maintenance.inspect.MAX_TYPES", 1)
    assert called("types", plaintext, "--allow", f"{__name__}:Ticket") == 3


@pytest.mark.parametrize("text", ["Ticket", ":Ticket", "module:", ""])
def test_allow_that_is_no_name_is_refused(plaintext: Path, text: str) -> None:
    assert called("types", plaintext, "--allow", text) == 2


@pytest.mark.parametrize(
    "text", ["import os", "[1]", "[('a',)]", "print('x')", "[" * 5_000, "\0", "\xff\xfe"]
)
def test_allow_file_that_emit_did_not_print_is_refused(plaintext: Path, tmp_path: Path, text: str) -> None:
    """It is read, and never run."""
    (tmp_path / "allow.py").write_bytes(text.encode("latin-1"))
    assert called("types", plaintext, "--allow", tmp_path / "allow.py") == 2


def test_emit_without_a_ring_is_no_list_of_all_types(
    sealed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty list reads as if the agent had no types of its own."""
    assert called("types", sealed, "--emit") == 5
    shown = capsys.readouterr()
    assert ast.literal_eval(shown.out) == []
    assert "2 of 2 values are sealed and were not opened: their types are not in the list\n" in shown.err


def test_emit_counts_records_of_types_that_were_not_listed(
    plaintext: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sealpoint.admin.maintenance.inspect.MAX_TYPES", 1)
    assert called("types", plaintext, "--emit") == 0
    assert "1 records name further types, beyond the limit of this list\n" in capsys.readouterr().err


def test_emit_and_json_are_two_things(plaintext: Path) -> None:
    assert called("types", plaintext, "--emit", "--json") == 2


@pytest.mark.parametrize("thread", ["x'),\n('os', 'system'),  #", "\u2028\x85", "'''\\"])
def test_emit_cannot_be_led_astray(tmp_path: Path, thread: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither by names nor by thread ids: what no type can be called is left out."""
    path = write(tmp_path / "a.db", {thread: {"t": Ticket(1)}})
    for name in ("B')]\nimport os #", "x\x85y", "a b", "B#"):
        packed = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["m", name, None])))
        insert(path, [("msgpack", packed)], thread=name)
    assert called("types", path, "--emit") == 0
    shown = capsys.readouterr()
    assert ast.literal_eval(shown.out) == [(__name__, "Ticket")]
    assert shown.out.count("\n") == 3
    assert "4 names" in shown.err


def test_types_names_values_that_it_could_not_read(
    plaintext: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    insert(plaintext, [("msgpack", b"\xc1"), ("yaml", b"")])
    assert called("types", plaintext) == 4
    assert "checkpoint_id='00000001': UnknownTypeError" in capsys.readouterr().err
    assert [part["error"] for part in document(capsys, "types", plaintext, code=4)["failures"]] == [
        "DecodeError",
        "UnknownTypeError",
    ]


# --- inspect ----------------------------------------------------------------------------------


def test_inspect_shows_what_was_sealed(sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("inspect", sealed, "--thread", "t1", "--keys", keys) == 0
    shown = capsys.readouterr()
    assert f'"content": "{SECRET}"' in shown.out
    assert shown.err == ""
    found = document(capsys, "inspect", sealed, "--thread", "t1", "--keys", keys)
    assert [value["table"] for value in found["values"]] == ["checkpoints", "writes"]
    assert found["values"][1]["value"] == SECRET
    assert found["more"] is False


def test_inspect_needs_keys_for_sealed_values(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("inspect", sealed, "--thread", "t1") == 5
    insert(sealed, [("msgpack+cobblestone256@k1", bytes(99))], thread="t1")
    assert called("inspect", sealed, "--thread", "t1", "--keys", keys) == 4
    assert "IntegrityError" in capsys.readouterr().err


def test_inspect_without_a_ring_says_so_once(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that are not sealed are shown, and others that do not open are named."""
    values = [("msgpack+cobblestone256@k1", bytes(99))] * 2 + [("msgpack", b"\xc1"), ("null", b"")]
    insert(sealed, values, thread="t2")
    assert called("inspect", sealed, "--thread", "t2") == 4
    shown = capsys.readouterr()
    missing, damaged = shown.err.splitlines()
    assert "no ring file at" in missing
    assert "values that need a key are not opened (--keys FILE)" in missing
    assert "DecodeError" in damaged
    assert "null" in shown.out
    assert len(document(capsys, "inspect", sealed, "--thread", "t2", code=4)["values"]) == 4


def test_inspect_tells_a_key_that_is_missing(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that another ring may have, as `verify` does: 5, unless there is more amiss."""
    bad = [("msgpack+xaes256gcm@k2", bytes(99)), ("msgpack+cobblestone256@k1", bytes(99))]
    insert(sealed, bad[:1], thread="t2")
    insert(sealed, bad, thread="t3")
    assert called("inspect", sealed, "--thread", "t2", "--keys", keys) == 5
    assert "UnknownKeyError" in capsys.readouterr().err
    assert called("inspect", sealed, "--thread", "t3", "--keys", keys) == 4


def test_inspect_stops_at_its_limit_and_says_so(plaintext: Path, capsys: pytest.CaptureFixture[str]) -> None:
    insert(plaintext, [("null", b"")] * 5, thread="t1")
    found = document(capsys, "inspect", plaintext, "--thread", "t1", "--limit", 3)
    assert (len(found["values"]), found["more"]) == (3, True)
    assert called("inspect", plaintext, "--thread", "t1", "--limit", 3) == 0
    assert "the first 3 values; there are more" in capsys.readouterr().err


def test_inspect_of_a_thread_that_is_not_there(plaintext: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("inspect", plaintext, "--thread", "t2") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no thread 't2'" in shown.err


def test_inspect_without_a_thread_lists_the_threads(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once each, also one that has writes alone. No key is needed, and no control character is shown."""
    insert(sealed, [("null", b"")] * 2, thread="t\x1b[31m")
    assert called("inspect", sealed) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["thread", r"t\x1b[31m", "t1"]
    found = document(capsys, "inspect", sealed)
    assert (found["threads"], found["more"]) == (["t\x1b[31m", "t1"], False)


def test_the_list_of_threads_stops_at_its_limit_and_says_so(
    sealed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    insert(sealed, [("null", b"")], thread="t2")
    found = document(capsys, "inspect", sealed, "--limit", 1)
    assert (found["threads"], found["more"]) == (["t1"], True)
    assert called("inspect", sealed, "--limit", 1) == 0
    assert "the first 1 threads; there are more" in capsys.readouterr().err


# --- failures ---------------------------------------------------------------------------------


class Weighty:
    """Stands for the bytes of a value."""


def weighty_failure(weight: Weighty) -> Failure:
    """A failure whose traceback leads to what it is about."""

    def fail(_: Weighty) -> None:
        raise IntegrityError("x")

    try:
        fail(weight)
    except IntegrityError as error:
        return Failure("writes", {"thread_id": "t1"}, "null", error)
    raise AssertionError


@pytest.mark.parametrize("kind", [Failures, lambda: ShownFailures(shown=False)])
def test_failures_keep_no_value(kind: Callable[[], Failures]) -> None:
    failures, weight = kind(), Weighty()
    alive = weakref.ref(weight)
    failures.add(weighty_failure(weight))
    del weight
    gc.collect()
    assert alive() is None
    result = Result("verify")
    result.add(*failure_reasons(failures))
    assert (failures.count, result_code(result)) == (1, Exit.UNOPENED)


# --- verify -----------------------------------------------------------------------------------


def test_verify_of_values_that_all_open(sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("verify", sealed, "--keys", keys) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("2 of 2 values open: 2 under k1\nok\n", "")
    found = document(capsys, "verify", sealed, "--keys", keys)
    assert (found["database"]["name"], found["database"]["kind"]) == (str(sealed), "sqlite")
    assert found["scope"] == {"read": ["checkpoints", "writes"], "not_read": [], "others": 0, "missing": []}
    names = list(found)
    assert {name: found[name] for name in names[names.index("failures") : names.index("ring")]} == {
        "failures": [],
        "rows": 2,
        "opened": [{"key": "k1", "values": 2}],
        "accepted": 0,
        "legacy": 0,
        "bound": 0,
        "unbound": 0,
        "unbound_places": [],
        "orphans": 0,
        "orphan_places": [],
        "heads": None,
        "pin": None,
        "failed": 0,
        "complete": True,
    }
    assert (found["ring"]["file"], found["ring"]["active"]) == (str(keys), "k1")
    assert (found["ok"], found["reasons"]) == (True, [])


def test_verify_names_every_value_that_does_not_open(
    sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [
        ("msgpack+cobblestone256@k1", bytes(99)),
        ("msgpack+xaes256gcm@k2", b""),
        ("null", b""),
        (b"\xff", None),
    ]
    insert(sealed, bad)
    assert called("verify", sealed, "--keys", keys) == 4
    shown = capsys.readouterr()
    place = "checkpoints thread_id='forged' checkpoint_ns='forged' checkpoint_id='0000000"
    errors = ["IntegrityError", "UnknownKeyError", "PlaintextError"]
    for number, (line, error) in enumerate(zip(shown.out.splitlines(), errors, strict=False)):
        assert line.startswith(f"{place}{number}': {error}: ")
    assert shown.out.splitlines()[4:] == [
        "2 of 6 values open: 2 under k1",
        "refused values and rows: 4",
        "not ok: values do not open",
    ]
    found = document(capsys, "verify", sealed, "--keys", keys, code=4)
    assert [part["place"]["checkpoint_id"] for part in found["failures"]] == [f"{n:08}" for n in range(4)]
    assert [part["tag"] for part in found["failures"]][1:3] == ["msgpack+xaes256gcm@k2", "null"]
    assert (found["rows"], found["failed"]) == (6, 4)


def test_verify_of_a_file_that_is_damaged_further_on_prints_one_object(
    plaintext: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found before the damage is in it; the exit code and stderr say that it is not all."""
    insert(plaintext, [("msgpack", b"\5" * 1_500), *[("msgpack", b"")] * 2_000, ("msgpack", b"\5" * 50_000)])
    data = plaintext.read_bytes()
    content = data.index(b"\5" * 4_000)  # of the first page behind the row, which begins with the next one
    page = content - content % 4096
    plaintext.write_bytes(data[:page] + b"\xff" * 4 + data[page + 4 :])
    assert called("verify", plaintext, "--keys", keys, "--json") == 4
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["failed"] == len(found["failures"]) > 0
    assert (found["complete"], found["ok"]) == (False, False)
    assert "malformed" in shown.err
    assert called("verify", plaintext, "--keys", keys) == 4
    assert re.search(r"^0 of \d+ values read so far open$", capsys.readouterr().out, re.MULTILINE)


def test_verify_lets_plaintext_pass_when_told(plaintext: Path, keys: Path) -> None:
    assert called("verify", plaintext, "--keys", keys) == 4
    assert called("verify", plaintext, "--keys", keys, "--allow-plaintext") == 3
    assert called("verify", plaintext, "--keys", keys, "--allow-plaintext", "--allow-unproven") == 0


def test_verify_needs_a_ring(sealed: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("verify", sealed, "--json") == 5
    (keys.parent / "k1.key").unlink()
    assert called("verify", sealed, "--keys", keys) == 5
    assert capsys.readouterr().out.startswith("{")  # of the first call: that had --json
    assert called("verify", sealed, "--keys", keys) == 5
    assert capsys.readouterr().out == ""


def test_data_goes_to_stdout_while_a_bar_is_on_the_terminal(plaintext: Path, keys: Path) -> None:
    """The bar of a terminal on stderr takes nothing of what is written to a file."""
    terminal, screen = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "sealpoint", "verify", plaintext, "--keys", keys, "--json"],
        stdout=subprocess.PIPE,
        stderr=screen,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(screen)
    with process:
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(terminal)
    assert process.returncode == 4
    assert json.loads(printed)["failed"] == 2


# --- what is never shown ----------------------------------------------------------------------


def every_call(path: Path, keys: Path) -> list[list[object]]:
    """All commands but `inspect`, with all of their ways to print."""
    calls: list[list[object]] = [
        ["status", path, "--keys", keys],
        ["audit", path],
        ["types", path, "--keys", keys],
        ["verify", path, "--keys", keys],
        ["trial", path, "--keys", keys],
        ["trial", path, "--keys", keys, "--allow-plaintext", "--strict"],
    ]
    return [*calls, *([*call, "--json"] for call in calls), ["types", path, "--keys", keys, "--emit"]]


@pytest.mark.claim("u13")
@pytest.mark.parametrize("is_sealed", [False, True])
def test_nothing_of_a_value_is_shown(
    tmp_path: Path, keys: Path, is_sealed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not in what is printed, and not in what is said; also not of values that do not open."""
    values = {"m": [HumanMessage(SECRET)], "b": SECRET.encode(), SECRET: {SECRET: Ticket(471_108_154_711)}}
    path = write(tmp_path / "a.db", {"t1": values}, sealed=is_sealed)
    broken = ormsgpack.packb({"a": SECRET})[:-1]
    insert(path, [("msgpack", broken), ("json", f'{{"{SECRET}": '.encode()), ("yaml", SECRET.encode())])
    for call in every_call(path, keys):
        called(*call)
    shown = capsys.readouterr()
    assert SECRET not in shown.out
    assert SECRET not in shown.err
    assert "471108154711" not in shown.out + shown.err


def test_no_control_character_reaches_the_terminal(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands in values, keys, ids, names of types, tags and metadata."""
    evil = EVIL.replace("\x00", "")
    path = write(tmp_path / "a.db", {evil: {evil: {"x": EVIL, EVIL: [EVIL]}}}, configurable={evil: evil})
    named = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb([f"m{evil}", f"N{evil}", {EVIL: EVIL}])))
    rows = [("msgpack", named), (f"msgpack{evil}", b""), (f"msgpack+{evil}@k1", b""), ("msgpack", b"\xc1")]
    insert(path, rows, json.dumps({evil: evil, "a": {evil: evil}}), thread=evil)
    inspected: list[object] = ["inspect", path, "--thread", evil]
    for call in [*every_call(path, keys), inspected, [*inspected, "--json"]]:
        called(*call)
        shown = capsys.readouterr()
        for printed in (shown.out, shown.err):
            assert printed.replace("\n", "").isprintable(), call


# --- all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_database_that_is_not_there(command: str, tmp_path: Path, keys: Path) -> None:
    options = ["--thread", "t"] if command == "inspect" else []
    assert called(command, tmp_path / "missing.db", *options) == 2
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.parametrize("command", [*COMMANDS, "rotate", "decrypt"])
def test_empty_file(command: str, tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite makes one of a name that is misspelt; there is nothing to be suspicious of."""
    (tmp_path / "empty.db").touch()
    options = ["--out", str(tmp_path / "new.db")] if command == "decrypt" else []
    options += [] if command == "inspect" else ["--keys", str(keys)]
    assert called(command, tmp_path / "empty.db", *options) == 2
    shown = capsys.readouterr()
    assert (shown.out, "is empty: it has no checkpoints" in shown.err) == ("", True)
    assert shown.err.splitlines()[1].startswith("hint: is it the right file?")
    assert "sqlite_master" not in shown.err


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written_to_the_file(command: str, plaintext: Path, keys: Path) -> None:
    before = plaintext.read_bytes()
    options = {"inspect": ["--thread", "t1"], "audit": []}.get(command, ["--keys", str(keys)])
    called(command, plaintext, *options)
    assert plaintext.read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS)
def test_page_names_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"`sealpoint {command}" in page
    assert called(command, "--help") == 0
    options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert {option for option in options if f"`{option}" not in page} == set()
