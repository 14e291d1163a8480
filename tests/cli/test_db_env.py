"""`--db-env`: the URL of a server in an environment variable, where it may have a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict

from sealpoint.admin.cli.app import SEVERAL as EACH
from sealpoint.admin.cli.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases.postgres import blobs, put_blobs, set_up
from tests.support.keys.rings import states_text
from tests.support.servers.postgres import schema, server

PASSWORD = "hunter2-hunter2"
AWAY = f"postgresql://me:{PASSWORD}@127.0.0.1:1/agents?connect_timeout=1"
ONE = [["audit"], ["types"], ["trial"], ["inspect"], ["verify"], ["rotate"], ["rotate", "--apply"]]
SEVERAL = [
    ["status"],
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
    assert "'AGENTS_DB' does not hold a URL of Postgres" in ended.err


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
