"""URLs of servers: as people have them, and in an environment variable, where one may have a password."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict

from sealpoint.admin.cli.app import SEVERAL as EACH
from sealpoint.admin.cli.app import program
from sealpoint.admin.results.exits import Exit
from sealpoint.threads import open_thread_store
from sealpoint.urls import has_password
from tests.cli.conftest import Run
from tests.support.databases.postgres import blobs, put_blobs, set_up
from tests.support.keys.rings import states_text
from tests.support.servers.postgres import schema, server

PASSWORD = "hunter2-hunter2"
AWAY = f"postgresql://me:{PASSWORD}@127.0.0.1:1/agents?connect_timeout=1"
ONE = [["audit"], ["types"], ["trial"], ["inspect"], ["verify"], ["rotate"], ["rotate", "--apply"]]
SEVERAL = [
    ["status"],
    ["shards", "--count", "2"],
    ["keys", "promote", "k2"],
    ["keys", "disable", "k1"],
    ["keys", "destroy", "k3", "--yes"],
]

pytestmark = pytest.mark.usefixtures("keys")


@pytest.fixture(autouse=True)
def staged(keys: Path) -> None:
    """Beside the active key one that can be disabled, and one that can be destroyed."""
    keys.write_text(states_text(k2="active", k1="decrypt-only", k3="staged"))


@pytest.mark.parametrize("words", [*ONE, *SEVERAL], ids=" ".join)
def test_variable_that_is_not_set(run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.delenv("AGENTS_DB", raising=False)
    ended = run(*words, "--db-env", "AGENTS_DB")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "the environment variable 'AGENTS_DB' is not set\nhint: export AGENTS_DB=" in ended.err


@pytest.mark.parametrize("words", [*ONE, *SEVERAL], ids=" ".join)
@pytest.mark.parametrize("held", ["", f"/srv/{PASSWORD}.db", f"mysql://me:{PASSWORD}@host/db", PASSWORD])
def test_variable_without_a_url_is_not_repeated(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], held: str
) -> None:
    """What it holds may be a password."""
    monkeypatch.setenv("AGENTS_DB", held)
    ended = run(*words, "--db-env", "AGENTS_DB")
    assert (ended.code, ended.out, PASSWORD in ended.err) == (Exit.USAGE, "", False)
    assert "'AGENTS_DB' does not contain a URL of Postgres" in ended.err


@pytest.mark.parametrize("words", [*ONE, *SEVERAL], ids=" ".join)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=str)
def test_password_is_not_shown_if_the_server_is_away(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], more: list[str]
) -> None:
    monkeypatch.setenv("AGENTS_DB", AWAY)
    ended = run(*words, "--db-env", "AGENTS_DB", *more)
    assert (ended.code, ended.has_no_result) == (Exit.STOPPED, True)
    assert "127.0.0.1" in ended.err
    assert PASSWORD not in ended.err + ended.out


@pytest.mark.parametrize("password", ["a/b?c", "a?b/c", "a@b", "a:b/c?", "a#b"])
def test_a_password_that_is_not_escaped_is_one(run: Run, path: Path, password: str) -> None:
    """Also if libpq would read it as another part: it is printed and recorded nowhere."""
    ended = run("verify", f"postgresql://u:{password}@127.0.0.1/db", path)
    assert (ended.code, ended.out, password in ended.err) == (Exit.USAGE, "", False)
    assert "the URL of the database contains a password" in ended.err


@pytest.mark.parametrize("url", ["h:5432/db?application_name=a@b", "u@h:5432/db", "/db?user=a:b"])
def test_what_is_no_password(url: str) -> None:
    assert not has_password(f"postgresql://{url}")


TWO = [["status"], *([name] for name in sorted(EACH - {"scrub"})), ["report", "--json-out", "r.json"]]


@pytest.mark.parametrize("words", TWO, ids=" ".join)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=str)
def test_password_is_not_shown_if_one_of_several_is_away(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], more: list[str]
) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("AGENTS_DB", AWAY)
    ended = run(*words, path, "--db-env", "AGENTS_DB", *more)
    assert ended.code != Exit.DONE
    assert "127.0.0.1" in ended.err
    assert PASSWORD not in ended.err + ended.out
    if words == ["status"]:
        assert "error: $AGENTS_DB: no connection to postgresql://127.0.0.1:1/agents: " in ended.err


@pytest.mark.parametrize("words", ONE, ids=" ".join)
def test_two_databases_are_one_too_many(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("AGENTS_DB", AWAY)
    for databases in ([path, "--db-env", "AGENTS_DB"], [])[words[0] in EACH :]:
        ended = run(*words, *databases)
        assert (ended.code, ended.out) == (Exit.USAGE, "")
        assert "name one database: DB, or --db-env NAME" in " ".join(ended.err.split())
        assert PASSWORD not in ended.err


def test_status_needs_a_database(run: Run) -> None:
    ended = run("status")
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "name at least one database" in ended.err


def test_server_with_a_password(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Commands name the server as without it, and so do their objects; DB beside it is another database."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(3))
        parts = {**conninfo_to_dict(dsn), "password": PASSWORD}
        monkeypatch.setenv("AGENTS_DB", f"postgresql:///?{urlencode(parts, quote_via=quote)}")
        for words in [*ONE[:-1], *SEVERAL[:1]]:
            for more in ([], ["--json"]):
                ended = run(*words, "--db-env", "AGENTS_DB", *more)
                # What the blobs hold is no MessagePack, of which `types` reads every byte.
                code = Exit.UNOPENED if words == ["types"] else Exit.DONE
                assert (words, ended.code) == (words, code)
                assert PASSWORD not in ended.out + ended.err
        both = run("status", path, "--db-env", "AGENTS_DB", "--json").document["databases"]
        assert [part["database"]["kind"] for part in both] == ["sqlite", "postgres"]
        refused = run("keys", "disable", "k1", "--db-env", "AGENTS_DB")
        assert (refused.code, refused.out, PASSWORD in refused.err) == (Exit.FOUND, "", False)
        assert run("rotate", "--db-env", "AGENTS_DB", "--apply").code == Exit.DONE
        disabled = run("keys", "disable", "k1", "--db-env", "AGENTS_DB", "--json")
        assert (disabled.code, disabled.document["ok"], PASSWORD in disabled.out) == (Exit.DONE, True, False)


MORE = [
    ["init"],
    ["rebind", "--apply"],
    ["decrypt", "--out-schema", "copy"],
    ["report"],
    ["erase", "--thread", "t"],
    ["heads", "adopt", "--threads", "store.db", "--reason", "a b"],
]


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands with `--db-env`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        elif any("--db-env" in option.opts for option in command.params):
            yield (*before, name)


def named_as(words: list[str]) -> str:
    return " ".join(words[: 1 + (words[0] in {"keys", "heads"})])


def test_every_command_that_takes_a_database_is_tried() -> None:
    assert {" ".join(names) for names in commands(program())} == {
        named_as(words) for words in [*ONE, *SEVERAL, *MORE]
    }


@pytest.mark.parametrize("words", [*ONE, *SEVERAL, *MORE], ids=" ".join)
def test_hint_for_a_password_is_the_command_to_paste(
    run: Run, script_path: str, keys: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Neither the error nor the hint shows the URL, and what the hint says runs as the command would have."""
    monkeypatch.chdir(keys.parent)
    as_option = ["--db"] if words[0] == "keys" else []
    ended = run(*words, *as_option, AWAY)
    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert PASSWORD not in ended.err
    assert "127.0.0.1" not in ended.err
    pasted = ended.err.splitlines()[-1].partition(" shown: ")[2]
    assert pasted.startswith("read -rs DB_URL && export DB_URL && sealpoint ")
    monkeypatch.setenv("PATH", script_path)
    done = subprocess.run(
        ["bash", "-c", pasted], input=f"{AWAY}\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.STOPPED, done.stderr
    assert "no connection to postgresql://127.0.0.1:1/agents" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "pasted"),
    [
        (["status", "{}", "{}2"], None),
        (["status", "x y.db", "{}"], "sealpoint status 'x y.db' --db-env DB_URL"),
        (["keys", "promote", "k1", "--db={}"], "sealpoint keys promote k1 --db-env DB_URL"),
        (["heads", "seal", "{}"], None),
        (["verify", "{}", "--threads", "{}x"], None),
        (["verify", "host=db password=hunter2-hunter2"], None),
    ],
)
def test_hint_for_passwords(run: Run, given: list[str], pasted: str | None) -> None:
    """Of a word with a password that is no database nothing is shown either."""
    ended = run(*(word.format(AWAY) for word in given))
    assert (ended.code, ended.out, PASSWORD in ended.err) == (Exit.USAGE, "", False)
    hint = ended.err.splitlines()[-1]
    assert hint.endswith(f" && {pasted}") if pasted else hint.endswith("$PGPASSFILE or $PGSERVICEFILE")


