"""The engines of examples/scale: each plans, works on ranges of hostile ids, and ends as merge does."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

import psycopg
import pytest
import yaml
from langgraph.checkpoint.postgres import PostgresSaver

from tests.cli.test_recording import TABLE
from tests.deploy import cluster
from tests.support.databases.postgres import K1, contents, opened, put_blobs, set_up
from tests.support.keys.kubelet import Volume
from tests.support.keys.rings import states_text, write
from tests.support.servers import containers

SCALE: Final = Path(__file__).parents[2] / "examples" / "scale"
URL: Final = "service=agents"
RANGES: Final = 3
SOCKET: Final = ".s.PGSQL.5432"
MANIFESTS: Final = ("rotate.yaml", "merge.yaml")
THREADS: Final = [
    "--apply",
    "-n",
    "; touch hacked",
    "$(touch hacked)",
    "`touch hacked`",
    "'; touch hacked; '",
    '"; touch hacked; "',
    "a b\n--run=x\t\\",
    "{{ ti }}",
    "*",
    "%s{}",
    "é🔒",
    "\x1b[31m",
    "z",
]


class Place:
    """A ring with a ledger, a database with a value in each thread, and a folder for a run.

    Attributes:
        folder: Where the ring is.
        run: An empty folder.
        env: The environment of the scripts.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self.folder, self.run = folder, folder / "a run"
        self.run.mkdir()
        write(folder / "keys.toml", states_text(k2="active", k1="decrypt-only") + TABLE)
        self.env = os.environ | {
            "PATH": path,
            "SEALPOINT_KEYS": str(folder / "keys.toml"),
            "DATABASE_URL": f"postgresql:///?{URL}",
            "WAIT": "0",
        }
        self.env["VKEY"] = self.call("sealpoint", "ledger", "init").stdout.strip()
        set_up(PostgresSaver, URL)
        value = K1.seal("msgpack", b"\x01")
        put_blobs(URL, [(thread, "", "c", f"{place}", *value) for place, thread in enumerate(THREADS)])
        self.values = opened(URL)

    def call(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder of the run."""
        return subprocess.run(
            [*map(str, words)],
            cwd=self.run,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def plan(self, count: int) -> None:
        planned = self.call("sealpoint", "shards", "--db-env", "DATABASE_URL", "--count", count)
        assert planned.returncode == 0, planned.stderr
        (self.run / "ranges").write_text(planned.stdout, encoding="utf-8")

    def work(self, number: int, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call("sh", SCALE / "range.sh", "ranges", number, *(words or ("rotate", "--apply")))

    def results(self) -> list[Any]:
        """The results of ranges, in order."""
        files = {int(file.stem): file for file in self.folder.rglob("*.json") if file.stem.isdecimal()}
        return [json.loads(file.read_text(encoding="utf-8")) for _, file in sorted(files.items())]

    def require_done(self, ranges: int) -> None:
        """Every value was resealed, once; ids were not run."""
        results = self.results()
        assert len(results) == ranges
        assert sum(result["resealed"] for result in results) == len(THREADS)
        assert opened(URL) == self.values
        assert {tag.rpartition("@")[2] for tag, _ in contents(URL).values()} == {"k2"}
        assert not [*self.folder.rglob("hacked")]

    def damage(self, thread: str) -> None:
        """Change a value, which then does not open."""
        with psycopg.connect(URL) as connection:
            connection.execute(
                "UPDATE checkpoint_blobs SET blob = set_byte(blob, 40, get_byte(blob, 40) # 1)"
                " WHERE thread_id = %s",
                (thread,),
            )


@pytest.fixture
def place(tmp_path: Path, script_path: str, postgres_service: None) -> Place:
    return Place(tmp_path, script_path)


def stand_in(place: Place, text: str, name: str = "sealpoint") -> None:
    """Put a script in the place of a program."""
    folder = place.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    if (before := place.env["PATH"]).partition(os.pathsep)[0] != str(folder):
        place.env["PATH"] = f"{folder}{os.pathsep}{before}"


def stop_first(place: Place) -> None:
    """Let the first run of each range print half of an object, and be refused, stopped or killed in turn."""
    found = shutil.which("sealpoint", path=place.env["PATH"])
    script = f"""
        marked="{place.folder}/bin/$(printf %s "$*" | cksum)"
        if [ "$1" = rotate ] && mkdir "$marked" 2> /dev/null; then
            printf '{{"ok": true, '
            case $(ls "{place.folder}/bin" | wc -l) in *[147]) exit 6 ;; *[258]) exit 7 ;; esac
            kill -9 $PPID $$
        fi
        exec "{found}" "$@"
        """
    stand_in(place, script)


# --- one range --------------------------------------------------------------------------------------


def test_range_is_a_result_or_none(place: Place) -> None:
    place.plan(3)
    place.damage("z")
    stop_first(place)
    assert [place.work(number).returncode for number in (1, 2, 3)] == [7, -9, 6]
    assert place.results() == []
    assert [place.work(number).returncode for number in (1, 2, 3)] == [0, 0, 4]
    assert [result["ok"] for result in place.results()] == [True, True, False]
    assert stat.S_IMODE((place.run / "1.json").stat().st_mode) == 0o600
    failed = place.work(4)
    assert (failed.returncode, failed.stderr) == (2, "error: ranges has no range in line 4\n")
    (place.run / "ranges").write_text("\n'--threads-below=b'\n")
    assert [place.work(number).returncode for number in (1, 2)] == [2, 2]  # none is the whole database
    assert len(place.results()) == 3


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_words_of_a_range_are_not_expanded(place: Place, shell: str) -> None:
    """Each shell passes on exactly what `shards` gives as arguments."""
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    place.plan(len(THREADS))
    lines = (place.run / "ranges").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(THREADS)
    words = "import json, sys; print(json.dumps(sys.argv[1:]))"
    stand_in(place, f"exec '{sys.executable}' -ISc '{words}' \"$@\"")
    shells = [shell, *["sh"][: shell == "busybox"]]
    for number in range(1, len(lines) + 1):
        done = place.call(*shells, SCALE / "range.sh", "ranges", number, "status", "a  b")
        assert done.returncode == 0, done.stderr
    for found, line in zip(place.results(), lines, strict=True):
        assert found == ["status", "a  b", *shlex.split(line), "--db-env", "DATABASE_URL", "--json"]
    assert not [*place.folder.rglob("hacked")]


@pytest.mark.costly
def test_range_that_is_asked_to_stop_ends_after_its_batch(place: Place) -> None:
    """With the program itself, which takes a second to start."""
    place.plan(1)
    place.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", str(SCALE / "range.sh"), "ranges", "1", "rotate", "--apply", "--rate", "1", "--batch", "1"]
    with subprocess.Popen(words, cwd=place.run, env=place.env, stderr=subprocess.DEVNULL) as running:
        while not any(tag.endswith("@k2") for tag, _ in contents(URL).values()):
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 7
    assert [file.name for file in place.run.iterdir()] == ["ranges"]
    assert not all(tag.endswith("@k2") for tag, _ in contents(URL).values())
    assert place.work(1).returncode == 0
    assert opened(URL) == place.values


# --- engines ----------------------------------------------------------------------------------------


def run_parallel(place: Place) -> subprocess.CompletedProcess[str]:
    if not shutil.which("parallel"):
        pytest.skip("no program parallel (Debian: parallel)")
    return place.call("sh", SCALE / "parallel.sh", "results", RANGES)


def run_kubernetes(place: Place) -> subprocess.CompletedProcess[str]:
    """In pods that tests/deploy/cluster.py runs."""
    (place.folder / "cluster" / "results").mkdir(parents=True)
    given = {name: place.env[name] for name in ("SEALPOINT_KEYS", "DATABASE_URL", "PATH")}
    (place.folder / "cluster" / "env").write_text(json.dumps(given))
    place.env["CLUSTER"] = str(place.folder / "cluster")
    stand_in(place, f"exec '{sys.executable}' '{cluster.__file__}' \"$@\"", "kubectl")
    return place.call("sh", SCALE / "kubernetes.sh", RANGES)


class Operator:
    """What the DAG needs of Airflow's operators."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.output = self

    @classmethod
    def partial(cls, **options: Any) -> Operator:
        return cls(**options)

    def expand(self, *, env: Operator) -> Operator:
        self.options["env"] = env
        return self

    def __rshift__(self, other: Operator) -> None: ...


