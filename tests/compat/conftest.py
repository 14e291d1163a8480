"""Leaves out what the installed LangGraph is too old for; `versions.NEWEST_ONLY` says what that is."""

from __future__ import annotations

import pathlib
from pathlib import Path

import pytest

from tests.compat.versions import IS_NEW, NEWEST_ONLY

LEFT_OUT = set() if IS_NEW else NEWEST_ONLY

collect_ignore = [name for name in LEFT_OUT if "::" not in name]


@pytest.fixture
def paths_of_pathlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let LangGraph name the module of paths that every Python has; see test_serde_differences.py."""
    for name in ("Path", "PosixPath", "WindowsPath"):
        monkeypatch.setattr(getattr(pathlib, name), "__module__", "pathlib")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the single tests out; pytest counts them as deselected."""
    here = Path(__file__).parent
    left_out = [item for item in items if item.path.parent == here and name_of(item) in LEFT_OUT]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def name_of(item: pytest.Item) -> str:
    """File and function, as in `versions.NEWEST_ONLY`."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
