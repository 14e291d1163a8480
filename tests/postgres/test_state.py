"""The state of a thread of a Postgres saver, as `sealpoint inspect --last` shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.cli.app import run
from sealpoint.admin.results.exits import Exit
from tests.postgres.test_commands import at
from tests.support.databases.bound import INDEX, PLAIN, PRIVATE, SECRET, cipher_of, play, sealed_schema
from tests.support.databases.checkpoints import make
from tests.support.databases.postgres import saver_at
from tests.support.keys.rings import states_text
from tests.support.runs.results import require_valid

Inspect = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def inspect(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inspect:
    """Runs `inspect --thread t`: the exit code, and the object."""
    index, ring = tmp_path / "index.key", tmp_path / "keys.toml"
    index.write_text(INDEX.hex())
    more = "[[index]]\nid = 'index'\nsource = { file = 'index.key' }\n"
    ring.write_text(f"{states_text(k2='active', k1='decrypt-only')}\n{more}")
    for file in (index, ring):
        file.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["inspect", at(url), "--thread", "t", *words, "--json"])
        return code, require_valid(json.loads(capsys.readouterr().out))

    return call


def values_of(document: dict[str, Any]) -> dict[str, Any]:
    return {each["channel"]: each["value"] for each in document["channels"]}


def require_same(inspect: Inspect, every: list[Any]) -> None:
    """Check that each checkpoint is shown as the saver returns it."""
    assert every
    for each in every:
        place = each.config["configurable"]
        words = ["--checkpoint", place["checkpoint_id"], "--namespace", place["checkpoint_ns"]]
        code, document = inspect(*words)
        stored, found = each.checkpoint["channel_values"], values_of(document)
        assert (code, found.keys()) == (Exit.DONE, stored.keys())
        assert all(found[name] == stored[name] for name in ("name", "number", "lines") if name in stored)
        counters = each.metadata.get("counters_since_delta_snapshot", {})
        assert document["not_shown"] == [name for name in counters if name not in stored]
        assert len(document["writes"]) == len(each.pending_writes or ())
        assert document["metadata"]["step"] == each.metadata["step"]


@pytest.mark.parametrize("options", [PLAIN, PRIVATE], ids=["plain", "private"])
def test_it_is_what_the_saver_reads(url: str, inspect: Inspect, options: dict[str, Any]) -> None:
    with sealed_schema(url, **options) as saver:
        play(saver, "t", runs=3)
        every = list(saver.list({"configurable": {"thread_id": "t"}}))
    require_same(inspect, every)
    _, document = inspect("--last")
    assert document["tag"] == "msgpack+cobblestone256.row@k2"
    assert document["checkpoint"]["checkpoint_ns"] == ""
    assert values_of(document)["number"] == 3
    assert SECRET in json.dumps(document["writes"])


@pytest.mark.parametrize("cipher", [None, cipher_of("k2")], ids=["nothing sealed", "values sealed"])
def test_it_is_what_a_saver_without_binding_reads(url: str, inspect: Inspect, cipher: Any) -> None:
    with saver_at(PostgresSaver, url, cipher) as saver:
        play(saver, "t", runs=2)
        every = list(saver.list({"configurable": {"thread_id": "t"}}))
    require_same(inspect, every)
    _, document = inspect("--last")
    assert (document["tag"], values_of(document)["number"]) == (None, 2)


def test_messages_are_a_conversation(url: str, inspect: Inspect) -> None:
    with sealed_schema(url) as saver:
        checkpoint: Any = make(str(uuid6()), messages=[HumanMessage("Hi"), AIMessage("Hello!")], n=1)
        place: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(place, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"messages": 1, "n": 1})
    code, document = inspect("--last", "--channel", "messages")
    (channel,) = document["channels"]
    assert code == Exit.DONE
    found = [each["arguments"] for each in channel["value"]]
    assert [(each["type"], each["content"]) for each in found] == [("human", "Hi"), ("ai", "Hello!")]


LATEST = "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '')"
EDITS = {
    "DELETE FROM checkpoint_blobs WHERE channel = 'lines'": "RowError",
    "UPDATE checkpoint_blobs SET blob = blob || '\\x00' WHERE channel = 'lines'": "IntegrityError",
    "UPDATE checkpoint_blobs SET type = 'msgpack', blob = '\\xc0' WHERE channel = 'lines'": "RowError",
    f"UPDATE checkpoints SET metadata = metadata - '__sealpoint__' WHERE {LATEST}": "RowError",
    f"UPDATE checkpoints SET metadata = metadata || '{{\"step\": 7}}' WHERE {LATEST}": "RowError",
}


@pytest.mark.parametrize("statement", EDITS)
def test_what_does_not_open_is_named(url: str, inspect: Inspect, statement: str) -> None:
    """And is not shown; other channels are, if the checkpoint itself opens."""
    with sealed_schema(url) as saver:
        play(saver, "t", runs=1)
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())
    code, document = inspect("--last")
    assert code == Exit.UNOPENED
    assert [each["error"] for each in document["failures"]] == [EDITS[statement]]
    assert "lines" not in values_of(document)
    assert ("number" in values_of(document)) == ("checkpoint_blobs" in statement)


def test_a_value_without_a_type_is_named(url: str, inspect: Inspect) -> None:
    """The saver raises for it: a state without its channel is none that the agent has."""
    with saver_at(PostgresSaver, url, None) as saver:
        play(saver, "t", runs=1)
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE checkpoint_blobs ALTER type DROP NOT NULL")
        connection.execute("UPDATE checkpoint_blobs SET type = NULL WHERE channel = 'lines'")
    code, document = inspect("--last")
    assert (code, "lines" in values_of(document)) == (Exit.UNOPENED, False)
    assert {each["place"]["channel"] for each in document["failures"]} == {"lines"}


def test_no_id_has_a_nul_character(url: str, inspect: Inspect) -> None:
    assert inspect("--last", "--checkpoint", r"\x00")[0] == Exit.USAGE


def test_a_shallow_saver_has_no_checkpoint_ids(shallow_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", at(shallow_url), "--thread", "t", "--last"]) == Exit.USAGE
    assert "shallow saver" in capsys.readouterr().err
