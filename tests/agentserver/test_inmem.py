"""docs/agent-server.md on the in-memory server of `langgraph dev`, which calls the handlers for objects."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import pytest

from tests.agentserver.page import create
from tests.support.servers.ports import free_port

pytest.importorskip("langgraph_api")
httpx: Final = pytest.importorskip("httpx")
sdk: Final = pytest.importorskip("langgraph_sdk")

PATIENT: Final = "Jane Roe"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server on the files of the page."""
    folder = tmp_path_factory.mktemp("server")
    create(folder)
    url = f"http://127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).with_name("langgraph")), "dev", "--no-browser", "--no-reload"]
    environment = {**os.environ, "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
    environment.pop("LANGGRAPH_STRICT_MSGPACK", None)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--port", url.rpartition(":")[2]], cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            require_ready(server, url, folder / "log")
            with sdk.get_sync_client(url=url) as client:
                yield client
        finally:
            server.terminate()
            server.wait()


def require_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait for the server."""
    until = monotonic() + 120
    while server.poll() is None and monotonic() < until:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/ok").status_code == 200:
                return
        sleep(0.1)
    pytest.fail(log.read_text(errors="replace")[-3000:])


def test_what_is_stored_is_read_and_searched_only_where_it_is_readable(client: Any) -> None:
    thread = client.threads.create(metadata={"owner": "alice", "patient": PATIENT, "tags": ["a", None, 1.5]})
    assert thread["metadata"] == {"owner": "alice", "patient": PATIENT, "tags": ["a", None, 1.5]}
    assert client.threads.get(thread["thread_id"])["metadata"] == thread["metadata"]
    assert len(client.threads.search(metadata={"owner": "alice"})) == 1
    assert client.threads.search(metadata={"patient": PATIENT}) == []  # it is sealed


def test_a_merge_of_metadata(client: Any) -> None:
    thread = client.threads.create(metadata={"owner": "bob", "patient": PATIENT})
    client.threads.update(thread["thread_id"], metadata={"patient": "other", "more": {"a": 1}})
    found = client.threads.get(thread["thread_id"])["metadata"]
    assert (found["owner"], found["patient"], found["more"]) == ("bob", "other", {"a": 1})


@pytest.mark.costly
def test_runs_assistants_items_and_crons(client: Any) -> None:
    config = {"configurable": {"secret": PATIENT}}
    assistant = client.assistants.create("agent", config=config, metadata={"team": "x"})
    assert client.assistants.get(assistant["assistant_id"])["config"] == config
    thread = client.threads.create(metadata={"owner": "carol"})
    given: dict[str, Any] = {"messages": [{"role": "user", "content": "My knee hurts."}]}
    for heard in (1, 3):
        done = client.runs.wait(
            thread["thread_id"],
            assistant["assistant_id"],
            input=given,
            metadata={"note": PATIENT},
            config={"recursion_limit": 30},
        )
        assert done["messages"][-1]["content"] == f"I have heard {heard} things."
    runs = client.runs.list(thread["thread_id"])
    assert {run["metadata"]["note"] for run in runs} == {PATIENT}
    assert {run["kwargs"]["config"]["recursion_limit"] for run in runs} == {30}
    assert len(client.threads.get_history(thread["thread_id"])) == 6
    client.store.put_item(["notes"], "n", {"text": PATIENT})
    assert client.store.get_item(["notes"], "n")["value"] == {"text": PATIENT}
    cron = client.crons.create("agent", schedule="0 0 1 1 *", input=given, metadata={"note": PATIENT})
    assert cron["metadata"]["note"] == PATIENT
