"""`sealpoint init`: a ring, what is in a database, and the Python and the commands that seal it."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphEncrypted
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.sqlite import SqliteStore
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from sealpoint import KeyRing
from sealpoint.admin.databases.postgres.tables import grants
from sealpoint.admin.results.exits import Exit
from sealpoint.langgraph import EncryptedSerializer, SealedStore
from tests.cli.conftest import Run
from tests.support.databases.foreign import insert
from tests.support.databases.postgres import set_up
from tests.support.databases.sealed import bind, make_cipher, write
from tests.support.sample_types import Point
from tests.support.servers.postgres import schema, server

THREAD: Any = {"configurable": {"thread_id": "visit-1"}}
AES = "16, 24, 32 bytes"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "an agent"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def talk(saver: Any) -> int:
    """Run an agent, and return the number of messages in its thread."""
    builder = StateGraph(MessagesState).add_node("reply", lambda _: {"messages": [("ai", "I see.")]})
    graph: Any = builder.add_edge(START, "reply").compile(checkpointer=saver)
    return len(graph.invoke({"messages": [("human", "My knee hurts.")]}, THREAD)["messages"])


def around(python: list[str], saver: Any) -> Any:
    """Run the lines of Python with a saver, and return what they make of it."""
    names = {"saver": saver}
    exec("\n".join(python), names)  # noqa: S102 -- what our own command prints
    return names["saver"]


Opener = Callable[[Any], Any]


@pytest.fixture(params=["SQLite", "Postgres"])
def place(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The name of a database, and what opens LangGraph's saver on it."""
    with ExitStack() as stack:
        if request.param == "SQLite":
            connection = stack.enter_context(closing(sqlite3.connect("state.db", check_same_thread=False)))
            yield "state.db", lambda serde: SqliteSaver(connection, serde=serde)
            return
        dsn = stack.enter_context(schema(server(pytestconfig)))
        set_up(PostgresSaver, dsn)
        postgres = stack.enter_context(psycopg.connect(dsn, autocommit=True, row_factory=dict_row))
        url = f"postgresql:///?{urlencode(conninfo_to_dict(dsn), quote_via=quote)}"
        yield url, lambda serde: PostgresSaver(postgres, serde=serde)


def commands(document: dict[str, Any]) -> list[str]:
    return [step["command"] for step in document["steps"] if step["command"]]


# --- from an empty folder -----------------------------------------------------------------------

APP = """
import sqlite3
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

saver = SqliteSaver(sqlite3.connect("state.db", check_same_thread=False))
{}
builder = StateGraph(MessagesState).add_node("reply", lambda _: {{"messages": [("ai", "I see.")]}})
graph = builder.add_edge(START, "reply").compile(checkpointer=saver)
graph.invoke({{"messages": [("human", "My knee hurts.")]}}, {{"configurable": {{"thread_id": "1"}}}})
"""


