"""A commit is built to the same bytes, wherever, whenever and by whom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from release.dist import ROOT, build, digest, names
from tests.support.runs.extent import by_extent

ELSEWHERE = {"TZ": "Pacific/Apia", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "7"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the sdist of this commit."""
    return build("HEAD", tmp_path_factory.mktemp("dist"))


def digests(files: list[Path]) -> dict[str, str]:
    return {file.name: digest(file) for file in files}


def other_pythons() -> list[str]:
    """The other promised Pythons of this machine, newest first."""
    found = subprocess.run([ROOT / ".ci" / "pythons"], stdout=subprocess.PIPE, text=True, check=True).stdout
    pairs = (line.split(" ", 1) for line in found.splitlines())
    return [path for version, path in pairs if version != f"3.{sys.version_info.minor}"]


def build_elsewhere(clone: Path, python: str, out: Path) -> dict[str, str]:
    """Build what a clone has checked out: under another path, mask of modes, zone, language, and Python."""
    # The other Python takes the tools of this environment, which are pure Python.
    libraries = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    wrapper = clone.with_name("python")
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{libraries}" exec "{python}" "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    code = "import os, sys; os.umask(0o077); from release.__main__ import main; main(sys.argv[1:])"
    words = [wrapper, "-c", code, "dist", "--out", out, "--python", wrapper]
    subprocess.run(list(map(str, words)), env=os.environ | ELSEWHERE, check=True, cwd=clone)
    return digests(sorted(out.iterdir()))


@pytest.mark.costly
def test_a_clone_elsewhere_builds_the_same_bytes_and_another_commit_others(
    dist: list[Path], tmp_path: Path
) -> None:
    """Files that git does not know, and edits without a commit, have no effect; the time of a commit has."""
    clone = tmp_path / "a clone\u00e9"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
    (clone / "src" / "sealpoint" / "stray.py").write_text("stray = 1\n", encoding="utf-8")
    (clone / "README.md").write_text("edited\n", encoding="utf-8")
    pythons = other_pythons() or [sys.executable]
    for python in pythons[: by_extent(1, len(pythons))]:
        assert build_elsewhere(clone, python, tmp_path / "out") == digests(dist)

    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *author, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=clone, check=True)
    assert build_elsewhere(clone, sys.executable, tmp_path / "out") != digests(dist)


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_checkout(dist: list[Path], tmp_path: Path) -> None:
    (wheel,) = build("HEAD", tmp_path, direct=True)
    assert digests([wheel]).items() <= digests(dist).items()


def test_the_page_of_the_package_index_links_to_this_version(dist: list[Path]) -> None:
    with ZipFile(dist[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        page = wheel.read(name).decode()
    version = dist[0].name.split("-")[1]
    links = set(re.findall(r"\]\(([^)#][^)]*)\)", page))
    inside = {
        link for link in links if link.startswith(f"https://github.com/OWNER/sealpoint/blob/v{version}/")
    }
    assert len(inside) > 10
    assert {link for link in links - inside if not link.startswith("https:")} == set()


def test_both_hold_what_is_decided_and_nothing_else(dist: list[Path]) -> None:
    wheel, sdist = dist
    inside = [name.split("/", 1) for name in names(wheel)]
    assert {top for top, _ in inside if not top.endswith(".dist-info")} == {"sealpoint"}
    assert {rest for top, rest in inside if top.endswith(".dist-info")} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    tops = {name.split("/", 2)[1] for name in names(sdist)}
    assert tops == {
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
        "pyproject.toml",
        "src",
    }
    tracked = subprocess.run(
        ["git", "ls-files", "src/sealpoint"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    assert {f"src/{name}" for name in names(wheel) if name.startswith("sealpoint/")} == set(tracked)
    assert {name.split("/", 1)[1] for name in names(sdist) if "/src/" in name} == set(tracked)
