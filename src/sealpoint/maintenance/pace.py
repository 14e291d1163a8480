"""Pace: limits of a run's rate and time, and requests to stop. Applied between batches only."""

from __future__ import annotations

from contextlib import closing
from time import monotonic, sleep
from typing import Final, Protocol

from sealpoint.databases.rows import Events, Progress
from sealpoint.errors import HaltedError

_LOOK_SECONDS: Final = 0.05


class Signal(Protocol):
    """A request to stop: a `Stop`, or an event of `threading` or `multiprocessing`."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so many seconds, or until it is set."""


class Stop:
    """A `Signal` for handlers of signals.

    A signal may interrupt the thread that reads it, so it takes no lock as an event would: that may deadlock.
    """

    def __init__(self) -> None:
        """Create a signal that is not set."""
        self._is_set = False

    def set(self) -> None:
        """Request a stop."""
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
    """Slows a run down, and ends it where it can be continued later.

    Attributes:
        stopped: Whether the run was stopped early.
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
        """Whether a stop was requested, or the time is over."""
        return self._stop.is_set() or (self._deadline is not None and monotonic() >= self._deadline)

    def limit(self, events: Events) -> Events:
        """Pass events on; after each batch wait for the rate limit, or end the run.

        If the store calls `is_over` during a statement, the run can end there.
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
            except HaltedError:  # the store called `is_over` during a statement
                self.stopped = True

    def _wait(self, rows: int) -> None:
        """Wait until this total number of rows is within the rate."""
        if self._rate is not None:
            due = self._start + rows / self._rate
            end = due if self._deadline is None else min(due, self._deadline)
            self._stop.wait(max(0.0, end - monotonic()))
