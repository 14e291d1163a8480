"""The tasks of Celery in test_servers.py: its parent process imports this module, and forks."""

from __future__ import annotations

import os
import signal
import threading

from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery

from tests.deploy import served

app = Celery("queued", broker=os.environ["BROKER_URL"], backend=f"file://{served.FOLDER}/results")
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1)


@app.task(name="turns")
def turns(thread: str, most: int, seconds: float | None) -> str:
    """Take turns, and one more after a soft limit; kill this process after so many seconds."""
    if seconds is not None:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return served.go_on(thread, most, (SoftTimeLimitExceeded,))