class Dag:
    def __init__(self, *_: object, **options: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def read_dag() -> dict[str, Any]:
    """The names of the DAG's module, and its operators."""
    modules: dict[str, dict[str, object]] = {
        "airflow.sdk": {"DAG": Dag},
        "airflow.providers.standard.operators.bash": {"BashOperator": Operator},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            patch.setitem(sys.modules, name, module)
        return runpy.run_path(str(SCALE / "airflow_dag.py"))


def run_airflow(place: Place) -> subprocess.CompletedProcess[str]:
    """Run the tasks as Airflow does: also a mapped one again, if it was not skipped."""
    dag = read_dag()
    place.env |= {
        "SEALPOINT_RUNS": str(place.run),
        "AIRFLOW_CTX_DAG_RUN_ID": "manual__2026-01-01T00:00:00+00:00",
    }

    def call(operator: Operator) -> subprocess.CompletedProcess[str]:
        command = operator.options["bash_command"]
        assert "{{" not in command
        assert operator.options["append_env"] is True
        return place.call("bash", "-c", command.replace("--count 16", f"--count {RANGES}"))

    planned = call(dag["plan"])
    assert planned.returncode == 0, planned.stderr
    ranges = dag["ranges"].options
    assert ranges["env"] is dag["plan"]
    for env in dag["plan"].options["output_processor"](planned.stdout.splitlines()[-1]):
        place.env |= env
        for _ in range(1 + ranges["retries"]):
            code = call(dag["ranges"]).returncode
            if code == 0 or code in ranges["skip_on_exit_code"]:
                break
    assert dag["merge"].options["trigger_rule"] == "all_done"
    assert "retries" not in dag["merge"].options
    return call(dag["merge"])


ENGINES: Final = {"parallel": run_parallel, "kubernetes": run_kubernetes, "airflow": run_airflow}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=[*ENGINES])
def test_engine_runs_again_what_has_no_result(
    place: Place, engine: Callable[[Place], subprocess.CompletedProcess[str]]
) -> None:
    """Each range is refused, stopped or killed once; then all are done, and it is shown."""
    stop_first(place)
    done = engine(place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.partition("ledger head")[0].endswith("\nok\n")
    assert len([*(place.folder / "bin").glob("[0-9]*")]) == RANGES  # that were stopped
    place.require_done(RANGES)


@pytest.mark.costly
@pytest.mark.parametrize("engine", ENGINES.values(), ids=[*ENGINES])
def test_engine_ends_as_merge_does(
    place: Place, engine: Callable[[Place], subprocess.CompletedProcess[str]]
) -> None:
    """A value does not open: its range has a result, and is not run again. All others are done."""
    place.damage("z")
    done = engine(place)
    assert (done.returncode, "values-failed" in done.stdout) == (4, True), done.stdout + done.stderr
    entries = (place.folder / "ledger" / "entries.jsonl").read_text().splitlines()
    assert sum('"begun"' in line for line in entries) == len(place.results()) == RANGES
    assert sum(result["resealed"] for result in place.results()) == len(THREADS) - 1


@pytest.mark.costly
def test_parallel_continues_after_a_crash(place: Place) -> None:
    """What has a result is not run again."""
    assert run_parallel(place).returncode == 0
    folder = place.run / "results"
    jobs = (folder / "jobs").read_text().splitlines(keepends=True)
    (folder / "jobs").write_text("".join(jobs[:-1]))
    (folder / f"{jobs[-1].split()[0]}.json").unlink()
    before = {file.name: file.stat().st_ino for file in folder.glob("*.json")}
    assert run_parallel(place).returncode == 0
    after = {file.name: file.stat().st_ino for file in folder.glob("*.json")}
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def test_job_ends_at_once_if_no_range_can_be_worked_on(place: Place) -> None:
    place.env["SEALPOINT_KEYS"] = str(place.folder / "keys.toml")
    stand_in(place, 'case $1 in rotate) exit 2 ;; shards) exec "$NEXT" "$@" ;; esac; exit 3')
    place.env["NEXT"] = shutil.which("sealpoint", path=place.env["PATH"].partition(os.pathsep)[2]) or ""
    assert run_kubernetes(place).returncode == 3
    ended = json.loads((place.folder / "cluster" / "sealpoint-rotate.json").read_text())
    assert (ended["tries"], ended["code"]) == (1, 2)
    assert not (place.folder / "cluster" / "deleted").exists()


def test_manifests_are_restricted_and_agree() -> None:
    """What `pod-security.kubernetes.io/enforce: restricted` asks for, and the volumes that are mounted."""
    jobs = [yaml.safe_load((SCALE / name).read_text()) for name in MANIFESTS]
    pods = [job["spec"]["template"]["spec"] for job in jobs]
    assert pods[0]["securityContext"] == pods[1]["securityContext"]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    rules = jobs[0]["spec"]["podFailurePolicy"]["rules"]
    codes = [code for rule in rules for code in rule.get("onExitCodes", {"values": []})["values"]]
    assert sorted(codes) == [*range(1, 6), 126, 127]  # not 0; and 6, 7 and kills are run again
    assert [rule["action"] for rule in rules if "onPodConditions" in rule] == ["Ignore"]
    assert jobs[0]["spec"]["completionMode"] == "Indexed"


@pytest.mark.costly
@pytest.mark.skipif(containers.MISSING is not None, reason=f"no container: {containers.MISSING}")
def test_pods_with_the_mounts_of_the_manifests(place: Place) -> None:
    """An account that is not root, a root that is read-only, a Secret, and a volume that pods share."""
    place.plan(2)
    pods = [yaml.safe_load((SCALE / name).read_text())["spec"]["template"]["spec"] for name in MANIFESTS]
    account = pods[0]["securityContext"]
    ring = (place.folder / "keys.toml").read_text().replace('"ledger"', '"/var/lib/sealpoint/ledger"')
    ring = ring.replace('"ledger.key"', '"/etc/sealpoint-keys/ledger.key"')
    secret = {f"k{number}.key": f"k{number}".encode().ljust(32, b".") for number in (1, 2)}
    for name, key in secret.items():
        ring = ring.replace(f"inline = '{key.hex()}'", f"file = '/etc/sealpoint-keys/{name}'")
    run = {"ranges": (place.run / "ranges").read_bytes(), "range.sh": (SCALE / "range.sh").read_bytes()}
    service = Path(place.env["PGSERVICEFILE"]).read_text()
    (socket,) = re.findall("^host=(.*)$", service, re.MULTILINE)
    if not Path(socket, SOCKET).is_socket():
        pytest.skip("the server listens at no socket")
    service = service.replace(socket, "/var/lib/postgres")
    with TemporaryDirectory() as folder:  # pytest's own folders are closed to other accounts
        Path(folder).chmod(0o755)
        volumes = {name: Path(folder, name) for name in ("ring", "keys", "run", "results")}
        Volume(volumes["ring"]).write({"keys.toml": ring.encode(), "service": service.encode()})
        Volume(volumes["run"]).write(run)
        signer = {"ledger.key": (place.folder / "ledger.key").read_bytes()}
        (mode,) = (each["secret"]["defaultMode"] for each in pods[0]["volumes"] if "secret" in each)
        Volume(volumes["keys"], mode=mode, fs_group=account["fsGroup"]).write(secret | signer)
        volumes["results"].mkdir()
        os.chown(volumes["results"], 0, account["fsGroup"])
        volumes["results"].chmod(0o2775)
        env = {
            "DATABASE_URL": place.env["DATABASE_URL"],
            "SEALPOINT_KEYS": "/etc/sealpoint/keys.toml",
            "PGSERVICEFILE": "/etc/sealpoint/service",
            "RUN": "1",
            "VKEY": place.env["VKEY"],
        }

        def call(pod: Any, words: list[str], **more: str) -> str:
            mounts = {f"/var/lib/postgres/{SOCKET}": Path(socket, SOCKET)}
            for each in pod["containers"][0]["volumeMounts"]:
                mounts[each["mountPath"]] = volumes[each["name"]]
            groups, writable = [account["runAsGroup"], account["fsGroup"]], frozenset({"/var/lib/sealpoint"})
            box = containers.Container(account["runAsUser"], groups, mounts, writable)
            done = box.run(*words, env=env | more)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        call(pods[0], ["sealpoint", "ledger", "init"])
        for index in "01":
            call(pods[0], pods[0]["containers"][0]["command"], JOB_COMPLETION_INDEX=index)
        assert call(pods[1], pods[1]["containers"][0]["command"]).endswith("\nok\n")
    assert {tag.rpartition("@")[2] for tag, _ in contents(URL).values()} == {"k2"}
