"""What must be true of a commit before it is released; each check raises with what it found and wanted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.version import Version

from release.dist import ROOT, BuildError, build, commit_id, digest, git
from release.newcomer import follow
from release.placeholders import PLACEHOLDERS, left
from release.sbom import write_sboms

HEADING: Final = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
DIST: Final = ROOT / "dist"
SBOM: Final = ROOT / "sbom"


class NotReadyError(Exception):
    """The commit is not fit for a release."""


def check_version(root: Path = ROOT, tag: str | None = None) -> str:
    """The version, the topmost release of the changelog and the tag agree; all vectors have a release."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if str(Version(version)) != version:
        raise NotReadyError(f"the version is {version}, and PEP 440 writes it {Version(version)}")
    headings = HEADING.findall((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    released = [heading for heading in headings if heading[0] != "Unreleased"]
    if not released or released[0][0] != version or not released[0][1]:
        wanted = f"## [{version}] - YYYY-MM-DD"
        raise NotReadyError(f"the topmost release in CHANGELOG.md is {released[:1]}; wanted: {wanted}")
    if (folder := root / "tests" / "vectors" / "unreleased").exists():
        raise NotReadyError(f"{folder.relative_to(root)} is to be renamed to {version}, as RELEASING.md says")
    if tag not in {None, f"v{version}"}:
        raise NotReadyError(f"the tag is {tag}; wanted: v{version}")
    return f"{version}, {f'tag {tag}' if tag else 'no tag given'}"


def check_tree() -> str:
    """Nothing is changed or added that is not committed."""
    if changed := git("status", "--porcelain", "--untracked-files=all").decode():
        raise NotReadyError(f"not committed:\n{changed}")
    return commit_id("HEAD")


def check_placeholders(root: Path = ROOT) -> str:
    """Nothing is left to fill in."""
    if found := left(root):
        lines = (f"  {name}: {', '.join(PLACEHOLDERS[one] for one in ones)}" for name, ones in found.items())
        raise NotReadyError("\n".join(["to be filled in, as RELEASING.md says:", *lines]))
    return "none is left"


def check_builds() -> str:
    """Two builds are equal, and the wheel of the checkout is that of the sdist; they stay in dist/."""
    for file in DIST.glob("*"):
        file.unlink()
    files = build("HEAD", DIST)
    with TemporaryDirectory() as again, TemporaryDirectory() as direct:
        second = {file.name: digest(file) for file in build("HEAD", Path(again))}
        (wheel,) = build("HEAD", Path(direct), direct=True)
        first = {file.name: digest(file) for file in files}
        if first != second:
            raise NotReadyError(f"two builds differ: {first} and {second}")
        if first[wheel.name] != digest(wheel):
            raise NotReadyError("the wheel of the checkout is not the wheel of the sdist")
    return ", ".join(f"{name} {value}" for name, value in first.items())


def check_metadata() -> str:
    """The registry accepts the metadata, and can show the README."""
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir()))]
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise NotReadyError(done.stdout)
    return "twine accepts both"


def check_sboms() -> str:
    """Both SBOMs are valid, and made twice they are equal; they stay in sbom/."""
    with TemporaryDirectory() as again:
        for one, other in zip(write_sboms(DIST, SBOM), write_sboms(DIST, Path(again)), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise NotReadyError(f"made twice, {one.name} differs")
    return "core and all are valid, and equal when made again"


def check_readme() -> str:
    """The README's first five minutes work from the wheel, in an empty account."""
    (wheel,) = DIST.glob("*.whl")
    return "\n  ".join(["", *follow(ROOT / "README.md", wheel)])


CHECKS: Final[dict[str, Callable[[], str]]] = {
    "version": lambda: check_version(tag=os.environ.get("TAG") or None),
    "clean tree": check_tree,
    "placeholders": check_placeholders,
    "builds": check_builds,
    "metadata": check_metadata,
    "SBOM": check_sboms,
    "README": check_readme,
}


FAILURES: Final = (NotReadyError, BuildError, AssertionError, ValueError, subprocess.CalledProcessError)


def check() -> bool:
    """Run every check, also after one that fails; whether all passed."""
    passed = True
    for name, run in CHECKS.items():
        print(f"{name}: ", end="", flush=True)
        try:
            print(f"ok: {run()}")
        except FAILURES as error:
            print(f"FAILED: {error}")
            passed = False
    print("ready for a release" if passed else "NOT ready for a release")
    return passed
