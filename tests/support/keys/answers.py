"""HTTP servers that say what a test wants, and ports where none answers."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from sealpoint.keys.wrap.wrapper import SDK_THREAD


@dataclass(frozen=True)
class Request:
    """What a client asked.

    Attributes:
        path: With its leading slash.
        headers: Of the request; their names are in lower case.
        body: As it came.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, object]
"""A status and what is sent as JSON; bytes are sent as they are."""


@contextmanager
def answering(
    answer: Callable[[Request], Answer], tls: ssl.SSLContext | None = None, **headers: str
) -> Iterator[str]:
    """Yield the address of a server on this host that answers every request so."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            names = {name.lower(): value for name, value in self.headers.items()}
            status, said = answer(Request(self.path, names, body))
            sent = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Do not write to stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """Yield the address of a server that accepts connections and says nothing.

    Then wait for the calls that were given up: if they have not begun yet, they would read the address of the
    next test's service, and ask it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    for thread in threading.enumerate():
        if thread.name == SDK_THREAD:
            thread.join()


@contextmanager
def refused() -> Iterator[str]:
    """Yield an address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # but does not listen
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
