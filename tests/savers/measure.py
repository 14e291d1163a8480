"""What a saver seals with the serializer alone: measured, as a row of the page's tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import ConfigError, SealingCheckError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, arequire_sealing, require_sealing
from tests.savers.planted import NAMES, PLACES, Planted, cell

PAGE: Final = Path(__file__).parents[2] / "docs" / "savers.md"
SEALED: Final = EncryptedSerializer.from_key(bytes(range(32)))
COLUMNS: Final = ("require_sealing", *PLACES, "filters", "SealedSaver")

Dump = Callable[[], bytes]
Opener = Callable[[Any], AbstractAsyncContextManager[tuple[Any, Dump]]]
"""Opens a saver on an empty database, with a serializer or None; the function returns all that is stored."""


@dataclass(frozen=True)
class Row:
    """A saver of a table.

    Attributes:
        awaited: Whether it is used through its async methods.
        deletes: Whether it has ``delete_thread``.
        filtered: Key of the metadata that it can filter by.
        layout: How `SealedSaver` treats it.
    """

    opener: Opener
    awaited: bool = False
    deletes: bool = True
    filtered: str = "tag"
    layout: str = "auto"


async def call(row: Row, saver: Any, method: str, *arguments: Any, **named: Any) -> Any:
    """Call a method of a saver, or its async version."""
    if row.awaited:
        return await getattr(saver, f"a{method}")(*arguments, **named)
    return getattr(saver, method)(*arguments, **named)


async def count_listed(row: Row, saver: Any, planted: Planted) -> int:
    """How many checkpoints a filter on the planted metadata finds."""
    config = {"configurable": {"thread_id": planted.thread_id, "checkpoint_ns": ""}}
    wanted = {row.filtered: planted.metadata[row.filtered]}
    if row.awaited:
        return len([found async for found in saver.alist(config, filter=wanted)])
    return len([*saver.list(config, filter=wanted)])


async def check(row: Row, saver: Any) -> str:
    """The cell for `require_sealing`."""
    named: dict[str, Any] = {} if row.deletes else {"thread_id": "check"}
    try:
        await arequire_sealing(saver, **named) if row.awaited else require_sealing(saver, **named)
    except SealingCheckError:
        return "raises"
    return "passes" if row.deletes else "passes, with `thread_id`"


async def plant(row: Row, saver: Any, planted: Planted) -> str:
    """Store everything and read it; the cell for filters, or what failed."""
    try:
        stored = await call(row, saver, "put", *planted.put_arguments(saver))
        for number, writes in enumerate(planted.writes):
            await call(row, saver, "put_writes", stored, writes, f"task-{number}", planted.task_path)
        found = await call(row, saver, "get_tuple", stored)
        if found is None or not planted.is_whole(found):
            return "fails: other values came back"
        return "work" if await count_listed(row, saver, planted) == 1 else "find nothing"
    except Exception as error:  # noqa: BLE001 -- any: a saver that does not work is a row, too
        return f"fails: {error!r}"


async def measure(row: Row) -> dict[str, str]:
    """The cells of a saver's row, by column.

    Raises:
        AssertionError: If the search does not find in any place what is stored without sealing.
    """
    plain, sealed = Planted(), Planted()
    async with row.opener(None) as (saver, dump):
        works = await plant(row, saver, plain)
        control = plain.found_in(dump())
    assert works == "work", works
    assert all(any(found) for found in control.values()), control
    async with row.opener(SEALED) as (saver, dump):
        checked = await check(row, saver)
        filters = await plant(row, saver, sealed)
        found = sealed.found_in(dump())
    cells = {place: cell(found[place], control[place]) for place in PLACES}
    if filters.startswith("fails"):
        filters = "fails"
        cells = {place: text if "readable" in text else "fails" for place, text in cells.items()}
    return {"require_sealing": checked, **cells, "filters": filters, "SealedSaver": await wrapped(row)}


async def wrapped(row: Row) -> str:
    """The cell for a saver inside a `SealedSaver`: ``sealed`` if all but ids and names are."""
    planted = Planted()
    async with row.opener(None) as (saver, dump):
        try:
            sealed = SealedSaver(saver, serde=SEALED, layout=row.layout)
        except ConfigError:
            return "refused"
        works = await plant(row, sealed, planted)
        found = planted.found_in(dump())
    readable = [place for place in PLACES if place != NAMES and any(found[place])]
    if readable:
        return f"readable: {', '.join(readable)}"
    if works.startswith("fails"):
        return "fails"
    return "sealed" if works == "work" else "sealed; filters find nothing"


def page_rows(heading: str) -> dict[str, dict[str, str]]:
    """The rows of the first table below a heading of the page: by their first cell, the measured columns."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    lines = [*takewhile(is_row, dropwhile(lambda line: not is_row(line), section.splitlines()))]
    titles, _, *rows = ([cell.strip(" *") for cell in line.strip("|").split(" | ")] for line in lines)
    columns = [title.strip("`") for title in titles]
    found = {row[0].replace("`", ""): dict(zip(columns, row, strict=True)) for row in rows}
    return {name: {column: row[column] for column in COLUMNS} for name, row in found.items()}


def is_row(line: str) -> bool:
    """Whether a line belongs to a table."""
    return line.startswith("|")
