"""The service that the Go core of the Agent Server calls, with the file of docs/agent-server.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any, Final

import pytest

from sealpoint.admin.cli.app import run
from tests.agentserver.page import create

pytest.importorskip("langgraph_api")
pytest.importorskip("grpc")

PROGRAM: Final = Path(__file__).with_name("core.py")
KWARGS: Final[dict[str, Any]] = {
    "input": {"text": "Jane Roe"},
    "config": {"recursion_limit": 9, "configurable": {"x": 1, "thread_id": "t"}, "tags": ["a", None]},
    "temporary": False,
    "webhook": None,
}


DEVELOPMENT: Final = {  # as `langgraph dev` sets them
    "DATABASE_URI": ":memory:",
    "REDIS_URI": "fake",
    "MIGRATIONS_PATH": "__inmem",
    "LANGGRAPH_RUNTIME_EDITION": "inmem",
    "GRPC_VERBOSITY": "NONE",
}


class Core:
    """Calls the service."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder

    def call(self, method: str, data: bytes, model: str = "run", field: str = "kwargs") -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([method, model, field, data.hex()]), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        return answer if isinstance(answer, str) else tuple(map(bytes.fromhex, answer))

    def promote(self, key_id: str) -> None:
        ring = ["--keys", str(self.folder / "keys.toml")]
        assert run(["keys", "generate", key_id, *ring]) == 0
        assert run(["keys", "promote", key_id, *ring]) == 0


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    tmp_path = tmp_path_factory.mktemp("core")
    create(tmp_path)
    config = json.loads((tmp_path / "langgraph.json").read_text())
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            cwd=tmp_path,
            env={**os.environ, **DEVELOPMENT, **config["env"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with process:
            yield Core(process, tmp_path)
            assert process.stdin is not None
            process.stdin.close()


def test_objects_within_objects(core: Core) -> None:
    sealed, _ = core.call("EncryptJSON", json.dumps(KWARGS).encode())
    stored = json.loads(sealed)
    assert b"Jane" not in sealed
    assert stored["temporary"] is False  # its statements read it
    assert stored["config"]["recursion_limit"] == 9
    assert stored["config"]["configurable"]["thread_id"] == "t"
    assert stored["config"]["configurable"]["x"].startswith("sealpoint:json+")
    plain, replacement = core.call("DecryptJSON", sealed)
    assert json.loads(plain) == KWARGS
    assert replacement == b""


@pytest.mark.costly
def test_a_rotation_gives_replacements(core: Core) -> None:
    sealed, _ = core.call("EncryptJSON", json.dumps(KWARGS).encode())
    blob, _ = core.call("EncryptBlob", b"checkpoint", "checkpoint", "blob")
    core.promote("k2")
    newer = core.call("EncryptBlob", b"newer")[0]
    while b"@k1:" in newer:  # the file is looked at every few seconds
        sleep(0.1)  # or this loop would keep a core busy until then
        newer = core.call("EncryptBlob", b"newer")[0]
    plain, replacement = core.call("DecryptJSON", sealed)
    assert json.loads(plain) == KWARGS
    assert b"@k1:" not in replacement
    assert json.loads(core.call("DecryptJSON", replacement)[0]) == KWARGS
    plain, replacement = core.call("DecryptBlob", blob)
    assert plain == b"checkpoint"
    assert replacement.startswith(b"sealpoint:bytes+cobblestone256.row@k2:")


def test_what_is_refused_does_not_come_back(core: Core) -> None:
    sealed, _ = core.call("EncryptJSON", json.dumps({"a": 1, "b": 2}).encode(), "thread", "metadata")
    stored = json.loads(sealed)
    exchanged = {**stored, "a": stored["b"], "b": stored["a"]}
    readable = {**stored, "a": 1}
    for changed, error in ((exchanged, "IntegrityError"), (readable, "PlaintextError")):
        answer = core.call("DecryptJSON", json.dumps(changed).encode(), "thread", "metadata")
        assert error in answer
    assert "PlaintextError" in core.call("DecryptBlob", b"checkpoint")


@pytest.mark.claim("l3")
def test_what_the_server_decides_itself(core: Core) -> None:
    """As the page says: without the key that marks an object as encrypted, no handler is called."""
    plain, _ = core.call("DecryptJSON", b'{"patient":"forged"}', "thread", "metadata")
    assert json.loads(plain) == {"patient": "forged"}
