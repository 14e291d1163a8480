"""The program: run in this process where its words matter, in one of its own where streams and codes do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.cli.app import run as run_program
from sealpoint.admin.maintenance import heads
from sealpoint.keys import ringfile
from tests.support.databases.fixtures import path, victim
from tests.support.keys.rings import states_text
from tests.support.runs.results import require_valid

__all__ = ["CODE", "Ended", "Run", "path", "victim"]

CODE = [sys.executable, "-m", "sealpoint"]


@dataclass(frozen=True)
class Ended:
    """What a run said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON object on stdout, which is as the published schema has it."""
        return require_valid(json.loads(self.out))

    @property
    def has_no_result(self) -> bool:
        """Whether stdout has nothing, or with ``--json`` an object with the error alone."""
        return not self.out or self.document["reasons"] == ["not-completed"]


Run = Callable[..., Ended]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ring is named or lies anywhere but where a test puts it, and words are wrapped alike everywhere."""
    for name in ("SEALPOINT_KEYS", "CREDENTIALS_DIRECTORY", "SEALPOINT_ALLOW_TEST_KEYS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(heads, "DELETION_SECONDS", 0)  # no other process deletes meanwhile
    monkeypatch.setattr(ringfile, "SYSTEM_PATH", tmp_path / "etc" / "keys.toml")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ring that seals under k2 and opens with k1, named in the environment."""
    file = tmp_path / "ring.toml"
    file.write_text(states_text(k2="active", k1="decrypt-only"))
    file.chmod(0o600)
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    return file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in this process."""

    def call(*words: object) -> Ended:
        capsys.readouterr()
        code = run_program([str(word) for word in words])
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def program(forked: Path) -> Run:
    """Runs the program in a process of its own, without a terminal."""

    def call(*words: object, answer: str = "", **environment: str) -> Ended:
        command = [str(forked), *map(str, words)]
        done = subprocess.run(
            command,
            input=answer,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A ring with an active key ``k1``, which $SEALPOINT_KEYS names."""
    file = tmp_path / "keys.toml"
    monkeypatch.setenv("SEALPOINT_KEYS", str(file))
    assert run("keys", "init", "k1").code == 0
    return file
