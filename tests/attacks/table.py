"""The tables: attacks, the honest values beside them, and the proof that outcomes are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.attacks import classifier, controls
from tests.attacks.case import Case
from tests.attacks.families import (
    commands,
    envelopes,
    files,
    generated,
    names,
    objects,
    queries,
    rows,
    schemas,
    shapes,
    tags,
    triggers,
    types,
)

_FAMILIES: Final = (
    *(names, types, objects, envelopes, shapes, tags, rows, queries, schemas, triggers, files),
    *(commands, generated),
)


def attacks() -> Iterator[Case]:
    """All attacks, in the order of their families."""
    for module in _FAMILIES:
        yield from module.families()


TABLES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "attacks": attacks,
    "controls": controls.cases,
    "classifier": classifier.cases,
}
