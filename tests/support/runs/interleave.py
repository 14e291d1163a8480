"""Threads that meet where a test wants them to, without sleeping and without hoping for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class WatchedLock:
    """A lock that knows who holds it, and calls back before a thread has to wait for it."""

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.RLock()
        self._on_wait = on_wait
        self._holders: list[int] = []

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return threading.get_ident() in self._holders

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        taken = self._lock.acquire(blocking=False)
        if not taken:
            self._on_wait()
            taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._holders.append(threading.get_ident())
        return taken

    def release(self) -> None:
        self._holders.remove(threading.get_ident())
        self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class Second:
    """A second thread: runs until it is done, or has to wait for the `lock` that the first one holds."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.waited = False
        self.result: Any = None
        self.lock = WatchedLock(self._waits)
        self._call = call
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.result = self._call()
        finally:
            self._stopped.set()

    def _waits(self) -> None:
        self.waited = True
        self._stopped.set()

    def start(self) -> None:
        """Let it run as far as it comes while the caller goes no further."""
        self._thread.start()
        self._stopped.wait()

    @property
    def has_started(self) -> bool:
        return self._stopped.is_set()

    def join(self) -> None:
        self._thread.join()


def call_with_a_break(call: Callable[[], Any], where: str, step: int, then: Callable[[], None]) -> Any:
    """Call a function, and call ``then`` before its step of this number, counted from 0 in one module.

    A step is a line or an instruction. The module is the one whose file name ends in ``where``.
    """
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(where):
            return None
        frame.f_trace_opcodes = True
        if event in ("line", "opcode"):
            left -= 1
            if left == -1:
                sys.settrace(None)
                then()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)
