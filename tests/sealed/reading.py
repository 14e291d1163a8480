"""Reads a database in every way there is, and compares each tuple with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from sealpoint.errors import SealpointError
from tests.sealed.raw import ERRORS
from tests.sealed.scene import ALICE, BOB, C2, C3, C9, CHILD, DELTA, MALLORY, PLACES, ROOT, Place, at

FILTERS: Final[list[dict[str, Any]]] = [{"source": "loop"}, {"user_id": "user alice"}, {"step": 1}]
LISTINGS: Final[list[tuple[str | None, Any]]] = [
    *((thread, None) for thread in (None, ALICE, BOB)),
    *((None, chosen) for chosen in FILTERS),
]
CRASHES: Final = (ArithmeticError, AttributeError, AssertionError, LookupError, TypeError, ValueError)
"""What code raises that met something it did not expect."""

ASKED: Final = [
    *PLACES,
    *(Place(thread, ROOT, C9) for thread in (ALICE, BOB)),
    Place(MALLORY, ROOT, C3),
    Place(BOB, CHILD, C2),
    Place(ALICE, CHILD, C3),
    Place(ALICE, "child:2", C2),
]
"""Every place that is looked at: those that are filled, and those that rows are moved to."""

WALKED: Final = {
    Place(ALICE, ROOT, C2),
    Place(ALICE, ROOT, C3),
    Place(ALICE, ROOT, C9),
    Place(ALICE, CHILD, C2),
    Place(BOB, ROOT, C3),
}
"""Where delta histories are read from; the ancestors of these are all the others."""


def content(found: CheckpointTuple) -> dict[str, Any]:
    """All of a tuple, without the order of keys."""
    parts = {
        "config": found.config["configurable"],
        "checkpoint": found.checkpoint,
        "metadata": found.metadata,
        "parent": found.parent_config,
        "writes": [*(found.pending_writes or [])],
    }
    return {name: exact(part) for name, part in parts.items()}


def parts(found: Any) -> dict[str, Any]:
    """All of a tuple, but what bare PostgresSaver adds from all namespaces to checkpoints of old releases."""
    return content(
        found._replace(
            checkpoint={
                **found.checkpoint,
                "channel_values": without(found.checkpoint["channel_values"], TASKS),
                "channel_versions": without(found.checkpoint["channel_versions"], TASKS),
            }
        )
    )


def without(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def exact(value: Any) -> Any:
    """A value that equals only values of its own type: not 1, 1.0 and True each other."""
    if isinstance(value, dict):
        return {name: exact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(exact, value)]
    return type(value).__name__, value


def place_of(found: CheckpointTuple) -> Place:
    named = found.config["configurable"]
    return Place(str(named["thread_id"]), named["checkpoint_ns"], named["checkpoint_id"])


@dataclass
class Truth:
    """What is read before anything is tampered with."""

    tuples: dict[Place, dict[str, Any]]
    deltas: dict[Place, Any]

    @classmethod
    def of(cls, saver: Any) -> Truth:
        tuples = {place: content(saver.get_tuple(place.config)) for place in PLACES}
        deltas = {place: delta(saver, place) for place in PLACES}
        return cls(tuples, deltas)


@dataclass
class Reading:
    """What reading a database in every way came to.

    Attributes:
        forged: What was returned as genuine and is not: how it was read, and what was wrong.
        less: What was returned without writes, or without its parent, that belong to it.
        refused: Names of the errors.
        crashed: Errors that are not sealpoint's.
    """

    truth: Truth
    forged: list[str] = field(default_factory=list)
    less: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    same: int = 0

    def attempt(self, how: str, read: Callable[[], Any], check: Callable[[str, Any], None]) -> None:
        try:
            check(how, read())
        except SealpointError as error:
            self.refused.append(f"{how}: {type(error).__name__}")
        except (*CRASHES, *ERRORS) as error:
            self.crashed.append(f"{how}: {type(error).__name__}: {error}")

    def check_tuple(self, how: str, found: CheckpointTuple | None, asked: Place | None = None) -> None:
        if found is None:
            return
        place = place_of(found)
        true = self.truth.tuples.get(place)
        if true is None or (asked is not None and asked != place):
            self.forged.append(f"{how}: {place} is not there")
            return
        wrong = [name for name, part in content(found).items() if part != true[name]]
        if not wrong:
            self.same += 1
        elif set(wrong) <= {"writes", "parent"} and is_less(content(found), true):
            self.less.append(f"{how}: {place}")
        else:
            self.forged.append(f"{how}: {place}: {', '.join(wrong)}")

    def check_listing(self, how: str, found: Iterator[CheckpointTuple], chosen: Any = None) -> None:
        places = []
        for each in found:
            self.check_tuple(how, each)
            if any(each.metadata.get(key) != value for key, value in (chosen or {}).items()):
                self.forged.append(f"{how}: {place_of(each)} does not match the filter")
            places.append(place_of(each))
        if len(set(places)) < len(places):
            self.forged.append(f"{how}: a checkpoint more than once")

    def check_delta(self, place: Place, how: str, found: Any) -> None:
        true = self.truth.deltas.get(place)
        if exact(found) == exact(true):
            self.same += 1
        elif true is None:
            if any(history["writes"] or "seed" in history for history in found.values()):
                self.forged.append(f"{how}: is not there")
        elif all(is_part(found[name]["writes"], true[name]["writes"]) for name in true) and all(
            history.get("seed") == true[name].get("seed") or "seed" not in history
            for name, history in found.items()
        ):
            self.less.append(how)
        else:
            self.forged.append(f"{how}: {found}")


def delta(saver: Any, place: Place) -> Any:
    return saver.get_delta_channel_history(config=place.config, channels=DELTA)


def is_part(some: list[Any], every: list[Any]) -> bool:
    """Whether ``some`` is ``every`` with elements left out."""
    rest = iter(every)
    return all(any(exact(one) == exact(other) for other in rest) for one in some)


def is_less(found: dict[str, Any], true: dict[str, Any]) -> bool:
    return is_part(found["writes"], true["writes"]) and found["parent"] in (exact(None), true["parent"])


def read_everything(saver: Any, truth: Truth) -> Reading:
    """Get, latest, list of a thread, of all, with filters, and delta histories."""
    reading = Reading(truth)
    for place in ASKED:
        check = partial(reading.check_tuple, asked=place)
        reading.attempt(f"get {place}", partial(saver.get_tuple, place.config), check)
    for place in WALKED:
        reading.attempt(
            f"delta of {place}", partial(delta, saver, place), partial(reading.check_delta, place)
        )
    for thread, ns in {(place.thread, place.ns) for place in ASKED}:
        read = partial(saver.get_tuple, at(thread, ns))
        reading.attempt(f"latest of {thread!r} {ns!r}", read, reading.check_tuple)
    for named, chosen in LISTINGS:
        read = partial(saver.list, None if named is None else at(named, None), filter=chosen)
        reading.attempt(
            f"list({named}, filter={chosen})", read, partial(reading.check_listing, chosen=chosen)
        )
    return reading