@pytest.mark.parametrize(
    "scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2", "postgres+asyncpg"]
)
@pytest.mark.parametrize("password", ["", ":"], ids=["no password", "an empty one"])
def test_urls_as_people_have_them(
    run: Run,
    keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    scheme: str,
    password: str,
) -> None:
    """On a command line, in a variable, in the ring file, and as a thread store."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        parts = conninfo_to_dict(dsn)
        user, database = parts.pop("user"), parts.pop("dbname")
        url = f"{scheme}://{user}{password}@/{database}?{urlencode(parts, quote_via=quote)}"
        monkeypatch.setenv("AGENTS_DB", url)
        names = [
            run("status", *words, "--json").document["databases"][0]["database"]["name"]
            for words in ([url], ["--db-env", "AGENTS_DB"])
        ]
        keys.write_text(f"{keys.read_text()}\n[[database]]\nurl = '{url}'\n")
        names.append(run("status", "--json").document["databases"][0]["database"]["name"])
        assert len({*names}) == 1
        assert names[0].startswith("postgresql:///")
        both = f"{keys.read_text()}\n[[database]]\nurl = 'postgresql{url.removeprefix(scheme)}'\n"
        try:
            with closing(open_thread_store(url, create=True)):
                assert run("heads", "seal", url).code == Exit.DONE
        finally:  # other tests use this server
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("DROP SCHEMA IF EXISTS sealpoint_threads CASCADE")
        keys.write_text(both)
        listed = run("status", "--json")
        if not scheme.startswith("postgresql"):  # libpq's own second name for it
            assert len(listed.document["databases"]) == 1
        else:
            assert (listed.code, "twice" in listed.err) == (Exit.USAGE, True)
