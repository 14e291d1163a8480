"""The `sealpoint` of scripts, which is forked, does what one does that is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = {
    "exit code and streams": "echo one | sealpoint keys destroy k1 --keys none.toml",
    "environment, folder and umask": (
        "umask 027; cd sub && SEALPOINT_KEYS=$PWD/k.toml sealpoint keys init k1 >&2; stat -c '%n %a' *"
    ),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_fork_does_what_a_start_does(script: str, script_path: str, tmp_path: Path) -> None:
    _, started_path = script_path.split(os.pathsep, 1)
    ends = []
    for path in (script_path, started_path):
        folder = tmp_path / "run"
        (folder / "sub").mkdir(parents=True)
        ended = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        ends.append((ended.returncode, ended.stdout, ended.stderr))
        shutil.rmtree(folder)
    assert ends[0] == ends[1]
