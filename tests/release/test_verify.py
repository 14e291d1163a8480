"""What anyone can check of a release: the commands of the page, with keys of our own for Sigstore's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypi_attestations import Attestation, AttestationError, Distribution, GitHubPublisher
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.verify import Verifier

from release.dist import ROOT, build, commit_id, digest
from tests.release.authority import Authority
from tests.support.pages import blocks, commands, require_shown

PAGE = ROOT / "docs" / "verify-a-release.md"
REPOSITORY = "OWNER/sealpoint"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
REF = f"refs/tags/v{VERSION}"
WORKFLOW = f"https://github.com/{REPOSITORY}/.github/workflows/release.yml@{REF}"

pytestmark = pytest.mark.costly


def claims(commit: str) -> dict[int, str]:
    """What GitHub says of the run of a workflow for a commit, as Fulcio writes it into the certificate."""
    url = f"https://github.com/{REPOSITORY}"
    old = {2: "push", 3: commit, 4: "release", 5: REPOSITORY, 6: REF}
    return old | {9: WORKFLOW, 10: commit, 12: url, 13: commit, 14: REF, 18: WORKFLOW, 19: commit, 20: "push"}


def statement(kind: str, files: list[Path], predicate: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": digest(file)}} for file in files],
        "predicateType": kind,
        "predicate": predicate,
    }


def provenance(commit: str) -> dict[str, Any]:
    """What GitHub's action says of a build; the parts that lead to the commit."""
    url = f"git+https://github.com/{REPOSITORY}@{REF}"
    return {
        "buildDefinition": {
            "buildType": "https://actions.github.io/buildtypes/workflow/v1",
            "externalParameters": {"workflow": {"ref": REF, "path": ".github/workflows/release.yml"}},
            "resolvedDependencies": [{"uri": url, "digest": {"gitCommit": commit}}],
        },
        "runDetails": {"builder": {"id": WORKFLOW}},
    }


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    """A folder with the files of a release of this commit; the SBOMs name the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("published")
    wheel, _ = files = build("HEAD", folder)
    for kind in ("core", "all"):
        named = {"hashes": [{"alg": "SHA-256", "content": digest(wheel)}]}
        files.append(folder / f"{kind}.cdx.json")
        files[-1].write_text(json.dumps({"metadata": {"component": named}}), encoding="utf-8")
    commit = commit_id("HEAD")
    signed = statement("https://slsa.dev/provenance/v1", files, provenance(commit))
    bundle = authority.attest(signed, WORKFLOW, claims(commit))
    (folder / "provenance.sigstore.json").write_text(json.dumps(bundle), encoding="utf-8")
    return folder


Follow = Callable[[], None]


@pytest.fixture
def follow(published: Path, tmp_path: Path, authority: Authority) -> Follow:
    """Type the commands of the page in a folder that a test may have changed."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    trust = tmp_path / "trust.json"
    trust.write_text(json.dumps(authority.trust_config()), encoding="utf-8")
    verifier, tools = tmp_path / "verifier" / "bin", tmp_path / "tools" / "bin"
    for name, words in {
        verifier / "sigstore": f"{sys.executable} -m sigstore --trust-config {trust}",
        tools / "python": sys.executable,
    }.items():
        name.parent.mkdir(parents=True)
        name.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        name.chmod(0o755)
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tmp_path / "source"], check=True)
    # Nothing may leave this machine.
    nowhere = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    environment = os.environ | nowhere | {"COLUMNS": "200"}

    def type_all() -> None:
        typed = 0
        for block in blocks(PAGE):
            for command, shown in commands(block.text.replace("1.0.0rc1", VERSION)):
                name = command.removeprefix("export ").partition("=")[0]
                line = f'{command} && printf %s "${name}"' if command.startswith("export ") else command
                done = subprocess.run(
                    ["/bin/sh", "-c", line],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}"
                if line != command:
                    environment[name] = done.stdout
                else:
                    require_shown(shown, done.stdout, command)
                typed += 1
        assert typed > 5

    return type_all


def test_every_command_of_the_page_passes(follow: Follow) -> None:
    follow()


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


def commit_more(file: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=file, check=True)


def edit(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        assert old in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(old, new))

    return change


@pytest.mark.parametrize(
    ("name", "harm", "refusal"),
    [
        (f"sealpoint-{VERSION}-py3-none-any.whl", append, "no subject for digest"),
        ("all.cdx.json", append, "no subject for digest"),
        ("source", commit_more, "GitHubWorkflowSHA does not match"),
        ("provenance.sigstore.json", edit(b'"treeSize": "1"', b'"treeSize": "2"'), "inclusion proof"),
    ],
)
def test_what_is_not_from_that_commit_is_refused(
    follow: Follow, tmp_path: Path, name: str, harm: Callable[[Path], None], refusal: str
) -> None:
    harm(tmp_path / name)
    with pytest.raises(AssertionError, match=refusal):
        follow()


def test_another_authority_is_refused(follow: Follow, tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_text(json.dumps(Authority().trust_config()), encoding="utf-8")
    with pytest.raises(AssertionError, match="chain"):
        follow()


def test_the_registrys_attestation_is_accepted_for_this_publisher_alone(
    published: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PEP 740, as `pypi-attestations verify pypi` checks it, but with our root in place of Sigstore's."""
    root = ClientTrustConfig.from_json(json.dumps(authority.trust_config())).trusted_root
    monkeypatch.setattr(Verifier, "production", lambda *, offline=False: Verifier(trusted_root=root))
    (wheel,) = published.glob("*.whl")
    signed = statement("https://docs.pypi.org/attestations/publish/v1", [wheel], None)
    bundle = authority.attest(signed, WORKFLOW, claims(commit_id("HEAD")))
    attestation = Attestation.from_bundle(Bundle.from_json(json.dumps(bundle)))
    publisher = GitHubPublisher(repository=REPOSITORY, workflow="release.yml", environment="pypi")
    kind, _ = attestation.verify(publisher, Distribution.from_file(wheel), offline=True)
    assert kind == signed["predicateType"]
    for other in (
        GitHubPublisher(repository="other/sealpoint", workflow="release.yml", environment="pypi"),
        GitHubPublisher(repository=REPOSITORY, workflow="test.yml", environment="pypi"),
    ):
        with pytest.raises(AttestationError):
            attestation.verify(other, Distribution.from_file(wheel), offline=True)
