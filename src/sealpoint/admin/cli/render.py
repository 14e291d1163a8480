"""How findings look: rows of tables, lines and JSON objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from sealpoint.admin.cli.frame import Document, Run
from sealpoint.admin.cli.output import (
    complain,
    put,
    say,
    say_how_far,
    show_verdict,
)
from sealpoint.admin.databases.rows import Event, Failure, Failures, Progress
from sealpoint.admin.maintenance.heads import Difference, is_finding
from sealpoint.admin.maintenance.inspect import plain
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.status import MAX_TYPES
from sealpoint.errors import excerpt

_LINES: Final = {
    Difference.MISSING: "missing",
    Difference.EARLIER: "in an earlier state",
    Difference.PUT_BACK: "deleted, and put back",
    Difference.OTHER_STORE: "stored beside another thread store",
    Difference.BEHIND: "stored beside a later state of the thread store",
    Difference.LEAVING: "whose deletion began and did not end",
}


def show_heads(heads: Mapping[str, Any]) -> None:
    """Print the member ``heads`` of an object."""
    put(f"the thread store remembers {heads['recorded']} checkpoints")
    if heads["not_recorded"]:
        put(f"checkpoints that it does not know: {heads['not_recorded']}")
    for kind, line in _LINES.items():
        if heads[kind]:
            put(f"checkpoints {line}: {heads[kind]}")


MAX_SHOWN: Final = 100
SHARES: Final = ("table", "kind", "suite", "key", "state", "rows", "bytes", "types")


def share_row(share: Document) -> tuple[object, ...]:
    """Return the cells of `SHARES`."""
    suite = None if share["suite"] is None else ".".join((share["suite"], *share["flags"]))
    key = share["key_id"]
    if share["kind"] == "sealed" and key is None:
        key = f"{share['tags']} others"
    more = ("...",) if share["tags"] > MAX_TYPES else ()
    shown = ", ".join(dict.fromkeys((*share["types"], *more)))
    return (
        share["table"],
        share["kind"],
        suite,
        key,
        share["state"],
        share["rows"],
        share["size_bytes"],
        shown,
    )


def count(number: int, what: str) -> None:
    """Print a number with what it counts, unless it is zero."""
    if number:
        put(f"{number} {what}")


def place_line(place: Mapping[str, Any]) -> str:
    """The columns of a row on one line, each escaped and not too long."""
    return " ".join(f"{name}={text if type(text) is int else excerpt(text)}" for name, text in place.items())


def failure_line(failure: Failure) -> str:
    """A failure on one line."""
    error = f"{type(failure.error).__name__}: {failure.error}"
    return f"{failure.table} {place_line(failure.place)}: {error}"


def failure_object(failure: Failure) -> dict[str, Any]:
    """A failure as JSON."""
    return {
        "table": failure.table,
        "place": plain(failure.place),
        "tag": plain(failure.tag),
        "error": type(failure.error).__name__,
        "message": str(failure.error),
        "hint": getattr(failure.error, "hint", ""),
    }


def failure_reasons(failures: Failures) -> Iterator[Reason]:
    """Yield why a result with these is not true: with another ring, values whose key is missing may open."""
    if failures.count:
        yield Reason.KEYS_MISSING if failures.lacks_keys_only else Reason.VALUES_FAILED


def show_causes(failures: Failures) -> None:
    """Print each cause with its count, and below what to do."""
    for hint, counts in failures.causes.items():
        for cause, number in counts.items():
            say(f"{values_line(number)}: {cause}")
        if hint:
            say(f"hint: {hint}")


def values_line(number: int) -> str:
    """How many values, for people."""
    return f"{number:,} value" + ("" if number == 1 else "s")


class ShownFailures(Failures):
    """Failures of a run, of which the first `MAX_SHOWN` are printed as they come, if they are to be shown."""

    def __init__(self, *, shown: bool, may_repeat: bool = False) -> None:
        super().__init__(may_repeat=may_repeat)
        self._shown = shown

    def add(self, failed: Failure) -> bool:
        """Count a failure, and print it."""
        is_new = super().add(failed)
        if is_new and self._shown:
            if self.count <= MAX_SHOWN:
                complain(failure_line(failed))
            elif self.count == MAX_SHOWN + 1:
                say("there are more; `sealpoint verify DB` names all of them")
        return is_new

    def show_causes(self) -> None:
        """Sum up the failures that were printed, and print what to do about them."""
        if self._shown:
            show_causes(self)

    def objects(self) -> list[dict[str, Any]]:
        """The failures that were kept, as JSON; empty if they were printed."""
        return [] if self._shown else [failure_object(failed) for failed in self.kept]


class LineReport:
    """A line a failure."""

    def add(self, failed: Failure) -> None:
        """Print a failure."""
        put(failure_line(failed))

    def end(self, tail: Document) -> None:
        """Print how many values open, and under which keys."""
        keys = [f"{part['values']} under {part['key']}" for part in tail["opened"]]
        if plain := tail["accepted"] - tail["legacy"]:
            keys.append(f"{plain} not sealed, and accepted")
        if tail["legacy"]:
            keys.append(f"{tail['legacy']} under LANGGRAPH_AES_KEY, and accepted")
        opened = sum(part["values"] for part in tail["opened"]) + tail["accepted"]
        so_far = "" if tail["complete"] else " read so far"
        put(f"{opened} of {tail['rows']} values{so_far} open{': ' if keys else ''}{', '.join(keys)}")
        if tail["failed"]:
            put(f"refused values and rows: {tail['failed']}")
        for what, number, places in (
            ("values and checkpoints that are not bound to their rows", "unbound", "unbound_places"),
            ("checkpoints whose parent is not there", "orphans", "orphan_places"),
        ):
            if tail[number]:
                put(f"{what}: {tail[number]}")
                for place in tail[places][:1]:
                    put(f"the first is {place_line(place)}")
        if tail["heads"]:
            show_heads(tail["heads"])
        show_verdict(tail)


class JsonReport:
    """One JSON object over all of them, printed as they come: there may be more than fit into memory."""

    def __init__(self, run: Run, head: Document) -> None:
        self._print = run.print_object
        self._print(f'{json.dumps(head)[:-1]}, "failures": [')
        self._separator = ""

    def add(self, failure: Failure) -> None:
        """Print a failure."""
        self._print(self._separator + json.dumps(failure_object(failure)), end="")
        self._separator = ",\n"

    def end(self, tail: Document) -> None:
        """Print the members that follow the failures."""
        self._print(f"\n], {json.dumps(tail)[1:]}")


class Tally:
    """The counts of one run."""

    def __init__(self) -> None:
        self.rows = 0
        self.failures = Failures()  # values and rows that are refused
        self.findings = Failures()  # checkpoints that are not as a thread store remembers them
        self.complete = False
        self._total: int | None = None

    def take(
        self,
        events: Iterable[Event],
        report: LineReport | JsonReport,
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
        yield from failure_reasons(self.failures)
        if not self.rows:
            yield Reason.NO_ROWS
        if not self.complete:
            yield Reason.ENDED_EARLY

    def show(self, *, causes: bool) -> None:
        """Print what to do, if ``causes``, and how far a run came that ended early."""
        if causes:
            show_causes(self.failures)
            for hint in filter(None, self.findings.causes):
                say(f"hint: {hint}")
        if not self.complete:
            say_how_far(self.rows, self._total)
