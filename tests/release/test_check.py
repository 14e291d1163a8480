"""A commit that is not fit for a release is refused, and the check says why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import check, newcomer
from release.__main__ import main
from release.check import NotReadyError, check_placeholders, check_version
from release.dist import ROOT
from release.placeholders import FILES, PLACEHOLDERS, left
from tests.support.pages import Block

CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0rc1] - 2026-11-26\n\n## [1.1.0] - 2026-01-01\n"


def project(folder: Path, version: str, changes: str) -> Path:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n', encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(changes, encoding="utf-8")
    return folder


def test_version_tag_and_changelog_that_agree_are_accepted(tmp_path: Path) -> None:
    assert check_version(project(tmp_path, "1.2.0rc1", CHANGES), "v1.2.0rc1")


@pytest.mark.parametrize(
    ("version", "changes", "tag"),
    [
        ("1.2.0-rc1", CHANGES, "v1.2.0-rc1"),
        ("1.2.0", CHANGES, "v1.2.0"),
        ("1.1.0", CHANGES, "v1.1.0"),
        ("1.2.0rc1", CHANGES, "v1.2.0"),
        ("1.2.0rc1", CHANGES, "1.2.0rc1"),
        ("1.2.0rc1", CHANGES.replace(" - 2026-11-26", ""), "v1.2.0rc1"),
        ("1.2.0rc1", "# Changelog\n\n## [Unreleased]\n", "v1.2.0rc1"),
    ],
)
def test_those_that_differ_are_refused(tmp_path: Path, version: str, changes: str, tag: str) -> None:
    with pytest.raises(NotReadyError):
        check_version(project(tmp_path, version, changes), tag)


def test_vectors_that_name_no_release_are_refused(tmp_path: Path) -> None:
    root = project(tmp_path, "1.2.0rc1", CHANGES)
    (root / "tests" / "vectors" / "unreleased").mkdir(parents=True)
    with pytest.raises(NotReadyError, match=r"vectors/unreleased is to be renamed to 1\.2\.0rc1"):
        check_version(root)


def test_every_check_runs_and_one_failure_is_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise NotReadyError("a reason")

    monkeypatch.setattr(check, "CHECKS", {"first": fail, "second": lambda: "fine"})
    assert main(["check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "first: FAILED: a reason",
        "second: ok: fine",
        "NOT ready for a release",
    ]


@pytest.mark.parametrize("shown", ["$ echo one\ntwo\n", "$ false\n", '$ test -n "$SEALPOINT_KEYS"\n'])
def test_a_newcomer_notices_what_the_page_does_not_show(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong output, a failure, and a variable that only this environment has."""
    monkeypatch.setenv("SEALPOINT_KEYS", "keys.toml")
    with pytest.raises(AssertionError):
        newcomer.run(Block("console", shown, 1, None), tmp_path, {"PATH": os.defpath}, tmp_path / "x.whl")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A copy of this repository's files in which nothing is left to fill in."""
    names = subprocess.run(
        ["git", "ls-files", "--", *FILES], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        for placeholder in PLACEHOLDERS:
            text = text.replace(placeholder, "filled")
        (tmp_path / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_one_placeholder_is_enough_for_a_refusal(filled: Path, placeholder: str) -> None:
    assert check_placeholders(filled)
    name = next(name for name, found in left(ROOT).items() if placeholder in found)
    shutil.copy(ROOT / name, filled / name)
    with pytest.raises(NotReadyError, match=re.escape(f"{name}: {PLACEHOLDERS[placeholder]}")):
        check_placeholders(filled)


def test_releasing_lists_every_file_with_a_placeholder() -> None:
    guide = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    assert {name for name in left(ROOT) if f"`{name}`" not in guide} == set()


def locked(name: str) -> dict[str, str]:
    lines = (ROOT / "locks" / name).read_text(encoding="utf-8").splitlines()
    pins = (line.split(";")[0].split()[0] for line in lines if "==" in line)
    return {
        canonicalize_name(project): version for project, _, version in (pin.partition("==") for pin in pins)
    }


def test_locks_satisfy_pyproject() -> None:
    """Whoever changes a requirement runs `make lock`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, groups = settings["project"], settings["dependency-groups"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    included = [text for group in groups["dev"] for text in groups[group["include-group"]]]
    for lock, texts in {
        "dev.txt": [*project["dependencies"], *extras, *included],
        "release.txt": groups["release"],
    }.items():
        versions = locked(lock)
        for requirement in map(Requirement, texts):
            version = versions.get(canonicalize_name(requirement.name))
            known = requirement.name == "sealpoint" or (version and requirement.specifier.contains(version))
            assert known, f"{lock}: {requirement} is not satisfied by {version}: make lock"


def test_locks_name_no_host() -> None:
    for file in (ROOT / "locks").iterdir():
        assert "://" not in file.read_text(encoding="utf-8"), file.name
    assert "--hash=sha256:" in (ROOT / "locks" / "release.txt").read_text(encoding="utf-8")


def test_the_build_backend_is_the_locked_one() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for text in settings["build-system"]["requires"]:
        name, _, version = text.partition("==")
        assert locked("release.txt")[name] == version
