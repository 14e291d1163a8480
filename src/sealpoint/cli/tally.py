"""Tally: what a run that reports as it reads has found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sealpoint.cli import render
from sealpoint.cli.output import say, say_how_far
from sealpoint.databases.failures import Failures
from sealpoint.databases.rows import Event, Progress
from sealpoint.maintenance.heads import is_finding
from sealpoint.maintenance.result import Reason


class Tally:
    """The counts of one run.

    Attributes:
        rows: How many values were read.
        failures: Values and rows that are refused.
        findings: Checkpoints that are not as a thread store remembers them.
        complete: Whether the run came to its end.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.rows = 0
        self.failures, self.findings, self.complete = Failures(), Failures(), False
        self._total: int | None = None

    def take(
        self,
        events: Iterable[Event],
        report: render.LineReport | render.JsonReport,
        move: Callable[[int, int], None],
    ) -> None:
        """Run to the end: show progress, and report each failure."""
        for event in events:
            if isinstance(event, Progress):
                self.rows, self._total = event.rows, event.total
                move(event.rows, event.total)
            else:
                (self.findings if is_finding(event) else self.failures).add(event)
                report.add(event)
        self.complete = True

    def reasons(self) -> Iterator[Reason]:
        """Yield why the result is not true, as far as it is known here."""
        yield from render.failure_reasons(self.failures)
        if not self.rows:
            yield Reason.NO_ROWS
        if not self.complete:
            yield Reason.ENDED_EARLY

    def show(self, *, causes: bool) -> None:
        """Print what to do, if ``causes``, and how far a run came that ended early."""
        if causes:
            render.show_causes(self.failures)
            for hint in filter(None, self.findings.causes):
                say(f"hint: {hint}")
        if not self.complete:
            say_how_far(self.rows, self._total)
