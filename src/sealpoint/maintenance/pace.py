"""Pace: how fast a run may go, how long, and whether it has been asked to stop. Between batches only."""

from __future__ import annotations

from contextlib import closing
from time import monotonic, sleep
from typing import Final, Protocol

from sealpoint.databases.rows import Events, Progress
from sealpoint.errors import HaltedError

_LOOK_SECONDS: Final = 0.05


class Signal(Protocol):
    """What asks a run to stop: a `Stop`, or an event of `threading` or `multiprocessing`."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so many seconds, or until it is set."""


class Stop:
    """A `Signal` for handlers of signals.

    A signal may interrupt the thread that reads it, so it takes no lock as an event would: that may deadlock.
    """

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._is_set = False

    def set(self) -> None:
        """Ask to stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so many seconds, or until it is set."""
        end = float("inf") if timeout is None else monotonic() + timeout
        while not self._is_set and (left := end - monotonic()) > 0:
            # In short steps: after a signal handler returns, Python resumes an interrupted sleep (PEP 475).
            sleep(min(left, _LOOK_SECONDS))
        return self._is_set


class Pace:
    """Slows a run down, and ends it where it can be begun again.

    Attributes:
        stopped: Whether the run was ended before it had come to its end.
    """

    def __init__(
        self, stop: Signal, *, rows_per_second: float | None = None, max_seconds: float | None = None
    ) -> None:
        """Begin to count the time."""
        self.stopped = False
        self._stop = stop
        self._rate = rows_per_second
        self._start = monotonic()
        self._deadline = None if max_seconds is None else self._start + max_seconds

    @property
    def is_over(self) -> bool:
        """Whether it was asked to stop, or its time is up."""
        return self._stop.is_set() or (self._deadline is not None and monotonic() >= self._deadline)

    def limit(self, events: Events) -> Events:
        """Pass events on; after each batch wait as long as the rate demands, or end the run.

        A run whose store asks `is_over` while a statement is at work ends there.
        """
        with closing(events):
            try:
                for event in events:
                    yield event
                    if isinstance(event, Progress):
                        self._wait(event.changed + event.raced)
                        if self.is_over:
                            self.stopped = True
                            return
            except HaltedError:  # a statement was ended
                self.stopped = True

    def _wait(self, rows: int) -> None:
        """Wait until so many rows in all are not too many."""
        if self._rate is not None:
            due = self._start + rows / self._rate
            end = due if self._deadline is None else min(due, self._deadline)
            self._stop.wait(max(0.0, end - monotonic()))
