"""A ledger of five entries, and what tests ask of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.keys.ledgers import make_ledger


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder, in the working directory: the name of a socket is short."""
    make_ledger(tmp_path / "ledger")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ledger"
