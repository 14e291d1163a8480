"""docs/kubernetes.md, as a new user follows it: its commands, its manifests, and the mounts they ask for.

tests/support/keys/kubelet.py is the kubelet: folders and modes come from the fields of the manifests.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.deploy.pages import ROOT, block, blocks, commands
from tests.deploy.running import running
from tests.support.keys.kubelet import Volume
from tests.support.servers.containers import MISSING, Container

PAGE: Final = "kubernetes.md"
CANARY: Final = "CANARY: my knee hurts"
ADMIN: Final = 20001

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"no container: {MISSING}")


def manifest(name: str) -> Any:
    return yaml.safe_load(block(PAGE, name))


def pod_of(name: str) -> Any:
    """The spec of the pods of a Deployment or a CronJob."""
    spec = manifest(name)["spec"]
    return spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]


class Cluster:
    """What the page's commands have put into a cluster, and the volumes of its pods.

    Attributes:
        home: The folder of the user who deploys.
    """

    def __init__(self, folder: Path, path: str | None) -> None:
        """Create a cluster; ``path`` is a PATH for commands that need not run in a container."""
        self.home, self._folder, self._path = folder / "home", folder, path
        self._objects: dict[tuple[str, str], dict[str, bytes]] = {}
        self._volumes: list[tuple[Any, Volume]] = []
        self.home.mkdir()
        os.chown(self.home, ADMIN, ADMIN)
        self.follow = iter(commands(PAGE))

    def user(self, command: str) -> None:
        """Run a command of the page as a user of another account, whose home is empty."""
        if command.startswith("kubectl create "):
            self._create(shlex.split(command.partition(" | ")[0])[2:])
            return
        if self._path is not None:
            words, env = ["sh", "-c", command], os.environ | {"PATH": self._path}
            subprocess.run(words, cwd=self.home, env=env, capture_output=True, check=True)
            return
        home = Container(ADMIN, [ADMIN], {"/var/lib/home": self.home}, frozenset({"/var/lib/home"}))
        done = home.run("sh", "-c", command, folder="/var/lib/home")
        assert done.returncode == 0, done.stderr

    def _create(self, words: list[str]) -> None:
        """Do what `kubectl create configmap|secret generic NAME --from-file=...` does."""
        kind = words[0]
        name, *options = words[2 if kind == "secret" else 1 :]
        files: dict[str, bytes] = {}
        for option in options:
            if option.startswith("--from-file="):
                key, _, source = option.removeprefix("--from-file=").rpartition("=")
                path = self.home / source
                for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                    files[key or file.name] = file.read_bytes()
        assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in files)
        self._objects[kind, name] = files
        for wanted, volume in self._volumes:
            if wanted == (kind, name):
                volume.write(files)

    def _mount(self, pod: Any, spec: Any) -> Path:
        """The folder of a volume of a pod."""
        fs_group: int | None = pod["securityContext"].get("fsGroup")
        folder = self._folder / "volumes" / f"{len(list(self._folder.glob('volumes/*')))}"
        if "persistentVolumeClaim" in spec:
            folder = self._folder / str(spec["persistentVolumeClaim"]["claimName"])
            folder.mkdir(exist_ok=True)
            os.chown(folder, 0, fs_group or 0)
            folder.chmod(0o2775)
            return folder
        kind = "secret" if "secret" in spec else "configmap"
        source = spec.get("secret") or spec["configMap"]
        volume = Volume(folder, mode=source.get("defaultMode", 0o644), fs_group=fs_group)
        name = source.get("secretName") or source["name"]
        volume.write(self._objects[kind, name])
        self._volumes.append(((kind, name), volume))
        return folder

    def container(self, pod: Any, spec: Any, folders: dict[str, Path]) -> Container:
        """A container of a pod, with the folders of the pod's volumes."""
        account, restricted = pod["securityContext"], spec["securityContext"]
        assert restricted["readOnlyRootFilesystem"]
        mounts = {
            mount["mountPath"]: folders[mount["name"]] / mount.get("subPath", "")
            for mount in spec["volumeMounts"]
        }
        writable = {mount["mountPath"] for mount in spec["volumeMounts"] if not mount.get("readOnly")}
        image = {"/app": ROOT / "examples"} if "workingDir" in spec else {}
        groups = [account["runAsGroup"], *([account["fsGroup"]] if "fsGroup" in account else [])]
        return Container(account["runAsUser"], groups, {**mounts, **image}, frozenset(writable))

    def folders(self, pod: Any) -> dict[str, Path]:
        return {spec["name"]: self._mount(pod, spec) for spec in pod["volumes"]}


def env_of(spec: Any) -> dict[str, str]:
    return {one["name"]: one["value"] for one in spec["env"]}


@pytest.fixture
def as_new_user() -> bool:
    """Whether commands run as an account of their own, which takes a second each."""
    return False


@pytest.fixture
def cluster(as_new_user: bool, script_path: str) -> Iterator[Cluster]:
    path = None if as_new_user else script_path
    with TemporaryDirectory() as folder:  # pytest's own folders are closed to other accounts
        Path(folder).chmod(0o755)
        made = Cluster(Path(folder), path)
        for command in made.follow:
            made.user(command)
            if "secret" in command:  # the first section ends
                break
        yield made


def tags(cluster: Cluster) -> set[str]:
    with closing(sqlite3.connect(cluster._folder / "agent-state" / "state.db")) as connection:
        return {tag.rpartition("@")[2] for (tag,) in connection.execute("SELECT type FROM checkpoints")}


