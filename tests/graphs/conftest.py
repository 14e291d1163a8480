"""Places for savers, and other processes, for as long as the tests need them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.graphs.plays import Elsewhere
from tests.graphs.savers import ENTRIES
from tests.support.servers.postgres import schema, server

Places = Callable[[str], str]
"""Gives an empty place to a saver of the table: a path, or the DSN of a database."""


@pytest.fixture
def places(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Places]:
    """Empty places for the savers of one test."""
    numbers = count()
    with ExitStack() as schemas:

        def place(saver: str) -> str:
            if ENTRIES[saver].kind != "postgres":
                return str(tmp_path / f"{next(numbers)}.db")
            return schemas.enter_context(schema(server(pytestconfig)))

        yield place


@contextmanager
def process(**environment: str) -> Iterator[Elsewhere]:
    """Another process: it shares nothing with this one, and sees ``environment`` from its start."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            pool.submit(os.getpid).result()  # which starts it

        def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
            return pool.submit(function, *arguments).result()

        yield elsewhere


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    with process() as other:
        yield other


@pytest.fixture(scope="session")
def strict() -> Iterator[Elsewhere]:
    """A process in which LangGraph is strict, which it decides when it is imported."""
    with process(LANGGRAPH_STRICT_MSGPACK="true") as other:
        yield other
