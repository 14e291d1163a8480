"""Fixtures of several folders; their conftest.py imports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases.sealed import write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that LangGraph's saver wrote, with all its values under k1."""
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    return path


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that no command has to do with."""
    file = tmp_path / "victim"
    file.write_text("as it was")
    return file
