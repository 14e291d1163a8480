"""Rows that were moved, forged or replaced by older ones are never returned as genuine."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.sealed import edits, moves
from tests.sealed.moves import Act
from tests.sealed.reading import read_everything
from tests.sealed.savers import ALONE, SEALED_FORMS
from tests.sealed.scene import PLACES
from tests.sealed.scenes import DATABASES, Scene
from tests.support.runs.extent import by_extent

HELD: Final = {
    "sqlite": ("document", "write", "interrupt"),
    "postgres": ("frame", "write", "interrupt", "blob", "snapshot", "sentinel"),
}
"""Where sealed values stand."""

_OPEN: Final = {**moves.CHECKPOINTS, **moves.WRITES, **edits.METADATA}
TABLES: Final[dict[str, dict[str, Act]]] = {
    "sqlite": {**_OPEN, **edits.SQLITE_METADATA},
    "postgres": {**_OPEN, **moves.BLOBS, **edits.POSTGRES_DOCUMENT},
}
"""What can be done to rows, whether they are sealed or not."""

SOME: Final = {"sqlite": by_extent(6, 2), "postgres": by_extent(12, 4)}
"""Of kinds that are alike one in so many is tried, and all by `make soak`."""

OF_THE_WRAPPER: Final = {"frame", "sentinel"}


def rows_tampered(database: str, form: str) -> dict[str, Act]:
    """What can be done to rows; to frames and sentinels only where there are any."""
    framed = form != ALONE and database == "postgres"
    return TABLES[database] | (edits.FRAMES | edits.SENTINELS if framed else {})


def values_tampered(database: str, form: str) -> dict[str, Act]:
    """What can be done to each sealed value, by itself and by putting another one there."""
    held = [name for name in HELD[database] if form != ALONE or name not in OF_THE_WRAPPER]
    holders = {name: edits.HOLDERS[name] for name in held}
    changed = {
        f"{name}: {how}": edits.changed(holder, change)
        for how, change in edits.CHANGES.items()
        for name, holder in holders.items()
    }
    put = {
        f"{other}'s value in the {name}": edits.put_into(holder, holders[other])
        for name, holder in holders.items()
        for other in held
        if other != name
    }
    return changed | put


def kinds(database: str, form: str) -> dict[str, Act]:
    """All kinds of tampering for a database."""
    return rows_tampered(database, form) | values_tampered(database, form)


def every(step: int, table: dict[str, Act]) -> dict[str, Act]:
    """Some of a table, the same each time."""
    return dict([*table.items()][::step])


def read_after(scene: Scene, act: Act) -> Any:
    with scene.raw.undone():
        act(scene.raw)
        return read_everything(scene.saver(), scene.truth)


LOOPS: Final = {
    "row to another thread, older id",
    "newer row over an older",
    "rows of two steps exchanged",
    "parent is the row itself",
    "parent given to the first row",
    "parents in a circle",
}
"""Kinds by which parents lead back to themselves: PostgresSaver then reads delta histories for ever."""


@pytest.mark.parametrize("database", DATABASES)
def test_the_serializer_alone_accepts_most_of_it(scenes: Any, database: str) -> None:
    """Which shows that the acts take effect, and that what they do to content is seen."""
    scene = scenes(database, ALONE)
    table = {name: act for name, act in rows_tampered(database, ALONE).items() if name not in LOOPS}
    tried = every(SOME[database], table)
    accepted = [name for name, act in tried.items() if read_after(scene, act).forged]
    assert len(accepted) >= 0.8 * len(tried), sorted(set(tried) - set(accepted))


ONLY_LOUD: Final = {"metadata not JSON"}
"""What the wrapped saver itself stumbles over, so that the error is not one of sealpoint's."""

PARTLY: Final = {
    "threads exchanged",  # one of the two has no subgraph, so that of the other is missing afterwards
    "write to another channel",
    "write to a new channel",
    "write made an interrupt",
}
"""Kinds that also take something from its place, which a reader of that place alone cannot notice."""


def wrong(scene: Scene, table: dict[str, Act]) -> dict[str, list[str]]:
    """Which kinds of a table are accepted, or end in an error that is not sealpoint's."""
    found: dict[str, list[str]] = {}
    for name, act in table.items():
        reading = read_after(scene, act)
        faults = reading.forged
        faults += [] if name in PARTLY else reading.less
        faults += [] if name in ONLY_LOUD else reading.crashed
        if faults:
            found[name] = faults
    return found


@pytest.mark.claim("s2")
@pytest.mark.parametrize("database", DATABASES)
def test_nothing_forged_moved_or_older_is_accepted(scenes: Any, database: str) -> None:
    """Each reading returns the true content or raises an error of sealpoint's."""
    values = every(SOME[database], values_tampered(database, "sealed"))
    table = every(by_extent(5, 1), rows_tampered(database, "sealed")) | values
    assert len(table) >= by_extent(25, 120)
    assert wrong(scenes(database, "sealed"), table) == {}


@pytest.mark.claim("s3")
@pytest.mark.parametrize("database", DATABASES)
def test_nothing_is_accepted_with_all_options(scenes: Any, database: str) -> None:
    table = every(4 * SOME[database], kinds(database, "all options"))
    assert wrong(scenes(database, "all options"), table) == {}


@pytest.mark.soak
@pytest.mark.parametrize("form", SEALED_FORMS)
@pytest.mark.parametrize("database", DATABASES)
def test_nothing_is_accepted_in_any_form(scenes: Any, database: str, form: str) -> None:
    assert wrong(scenes(database, form), kinds(database, form)) == {}


@pytest.mark.parametrize("database", DATABASES)
def test_an_untouched_database_is_read(scenes: Any, database: str) -> None:
    """The comparison alone finds no fault."""
    reading = read_after(scenes(database, "sealed"), lambda _: None)
    assert reading.forged == reading.less == reading.refused == reading.crashed == []
    assert reading.same > len(PLACES)
