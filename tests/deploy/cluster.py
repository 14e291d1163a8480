"""kubectl for examples/scale/kubernetes.sh: what it is asked for is done here, and its Jobs are run at once.

``python cluster.py WORDS``, with a folder of the cluster in $CLUSTER: there ``results`` is the volume, and
``env`` what the containers get beside their own environment, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(os.environ.get("CLUSTER", "."))
RUN: Final = FOLDER / "configmap"
RETRIES: Final = 6


def create_configmap(options: list[str]) -> None:
    RUN.mkdir()
    for option in options:
        kind, _, value = option.partition("=")
        name, _, source = value.rpartition("=") if kind == "--from-file" else value.partition("=")
        data = Path(source).read_text() if kind == "--from-file" else source
        (RUN / (name or Path(source).name)).write_text(data)


def container_run(container: Any, index: int) -> subprocess.CompletedProcess[bytes]:
    """Run the command of a container, whose volumes are folders here."""
    environment = {
        **os.environ,
        **json.loads((FOLDER / "env").read_text()),
        "JOB_COMPLETION_INDEX": f"{index}",
    }
    for each in container["env"]:
        if "configMapKeyRef" in each.get("valueFrom", {}):
            environment[each["name"]] = (RUN / each["valueFrom"]["configMapKeyRef"]["key"]).read_text()
    words = container["command"]
    for mount, folder in (("/etc/sealpoint-run", RUN), ("/var/lib/sealpoint", FOLDER / "results")):
        words = [word.replace(mount, str(folder)) for word in words]
    return subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )


def action(job: Any, code: int) -> str:
    """What the podFailurePolicy of a Job says about an exit code."""
    for rule in job["spec"].get("podFailurePolicy", {"rules": []})["rules"]:
        if code in rule.get("onExitCodes", {"values": []})["values"]:
            return str(rule["action"])
    return "Count"


def run_job(job: Any) -> None:
    """Run the pods of a Job one after the other, and write down how it has ended."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    limit, name = job["spec"].get("backoffLimitPerIndex", 0), job["metadata"]["name"]
    codes, tries = dict[int, int](), 0
    for index in range(job["spec"].get("completions", 1)):
        for _ in range(limit + 1):
            done, tries = container_run(container, index), tries + 1
            codes[index] = done.returncode
            if not done.returncode or action(job, done.returncode) != "Count":
                break
        if action(job, codes[index]) == "FailJob":
            break
    is_failed = any(codes.values())
    found = {"type": "Failed" if is_failed else "Complete", "code": max(codes.values()), "tries": tries}
    (FOLDER / f"{name}.json").write_text(json.dumps({**found, "log": done.stdout.decode()}))


def ended(name: str, member: str) -> None:
    sys.stdout.write(str(json.loads((FOLDER / f"{name}.json").read_text())[member]))


def main(words: list[str]) -> None:
    match words:
        case ["create", "configmap", "sealpoint-run", *options]:
            create_configmap(options)
        case ["create", "-f", file]:
            run_job(yaml.safe_load(sys.stdin if file == "-" else Path(file).read_text()))
        case ["get", "job", name, "-o", "jsonpath={.status.conditions[*].type}"]:
            ended(name, "type")
        case ["get", "pods", "-l", label, "-o", _]:
            ended(label.removeprefix("job-name="), "code")
        case ["logs", job]:
            ended(job.removeprefix("job/"), "log")
        case ["delete", *_]:
            (FOLDER / "deleted").touch()
        case _:
            raise SystemExit(f"unknown: {words}")


if __name__ == "__main__":
    main(sys.argv[1:])