@pytest.mark.costly
@pytest.mark.parametrize("as_new_user", [True])
def test_page_from_the_first_command_to_sealed_and_resealed_rows(cluster: Cluster) -> None:
    pod = pod_of("agent.yaml")
    folders = cluster.folders(pod)
    (check,), (agent,) = pod["initContainers"], pod["containers"]
    done = cluster.container(pod, check, folders).run(*check["command"], env=env_of(check))
    assert done.returncode == 0, done.stdout + done.stderr

    argv = [word.replace("8000", "0") for word in agent["command"]]
    words = cluster.container(pod, agent, folders).words(argv, folder=agent["workingDir"], env=env_of(agent))
    with running(words, r"running on http://\S+:(\d+)", folder=ROOT, env=os.environ) as web:
        url = f"http://127.0.0.1:{web.ready[1]}/threads/t1"
        assert httpx.post(url, params={"said": CANARY}, timeout=60).json()["notes"] == [CANARY], web.log
        assert tags(cluster) == {"k1"}
        for command in cluster.follow:  # a second key, staged and then promoted
            cluster.user(command)
        for number in range(1000):  # until the agent looks at its ring, every 3 seconds
            assert httpx.post(url, params={"said": f"{number}"}, timeout=60).status_code == 200, web.log
            if "k2" in tags(cluster):
                break
        assert tags(cluster) == {"k1", "k2"}
        assert "cannot be followed" not in "".join(web.log)
    for file in (cluster._folder / "agent-state").iterdir():
        assert CANARY.encode() not in file.read_bytes()

    job = pod_of("rotate.yaml")
    folders = cluster.folders(job)
    for step in (*job["initContainers"], *job["containers"]):
        done = cluster.container(job, step, folders).run(*step["command"], env=env_of(step))
        assert done.returncode == 0, done.stdout + done.stderr
    assert tags(cluster) == {"k2"}


BROKEN = {
    # what is left out of the manifest, and what `keys check` in the pod says
    "fsGroup": "Permission denied",
    "defaultMode": "has mode 0644: others can read it",
}


@pytest.mark.parametrize("left_out", BROKEN)
def test_manifest_without_one_of_its_fields(cluster: Cluster, left_out: str) -> None:
    pod = pod_of("agent.yaml")
    (check,) = pod["initContainers"]
    if left_out == "defaultMode":
        del pod["volumes"][1]["secret"]["defaultMode"]
    else:
        del pod["securityContext"]["fsGroup"]
    folders = cluster.folders(pod)
    done = cluster.container(pod, check, folders).run(*check["command"], env=env_of(check))
    assert done.returncode == 5
    page = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    assert BROKEN[left_out] in done.stdout + done.stderr
    assert BROKEN[left_out] in page


def test_ring_by_sub_path_is_used_and_the_process_says_that_it_cannot_follow(cluster: Cluster) -> None:
    pod = pod_of("agent.yaml")
    (agent,) = pod["containers"]
    (wrong,) = yaml.safe_load(block(PAGE, "not-like-this.yaml"))["volumeMounts"]
    mounts = [wrong if mount["name"] == wrong["name"] else mount for mount in agent["volumeMounts"]]
    container = cluster.container(pod, agent | {"volumeMounts": mounts}, cluster.folders(pod))
    code = "import sealpoint; s = sealpoint.EncryptedSerializer.from_key_file; print(s(), s())"
    done = container.run("python", "-c", code, env=env_of(agent))
    assert done.stdout.count("k1 active") == 2, done.stderr
    (shown,) = [text for kind, text in blocks(PAGE) if kind == "text"]
    assert done.stderr == shown


def test_projected_volume_with_the_ring_as_it_was_written(cluster: Cluster) -> None:
    pod = pod_of("agent.yaml")
    (check,) = pod["initContainers"]
    (volume,) = manifest("projected.yaml")["volumes"]
    sources = volume["projected"]["sources"]
    shared = {"keys.toml": cluster.home / "keys.toml", "k1.key": cluster.home / "keys.d" / "k1.key"}
    items = [item for source in sources for one in source.values() for item in one["items"]]
    projected = Volume(
        cluster.home / "projected",
        mode=volume["projected"]["defaultMode"],
        fs_group=pod["securityContext"]["fsGroup"],
    )
    projected.write({item["path"]: shared[item["key"]].read_bytes() for item in items})
    mount = {"name": "keys", "mountPath": "/etc/sealpoint", "readOnly": True}
    container = cluster.container(pod, check | {"volumeMounts": [mount]}, {"keys": projected.folder})
    done = container.run(*check["command"], env=env_of(check))
    assert done.returncode == 0, done.stdout + done.stderr


def test_external_secret_has_the_names_of_the_secret() -> None:
    external, pod = manifest("external.yaml"), pod_of("agent.yaml")
    names = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert {external["spec"]["target"]["name"]} == names
    assert {one["secretKey"] for one in external["spec"]["data"]} == {"k1.key", "k2.key"}


def test_accounts_of_the_pods_are_the_same() -> None:
    """They share a volume."""
    assert pod_of("agent.yaml")["securityContext"] == pod_of("rotate.yaml")["securityContext"]
    assert pod_of("agent.yaml")["volumes"] == pod_of("rotate.yaml")["volumes"]
