"""Repeats the tests on every Python from 3.11 on that this machine has: `make test-all`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import nox

OLDEST = (3, 11)
PROJECT = nox.project.load_toml("pyproject.toml")

nox.options.default_venv_backend = "virtualenv"
nox.options.stop_on_first_error = False


def directories() -> list[Path]:
    """Where interpreters may lie: what pyenv installed, then the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    path = os.environ.get("PATH", "").split(os.pathsep)
    return [*sorted(pyenv.glob("versions/*/bin"), reverse=True), *(Path(entry) for entry in path if entry)]


def runs(python: Path, version: str) -> bool:
    """Whether the file is an interpreter of this version; a pyenv shim may only print an error."""
    code = "import sys, sqlite3, ssl; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return False
    return done.stdout.strip() == version


def interpreters() -> dict[str, Path]:
    """The first working interpreter of each version, oldest version first."""
    found: dict[str, Path] = {}
    for directory in directories():
        for python in directory.glob("python3.*"):
            version = re.fullmatch(r"python(3\.\d+)", python.name)
            if version and version[1] not in found and runs(python, version[1]):
                found[version[1]] = python
    versions = sorted((tuple(map(int, version.split("."))), version) for version in found)
    return {text: found[text] for numbers, text in versions if numbers >= OLDEST}


PYTHONS = interpreters()

# nox looks names up on the PATH: let it meet the working interpreters before any shim.
WORKING = [str(python.parent) for python in PYTHONS.values()]
os.environ["PATH"] = os.pathsep.join([*WORKING, os.environ["PATH"]])


@nox.session(python=list(PYTHONS))
def tests(session: nox.Session) -> None:
    """Installs the package as a user would, with the development group, and runs the tests."""
    session.install(".[all]", *nox.project.dependency_groups(PROJECT, "dev"))
    session.run("python", "-m", "pytest", *session.posargs)
