"""Databases for these tests, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.sealed.savers import SAVERS, Open, Sync, opened
from tests.sealed.scenes import Scene, postgres_scene, sqlite_scene
from tests.support.servers.postgres import schema, server


@pytest.fixture(scope="module")
def scenes(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Filled databases by name and form, each made when it is first asked for."""
    made: dict[tuple[str, str], Scene] = {}
    with ExitStack() as stack:

        def scene(database: str, form: str) -> Scene:
            if (database, form) not in made:
                opening = (
                    sqlite_scene(tmp_path_factory.mktemp("sealed") / "x.db", form)
                    if database == "sqlite"
                    else postgres_scene(stack.enter_context(schema(server(pytestconfig))), form)
                )
                made[database, form] = stack.enter_context(opening)
            return made[database, form]

        yield scene


@pytest.fixture
def open_(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Open]:
    """Opens savers on empty databases."""
    numbers = count()
    with ExitStack() as stack:

        def open_(name: str, form: str) -> Sync:
            entry = SAVERS[name]
            place = (
                stack.enter_context(schema(server(pytestconfig)))
                if entry.kind == "postgres"
                else str(tmp_path / f"{next(numbers)}.db")
            )
            saver, runner = stack.enter_context(opened(name, place, form))
            return Sync(saver, runner, awaited=entry.awaited)

        yield open_


@pytest.fixture
def place(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Makes empty databases for stores of a kind."""
    numbers = count()
    with ExitStack() as stack:
        yield (
            lambda kind: (
                stack.enter_context(schema(server(pytestconfig)))
                if kind == "postgres"
                else str(tmp_path / f"store{next(numbers)}.db")
            )
        )
