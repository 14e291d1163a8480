"""Each program of examples/ runs as its page says, and the database shows nothing of what was said."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.deploy.pages import block
from tests.deploy.running import running
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import own_role, schema, server

ROOT = Path(__file__).parents[2]
ON_POSTGRES = "sealpoint-nightly.service.d/postgres.conf"
CANARY = "CANARY: my knee hurts"
post = partial(httpx.post, timeout=60)


class Place:
    """A copy of examples/, with a ring and an empty database."""

    def __init__(self, folder: Path, sealpoint: Path) -> None:
        self.folder = folder / "examples"
        shutil.copytree(ROOT / "examples", self.folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        self.state = folder / "state.db"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.env = os.environ | {
            "PATH": path,
            "SEALPOINT_KEYS": str(folder / "keys.toml"),
            "STATE_DB": str(self.state),
            "PYTHONUNBUFFERED": "1",
        }
        subprocess.run([sealpoint, "keys", "init", "k1"], env=self.env, capture_output=True, check=True)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=200
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def require_sealed(self) -> None:
        """The database has rows, all of them under the key, and none of the words."""
        with closing(sqlite3.connect(self.state)) as connection:
            tags = [tag for (tag,) in connection.execute("SELECT type FROM checkpoints")]
        assert tags
        assert {tag.rpartition("@")[2] for tag in tags} == {"k1"}
        for file in self.state.parent.glob("state.db*"):
            assert CANARY.encode() not in file.read_bytes()


@pytest.fixture
def place(tmp_path: Path, forked: Path) -> Place:
    return Place(tmp_path, forked)


def test_fastapi(place: Place) -> None:
    words = ["uvicorn", "web:app", "--port", "0"]
    with running(words, r"running on (http://\S+)", folder=place.folder, env=place.env) as web:
        url = f"{web.ready[1]}/threads/t1"
        first = post(url, params={"said": CANARY})
        assert first.json()["notes"] == [CANARY], web.log
        assert post(url, params={"said": "two"}).json()["notes"] == [CANARY, "two"]
    place.require_sealed()


GUNICORN = ["gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0"]
LISTENING = r"Listening at: (http://\S+)"


@pytest.mark.costly
def test_gunicorn_with_preload(place: Place) -> None:
    with running([*GUNICORN, "wsgi:app"], LISTENING, folder=place.folder, env=place.env) as web:
        states = [post(f"{web.ready[1]}/t1", content=CANARY).json() for _ in range(4)]
        assert states[-1]["notes"] == [CANARY] * 4, web.log
        assert web.pid not in {state["worker"] for state in states}
    place.require_sealed()


@pytest.mark.costly
def test_gunicorn_with_a_saver_of_its_parent(place: Place) -> None:
    """What the example avoids: each request is answered, with an error that says why."""
    (place.folder / "early.py").write_text("import wsgi\nwsgi.graph()\napp = wsgi.app\n", encoding="utf-8")
    with running([*GUNICORN, "early:app"], LISTENING, folder=place.folder, env=place.env) as web:
        assert post(f"{web.ready[1]}/t1", content=CANARY).status_code == 500
    log = "".join(web.log)
    assert "ForkedError: this SqliteSaver was created before the process forked" in log
    assert "hint: create connections and savers in each worker process" in log


CELERY = """
from tasks import app
app.conf.update(
    broker_transport_options={{"data_folder_in": "{0}/queue", "data_folder_out": "{0}/queue"}},
    result_backend="file://{0}/results",
)
"""


@pytest.mark.costly
def test_celery(place: Place, tmp_path: Path) -> None:
    """A worker with its own processes, and a broker in files."""
    for name in ("queue", "results"):
        (tmp_path / name).mkdir()
    (place.folder / "local.py").write_text(CELERY.format(tmp_path), encoding="utf-8")
    place.env["BROKER_URL"] = "filesystem://"
    words = ["celery", "--app", "local", "worker", "--concurrency", "2", "--loglevel", "info"]
    words += ["--without-mingle", "--without-gossip", "--without-heartbeat"]  # with which it starts sooner
    ask = f"import local; from tasks import say; one, two = 't1', {CANARY!r}"
    ask += "; say.delay(one, two).get(timeout=100); print(say.delay(one, two).get(timeout=100))"
    with running(words, r"celery@.* ready", folder=place.folder, env=place.env) as worker:
        assert place.run(sys.executable, "-c", ask) == f"{[CANARY] * 2}\n", worker.log
    place.require_sealed()


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with schema(server(pytestconfig)) as dsn:
        yield dsn


@pytest.mark.costly
def test_pool_of_postgres(place: Place, url: str) -> None:
    """As a role that may create tables only until they are there."""
    with own_role(url) as own, psycopg.connect(url, autocommit=True) as admin:
        parts = conninfo_to_dict(own)
        place.env["DATABASE_URL"] = f"postgresql:///?{urlencode(parts, quote_via=quote)}"
        place.run(sys.executable, "tables.py")
        name = parts["user"]
        admin.execute(f"REVOKE CREATE ON SCHEMA {name} FROM {name}".encode())
        for count in (1, 2):
            assert place.run(sys.executable, "pool.py", "t1", CANARY) == f"{CANARY}\n" * count
        for command in re.findall(
            "^ExecStart=/srv/agent/.venv/bin/(.+)$", block("deploy.md", ON_POSTGRES), re.M
        ):
            assert place.run(*command.split()).endswith("ok\n")
        require_sealed_tables(url)


def require_sealed_tables(url: str) -> None:
    with psycopg.connect(url) as connection:
        tags = {tag for (tag,) in connection.execute("SELECT type FROM checkpoint_blobs")}
        assert {tag.rpartition("@")[2] for tag in tags if tag != "empty"} == {"k1"}
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            for (row,) in connection.execute(f"SELECT t::text FROM {table} t".encode()):
                assert CANARY not in row
                assert CANARY.encode().hex() not in row


@pytest.mark.costly
def test_langgraph_dev(place: Place) -> None:
    """The server uses the checkpointer that langgraph.json names; what else it stores is its own."""
    pytest.importorskip("langgraph_api", reason="langgraph-cli[inmem] is not installed")
    place.env |= {"LANGSMITH_TRACING": "false", "NO_COLOR": "1"}
    port = free_port()
    words = ["langgraph", "dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (
        running(words, "Application started up", folder=place.folder, env=place.env) as api,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        thread = client.post("/threads", json={}).json()["thread_id"]
        run = {"assistant_id": "agent", "input": {"said": CANARY}}
        assert client.post(f"/threads/{thread}/runs/wait", json=run).json()["notes"] == [CANARY], api.log
        state: dict[str, Any] = client.get(f"/threads/{thread}/state").json()
        assert state["values"]["notes"] == [CANARY]
        assert "Using custom checkpointer: SealedSaver" in "".join(api.log)
    place.require_sealed()
