"""Rows of LangGraph.js: read as LangGraph reads them, named as JavaScript's, and sealed with a warning."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as LangGraphSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.results.exits import Exit
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver
from tests.cli.conftest import Run
from tests.support.keys.rings import material_of

PLACE: Final[Any] = {"configurable": {"thread_id": "js-1", "checkpoint_ns": ""}}
WARNING: Final = "values of type json; LangGraph.js writes"


def made_by(name: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    envelope = {"lc": 2, "type": "constructor", "id": [name], "method": None, "args": [*arguments]}
    return {**envelope, "kwargs": {}, **more}


VALUES: Final[dict[str, Any]] = {
    "Set": made_by("Set", [1, "x"]),
    "Map": made_by("Map", [["k", [1, 2]]]),
    "RegExp": made_by("RegExp", "a+", "g"),
    "Error": made_by("Error", "boom"),
    "Uint8Array": made_by("Uint8Array", [1, 2, 3], method="from"),
    "undefined": {"lc": 2, "type": "undefined"},
    "URL": made_by("URL", "https://example.org"),
    "int": made_by("int", "5"),  # a name of Python's, too
    "Kind": made_by("Kind", type="not_implemented"),
    "Lone": {"lc": 1, "type": "undefined", "id": ["Lone"]},
    "within": made_by("Set", [made_by("Error", "boom")]),
}


@pytest.fixture(params=VALUES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, name: str) -> Path:
    return write(tmp_path / "js.db", {"seen": VALUES[name]})


def write(path: Path, values: dict[str, Any]) -> Path:
    """A thread as LangGraph.js stores it, in the tables that both have."""
    with closing(sqlite3.connect(path)) as connection, connection:
        SqliteSaver(connection).setup()
        checkpoint = {
            "v": 4,
            "id": "1f1eb21f-7d36-6330-8001-fb1f019d1f8c",
            "ts": "2026-01-01T00:00:00.000Z",
            "channel_values": values,
            "channel_versions": dict.fromkeys(values, 1),
            "versions_seen": {},
        }
        text = json.dumps(checkpoint, separators=(",", ":")).encode()
        metadata = b'{"source":"loop","step":1,"parents":{}}'
        row = ("js-1", "", checkpoint["id"], None, "json", text, metadata)
        connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return path


def read(path: Path, serde: Any = None, *, wrapped: bool = False) -> Any:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver: Any = SqliteSaver(connection, serde=serde)
        if wrapped:
            saver = SealedSaver(
                SqliteSaver(connection), serde=serde, unbound="allow", allow_write_with=LangGraphSerializer()
            )
        return saver.get_tuple(PLACE).checkpoint["channel_values"]


def serializers() -> Iterator[JsonPlusSerializer]:
    for allowed in (None, True):
        for blocked in ("raise", "raw"):
            for listed in (None, True):
                yield JsonPlusSerializer(
                    allowed_msgpack_modules=allowed,
                    on_blocked=blocked,
                    allowed_json_modules=listed,
                )


def test_every_serializer_reads_what_langgraph_reads(path: Path, name: str) -> None:
    """Strict and permissive, raising and raw, with and without an allowlist of json rows."""
    assert read(path) == {"seen": VALUES[name]}
    for serde in serializers():
        assert read(path, serde) == {"seen": VALUES[name]}
        sealing = EncryptedSerializer.from_key(bytes(range(32)), serde=serde, plaintext="allow")
        assert read(path, sealing, wrapped=True) == {"seen": VALUES[name]}


def test_commands_name_it_and_agree_about_it(run: Run, path: Path, keys: Path, name: str) -> None:
    named = {"Error", "Set"} if name == "within" else {name}
    found = run("types", path, "--allow", "a:B", "--json").document
    assert {(part["module"], part["name"], part["allowed"]) for part in found["types"]} == {
        ("", each, "built in") for each in named
    }
    assert "types-not-allowed" not in found["reasons"]
    assert {f"JavaScript.{each}" for each in named} <= set(run("types", path).out.split())
    assert run("types", path, "--emit").out == "[\n]\n"
    shown = run("inspect", path, "--thread", "js-1").out
    assert '"kind": "JavaScript"' in shown
    assert run("trial", path, "--allow-plaintext", "--strict", "--json").document["failed"] == 0
    assert run("rebind", path, "--apply", "--allow-plaintext").code == Exit.DONE
    assert run("verify", path, "--bound").code == Exit.DONE
    serde = EncryptedSerializer.from_key(material_of("k2"), key_id="k2")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        sealed = SealedSaver(SqliteSaver(connection), serde=serde).get_tuple(PLACE)
    assert sealed is not None
    assert sealed.checkpoint["channel_values"] == {"seen": VALUES[name]}


@pytest.mark.parametrize("name", ["Set"], indirect=True)
def test_a_javascript_agent_is_thought_of_before_its_rows_are_sealed(
    run: Run, path: Path, keys: Path
) -> None:
    """Once, and no more when they are sealed."""
    assert run("init", path, "--keys", keys, "--yes").err.count(WARNING) == 1
    for words in ([], ["--apply"]):
        assert run("rebind", path, *words, "--allow-plaintext").err.count(WARNING) == 1
    assert WARNING not in run("rebind", path, "--allow-plaintext").err
    assert WARNING not in run("init", path, "--keys", keys, "--yes").err


def test_rows_of_python_need_no_such_warning(run: Run, tmp_path: Path, keys: Path) -> None:
    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        checkpoint: Any = {"id": "1", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        SqliteSaver(connection).put(PLACE, checkpoint, {}, {})
    assert WARNING not in run("init", path, "--keys", keys, "--yes").err
    assert WARNING not in run("rebind", path, "--allow-plaintext").err


@pytest.mark.parametrize("kind", ["constructor", "not_implemented", "secret"])
def test_what_langgraph_refuses_is_refused_without_an_accusation(
    run: Run, tmp_path: Path, keys: Path, kind: str
) -> None:
    """LangChain's own kinds in one part: its loader raises for them, or looks into the environment."""
    envelope = {"lc": 1, "type": kind, "id": ["Tool"], "kwargs": {}}
    path = write(tmp_path / "js.db", {"seen": envelope})
    tried = run("trial", path, "--allow-plaintext")
    assert tried.code == Exit.UNOPENED
    for text in ("JavaScript.Tool", "names no module", "LangGraph for Python refuses it, too"):
        assert text in tried.out + tried.err
    for command in (["trial", "--allow-plaintext"], ["types"], ["inspect", "--thread", "js-1"]):
        ended = run(command[0], path, *command[1:])
        assert not any(word in ended.out + ended.err for word in ("forged", "damaged"))
    raw = JsonPlusSerializer(on_blocked="raw")
    assert raw.loads_typed(("json", json.dumps(envelope).encode())) == envelope
    assert run("rebind", path, "--apply", "--allow-plaintext").code == Exit.DONE
    assert run("verify", path, "--bound").code == Exit.DONE
