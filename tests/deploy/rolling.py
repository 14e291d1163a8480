"""A service of two processes, replaced one by one while clients go on: what `docs/migration.md` promises."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any, Final

import httpx

from tests.deploy.running import running

PAGE: Final = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")
STEPS: Final = {
    int(step): code for step, code in re.findall(r"^\| (\d) \| `(SealedSaver\(.*?\))`", PAGE, re.MULTILINE)
}

CLIENTS: Final = 3
MIXED: Final = 12  # requests that are answered after each change, before the next
LONGEST: Final = 40  # notes of a thread, then its client begins another

IMPORTS: Final = """
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as LangGraphEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
"""
SQLITE: Final = "from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver"
POSTGRES: Final = (
    "from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver\nfrom pool import make_pool"
)
OPEN_SQLITE: Final = 'AsyncSqliteSaver.from_conn_string(os.environ["STATE_DB"]) as saver'
OPEN_POSTGRES: Final = "make_pool() as pool"


def program(example: str, *, old: str, serde: str, step: int, postgres: bool) -> str:
    """The example web.py with LangGraph's saver, as a step of the page deploys it."""
    ours = "from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver"
    before = ["", f"OLD = {old}"]  # what stands in front of the graph
    changes = {ours: f"{POSTGRES if postgres else SQLITE}{IMPORTS}"}
    if postgres:
        changes[OPEN_SQLITE] = OPEN_POSTGRES
        before.append("saver = AsyncPostgresSaver(pool)")
    if step == 0:
        before.append("saver.serde = OLD")
    if step < max(STEPS):
        changes["EncryptedSerializer.from_key_file()"] = serde
    changes["SealedSaver(saver, serde=serde)"] = STEPS.get(step, "saver")
    indent = "\n        "
    changes[f"{indent}app.state.graph"] = f"{indent.join(before)}{indent}app.state.graph"
    for one, other in changes.items():
        assert example.count(one) == 1, one
        example = example.replace(one, other)
    return example


class Service:
    """Two processes, and clients that send one request after the other to either of them.

    Attributes:
        answered: How many requests were answered, by step of the process.
        failed: What was wrong with the others.
    """

    def __init__(self, folder: Path, env: dict[str, str], stack: ExitStack) -> None:
        self.folder, self.env, self._stack = folder, env, stack
        self.answered, self.failed = Counter[int](), list[str]()
        self.threads: dict[str, list[str]] = {}
        self._live: list[tuple[str, int, ExitStack]] = []
        self._busy = Counter[str]()
        self._changed, self._numbers, self._turn = Condition(), count(), count()
        self._is_over = Event()
        self._clients = [Thread(target=self._ask_on, args=(name,)) for name in range(CLIENTS)]

    # --- processes --------------------------------------------------------------------------------

    def deploy(self, step: int) -> None:
        """Replace each process by one of a step: the new one answers before the old one is asked to end."""
        for _ in range(2):
            stack = self._stack.enter_context(ExitStack())
            words = ["uvicorn", f"step{step}:app", "--port", "0"]
            web = stack.enter_context(
                running(words, r"running on (http://\S+)", folder=self.folder, env=self.env)
            )
            retired = None
            with self._changed:
                self._live.append((web.ready[1], step, stack))
                if len(self._live) > 2:
                    retired = self._live.pop(0)
            if retired is not None:
                url, _, running_ = retired
                with self._changed:
                    self._changed.wait_for(lambda url=url: not self._busy[url])  # type: ignore[misc]
                running_.close()
            self.mix()

    def stop(self) -> None:
        """End all processes."""
        for _, _, stack in self._live:
            stack.close()
        self._live.clear()

    def mix(self) -> None:
        """Wait for some requests, if clients ask."""
        if self._clients[0].is_alive():
            end = self.answered.total() + len(self.failed) + MIXED
            with self._changed:
                assert self._changed.wait_for(lambda: self.answered.total() + len(self.failed) >= end, 120)

    # --- clients ----------------------------------------------------------------------------------

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Clients ask all the time."""
        for client in self._clients:
            client.start()
        try:
            yield
        finally:
            self._is_over.set()
            for client in self._clients:
                client.join()

    def _ask_on(self, name: int) -> None:
        with httpx.Client(timeout=60) as client:
            number = 0
            while not self._is_over.is_set():
                thread = f"{name}-{number % 2}-{number // (2 * LONGEST)}"
                self.ask(client, thread, f"note {number}")
                number += 1
                time.sleep(0.01)

    def ask(self, client: httpx.Client, thread: str, said: str) -> None:
        """Add a note to a thread, and compare the answer with all that was said in it."""
        with self._changed:
            url, step, _ = self._live[next(self._turn) % len(self._live)]
            self._busy[url] += 1
        wanted = [*self.threads.get(thread, []), said]
        problem = ""
        try:
            answer = client.post(f"{url}/threads/{thread}", params={"said": said})
            found: Any = answer.json()["notes"] if answer.status_code == 200 else answer.status_code
            if found != wanted:
                problem = f"{thread}, step {step}: {found} and not {wanted}"
        except httpx.HTTPError as error:
            problem = f"{thread}, step {step}: {error!r}"
        with self._changed:
            self._busy[url] -= 1
            if problem:
                self.failed.append(problem)
            else:
                self.threads[thread] = wanted
                self.answered[step] += 1
            self._changed.notify_all()

    def ask_all(self) -> None:
        """Go on once with each thread of before."""
        with httpx.Client(timeout=60) as client:
            for thread in [*self.threads]:
                self.ask(client, thread, "last")
