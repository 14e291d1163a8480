"""Pace: how fast a run may go, how long, and whether it has been asked to stop. Between batches only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from time import monotonic
from typing import Protocol

from sealpoint.maintenance.rows import Event, Events, Progress


class Signal(Protocol):
    """What asks a run to stop: a `threading.Event`, or one of `multiprocessing`."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so many seconds, or until it is set."""


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
        self._rows = self._pass_rows = 0

    def keep(self, events: Events) -> Iterator[Event]:
        """Pass events on; after each batch wait as long as the rate demands, or end the run."""
        with closing(events):
            for event in events:
                yield event
                if isinstance(event, Progress):
                    self._wait(event.rows)
                    if self._stop.is_set() or (self._deadline is not None and monotonic() >= self._deadline):
                        self.stopped = True
                        return

    def _wait(self, pass_rows: int) -> None:
        new = pass_rows - self._pass_rows if pass_rows >= self._pass_rows else pass_rows
        self._rows, self._pass_rows = self._rows + new, pass_rows
        if self._rate is not None:
            due = self._start + self._rows / self._rate
            end = due if self._deadline is None else min(due, self._deadline)
            self._stop.wait(max(0.0, end - monotonic()))
