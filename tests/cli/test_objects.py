"""The JSON objects of all commands: valid against the published schema, and ``ok`` beside the exit code."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]

from sealpoint.admin.cli import app
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import REFUTING
from sealpoint.crypto import check_value
from sealpoint.keys.wrap.command import format_bound
from sealpoint.keys.wrap.wrapper import WrapContext
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.cli.conftest import Run
from tests.support.databases.foreign import insert
from tests.support.databases.sealed import write
from tests.support.keys.ledgers import make_ledger
from tests.support.keys.rings import material_of, states_text
from tests.support.runs.results import REPORT, SCHEMA, expected_code, read_schema, require_valid
from tests.support.schemas import ENUMS, file_of, render

COMMANDS: dict[str, bool | None] = {  # with the word of each on a good database
    "init DB": True,
    "status DB": None,
    "status DB --only k1": True,
    "audit DB": True,
    "report DB": False,
    "types DB": None,
    "trial DB": True,
    "inspect DB": None,
    "inspect DB --thread a": None,
    "verify DB": True,
    "verify DB DB": True,
    "status DB DB --only k1": True,
    "rotate DB DB --apply": True,
    "rotate DB": None,
    "rotate DB --apply": True,
    "rebind DB": None,
    "rebind DB --apply": True,
    "rebind DB --apply --scrub": True,
    "rebind DB --unbind --apply": True,
    "rebind DB --apply --thread a": True,
    "scrub DB": None,
    "scrub DB --apply": None,
    "decrypt DB --out NEW": True,
    "verify DB --threads STORE": None,
    "heads adopt DB --threads STORE --reason x": None,
    "erase DB --thread a": None,
    "erase DB --thread a --apply": True,
    "heads seal STORE": True,
    "heads trim STORE --before 2026-01-01 --yes": True,
    "keys list": None,
    "keys check": True,
    "keys show k1": None,
    "keys generate": True,
    "keys generate --wrap-with w": True,
    "keys wrap k1 --with w": True,
    "keys rewrap k4": True,
    "keys promote k1": True,
    "keys promote k1 --db DB": True,
    "keys disable k2 --yes": None,
    "keys disable k2 --db DB": True,
    "keys enable k2": True,
    "keys compromise k2": True,
    "keys destroy k3 --yes --no-database-check": None,
    "keys destroy k3 --yes --db DB": True,
    "keys init --keys RING": True,
    "ledger init --keys LRING": True,
    "ledger show --ledger LEDGER": None,
    "ledger verify --ledger LEDGER": None,
    "ledger verify --ledger LEDGER --vkey LEDGER/vkey --pin LEDGER/checkpoint": True,
    "ledger prove 0 --ledger LEDGER": None,
    "merge LEDGER/vkey": None,
    "erasures --keys ERING": None,
    "erasures --keys ERING --vkey LEDGER/vkey --pin LEDGER/checkpoint": True,
}

Words = Callable[[list[str]], list[object]]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Words:
    """Puts the paths of a database, a ring and new files into the words of a command."""
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    ring = tmp_path / "keys.toml"
    index = "[[index]]\nid = 'index'\nsource = { inline = 'aW5kZXguLi4uLi4uLi4uLi4uLi4uLi4uLi4uLi4uLi4=' }\n"
    wrapper = "[[wrapper]]\nid = 'w'\nkind = 'command'\nwrap = ['base64']\nunwrap = ['base64', '-d']\n"
    line = format_bound(material_of("k4"), WrapContext("agents", "k4"))
    blob = b64encode(b64encode(line)).decode()  # once by the wrapper, once in the ring
    wrapped = f"[[key]]\nid = 'k4'\nstate = 'staged'\ncheck = '{check_value(material_of('k4'))}'\n"
    wrapped += f"source = {{ wrapped = '{blob}', by = 'w' }}\n"
    states = states_text(k1="active", k2="decrypt-only", k3="staged")
    ring.write_text(f"name = 'agents'\n{states}\n{wrapped}\n{wrapper}\n{index}")
    SqliteThreadStore(tmp_path / "threads.db", create=True).close()
    ring.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    places: dict[str, object] = {
        "DB": path,
        "NEW": tmp_path / "new.db",
        "OTHER": tmp_path / "other.db",
        "STORE": tmp_path / "threads.db",
        "RING": tmp_path / "new" / "keys.toml",
        "LRING": tmp_path / "ledger.toml",
        "ERING": tmp_path / "erasures.toml",
        "LEDGER": tmp_path / "ledger",
        "LEDGER/vkey": tmp_path / "ledger" / "vkey",
        "LEDGER/checkpoint": tmp_path / "ledger" / "checkpoint",
    }
    make_ledger(tmp_path / "ledger", 2)
    table = "[ledger]\ndir = 'new'\norigin = 'x'\nsigner = { file = 'new.key' }\n"
    (tmp_path / "ledger.toml").write_text(f"{ring.read_text()}\n{table}")
    (tmp_path / "erasures.toml").write_text(f"{ring.read_text()}\n[ledger]\ndir = 'ledger'\norigin = 'x'\n")
    for file in ("ledger.toml", "erasures.toml"):
        (tmp_path / file).chmod(0o600)
    return lambda given: [places.get(word, word) for word in given]


def name_of(line: str) -> str:
    """The name of a command, from its line."""
    return " ".join(line.split()[: 1 + line.startswith(("heads ", "keys ", "ledger "))])


@pytest.mark.parametrize(("line", "ok"), COMMANDS.items(), ids=COMMANDS)
def test_object_is_what_the_schema_says(run: Run, words: Words, line: str, ok: bool | None) -> None:
    """It begins with schema and command, and says when the run began and ended."""
    before = datetime.now(UTC).replace(microsecond=0)
    ended = run(*words(line.split()), "--json")
    (first, schema), (second, command), *_ = json.loads(ended.out).items()
    assert (first, schema) == ("schema", (REPORT if line == "report DB" else SCHEMA)["$id"])
    assert (second, command) == ("command", name_of(line))
    found = ended.document
    assert found["versions"]["sealpoint"] == importlib.metadata.version("sealpoint")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found[at]) for at in ("began", "ended"))
    began, end = datetime.fromisoformat(found["began"]), datetime.fromisoformat(found["ended"])
    assert before <= began <= end <= datetime.now(UTC)
    assert (found["ok"], ended.code) == (ok, expected_code(found))


def test_every_command_has_an_object(run: Run) -> None:
    """What the schema names is what is tried here, and what there is."""
    named = set(SCHEMA["properties"]["command"]["enum"]) - {"sealpoint"}
    tried = {name_of(line) for line in COMMANDS} | {"shards"}  # of Postgres alone: tests/postgres
    assert tried == named == app.COMMANDS
    listed = run("--help").out.partition("\nCommands:\n")[2]
    groups = set(re.findall(r"^  ([a-z]+) ", listed.partition("\n\n")[0], re.MULTILINE))
    assert {name.split()[0] for name in tried} == groups


@pytest.mark.parametrize("line", sorted({name_of(line) for line in COMMANDS}))
def test_a_run_that_cannot_begin_has_an_object_too(run: Run, words: Words, line: str) -> None:
    """So `jq -e .ok` fails for it: of an empty input, older ones say nothing."""
    ended = run(*line.split(), "--bad-option", "--json")
    found = ended.document
    require_valid(found)
    assert (ended.code, found["command"], found["ok"]) == (Exit.USAGE, line, None)
    assert found["reasons"] == ["not-completed"]
    assert "--bad-option" in found["error"]["message"]
    assert found["error"]["message"] in ended.err


@pytest.mark.parametrize(
    ("line", "command", "code"),
    [
        ("", "sealpoint", Exit.USAGE),
        ("burn", "sealpoint", Exit.USAGE),
        ("keys burn", "sealpoint", Exit.USAGE),
        ("verify missing.db", "verify", Exit.USAGE),
        ("verify DB --keys missing.toml", "verify", Exit.KEYS),
        ("keys destroy k1 --yes --no-database-check", "keys destroy", Exit.USAGE),
        ("keys destroy k2 --yes --db DB", "keys destroy", Exit.USAGE),
        ("status DB --only k9", "status", Exit.USAGE),
    ],
)
def test_an_error_is_in_the_object(run: Run, words: Words, line: str, command: str, code: Exit) -> None:
    ended = run(*words(line.split()), "--json")
    found = ended.document
    require_valid(found)
    assert (ended.code, found["command"], found["ok"], found["reasons"]) == (
        code,
        command,
        None,
        ["not-completed"],
    )
    assert found["error"] is None or found["error"]["message"] in ended.err


@pytest.mark.parametrize("name", ENUMS)
def test_schema_is_in_step_with_the_program(name: str) -> None:
    """It is a schema, it names what the code names, and it forces ``ok`` and ``reasons`` to agree."""
    schema = read_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert file_of(name).read_text(encoding="utf-8") == render(name), "run: make schemas"


@pytest.mark.parametrize("line", COMMANDS)
def test_schema_refuses_other_objects(run: Run, words: Words, line: str) -> None:
    """An object that lacks a member, has one more or another schema, or contradicts itself is not valid."""
    found = run(*words(line.split()), "--json").document
    wrong = [{name: found[name] for name in found if name != missing} for missing in found]
    wrong += [{**found, "schema": "urn:sealpoint:result:2"}, {**found, "command": "keys burn"}]
    wrong += [{**found, "more": 1}, {**found, "account": {**found["account"], "more": 1}}]
    wrong += [{**found, "ok": True, "reasons": ["no-rows"]}, {**found, "ok": None, "reasons": []}]
    wrong += [{**found, "ok": False, "reasons": ["no-rows"]}, {**found, "ok": None, "reasons": ["unknown"]}]
    wrong += [{**found, "ok": None, "reasons": [reason.value]} for reason in sorted(REFUTING)]
    accepted = []
    for document in wrong:
        try:
            require_valid(document)
        except (ValidationError, AssertionError):
            continue
        accepted.append(sorted(set(found) - set(document)) or document)
    assert accepted == []


def test_runs_have_ids_of_their_own(run: Run, words: Words) -> None:
    first, second = (run(*words(["status", "DB"]), "--json").document["run"] for _ in range(2))
    assert first != second


@pytest.mark.parametrize(("only", "expected"), [(None, None), ("k1", True), ("k2", False)])
def test_status_says_what_was_asked_and_whether_it_is_so(
    run: Run, words: Words, only: str | None, expected: bool | None
) -> None:
    document = run(*words(["status", "DB"]), *(["--only", only] if only else []), "--json").document
    assert (document["only"], document["ok"]) == (only, expected)
    assert ("not-asked" in document["reasons"]) == (only is None)


DATABASE_LINES = [
    "status DB --only k1",
    "audit DB",
    "audit DB --strict",
    "types DB --allow a.b:C",
    "trial DB",
    "inspect DB --thread forged",
    "verify DB",
    "verify DB --allow-plaintext",
    "rotate DB",
    "rotate DB --apply",
    "rotate DB --apply --verify none",
    "rotate DB --apply --allow-plaintext",
    "scrub DB --apply",
    "decrypt DB --out NEW",
    "decrypt DB --out NEW --allow-plaintext",
]
TAGS = ["msgpack+cobblestone256@k9", "null+cobblestone256@k1", "msgpack", "msgpack+cobblestone256@k2"]


@pytest.mark.broad
@pytest.mark.parametrize("line", DATABASE_LINES)
@pytest.mark.parametrize("tag", TAGS)
def test_ok_is_what_the_exit_code_says(run: Run, words: Words, line: str, tag: str) -> None:
    """On a database in which one value is not as it should be."""
    given = words(line.split())
    insert(Path(str(given[1])), [(tag, b"\x07" if tag == "msgpack" else b"x" * 40)])
    ended = run(*given, "--json")
    assert ended.code == expected_code(ended.document)
    text = run(*words([*line.replace("NEW", "OTHER").split()])).out.splitlines()
    if line.startswith("inspect"):
        return
    words_of = {True: "ok", False: "not ok: ", None: "not proven: "}
    if "--apply" not in line:  # which changes what the second run finds
        assert text[-1].startswith(words_of[ended.document["ok"]])


@pytest.mark.parametrize("line", [line for line in DATABASE_LINES if not line.startswith("inspect")])
def test_nothing_is_shown_by_a_database_without_values(run: Run, words: Words, line: str) -> None:
    given = words(line.split())
    with closing(sqlite3.connect(str(given[1]))) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
        connection.execute("DELETE FROM writes")
    ended = run(*given, "--json")
    assert (ended.document["ok"], "no-rows" in ended.document["reasons"]) == (None, True)
    assert ended.code == expected_code(ended.document)


@pytest.mark.parametrize(
    "line",
    ["verify DB --allow-plaintext", "audit EMPTY", "keys destroy k3 --yes --no-database-check"],
)
def test_unproven_is_an_exit_code_unless_it_is_allowed(
    run: Run, words: Words, tmp_path: Path, line: str
) -> None:
    """Of those commands whose code others rely on."""
    write(tmp_path / "x.db", "plain", "b")
    empty = tmp_path / "empty.db"
    write(empty, "k1", "a")
    with closing(sqlite3.connect(empty)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
        connection.execute("DELETE FROM writes")
    given = [empty if word == "EMPTY" else word for word in words(line.split())]
    ended = run(*given, "--json")
    assert (ended.document["ok"], ended.code) == (None, Exit.FOUND)
    if not line.startswith("keys"):
        assert run(*given, "--allow-unproven").code == Exit.DONE


def test_allow_unproven_lets_no_failure_pass(run: Run, words: Words) -> None:
    given = words(["verify", "DB", "--allow-unproven"])
    insert(Path(str(given[1])), [("null+cobblestone256@k1", b"x" * 40)])
    assert run(*given).code == Exit.UNOPENED
