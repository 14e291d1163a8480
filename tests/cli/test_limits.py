"""`--limits`: rows of the owner that LangGraph reads, over the limits for untrusted bytes, are sealed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.admin.results.exits import Exit
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.serde import JsonPlusSerializer
from tests.cli.conftest import Ended, Run
from tests.support.keys.rings import material_of, states_text
from tests.support.values.wire import deep_values

AT: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
ID = "1ef4f797-8335-6428-8001-8a1503f9b875"
SURROGATE = "a\ud800b"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def packed(value: Any) -> bytes:
    return Theirs().dumps_typed(value)[1]


def checkpoint(**values: Any) -> dict[str, Any]:
    more = {"channel_versions": dict.fromkeys(values, 1), "versions_seen": {}, "pending_sends": []}
    return {"v": 1, "id": ID, "ts": "2024-08-04T06:32:42+00:00", "channel_values": values, **more}


def twice() -> bytes:
    return json.dumps(checkpoint(a=1)).replace('"a": 1', '"a": 0, "a": 1', 1).encode()


LIMITED: dict[str, tuple[str, Callable[[], bytes], str, str]] = {
    # The kind, the row, the option that the hint names, and what is too much.
    "depth": ("msgpack", lambda: packed(checkpoint(a=nested(80))), "depth=255", "nested over 64 deep"),
    "depth of json": (
        "json",
        lambda: json.dumps(checkpoint(a=nested(80))).encode(),
        "depth=255",
        "over 64 deep",
    ),
    "elements": (
        "msgpack",
        lambda: packed(checkpoint(a=[0] * 2_000_001)),
        "elements=20000000",
        "2000000 elem",
    ),
    "elements of json": (
        "json",
        lambda: json.dumps(checkpoint(a=[0] * 2_000_001)).encode(),
        "elements=20000000",
        "2000000 elements",
    ),
    "records": (
        "msgpack",
        lambda: packed(checkpoint(a=[{1}] * 100_001)),
        "records=1000000",
        "100000 records",
    ),
    "chunks": (
        "msgpack",
        lambda: packed(checkpoint(a=[AIMessageChunk(content="x", id="1")] * 2001)),
        "chunks=20000",
        "2000 streamed messages",
    ),
    "size": (
        "msgpack",
        lambda: packed(checkpoint(a=bytes(2**27))),
        "size_bytes=1342177280",
        "at most 134217728",
    ),
}
LENIENT: dict[str, Callable[[], bytes]] = {
    "NaN": lambda: json.dumps(checkpoint(a=float("nan"), b=[{"c": float("-inf")}], d=float("inf"))).encode(),
    "a number beyond a float": lambda: json.dumps(checkpoint(a=[])).replace("[]", "[1e999]", 1).encode(),
    "lone surrogates": lambda: json.dumps(checkpoint(a=SURROGATE, b={SURROGATE: 1})).encode(),
    "a key twice": twice,
}
READING = {
    "verify": ["verify", "DB", "--allow-plaintext"],
    "types": ["types", "DB"],
    "inspect": ["inspect", "DB", "--thread", "1"],
    "state": ["inspect", "DB", "--thread", "1", "--last"],
    "trial": ["trial", "DB", "--allow-plaintext"],
}
# What `rebind` and `rotate` do not begin with: the limits of untrusted bytes.
UNTRUSTED = ["--limits", "depth=64,elements=2000000,records=100000"]
CHANGING = {name: [name, "DB", "--allow-plaintext", "--apply"] for name in ("rebind", "rotate")}


@pytest.fixture(autouse=True)
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ring.toml"
    file.write_text(states_text(k1="active"))
    file.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))


def database(path: Path, kind: str, blob: bytes) -> Path:
    """A database with one checkpoint as LangGraph's saver has it, which it reads."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        bare = SqliteSaver(connection)
        bare.setup()
        row = ("1", "", ID, None, kind, blob, b'{"source": "loop", "step": 1, "parents": {}}')
        connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
        assert bare.get_tuple(AT) is not None
    return path


