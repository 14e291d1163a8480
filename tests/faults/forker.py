"""A process that forks while its threads and its children use a thread store and a saver.

    python forker.py FOLDER SEED CHILDREN ENDS_FIRST

What is acknowledged stands in FOLDER/said.NAME, a line a head, and what went wrong in FOLDER/wrong.NAME.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from sealpoint.base import empty_checkpoint
from sealpoint.sqlite import SqliteSaver
from sealpoint.threads import Head, Kind, Spot, SqliteThreadStore

HANG_SECONDS: Final = 60


class Worker:
    """Appends heads under a name, and says each one after it is stored."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._said = os.open(folder / f"said.{name}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def append(self, store: SqliteThreadStore, number: int) -> None:
        store.append([Head(Spot(self._name, "", f"{number:08}"), Kind.PUT, b"m" * 16)])
        os.write(self._said, f"{number:08}\n".encode())

    def go_on(self, store: SqliteThreadStore, ended: threading.Event) -> None:
        """Append one head after another, on a thread."""
        number = 0
        try:
            while not ended.wait(0.001):
                self.append(store, number)
                number += 1
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            self.wrong(error)

    def wrong(self, error: BaseException) -> None:
        (self._folder / f"wrong.{self._name}").write_text(f"{type(error).__name__}: {error}")


def child(folder: Path, store: SqliteThreadStore, name: str, draw: random.Random) -> None:
    """What a child does: it uses the store of the parent, and opens the file of the parent's saver."""
    signal.alarm(HANG_SECONDS)
    worker = Worker(folder, name)
    try:
        with SqliteSaver.from_conn_string(str(folder / "state.db")) as saver:
            for number in range(draw.randrange(1, 12)):
                worker.append(store, number)
                place: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
                saver.put(place, empty_checkpoint() | {"id": f"{number:08}"}, {}, {})
                if draw.random() < 0.05:
                    os.kill(os.getpid(), signal.SIGKILL)
    except BaseException as error:  # noqa: BLE001 -- the test looks at it
        worker.wrong(error)
    finally:
        os._exit(0)


def main(folder: Path, seed: int, children: int, *, ends_first: bool) -> None:
    """Fork so many children, some at a time."""
    draw, ended, living = random.Random(seed), threading.Event(), set[int]()
    store = SqliteThreadStore(folder / "threads.db", create=True, timeout=30)

    with SqliteSaver.from_conn_string(str(folder / "state.db")) as saver:
        saver.setup()
        workers = [Worker(folder, f"parent{seed}-{number}") for number in range(2)]
        threads = [
            threading.Thread(target=worker.go_on, args=(store, ended), daemon=True) for worker in workers
        ]
        for thread in threads:
            thread.start()
        for number in range(children):
            time.sleep(draw.random() * 0.01)
            process = os.fork()
            if not process:
                child(folder, store, f"child{seed}-{number}", random.Random(f"{seed}-{number}"))
            living.add(process)
            while len(living) > 4:
                reap(folder, living)
        if not ends_first:
            while living:
                reap(folder, living)
        ended.set()
        for thread in threads:
            thread.join()
    store.close()


def reap(folder: Path, living: set[int]) -> None:
    """Wait for a child, and note one that ended otherwise than it should."""
    process, status = os.wait()
    living.discard(process)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        (folder / f"wrong.{process}").write_text(f"a child ended with {code}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), ends_first=sys.argv[4] == "1")
