"""What an attack is: something forged, and a reading of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from tests.attacks.sides import Side


class Outcome(StrEnum):
    """How a reading ended, worst first."""

    EXECUTED = "executed"  # something that the bytes named was imported or called
    CRASHED = "crashed"  # a signal, over 5 s, over 1 GiB, or an exception from the reader's inside
    SILENT = "silent"  # a value came back that is not the one an honest writer stored
    INERT = "inert"  # plain data, or the honest value itself, whole
    REFUSED = "refused"  # the reader said no
    UNFORGED = "unforged"  # the attack could not be made: a defect of the table


FAILURES = frozenset({Outcome.EXECUTED, Outcome.CRASHED, Outcome.SILENT})


class Reading(NamedTuple):
    """What a reader gave back, and whether that is plain data or just what an honest writer stored."""

    value: Any
    whole: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """Where one case takes place.

    Attributes:
        side: The implementation under attack.
        directory: A directory of its own.
        marker: A file that exists once the attack has had its way.
    """

    side: Side
    directory: Path
    marker: Path


Read = Callable[[], Reading]
Forge = Callable[[Scene], Read]
"""Forges, with all the time it needs, and returns the reading that is watched and limited."""


@dataclass(frozen=True, slots=True)
class Case:
    """One attack.

    Attributes:
        family: What it belongs to, a row of the printed table.
        name: Unique in its family.
        forge: The attack.
        shared: Whether LangGraph has a counterpart of what is attacked.
    """

    family: str
    name: str
    forge: Forge
    shared: bool = True
