"""The tasks of Celery in test_servers.py: its parent process imports this module, and forks."""

from __future__ import annotations

import os
import signal
import threading

from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery

from tests.deploy import served

FOLDERS = {f"data_folder_{way}": f"{served.FOLDER}/queue" for way in ("in", "out")}

app = Celery("queued", broker="filesystem://", backend=f"file://{served.FOLDER}/results")
app.conf.update(
    broker_transport_options={**FOLDERS, "control_folder": f"{served.FOLDER}/control"},
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
)


@app.task(name="turns")
def turns(thread: str, most: int, seconds: float | None) -> str:
    """Take turns, and one more after a soft limit; kill this process after so many seconds.

    Only while a task runs: a process that is killed while it waits for one leaves a lock of Celery's behind,
    with a broker that is not polled.
    """
    if seconds is not None:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return served.go_on(thread, most, (SoftTimeLimitExceeded,))
