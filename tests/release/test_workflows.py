"""The workflows: what zizmor does not know of this repository."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from release.dist import ROOT

WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = {(name, job): body for name, flow in WORKFLOWS.items() for job, body in flow["jobs"].items()}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))


def commands(body: dict[str, Any]) -> list[str]:
    """What the steps of a job run, with the values of its matrix."""
    runs = [step["run"] for step in body["steps"] if "run" in step]
    matrix = body.get("strategy", {}).get("matrix", {})
    return [one for run in runs for one in (matrix["command"] if run == 'sh -c "$COMMAND"' else [run])]


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_a_job_runs_targets_of_the_makefile(name: str, job: str) -> None:
    """What a workflow does can be done, and is tested, without GitHub."""
    for command in commands(JOBS[name, job]):
        program, *words = command.split()
        targets = {word for word in words if "=" not in word} if program == "make" else set()
        assert targets <= TARGETS
        assert program in {"make", ".ci/run"} or (name, job) in {
            ("release", "attest"),
            ("release", "announce"),
        }


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_a_job_has_its_own_rights_and_an_end(name: str, job: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}
    body = JOBS[name, job]
    assert 0 < body["timeout-minutes"] <= 180
    writes = {right for right, access in body["permissions"].items() if access == "write"}
    if writes:
        assert name == "release"
        assert not any(step.get("uses", "").startswith("actions/checkout@") for step in body["steps"])
    assert not any(
        "cache" in step.get("with", {}) or "actions/cache" in step.get("uses", "") for step in body["steps"]
    )


def test_only_what_was_checked_and_built_is_signed_and_published() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert set(jobs["attest"]["needs"]) == {"check", "build", "sbom"}
    assert (jobs["publish"]["needs"], jobs["announce"]["needs"]) == ("attest", "publish")
    assert jobs["publish"]["environment"] == "pypi"
    assert {job for job, body in jobs.items() if body["permissions"].get("id-token")} == {"attest", "publish"}


def test_every_promised_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r":: (3\.\d+)", " ".join(project["classifiers"]))
    assert WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"] == promised
    oldest = [
        step["with"]["python-version"]
        for step in JOBS["test", "oldest"]["steps"]
        if "python" in step.get("uses", "")
    ]
    assert oldest == [promised[0]]
