"""Compressed rows on both databases: every command counts them as what they are, and reads them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from sealpoint.admin.cli.app import run
from sealpoint.admin.results.exits import Exit
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.postgres.test_commands import at
from tests.support.keys.rings import states_text, write

LONG = "what a person says, and says again, " * 100
THREAD: Any = {"configurable": {"thread_id": "1"}}

builder = StateGraph(MessagesState).add_node("reply", lambda state: {"messages": [("ai", LONG)]})
graph = builder.add_edge(START, "reply")


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.toml", states_text(k2="staged", k1="active"))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A database as a command names it, and what opens a bare saver over it."""
    if request.param == "sqlite":
        connection = sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
        yield str(tmp_path / "app.db"), lambda: SqliteSaver(connection)
        connection.close()
    else:
        url = request.getfixturevalue("url")
        with psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row) as server:
            yield at(url), lambda: PostgresSaver(server)


@pytest.fixture
def ask(ring: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command that ends with 0, and returns its object."""

    def ask(command: str, *words: str, code: Exit = Exit.DONE) -> Any:
        capsys.readouterr()
        ended = run([*command.split(), *words, "--keys", str(ring), "--json"])
        told = capsys.readouterr()
        assert ended == code, (command, told)
        return json.loads(told.out) if told.out else None

    return ask


def flags(document: Any) -> set[tuple[str, ...]]:
    [part] = document["databases"]
    assert {share["kind"] for share in part["shares"]} == {"sealed"}
    return {tuple(share["flags"]) for share in part["shares"]}


def say(saver: Any) -> int:
    messages: Any = {"messages": [("human", LONG)]}
    return len(graph.compile(checkpointer=saver).invoke(messages, THREAD)["messages"])


def serde_of(ring: Path, **more: Any) -> EncryptedSerializer:
    return EncryptedSerializer(RingCipher(KeyRing.load(ring)), **more)


def test_every_command_reads_them(
    place: tuple[str, Callable[[], Any]], ring: Path, ask: Callable[..., Any], tmp_path: Path
) -> None:
    name, bare = place
    packed = serde_of(ring, compress="zstd")
    assert say(SealedSaver(bare(), serde=packed)) == 2
    assert say(SealedSaver(bare(), serde=serde_of(ring))) == 4  # a reader needs no option
    assert say(SealedSaver(bare(), serde=packed)) == 6

    bound = {("row",), ("zst", "row")}
    assert flags(ask("status", name, "--only", "k1")) == bound
    sealed = ask("verify", name, "--bound")
    assert sealed["ok"]
    assert sealed["unbound"] == 0
    for command in ("trial", "types", "inspect"):
        ask(command, name)
    assert ask("audit", name)["is_silent"]
    assert "says again" in json.dumps(ask("inspect", name, "--thread", "1"))

    write(ring, states_text(k2="active", k1="decrypt-only"))
    moved = ask("rotate --apply", name)
    assert moved["resealed"] == moved["verified"] == sealed["opened"][0]["values"]
    assert flags(ask("status", name, "--only", "k2")) == bound  # each stays as it was

    write(ring, states_text(k2="decrypt-only", k1="active"))
    ask("rotate --apply --compress none", name)
    assert flags(ask("status", name, "--only", "k1")) == {("row",)}
    write(ring, states_text(k2="active", k1="decrypt-only"))
    ask("rotate --apply --compress zstd", name)
    assert flags(ask("status", name, "--only", "k2")) == bound

    ask("rebind --unbind --apply", name)
    assert flags(ask("status", name)) <= {(), ("zst",)}
    assert ("zst",) in flags(ask("status", name))
    assert ask("verify --bound", name, code=Exit.FOUND)["unbound"]
    assert say(bare_with(bare(), serde_of(ring))) == 8
    ask("rebind --apply", name)
    assert ("zst", "row") in flags(ask("status", name))
    assert ask("verify --bound", name)["unbound"] == 0
    assert say(SealedSaver(bare(), serde=serde_of(ring))) == 10

    if name.endswith(".db"):
        ask("decrypt", name, "--out", str(tmp_path / "copy.db"))
        with closing(sqlite3.connect(tmp_path / "copy.db", check_same_thread=False)) as copy:
            assert say(SqliteSaver(copy)) == 12


def bare_with(saver: Any, serde: EncryptedSerializer) -> Any:
    saver.serde = serde
    return saver


EDITS = {
    "flag removed": "UPDATE checkpoints SET type = replace(type, '.zst', '')",
    "flag added": "UPDATE checkpoints SET type = replace(type, '.row', '.zst.row')",
    "value of another row": "UPDATE checkpoints SET checkpoint = (SELECT max(checkpoint) FROM checkpoints)",
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_row_is_refused(tmp_path: Path, ring: Path, ask: Callable[..., Any], edit: str) -> None:
    file = str(tmp_path / "app.db")
    with closing(sqlite3.connect(file, check_same_thread=False)) as connection, connection:
        serde = serde_of(ring, compress=None if edit == "flag added" else "zstd")
        say(SealedSaver(SqliteSaver(connection), serde=serde))
        connection.execute(EDITS[edit])
    assert ask("verify", file, code=Exit.UNOPENED)["failed"]
