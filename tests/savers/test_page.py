"""The page of savers shows what is measured on LangGraph's and ours; `make savers` measures the others."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory

from tests.graphs.savers import SAVERS, stored
from tests.savers.measure import COLUMNS, PAGE, Dump, Row, measure, page_rows
from tests.savers.planted import Planted, flat
from tests.savers.thirdparty import ROWS
from tests.support.servers.postgres import schema, server

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Async)?ShallowPostgresSaver is deprecated as of version 2.0.20:DeprecationWarning"
)

NAMES = {
    name.replace("LangGraph", "LangGraph's") if "LangGraph" in name else f"sealpoint's {name}": name
    for name in SAVERS
    if "," not in name
}
"""The savers by their names on the page."""

HEADING = "LangGraph's savers and sealpoint's"


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return NAMES[request.param]


@pytest.fixture
def row(name: str, pytestconfig: pytest.Config, tmp_path: Path) -> Row:
    """The saver, which is opened on a database of its own each time."""

    @asynccontextmanager
    async def opener(serde: Any) -> AsyncIterator[tuple[Any, Dump]]:
        with ExitStack() as stack:
            place = str(tmp_path / f"{serde is None}.db")
            if SAVERS[name].kind == "postgres":
                place = stack.enter_context(schema(server(pytestconfig)))
            async with SAVERS[name].opener(place, serde) as saver:
                yield saver, lambda: contents(name, saver, place)

    return Row(opener, awaited=SAVERS[name].awaited, deletes="Shallow" not in name)


def contents(name: str, saver: Any, place: str) -> bytes:
    if isinstance(saver, TheirMemory):
        return flat([saver.storage, saver.writes, saver.blobs])
    return stored(name, saver, place).dump


def test_page_has_every_saver_of_ours_and_of_langgraph() -> None:
    assert page_rows(HEADING).keys() == NAMES.keys()


def test_page_shows_what_is_sealed(name: str, row: Row) -> None:
    (shown,) = (cells for title, cells in page_rows(HEADING).items() if NAMES[title] == name)
    assert shown == asyncio.run(measure(row))


def test_columns_are_those_of_the_page() -> None:
    assert {tuple(cells) for cells in page_rows(HEADING).values()} == {COLUMNS}


def test_page_names_the_packages_that_are_measured() -> None:
    file = Path(__file__).with_name("thirdparty.txt")
    pins = [line.split("==") for line in file.read_text(encoding="utf-8").splitlines() if "==" in line]
    page = PAGE.read_text(encoding="utf-8")
    assert [
        f"`{name}` | {version}" for name, version in pins if f"| `{name}` | {version} |" not in page
    ] == []


def test_page_has_every_saver_that_is_measured() -> None:
    assert page_rows("Savers of others").keys() == ROWS.keys()


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("encode", [bytes, base64.b64encode, lambda data: data.hex().encode()])
def test_search_finds_encoded_values(before: int, encode: Callable[[bytes], bytes]) -> None:
    """Each form of each value, at any position in what is encoded."""
    planted = Planted()
    values = [value for values in planted.places.values() for value in values]
    stored = b"".join(encode(bytes(before) + str(value).encode() + b"!") for value in values)
    assert all(all(found) for found in planted.found_in(stored).values())
    assert not any(any(found) for found in Planted().found_in(stored).values())