@pytest.mark.parametrize("named", [[], ["state.db"]], ids=["no database", "a database"])
def test_from_an_empty_folder_to_a_sealed_row(
    program: Run, script_path: str, monkeypatch: pytest.MonkeyPatch, named: list[str]
) -> None:
    """One command after the installation, at most 300 words on the screen, and what it prints is pasted."""
    ended = program("init", *named)
    assert ended.code == Exit.DONE
    assert len(f"{ended.out} {ended.err}".split()) <= 300
    python = ended.out.partition(":\n\n")[2].partition("\n\n1. ")[0]
    done = subprocess.run(
        [sys.executable, "-c", APP.format(python)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect("state.db")) as connection:
        (tag,) = connection.execute("SELECT DISTINCT type FROM checkpoints").fetchone()
    assert re.fullmatch(r"msgpack\+cobblestone256\.row@k\d\da-[0-9a-f]{4}", tag)
    export, verify = re.findall(r"\n   (.*)", ended.out)
    monkeypatch.setenv("PATH", script_path)
    shell = f"{export}\n{verify.replace('DB', 'state.db')}\n"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (Exit.DONE, "ok"), done.stderr


def test_the_ring_is_that_of_keys_init(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """By --keys or by the variable, with an id of one's own; and then nothing is to be exported."""
    assert run("init", "--keys", "a/keys.toml", "--key-id", "k1").code == Exit.DONE
    assert KeyRing.load("a/keys.toml").active_id == "k1"
    lines = run("init", "--keys", "a/keys.toml").out
    assert f'from_key_file("{Path.cwd()}/a/keys.toml")' in lines  # the agent may run elsewhere
    monkeypatch.setenv("SEALPOINT_KEYS", "b/keys.toml")
    found = run("init", "--key-id", "k2", "--json").document
    assert (found["ring_file"], found["is_new_ring"], found["ok"]) == ("b/keys.toml", True, True)
    assert (found["databases"], found["saver"], len(found["steps"])) == ([], None, 1)
    assert Path("a/keys.toml").stat().st_mode == Path("b/keys.toml").stat().st_mode
    again = run("init", "--key-id", "k2")
    assert (again.code, "Using the existing ring b/keys.toml: its active key is k2." in again.err) == (
        Exit.DONE,
        True,
    )


def test_ring_that_does_not_load_is_not_replaced(run: Run) -> None:
    assert run("init", "--key-id", "k1").code == Exit.DONE
    Path("keys.d/k1.key").unlink()
    ended = run("init")
    assert (ended.code, ended.out, "k1.key" in ended.err) == (Exit.KEYS, "", True)
    Path("keys.toml").write_text("no ring")
    assert (run("init").code, Path("keys.toml").read_text()) == (Exit.USAGE, "no ring")


def test_key_of_a_command_that_was_killed_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is not overwritten, and the new ring does not name it."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", kill)
        assert run("init", "--key-id", "k1").code == Exit.STOPPED
    assert (Path("keys.toml").exists(), Path("keys.d/k1.key").exists()) == (False, True)
    before = Path("keys.d/k1.key").read_bytes()
    ended = run("init")
    assert (ended.code, "keys.d/k1.key existed before" in ended.err) == (Exit.DONE, True)
    assert Path("keys.d/k1.key").read_bytes() == before
    assert "k1" not in KeyRing.load("keys.toml").ids


def test_init_is_recorded_in_the_ledger_of_the_ring(run: Run) -> None:
    assert run("init").code == Exit.DONE
    table = '\n[ledger]\ndir = "ledger"\norigin = "example.org/agents"\nsigner = { file = "l.key" }\n'
    Path("keys.toml").write_text(Path("keys.toml").read_text() + table)
    assert run("ledger", "init", "--keys", "keys.toml").code == Exit.DONE
    ended = run("init", "new.db")
    assert (ended.code, "ledger head: " in ended.err) == (Exit.DONE, True)
    found = [json.loads(line) for line in Path("ledger/entries.jsonl").read_text().splitlines()]
    assert [(each["event"], each["outcome"]) for each in found[1:]] == [("init", "begun"), ("init", "done")]
    assert found[-1]["subject"]["database"] == ["new.db"]


# --- databases with rows ------------------------------------------------------------------------


@pytest.mark.parametrize("beginning", ["plain", "legacy", "serializer alone"])
def test_every_step_of_each_beginning(
    run: Run, monkeypatch: pytest.MonkeyPatch, place: tuple[str, Opener], beginning: str
) -> None:
    """The Python and each command as they are printed, in their order; old processes read on in step 1."""
    name, opener = place
    monkeypatch.setenv("LANGGRAPH_AES_KEY", AES)
    if beginning == "serializer alone":
        assert run("init").code == Exit.DONE
    serializers: dict[str, Callable[[], Any]] = {
        "plain": lambda: None,
        "legacy": LangGraphEncrypted.from_pycryptodome_aes,
        "serializer alone": lambda: EncryptedSerializer.from_key_file("keys.toml"),
    }
    old = serializers[beginning]()
    assert talk(opener(old)) == 2
    if beginning == "legacy":
        first = run("init", name, "--json").document
        assert first["not_opened"] == first["values"] > 0
        assert "LANGGRAPH_AES_KEY" in first["steps"][1]["action"]
        entry = "\n[[key]]\nid = 'langgraph'\nstate = 'decrypt-only'\nsuite = 'aes'\n"
        entry += "source = { env = 'LANGGRAPH_AES_KEY' }\n"
        Path("keys.toml").write_text(Path("keys.toml").read_text() + entry)
    ended = run("init", name, "--json")
    found = ended.document
    assert (ended.code, found["ok"], found["not_opened"]) == (Exit.DONE, True, 0)
    assert {part["allowed"] for part in found["types"]} == {"built in"}
    assert found["saver"] == type(opener(None)).__name__
    assert bool(found["grants"]) == (found["saver"] == "PostgresSaver")
    export, trial, rebind, verify = commands(found)
    monkeypatch.setenv(*export.removeprefix("export ").partition("=")[::2])
    monkeypatch.setenv("SEALPOINT_KEYS", shlex.split(os.environ["SEALPOINT_KEYS"])[0])
    assert run(*shlex.split(trial)[1:]).code == Exit.DONE

    first_step = found["python"]
    assert talk(around(first_step, opener(old))) == 4
    assert talk(opener(old)) == 6
    second_step = [line.replace(", allow_write_with=OLD", "") for line in first_step]
    assert second_step != first_step
    assert talk(around(second_step, opener(old))) == 8
    assert talk(around(first_step, opener(old))) == 10
    assert run(*shlex.split(verify)[1:]).code in (Exit.FOUND, Exit.UNOPENED)
    bound = run(*shlex.split(rebind)[1:])
    assert bound.code == Exit.DONE, bound.err
    assert run(*shlex.split(verify)[1:]).code == Exit.DONE
    last = [re.sub(', (unbound|plaintext)="allow"', "", line) for line in second_step]
    assert talk(around(last, opener(None))) == 12

    monkeypatch.delenv("SEALPOINT_KEYS")
    after = run("init", name, "--json").document
    assert after["python"] == [line for line in last if not line.startswith(("from langgraph", "OLD ="))]
    assert commands(after) == [export, verify]


def test_database_that_is_none_of_ours(run: Run, empty_folder: Path) -> None:
    """Nothing is made: no ring, no key, no file of SQLite."""
    with closing(sqlite3.connect("app.db")) as connection:
        connection.execute("CREATE TABLE users (id)")
    Path("text.db").write_text("no database")
    Path("empty.db").touch()
    before = {file: file.read_bytes() for file in empty_folder.iterdir()}
    for name in ("app.db", "text.db", "empty.db", ".", "mysql://host/db", ""):
        ended = run("init", name)
        assert (ended.code, ended.out, "error: " in ended.err) == (Exit.USAGE, "", True), name
    assert {file: file.read_bytes() for file in empty_folder.iterdir()} == before


def test_rows_of_another_ring_are_not_given_a_new_one(run: Run, empty_folder: Path) -> None:
    """A new key would open none of them."""
    write(Path("state.db"), "k1", "a")
    ended = run("init", "state.db")
    assert (ended.code, ended.out) == (Exit.KEYS, "")
    assert "no key 'k1' in the ring" in ended.err
    assert "--keys FILE" in ended.err
    assert not {"keys.toml", "keys.d"} & {file.name for file in empty_folder.iterdir()}


@pytest.mark.parametrize("beginning", ["unbound", "bound", "legacy"])
@pytest.mark.parametrize("tag", ["msgpack", "msgpack+aes", "pickle", "x+y"])
def test_inserted_rows_do_not_weaken_what_is_shown(run: Run, keys: Path, tag: str, beginning: str) -> None:
    """Where rows are sealed or encrypted, those that are less are counted, and refused by the Python."""
    path = Path("state.db")
    write(path, "eax" if beginning == "legacy" else "k2", "a")
    if beginning == "bound":
        bind(path, make_cipher("k2"), "a")
    clean = run("init", "state.db", "--json").document
    insert(path, [(tag, b"\xc0")])
    ended = run("init", "state.db", "--json")
    found = ended.document
    assert (found["python"], found["steps"]) == (clean["python"], clean["steps"])
    assert "plaintext" not in str(found["python"]) + str(commands(found))
    is_same = (tag, beginning) == ("msgpack+aes", "legacy")
    assert ("1 values are refused by this Python code" in ended.err) is not is_same


# --- types --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database whose values name a type of an agent's own, and one that an attacker chose."""
    path = Path("state.db")
    write(path, "plain", "a", value=Point(1))
    return path


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


LIST = Path("allowed-types.txt")


def named_types(run: Run) -> list[tuple[str, str]]:
    found = run("types", "state.db", "--json").document["types"]
    return sorted((part["module"], part["name"]) for part in found if part["allowed"] != "built in")


def test_types_are_asked_for_one_by_one(run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is what `types --emit` prints, the commands read it, and the Python has it."""
    named = named_types(run)
    assert named
    answer(monkeypatch, *["yes"] * len(named))
    ended = run("init", "state.db")
    assert (ended.code, ended.err.count("type yes:")) == (Exit.DONE, len(named))
    assert LIST.read_text() == run("types", "state.db", "--emit").out
    assert f"with_msgpack_allowlist([{', '.join(map(ascii, named))}])" in ended.out
    (trial,) = re.findall(r"   sealpoint (trial .*)", ended.out)
    assert "--allow allowed-types.txt --import " in trial
    monkeypatch.setenv("SEALPOINT_KEYS", "keys.toml")
    assert run(*shlex.split(trial)).code == Exit.DONE


@pytest.mark.parametrize("words", [["no"], ["y"], [""], []])
def test_only_yes_is_yes(run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    answer(monkeypatch, *words)
    ended = run("init", "state.db")
    assert (ended.code, LIST.exists(), "allowlist" in ended.out) == (Exit.DONE, False, False)
    assert "\nNot allowed, as the answer is not yes:" in ended.err


@pytest.mark.parametrize("option", ["--yes", "--json", ""])
def test_without_a_question_no_type_is_allowed(
    run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """And without a terminal there is none; the command that shows the types is named."""
    answer(monkeypatch, "yes")
    if not option:
        monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    ended = run("init", "state.db", *filter(None, [option]))
    assert (ended.code, LIST.exists(), "with_msgpack_allowlist" in ended.out) == (Exit.DONE, False, False)
    assert "type yes" not in ended.err
    assert "\nsealpoint types state.db --emit\n" in ended.err


def test_allowlist_that_is_there_is_used_and_not_changed(
    run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a kill cut off is no list, and is named."""
    answer(monkeypatch, "yes")
    LIST.write_text("[('mine', 'Trip')]")
    ended = run("init", "state.db")
    assert (ended.code, LIST.read_text()) == (Exit.DONE, "[('mine', 'Trip')]")
    assert "Using the existing allowlist allowed-types.txt." in ended.err
    assert "with_msgpack_allowlist([('mine', 'Trip')])" in ended.out
    for cut_off in ("", "[\n    ('mine', 'Trip')"):
        LIST.write_text(cut_off)
        ended = run("init", "state.db")
        assert (ended.code, "is not an allowlist" in ended.err) == (Exit.USAGE, True)
        assert LIST.read_text() == cut_off


def test_allowlist_that_appears_meanwhile_is_not_replaced(
    run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then nothing is made."""

    class Slow(Terminal):
        def readline(self, *_: Any) -> str:  # type: ignore[override]
            LIST.write_text("of another run")
            return "yes\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    ended = run("init", "state.db")
    assert (ended.code, ended.out, "allowed-types.txt" in ended.err) == (Exit.USAGE, "", True)
    assert (LIST.read_text(), Path("keys.toml").exists()) == ("of another run", False)


def test_more_types_than_a_person_reads_are_not_asked_for(
    run: Run, typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealpoint.admin.cli.init.MAX_QUESTIONS", 0)
    answer(monkeypatch, "yes")
    ended = run("init", "state.db")
    assert (ended.code, LIST.exists(), "type yes" in ended.err) == (Exit.DONE, False, False)


# --- Postgres -----------------------------------------------------------------------------------


def test_grants_are_those_of_the_pages() -> None:
    """And those that `rebind` needs beyond them are on the page on migration."""
    docs = Path(__file__).parents[2] / "docs"
    assert f"```sql\n{grants('public')}```" in (docs / "postgres.md").read_text(encoding="utf-8")
    more = grants("public", rebinds=True).removeprefix(grants("public"))
    assert f"```sql\n{more}```" in (docs / "migration.md").read_text(encoding="utf-8")


def test_new_database_on_postgres(run: Run, pytestconfig: pytest.Config) -> None:
    """A schema without the tables is a new database; with altered ones it is not."""
    with schema(server(pytestconfig)) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        url = f"postgresql:///?{urlencode(conninfo_to_dict(dsn), quote_via=quote)}"
        ended = run("init", url)
        assert (ended.code, "no tables of LangGraph yet" in ended.err) == (Exit.DONE, True)
        assert "PostgresSaver" in ended.out
        assert "GRANT SELECT ON checkpoints," in ended.out
        connection.execute("CREATE TABLE checkpoints (id int)")
        refused = run("init", url, "--keys", "other.toml")
        assert (refused.code, refused.out, Path("other.toml").exists()) == (Exit.USAGE, "", False)


@pytest.mark.parametrize("name", ["Agents", 'a"; DROP TABLE x; --', "user"])
def test_grants_quote_the_schema(run: Run, pytestconfig: pytest.Config, name: str) -> None:
    """Its name is text of the database, and is pasted into psql: here each statement is executed."""
    quoted = '"{}"'.format(name.replace('"', '""'))
    with psycopg.connect(server(pytestconfig)) as connection:  # all is rolled back
        connection.execute(f"CREATE SCHEMA {quoted}".encode())
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            connection.execute(f"CREATE TABLE {quoted}.{table} (id int)".encode())
        statements = grants(name).replace("CREATE ROLE sealpoint", "CREATE ROLE sealpoint_init")
        connection.execute(re.sub("TO sealpoint;", "TO sealpoint_init;", statements).encode())
        may = connection.execute(
            "SELECT has_table_privilege('sealpoint_init', c.oid, 'SELECT'),"
            " has_table_privilege('sealpoint_init', c.oid, 'UPDATE')"
            " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND relkind = 'r'",
            (name,),
        ).fetchall()
        assert may == [(True, True)] * 3
        connection.rollback()


def test_another_key_id_is_refused_if_the_ring_is_there(run: Run) -> None:
    """Else a key is missing that somebody asked for, and the ledger names it."""
    assert run("init", "--key-id", "k1").code == Exit.DONE
    assert run("init", "--key-id", "k1").code == Exit.DONE
    ended = run("init", "--key-id", "k2")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "its active key is k1" in ended.err


def test_no_grants_for_a_schema_whose_name_has_lines(run: Run, pytestconfig: pytest.Config) -> None:
    """A line of it would stand among what is pasted."""
    with schema(server(pytestconfig)) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        name = "a\ntouch pwned\n"
        connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        try:
            parts = conninfo_to_dict(dsn) | {"options": '-c search_path="a\\\ntouch\\ pwned\\\n"'}
            url = f"postgresql:///?{urlencode(parts, quote_via=quote)}"
            set_up(PostgresSaver, make_conninfo("", **parts))
            ended = run("init", url)
            assert (ended.code, "GRANT" in ended.out, "\ntouch" in ended.out) == (Exit.DONE, False, False)
        finally:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE'.encode())


# --- LangGraph's Store ----------------------------------------------------------------------------


@pytest.mark.parametrize("has_saver", [False, True])
def test_a_plain_store_is_migrated_step_by_step(run: Run, has_saver: bool) -> None:
    """The Python reads what is there and writes as today; the commands of the steps end with ok."""
    if has_saver:
        with closing(sqlite3.connect("state.db", check_same_thread=False)) as connection:
            talk(SqliteSaver(connection))
    with (
        SqliteStore.from_conn_string("state.db") as store,
        closing(sqlite3.connect("state.db")) as connection,
    ):
        store.setup()
        store.put(("users",), "ada", {"allergy": "penicillin"})
        ended = run("init", "state.db", "--json")
        assert ended.code == Exit.DONE
        python = "\n".join(ended.document["python"])
        assert ("SealedSaver" in python) is has_saver
        names: dict[str, Any] = {"store": store, "saver": SqliteSaver(connection)}
        exec(python, names)  # noqa: S102 -- what our own command prints
        item = names["store"].get(("users",), "ada")
        assert item is not None
        assert item.value == {"allergy": "penicillin"}
        names["store"].put(("users",), "eve", {"a": 1})
        assert store.get(("users",), "eve").value == {"a": 1}  # type: ignore[union-attr]
        *_, rebind, verify = commands(ended.document)
        assert "--allow-plaintext" in rebind
        for command in (rebind, verify):
            assert run(*shlex.split(command)[1:], "--keys", "keys.toml").code == Exit.DONE
        later = SealedStore(store, serde=EncryptedSerializer.from_key_file("keys.toml"))
        assert {found.key for found in later.search(("users",))} == {"ada", "eve"}
        again = run("init", "state.db", "--keys", "keys.toml", "--json").document
        assert again["python"][-1] == "store = SealedStore(store, serde=serde)"
    text = run("init", "state.db", "--keys", "keys.toml").out
    assert "SqliteStore or AsyncSqliteStore:" in text


def test_the_store_reads_the_types_that_are_allowed(run: Run) -> None:
    """Also where its serializer is another than that of the saver, for items that are not sealed."""
    LIST.write_text("[('mine', 'Trip')]", encoding="utf-8")
    with SqliteStore.from_conn_string("state.db") as store:
        store.setup()
        store.put(("users",), "ada", {"allergy": "penicillin"})
        python = run("init", "state.db", "--json").document["python"]
    (line,) = [line for line in python if line.startswith("reads_plain = ")]
    assert line.endswith("with_msgpack_allowlist([('mine', 'Trip')])")
