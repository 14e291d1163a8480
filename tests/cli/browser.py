"""A page in Chromium: what it asks for, what it says to the console, and how it prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = next(
    (
        found
        for name in (os.environ.get("SEALPOINT_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
        if name and (found := shutil.which(name))
    ),
    None,
)
MISSING: Final = "there is no Chromium; apt-get install chromium, or name it in SEALPOINT_CHROMIUM"

_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    *("--hide-scrollbars", "--enable-logging=stderr"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine
)
_CONSOLE: Final = re.compile(r":CONSOLE[(:]\d+\)?\] (.*)")


@dataclass(frozen=True)
class Seen:
    """What a page did.

    Attributes:
        console: Lines that it wrote to the console.
        asked: What was asked for: paths of its own server, and addresses elsewhere.
        image: A screenshot.
    """

    console: list[str]
    asked: list[str]
    image: bytes


def look(text: str, folder: Path, width: int) -> Seen:
    """Open a page in a window of this width, from a server of its own."""
    with _serving(text) as (address, asked):
        seen = visit(address, folder, width)
    return Seen(seen.console, [*asked, *seen.asked], seen.image)


def visit(address: str, folder: Path, width: int, *flags: str) -> Seen:
    """Open the page at an address; of what it asks for, only what is elsewhere is returned."""
    folder.mkdir()
    log, image = folder / "net.json", folder / "page.png"
    words = (f"--log-net-log={log}", f"--window-size={width},2000", f"--screenshot={image}", *flags, address)
    done = _run(folder, *words)
    server = "/".join(address.split("/", 3)[:3])
    elsewhere = [url for url in _asked_by_pages(log) if not url.startswith(f"{server}/")]
    return Seen(_CONSOLE.findall(done), elsewhere, image.read_bytes())


def print_page(text: str, folder: Path) -> bytes:
    """Return a page as it is printed: PDF."""
    folder.mkdir()
    out = folder / "page.pdf"
    with _serving(text) as (address, _):
        _run(folder, "--no-pdf-header-footer", f"--print-to-pdf={out}", address)
    return out.read_bytes()


def _run(folder: Path, *words: str) -> str:
    command = [CHROMIUM or "", *_FLAGS, f"--user-data-dir={folder / 'profile'}", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=True)
    return done.stderr


@contextmanager
def _serving(text: str) -> Iterator[tuple[str, list[str]]]:
    """Serve a page at ``/``: its address, and the paths that were asked for."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            data = text.encode() if self.path == "/" else b""
            self.send_response(200 if data else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


def _asked_by_pages(log: Path) -> Iterator[str]:
    """Yield the addresses that pages asked for; what the browser itself asks for has no origin."""
    text = log.read_text(encoding="utf-8", errors="replace")
    try:
        document = json.loads(text)
    except ValueError:  # a browser that ends in haste leaves the list open
        document = json.loads(text.rstrip().rstrip(",") + "]}")
    for event in document["events"]:
        parameters = event.get("params", {})
        if parameters.get("initiator", "not an origin") != "not an origin":
            yield str(parameters.get("url"))
