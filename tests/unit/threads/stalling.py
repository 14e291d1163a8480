"""A way to a Postgres server that can be stopped: what is sent then arrives nowhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards connections until `is_stalled` is set.

    Attributes:
        dsn: DSN that leads through it.
    """

    def __init__(self, dsn: str, listener: socket.socket) -> None:
        parts = conninfo_to_dict(dsn)
        self._host, self._port = str(parts.get("host") or "localhost"), int(parts.get("port") or 5432)
        self.dsn = make_conninfo(
            dsn, host="127.0.0.1", hostaddr="", port=listener.getsockname()[1], gssencmode="disable"
        )
        self.is_stalled = threading.Event()
        self._listener = listener

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connect()
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source:
            while data := source.recv(1 << 16):
                if self.is_stalled.is_set():
                    continue
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def stalling(dsn: str) -> Iterator[Proxy]:
    """Put a proxy before a server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        proxy = Proxy(dsn, listener)
        serving = threading.Thread(target=proxy.serve, daemon=True)
        serving.start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()
