"""A server that accepts connections and says nothing more, and one that takes long for a statement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.cli import options
from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres import connection as module
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.errors import StoppedError, UnreachableError
from tests.support.databases.postgres import set_up
from tests.unit.threads.stalling import stalling

READY = b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I"
"""AuthenticationOk and ReadyForQuery."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(options, "TIMEOUT_SECONDS", 0.5)


@contextmanager
def silent(*, greets: bool) -> Iterator[str]:
    """The URL of a server that never answers a statement, and says who it is only if it ``greets``."""
    taken: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                taken.append(client)
                if greets and client.recv(1 << 12):
                    client.sendall(READY)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        port = listener.getsockname()[1]
        yield f"postgresql://user@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable&connect_timeout=2"
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()
    for client in taken:
        client.close()


@pytest.mark.costly
@pytest.mark.parametrize("greets", [True, False])
def test_a_server_that_says_nothing(greets: bool) -> None:
    with silent(greets=greets) as url, pytest.raises(UnreachableError, match="does not answer in time"):
        PostgresRows(url)


COMMANDS = {
    "status": ["status"],
    "inspect": ["inspect"],
    "verify": ["verify"],
    "audit": ["audit"],
    "heads seal": ["heads", "seal"],
}


@pytest.mark.costly
@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with silent(greets=True) as url:
        monkeypatch.setattr("sys.argv", ["sealpoint", *COMMANDS[command], url])
        monkeypatch.chdir(tmp_path)
        assert int(run()) != 0
    assert " does not answer" in capsys.readouterr().err


@pytest.mark.costly
def test_a_server_that_becomes_silent(url: str) -> None:
    set_up(PostgresSaver, url)
    with stalling(make_conninfo(url, connect_timeout=2)) as proxy, closing(PostgresRows(proxy.dsn)) as store:
        proxy.is_stalled.set()
        with pytest.raises(StoppedError, match="the server does not answer") as caught:
            store.count()
    assert "network" in str(caught.value.hint)


@pytest.mark.costly
def test_a_long_statement_is_waited_for(url: str) -> None:
    """Longer than the silence after which the server is asked whether it is there."""
    set_up(PostgresSaver, url)
    with closing(PostgresRows(url)) as store:
        assert store.connection.execute("SELECT pg_sleep(1), 7").fetchall() == [("", 7)]


def test_a_server_without_a_connection_left_is_there(url: str) -> None:
    """It refuses the session by which it is asked, which is an answer."""
    set_up(PostgresSaver, url)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS lonely")
        admin.execute("CREATE ROLE lonely LOGIN PASSWORD 'x' CONNECTION LIMIT 1")
        try:
            admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA pg_catalog TO lonely")
            with closing(
                module.connect(make_conninfo(url, user="lonely", password="x"), writable=False)[0]
            ) as own:
                assert own.execute("SELECT pg_sleep(1), 7").fetchall() == [("", 7)]
        finally:
            admin.execute("DROP OWNED BY lonely")
            admin.execute("DROP ROLE lonely")
