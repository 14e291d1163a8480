"""Real servers under traffic while their workers are killed, replaced and interrupted: no checkpoint is lost.

gunicorn with ``--preload`` and without, uvicorn with workers, Celery's prefork pool with limits, and
Jupyter's kernel with interrupts, each for 10 minutes, or $SEALPOINT_SERVER_SECONDS. Each uses SealedSaver
around sealpoint's saver beside a thread store, as docs/deploy.md says. Afterwards every checkpoint that a
saver has acknowledged is read by a new one. ``--log-cli-level=INFO`` shows how often each thing has happened.
"""

from __future__ import annotations

import ast
import logging
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from queue import Empty
from threading import Event, Thread
from typing import Any, Final

import httpx
import pytest

from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import Kind, SqliteThreadStore
from tests.deploy.running import Program, running
from tests.support.servers.ports import valkey

logger: Final = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it reports each request
SECONDS: Final = int(os.environ.get("SEALPOINT_SERVER_SECONDS", "600"))
CLIENTS: Final = 4
KERNELS: Final = 2
LIFE_SECONDS: Final = 100
TURNS: Final = 20  # of a thread, then its client begins another
HANG_SECONDS: Final = 90
ROOT: Final = Path(__file__).parents[2]
WAYS: Final = ("graph", "bare")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 1800)]


