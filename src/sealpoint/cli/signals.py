"""Signals: the first one ends a run between two batches, the second one at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sealpoint.cli.output import say
from sealpoint.maintenance.pace import Stop

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM and SIGHUP end a run between two batches; a second one ends it where it is.

    A third one does nothing, so that temporary files are still removed. A signal that is ignored, as
    SIGHUP is under nohup, is still ignored.
    """
    stop, ending = Stop(), False

    def ask(number: int, frame: object) -> None:
        nonlocal ending
        del frame
        if stop.is_set():
            if ending:
                return
            ending = True
            raise KeyboardInterrupt
        stop.set()
        say(f"{signal.Signals(number).name}: ending after this batch; once more ends at once")

    before = {number: signal.signal(number, ask) for number in _SIGNALS if _is_heard(number)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_heard(number: signal.Signals) -> bool:
    return signal.getsignal(number) is not signal.SIG_IGN
