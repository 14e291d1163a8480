"""What happens to an object in a child process."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Final

HANG_SECONDS: Final = 30


def in_child(work: Callable[[], object]) -> str:
    """Fork, and return what ``work`` does there: its result in text, or the class and text of its error.

    A child that hangs is ended by a signal, and the answer is empty.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while threads run
        child = os.fork()
    if child == 0:
        signal.alarm(HANG_SECONDS)
        try:
            said = str(work())
        except BaseException as error:  # noqa: BLE001 - the parent compares it
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