class Place:
    """A folder with a ring and the files of a server, and what its clients met.

    Attributes:
        counts: How often each thing has happened.
        wrong: What nothing explains.
        log: What the server has printed.
    """

    def __init__(self, folder: Path, sealpoint: Path) -> None:
        self.folder, self.ended, self.is_ending = folder, Event(), Event()
        self.counts, self.wrong, self.log = Counter[str](), list[str](), ""
        self._sealpoint = str(sealpoint)
        self.env = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "SEALPOINT_KEYS": str(folder / "keys.toml"),
            "SERVED": str(folder),
        }
        self.run("keys", "init", "k1")
        self.run("keys", "generate", "--index")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [self._sealpoint, *words], env=self.env, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def workers(self, parent: int) -> list[int]:
        """Return the children of a server that have stored something."""
        stored = {int(file.suffix[1:]) for file in self.folder.glob("said.*")}
        return [pid for pid, (ppid, _) in processes().items() if ppid == parent and pid in stored]

    def kill_one(self, parent: int, draw: random.Random) -> None:
        """Kill a worker of a server when it has one that has stored something."""
        end = time.monotonic() + HANG_SECONDS
        while not (found := self.workers(parent)):
            assert time.monotonic() < end, "no worker stores anything"
            time.sleep(0.1)
        with suppress(ProcessLookupError):  # it has ended meanwhile, as the server recycles workers
            os.kill(draw.choice(found), signal.SIGKILL)
            self.counts["killed"] += 1

    def end(self, parent: int, draw: random.Random) -> None:
        """Kill a server, and end its workers one by one afterwards, while other processes come and go."""
        self.is_ending.set()
        os.kill(parent, signal.SIGSTOP)  # so that it starts no others
        left = {
            pid: words
            for pid, (ppid, words) in processes().items()
            if ppid == parent and "resource_tracker" not in words  # of multiprocessing: it ends by itself
        }
        os.kill(parent, signal.SIGKILL)
        end = time.monotonic() + HANG_SECONDS
        while left:
            self.look()
            time.sleep(draw.uniform(0.1, 0.5))
            now = processes()
            left = {pid: words for pid, words in left.items() if now.get(pid, (0, ""))[1] == words}
            for pid in [*left][:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if time.monotonic() < end else signal.SIGKILL)
                if time.monotonic() >= end:
                    self.wrong.append(f"a worker does not end: {left.pop(pid)}")
        self.counts["servers ended"] += 1

    def look(self) -> None:
        """Open the files and close them: SQLite removes the log if no process seems to have the file open."""
        with closing(SqliteThreadStore(self.folder / "threads.db")) as store:
            store.newest("", "")
        with SqliteSaver.from_conn_string(str(self.folder / "state.db")) as saver:
            saver.get_tuple({"configurable": {"thread_id": "", "checkpoint_ns": ""}})

    @contextmanager
    def server(self, words: list[str], pattern: str) -> Iterator[Program]:
        """Run a server, whose log is in a file afterwards."""
        with running(words, pattern, folder=self.folder, env=self.env) as program:
            try:
                yield program
            finally:
                self.log = "".join(program.log)
                (self.folder / "server.log").write_text(self.log, encoding="utf-8")

    @contextmanager
    def clients(self, work: Callable[[int], None], number: int) -> Iterator[None]:
        """Run clients on threads; at the end they finish what they have asked for, within the limit."""
        self.ended.clear()
        self.is_ending.clear()

        def worked(name: int) -> None:
            try:
                work(name)
            except BaseException as error:  # noqa: BLE001 -- `require_kept` reports it
                self.wrong.append(f"client {name}: {type(error).__name__}: {error}")

        threads = [Thread(target=worked, args=(name,), daemon=True) for name in range(number)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join(3 * HANG_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a client hangs"

    def require_kept(self) -> None:
        """Check that nothing went wrong, and that what was acknowledged is there."""
        assert self.wrong == []
        noted, files = defaultdict[str, list[str]](list), [*self.folder.glob("said.*")]
        for file in files:
            for line in file.read_text(encoding="utf-8").splitlines():
                thread, checkpoint = line.split()
                noted[thread].append(checkpoint)
        self.counts["acknowledged"] = sum(map(len, noted.values()))
        self.counts |= Counter(threads=len(noted), workers=len(files))
        assert self.counts["acknowledged"] > SECONDS
        serde = EncryptedSerializer.from_key_file(self.folder / "keys.toml")
        store = SqliteThreadStore(self.folder / "threads.db")
        heads = {(head.spot.thread_id, head.spot.checkpoint_id): head.kind for head in store.heads()}
        lost = [each for thread in noted for each in noted[thread] if heads.get((thread, each)) != Kind.PUT]
        assert lost == []
        with closing(store), SqliteSaver.from_conn_string(str(self.folder / "state.db")) as inner:
            saver = SealedSaver(inner, serde=serde, threads=store, heads="require")
            for thread, checkpoints in noted.items():
                require_thread(saver, thread, checkpoints)
        for name in ("state.db", "threads.db"):
            with closing(sqlite3.connect(self.folder / name)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        self.run("verify", str(self.folder / "state.db"), "--threads", str(self.folder / "threads.db"))


def processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the command of each process that runs."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    lines = (line.split(maxsplit=2) for line in listed.stdout.splitlines() if "<defunct>" not in line)
    return {int(pid): (int(ppid), words) for pid, ppid, words in lines}


def require_thread(saver: SealedSaver, thread: str, checkpoints: list[str]) -> None:
    """Check that checkpoints of a thread are read, each by its id and all in one list."""
    for checkpoint in checkpoints:
        place: Any = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint}
        found = saver.get_tuple({"configurable": place})
        assert found is not None
        assert found.checkpoint["id"] == checkpoint
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    listed = [found.checkpoint["id"] for found in saver.list(config)]
    assert {*checkpoints} <= {*listed}
    latest = saver.get_tuple(config)
    assert latest is not None
    assert latest.checkpoint["id"] == listed[0]


@pytest.fixture
def place(tmp_path: Path, forked: Path) -> Iterator[Place]:
    made, start = Place(tmp_path, forked), time.monotonic()
    yield made
    logger.info("%s in %.0f s", dict(sorted(made.counts.items())), time.monotonic() - start)


def lives() -> Iterator[tuple[int, float]]:
    """Yield numbers, and when the life of a server ends, until the time of the test is over."""
    end = time.monotonic() + SECONDS
    for number in count():
        if time.monotonic() >= end:
            return
        yield number, min(end, time.monotonic() + LIFE_SECONDS)


# --- gunicorn and uvicorn -----------------------------------------------------------------------------

WORKERS: Final = ["--workers", "3"]
GUNICORN: Final = ["gunicorn", *WORKERS, "--bind", "127.0.0.1:0", "--timeout", str(HANG_SECONDS)]
GUNICORN_APP: Final = ["tests.deploy.served:app"]
# Not with --limit-max-requests: it waits so long for an answer of a worker that has just ended, and for a new
# one whose thread for answers has begun before its server.
UVICORN: Final = ["uvicorn", *WORKERS, "--port", "0", "--timeout-worker-healthcheck", "20"]
READY: Final = "Booting worker|Application startup complete"  # uvicorn's parent does not listen itself
KILL: Final = None
SIGNALS: Final = [KILL, signal.SIGTTIN, KILL, signal.SIGHUP, KILL, signal.SIGTTOU]

# A worker that imports the application takes seconds to start.
SERVERS: Final = {
    "gunicorn-preload": (
        [*GUNICORN, "--preload", "--max-requests", "150", "--max-requests-jitter", "50", *GUNICORN_APP],
        (0.5, 2),
    ),
    "gunicorn": (
        [*GUNICORN, "--threads", "2", "--max-requests", "800", "--max-requests-jitter", "200", *GUNICORN_APP],
        (2, 8),
    ),
    "uvicorn": ([*UVICORN, "tests.deploy.served:web"], (2, 8)),
}


@pytest.mark.parametrize("server", SERVERS)
def test_web_server(server: str, place: Place) -> None:
    words, pauses = SERVERS[server]
    pytest.importorskip(words[0])
    draw, signals = random.Random(server), cycle(SIGNALS)
    for life, end in lives():
        with place.server(words, READY) as web:
            url = re.findall(r"http://[\d.:]+", "".join(web.log))[0]
            with place.clients(lambda name: converse(place, url, f"{life}-{name}"), CLIENTS):  # noqa: B023
                while time.monotonic() < end:
                    time.sleep(draw.uniform(*pauses))
                    if (number := next(signals)) is KILL:
                        place.kill_one(web.pid, draw)
                    else:
                        os.kill(web.pid, number)
                        place.counts[number.name] += 1
                place.end(web.pid, draw)
        require_quiet(place.log)
    place.require_kept()
    assert place.counts["killed"] > 0
    # a worker that ends may leave the request of each client without an answer
    assert place.counts["unanswered"] <= CLIENTS * place.counts["workers"]


def require_quiet(log: str) -> None:
    """Check that a server has reported nothing but the ends of its workers."""
    for reported in ("Traceback", "Exception ignored", "WORKER TIMEOUT"):
        assert reported not in log


def converse(place: Place, url: str, name: str) -> None:
    """Send one request after another, and check that each answer has what was answered before."""
    thread, answered = "", list[int]()
    with httpx.Client(base_url=url, timeout=HANG_SECONDS, headers={"Connection": "close"}) as client:
        for number in count():
            if place.ended.is_set():
                return
            if number % TURNS == 0:
                thread, answered = f"{WAYS[number // TURNS % 2]}-{name}-{number}", []
            try:
                answer = client.post(f"/{thread}/{number}")
            except httpx.TimeoutException as error:
                place.wrong.append(f"{thread}/{number} hangs: {error!r}")
            except httpx.TransportError:
                if place.is_ending.is_set():
                    return
                place.counts["unanswered"] += 1
            else:
                place.counts["answered"] += 1
                if answer.status_code != httpx.codes.OK:
                    place.wrong.append(answer.text)
                    continue
                notes, answered = ast.literal_eval(answer.text), [*answered, number]
                if [each for each in notes if each in answered] != answered:
                    place.wrong.append(f"{thread}: {answered} were answered, and {notes} are there")


# --- Celery ---------------------------------------------------------------------------------------------

FOREVER: Final = 1_000_000
LIMIT_SECONDS: Final = (0.05, 1)
EXPLAINED: Final = {
    "plain": {"all"},
    "soft": {"limit", "dropped"},
    "hard": {"TimeLimitExceeded"},
    "killed": {"WorkerLostError"},
}


def test_celery(place: Place) -> None:
    """Tasks with no limit, a soft one and a hard one, and tasks whose process is killed; each takes few.

    The broker is one that Celery polls. With another, as ``filesystem://``, its processes share a lock: one
    that is ended while it sends a result leaves it behind, and no process works any more.
    """
    celery = pytest.importorskip("celery")
    pytest.importorskip("redis")
    (place.folder / "results").mkdir()
    words = ["celery", "--app", "tests.deploy.queued", "worker", "--pool", "prefork", "--concurrency", "4"]
    words += ["--max-tasks-per-child", "3", "--loglevel", "info"]
    words += ["--without-mingle", "--without-gossip", "--without-heartbeat"]  # with which it starts sooner
    draw = random.Random("celery")
    with closing(valkey(place.folder)) as broker:
        port = broker.connection_pool.connection_kwargs["port"]
        place.env["BROKER_URL"] = f"redis://127.0.0.1:{port}"
        app = celery.Celery(
            broker=place.env["BROKER_URL"], backend=f"file://{place.folder}/results", set_as_current=False
        )
        for life, end in lives():
            with (
                place.server(words, r"celery@.* ready") as worker,
                place.clients(lambda name: ask(place, app, f"{life}-{name}"), CLIENTS),  # noqa: B023
            ):
                place.ended.wait(end - time.monotonic())
                place.end(worker.pid, draw)
        app.close()
    place.require_kept()
    for kind, ends in EXPLAINED.items():
        assert any(place.counts[f"{kind}: {ended}"] for ended in ends)


def ask(place: Place, app: Any, name: str) -> None:
    """Send one task after another, and check how each has ended."""
    draw = random.Random(name)
    for number in count():
        if place.ended.is_set():
            return
        kind, thread = draw.choice([*EXPLAINED]), f"{draw.choice(WAYS)}-{name}-{number}"
        limits: dict[str, Any] = {
            "plain": {},
            "soft": {"soft_time_limit": draw.uniform(*LIMIT_SECONDS), "time_limit": HANG_SECONDS / 2},
            "hard": {"time_limit": draw.uniform(*LIMIT_SECONDS)},
            "killed": {},
        }
        killed = draw.uniform(*LIMIT_SECONDS) if kind == "killed" else None
        arguments = (thread, 3 if kind == "plain" else FOREVER, killed)
        task = app.send_task("turns", arguments, **limits[kind])
        end = time.monotonic() + HANG_SECONDS
        while not task.ready():
            if place.is_ending.wait(0.02):
                return
            if time.monotonic() > end:
                place.wrong.append(f"{kind} {thread}: no result")
                break
        else:
            count_end(place, kind, thread, task)


def count_end(place: Place, kind: str, thread: str, task: Any) -> None:
    found = task.result
    ended = found if task.successful() else type(found).__name__
    place.counts[f"{kind}: {ended}"] += 1
    if ended not in EXPLAINED[kind]:
        place.wrong.append(f"{kind} {thread}: {found!r}\n{task.traceback}")


# --- Jupyter -----------------------------------------------------------------------------------------------

CELLS: Final = {
    "interrupted": "print('begun'); result = served.go_on({thread!r}, {most}, (KeyboardInterrupt,))",
    "cancelled": "print('begun'); await served.ago_on({thread!r})",
    "forks": "result = served.fork({thread!r}, 3)",
    "plain": "result = served.go_on({thread!r}, 3, ())",
}
ENDS: Final = {
    "interrupted": {"'limit'", "'dropped'"},
    "cancelled": {"CancelledError"},
    "forks": {"[0, 0]"},
    "plain": {"'all'"},
}


class Kernel:
    """A kernel that is ready, and its client."""

    def __init__(self, folder: Path, env: dict[str, str], name: int) -> None:
        from jupyter_client.manager import KernelManager

        self.manager = KernelManager(connection_file=str(folder / f"kernel-{name}.json"))
        self.manager.start_kernel(cwd=str(folder), env=env)
        self._begin()

    def _begin(self) -> None:
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=HANG_SECONDS)
        self.run("from tests.deploy import served; result = None")

    def run(self, code: str, during: Callable[[Kernel], None] | None = None) -> str:
        """Run a cell, and return what it has assigned to ``result``, or its error and the traceback.

        ``during`` is called when it has printed something.
        """
        while self.client.iopub_channel.msg_ready():
            self.client.get_iopub_msg(timeout=1)
        asked = self.client.execute(code, user_expressions={"result": "result"}, stop_on_error=False)
        if during is not None:
            while self.client.get_iopub_msg(timeout=HANG_SECONDS)["msg_type"] != "stream":
                pass
            during(self)
        while (reply := self.client.get_shell_msg(timeout=HANG_SECONDS))["parent_header"]["msg_id"] != asked:
            pass
        content = reply["content"]
        if content["status"] != "ok":
            return "\n".join([content["ename"], *content["traceback"]])
        return str(content["user_expressions"]["result"]["data"]["text/plain"])

    def restart(self) -> None:
        """Kill the kernel, and start it again."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._begin()

    def close(self) -> None:
        from jupyter_core.utils import ensure_event_loop

        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        ensure_event_loop().close()  # of this thread


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own
def test_jupyter(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that are interrupted, on a loop and not; cells that fork; and kernels that are killed."""
    for module in ("ipykernel", "jupyter_client"):
        pytest.importorskip(module)
    place.env |= {"IPYTHONDIR": str(place.folder / "ipython"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    with place.clients(lambda name: run_cells(place, name), KERNELS):
        place.ended.wait(SECONDS)
    for ended in (
        "interrupted: 'limit'",
        "cancelled: CancelledError",
        "forks: [0, 0]",
        "plain: 'all'",
        "killed",
    ):
        assert place.counts[ended] > 0
    place.require_kept()


def run_cells(place: Place, name: int) -> None:
    """Run one cell after another in a kernel, and check how each has ended."""
    draw, kinds = random.Random(name), cycle([*CELLS, "plain"])

    def interrupt(kernel: Kernel) -> None:
        time.sleep(draw.uniform(0, 0.6))
        kernel.manager.interrupt_kernel()

    kernel = Kernel(place.folder, place.env, name)
    with closing(kernel):
        for number, kind in zip(count(1), kinds):
            if place.ended.is_set():
                return
            thread = f"{draw.choice(WAYS)}-{name}-{number}"
            code = CELLS[kind].format(thread=thread, most=FOREVER)
            try:
                ended = kernel.run(code, interrupt if kind in ("interrupted", "cancelled") else None)
            except Empty:
                place.wrong.append(f"{kind} {thread}: no answer")
                kernel.restart()
                continue
            place.counts[f"{kind}: {ended.partition(chr(10))[0]}"] += 1
            if ended.partition("\n")[0] not in ENDS[kind]:
                place.wrong.append(f"{kind} {thread}: {ended}")
            if number % 10 == 0:
                kernel.client.execute(CELLS["interrupted"].format(thread=f"{thread}-killed", most=FOREVER))
                time.sleep(draw.uniform(0, 0.6))
                kernel.restart()
                place.counts["killed"] += 1
