"""docs/deploy.md: its excerpts are those of the examples, its units run, its image has what they need."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.deploy.pages import ROOT, block, blocks, commands
from tests.deploy.running import running
from tests.support.servers.containers import MISSING, Container

PAGE: Final = "deploy.md"
EXAMPLES: Final = ROOT / "examples"
UNITS: Final = ("agent.service", "sealpoint-nightly.service", "sealpoint-nightly.timer")
ON_POSTGRES: Final = "sealpoint-nightly.service.d/postgres.conf"
BIN: Final = "/srv/agent/.venv/bin"
AGENT: Final = 10001


@pytest.mark.parametrize("name", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_excerpt_is_that_of_the_example(name: str) -> None:
    program = (EXAMPLES / name).read_text(encoding="utf-8")
    excerpts = [text for kind, text in blocks(PAGE) if kind == "python" and text.startswith(f"# {name}\n")]
    for text in excerpts:
        assert text.partition("\n")[2] in program
    assert f"(../examples/{name})" in (ROOT / "docs" / PAGE).read_text(encoding="utf-8")


def test_configuration_is_that_of_the_example() -> None:
    (shown,) = [text for kind, text in blocks(PAGE) if kind == "json"]
    assert shown == (EXAMPLES / "langgraph.json").read_text(encoding="utf-8")


# --- systemd ---------------------------------------------------------------------------------


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """The settings of a unit: a name may stand several times."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in block(PAGE, name).splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = found.setdefault(heading[1], {})
        elif line and not line.startswith("#"):
            setting, _, value = line.partition("=")
            section.setdefault(setting, []).append(value)
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        text = block(PAGE, name).replace(BIN, str(Path(sys.executable).parent))
        (tmp_path / name).write_text(text, encoding="utf-8")
    drop_in = tmp_path / ON_POSTGRES
    drop_in.parent.mkdir()
    text = block(PAGE, ON_POSTGRES).replace(BIN, str(Path(sys.executable).parent))
    drop_in.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or "sealpoint" in line] == []
    assert done.returncode == 0, done.stderr


def test_services_have_the_same_account_and_limits() -> None:
    agent, nightly = (dict(unit(name)["Service"]) for name in UNITS[:2])
    for setting in ("WorkingDirectory", "ExecStartPre", "ExecStart", "Restart", "Type", "Environment"):
        agent.pop(setting, None)
        nightly.pop(setting, None)
    assert agent == nightly


@pytest.mark.costly
@pytest.mark.skipif(MISSING is not None, reason=f"no container: {MISSING}")
def test_units_from_the_first_command_to_sealed_rows() -> None:
    """As a new user follows the section, with the accounts, folders and limits that the units ask for."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for made in ("etc", "state", "else"):
            (folder / made).mkdir(mode=0o700)
            os.chown(folder / made, AGENT, AGENT)
        shutil.copytree(EXAMPLES, folder / "srv")
        mounts = {"/etc/sealpoint": folder / "etc", "/var/lib/agent": folder / "state"}
        mounts["/var/lib/srv"] = folder / "srv"

        (command,) = [line for line in commands(PAGE) if line.startswith("sudo -u agent ")]
        words = shlex.split(command.removeprefix("sudo -u agent ").replace(f"{BIN}/", ""))
        admin = Container(AGENT, [AGENT], mounts, frozenset({"/etc/sealpoint"})).run(*words)
        assert admin.returncode == 0, admin.stderr
        assert (folder / "etc" / "keys.d" / "k1.key").stat().st_mode & 0o777 == 0o600

        strict = Container(AGENT, [AGENT], mounts, frozenset({"/var/lib/agent"}))  # ProtectSystem=strict
        agent = unit("agent.service")["Service"]
        env = dict(one.split("=", 1) for one in agent["Environment"][0].split())
        (before,), (start,) = agent["ExecStartPre"], agent["ExecStart"]
        done = strict.run(*argv(before), env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        words = strict.words([*argv(start)[:-1], "0"], folder="/var/lib/srv", env=env)
        with running(words, r"running on http://\S+:(\d+)", folder=ROOT, env=os.environ) as web:
            said = httpx.post(
                f"http://127.0.0.1:{web.ready[1]}/threads/t1", params={"said": "CANARY"}, timeout=60
            )
            assert said.json()["notes"] == ["CANARY"], web.log
        with closing(sqlite3.connect(folder / "state" / "state.db")) as connection:
            tags = {tag for (tag,) in connection.execute("SELECT type FROM checkpoints")}
        assert tags == {"msgpack+cobblestone256.row@k1"}

        for command in unit("sealpoint-nightly.service")["Service"]["ExecStart"]:
            done = strict.run(*argv(command), env=env)
            assert done.returncode == 0, done.stdout + done.stderr


def argv(command: str) -> list[str]:
    return shlex.split(command.replace(f"{BIN}/", ""))


# --- the image -------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    lines = block(PAGE, "Dockerfile").splitlines()[1:]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_image_has_what_the_manifests_ask_for_and_no_keys() -> None:
    found = dict(instructions())
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    pod: Any = yaml.safe_load(block("kubernetes.md", "agent.yaml"))["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    account = pod["securityContext"]
    assert found["USER"] == f"{account['runAsUser']}:{account['runAsGroup']}"
    assert yaml.safe_load(found["CMD"]) == agent["command"]
    assert found["WORKDIR"] == agent["workingDir"]
    assert "deploy.md#container-image" in text
    copied = [word for kind, words in instructions() if kind == "COPY" for word in words.split()[:-1]]
    assert all((ROOT / path).exists() for path in copied)
    assert not any("key" in path for path in copied)
    assert {kind for kind, _ in instructions()} <= {"FROM", "COPY", "RUN", "WORKDIR", "ENV", "USER", "CMD"}


def test_image_has_all_files_that_the_build_needs() -> None:
    """What pyproject.toml names is copied before `pip install`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, hooks = settings["project"], settings["tool"]["hatch"]["metadata"]["hooks"]
    readme = {part["path"] for part in hooks["fancy-pypi-readme"]["fragments"]}
    copied = {word for kind, words in instructions() if kind == "COPY" for word in words.split()[:-1]}
    assert {"pyproject.toml", "src", *readme, *project["license-files"]} <= copied
    (extras,) = re.findall(r"/src\[([\w,]+)\]", dict(instructions())["RUN"])
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