def read(path: Path, *, sealed: bool = False, bound: bool = False) -> str:
    """What a saver reads, as text: NaN is not equal to itself."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver: Any = SqliteSaver(connection)
        if bound or sealed:
            saver.serde = EncryptedSerializer.from_key(material_of("k1"))
        if bound:
            saver = SealedSaver(SqliteSaver(connection), serde=saver.serde)
        values = saver.get_tuple(AT).checkpoint["channel_values"]
        return repr({name: hash(it) if type(it) is bytes else it for name, it in values.items()})


def limits_of(ended: Ended) -> list[str]:
    return re.findall(r"--limits (\w+=\d+) on the command", ended.err + ended.out)


@pytest.mark.broad
@pytest.mark.parametrize("command", [*READING, *CHANGING])
@pytest.mark.parametrize("name", ["depth", "depth of json", "records"])
def test_each_command_reads_what_its_hint_says(tmp_path: Path, run: Run, name: str, command: str) -> None:
    kind, make, option, reason = LIMITED[name]
    path = database(tmp_path / "x.db", kind, make())
    words = [path if word == "DB" else word for word in (READING | CHANGING)[command]]
    refused = run(*words, *(UNTRUSTED if command in CHANGING else []))
    assert refused.code == Exit.UNOPENED
    assert reason in refused.err + refused.out
    if command not in ("inspect", "state"):  # they print no causes
        assert set(limits_of(refused)) == {option}
    done = run(*words, "--limits", option)
    assert done.code == Exit.DONE or (command == "verify" and done.code == Exit.FOUND), done.err
    assert reason not in done.err + done.out or (command in CHANGING and "depth" in name)


@pytest.mark.broad
@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("name", LIMITED)
def test_a_row_over_each_limit_is_sealed_and_read(tmp_path: Path, run: Run, name: str, command: str) -> None:
    kind, make, option, reason = LIMITED[name]
    path = database(tmp_path / "x.db", kind, make())
    wanted = read(path)
    words = [path if word == "DB" else word for word in CHANGING[command]]
    refused = run(*words, *UNTRUSTED)
    assert (refused.code, limits_of(refused)) == (Exit.UNOPENED, [option])
    assert reason in refused.err
    done = run(*words, "--limits", f"{option},records=1000000" if "record" not in option else option)
    assert done.code == Exit.DONE, done.err
    assert read(path, sealed=command == "rotate", bound=command == "rebind") == wanted
    assert run("verify", path).code == Exit.DONE
    out = tmp_path / "plain.db"
    assert run("decrypt", path, "--out", out).code == Exit.DONE
    assert read(out) == wanted


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("name", ["depth", "depth of json", "elements", "records"])
def test_a_row_that_is_declared_as_own_is_sealed(tmp_path: Path, run: Run, name: str, command: str) -> None:
    """Without an option; a limit that is named leaves the others as they are."""
    kind, make, _, _ = LIMITED[name]
    path = database(tmp_path / "x.db", kind, make())
    words = [path if word == "DB" else word for word in CHANGING[command]]
    assert run(*words, "--limits", "chunks=1").code == Exit.DONE
    assert run("verify", path).code == Exit.DONE


@pytest.mark.parametrize("name", LENIENT)
def test_json_that_langgraph_reads_is_read_by_all(tmp_path: Path, run: Run, name: str) -> None:
    path = database(tmp_path / "x.db", "json", LENIENT[name]())
    wanted = read(path)
    serde = EncryptedSerializer.from_key(material_of("k1"), plaintext="allow")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        first = SealedSaver(
            SqliteSaver(connection), serde=serde, unbound="allow", allow_write_with=JsonPlusSerializer()
        )
        found: Any = first.get_tuple(AT)
        assert repr(found.checkpoint["channel_values"]) == wanted
    for words in READING.values():
        done = run(*[path if word == "DB" else word for word in words])
        assert done.code in (Exit.DONE, Exit.FOUND), done.err
        assert run(*[path if word == "DB" else word for word in words], "--json").document["ok"] is not False


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("name", LENIENT)
def test_json_that_langgraph_reads_is_sealed(tmp_path: Path, run: Run, name: str, command: str) -> None:
    path = database(tmp_path / "x.db", "json", LENIENT[name]())
    wanted = read(path)
    done = run(*[path if word == "DB" else word for word in CHANGING[command]])
    assert done.code == Exit.DONE, done.err
    assert read(path, sealed=command == "rotate", bound=command == "rebind") == wanted
    assert run("verify", path).code == Exit.DONE
    out = tmp_path / "plain.db"
    assert run("decrypt", path, "--out", out).code == Exit.DONE
    assert read(out) == wanted


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize(("levels", "warns"), [(62, False), (63, True)])
def test_a_deep_row_is_sealed_with_a_warning(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, command: str, levels: int, warns: bool
) -> None:
    """The two levels around it are those of the checkpoint."""
    path = database(tmp_path / "x.db", "msgpack", packed(checkpoint(a=nested(levels))))
    words = [path if word == "DB" else word for word in CHANGING[command]]
    assert run(*words, "--limits", "depth=200").code == Exit.DONE
    assert ["small stack" in line and ID in line for line in caplog.messages] == [True] * warns


def relabelled() -> tuple[str, bytes]:
    """A copy in extensions around extensions, of many times the size."""
    data = bytes([0xC6]) + (2**20).to_bytes(4, "big") + bytes(2**20)
    for _ in range(40):
        data = bytes([0xC9]) + len(data).to_bytes(4, "big") + b"\x07" + data
    return "msgpack", data


NEVER: dict[str, tuple[str, bytes]] = {
    "pickle": ("pickle", b"cos\nsystem\n"),
    "an extension": ("msgpack", b"\xd4\x63\xc0"),
    "copied bytes": relabelled(),
    "a key twice in msgpack": ("msgpack", b"\x82\x01\x01\x01\x02"),
    "patterns": ("msgpack", packed([re.compile("a")] * 101)),
    "over 255 levels": ("msgpack", deep_values(256)["extension"]),
}


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("name", NEVER)
def test_what_no_limit_raises(tmp_path: Path, run: Run, name: str, command: str) -> None:
    path = tmp_path / "x.db"
    database(path, "msgpack", packed(checkpoint(a=1)))
    with closing(sqlite3.connect(path)) as connection, connection:
        write = ("1", "", ID, "task", 0, "a", *NEVER[name])
        connection.execute(
            "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            write,
        )
    every = "depth=255,size_bytes=999999999,elements=999999999,records=999999999,chunks=999999999"
    done = run(*[path if word == "DB" else word for word in CHANGING[command]], "--limits", every)
    assert (done.code, limits_of(done)) == (Exit.UNOPENED, [])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT type, value FROM writes").fetchall() == [NEVER[name]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deep=3", "names are size_bytes, depth, elements"),
        ("patterns=200", "names are"),
        ("depth", "NAME=NUMBER"),
        ("depth=", "NAME=NUMBER"),
        ("depth=-1", "NAME=NUMBER"),
        ("depth=0", "NAME=NUMBER"),
        ("depth=1e3", "NAME=NUMBER"),
        ("depth=256", "depth is at most 255"),
        ("records=10,depth=300", "at most 255"),
        ("records=10,", "NAME=NUMBER"),
        ("", "NAME=NUMBER"),
    ],
)
@pytest.mark.parametrize("command", [*READING, *CHANGING, "decrypt"])
def test_limits_that_are_none_are_refused(run: Run, text: str, said: str, command: str) -> None:
    words = (READING | CHANGING | {"decrypt": ["decrypt", "DB"]})[command]
    refused = run(*words, "--limits", text)
    assert refused.code == Exit.USAGE
    assert said in " ".join(refused.err.split())
    assert "'--limits'" in refused.err
