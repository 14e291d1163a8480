"""The sdist and the wheel of a commit: the same bytes for all who build it.

The files are those of the commit, whatever the checkout holds beside them; the time is the commit's.
hatchling sets order, owners and modes, and pyproject.toml fixes its version. The compressed bytes are zlib's:
a Python that is linked with zlib-ng writes others of the same contents.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final = ("-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null", "-c", "tar.umask=0022")


class BuildError(Exception):
    """The build of a commit has failed."""


def git(*words: str) -> bytes:
    """Return what a git command prints in this repository."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def commit_id(commit: str) -> str:
    """Return the full id of a commit; an annotated tag is not its commit."""
    return git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()


def export(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder; nothing of the user's git configuration changes them."""
    archive = folder.with_suffix(".tar")
    archive.write_bytes(git(*SETTINGS, "archive", "--format=tar", commit))
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")


def build(commit: str, out: Path, *, python: str = sys.executable, direct: bool = False) -> list[Path]:
    """Build the sdist of a commit, and the wheel from it.

    Args:
        commit: Any name of the commit.
        out: The folder for both files.
        python: An interpreter whose environment has the group `release`.
        direct: Build only the wheel, from the commit's files instead of from the sdist.

    Raises:
        BuildError: If the build fails, with what it has printed.
        subprocess.CalledProcessError: If git fails; it has printed why.
    """
    commit = commit_id(commit)
    epoch = git("show", "--no-patch", "--format=%ct", commit).decode().strip()
    out = out.resolve()
    with TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        export(commit, tree)
        # No isolation: the environment has fixed versions, and the build needs no network.
        words = ["-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
        words += ["--wheel"] if direct else []
        done = subprocess.run(
            [python, *words],
            cwd=scratch,
            env={"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": epoch},
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    if done.returncode:
        raise BuildError(done.stdout)
    return sorted(out.glob("*.whl" if direct else "sealpoint-*"))


def digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def names(file: Path) -> list[str]:
    """Return the names of the files in a wheel or an sdist."""
    if file.suffix == ".whl":
        with ZipFile(file) as wheel:
            return wheel.namelist()
    with tarfile.open(file) as sdist:
        return sdist.getnames()
