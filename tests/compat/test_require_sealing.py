"""`require_sealing` on LangGraph's savers and ours: each passes, and nothing is left in its database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import SealingCheckError
from sealpoint.langgraph import SealedSaver, arequire_sealing, require_sealing
from tests.graphs.savers import SAVERS, SEALED, TAG, opened, stored
from tests.support.servers.postgres import schema, server

pytestmark = pytest.mark.filterwarnings(
    "ignore:(Async)?ShallowPostgresSaver is deprecated as of version 2.0.20:DeprecationWarning"
)


@pytest.fixture(params=SAVERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(name: str, pytestconfig: pytest.Config, tmp_path: Path) -> Any:
    if SAVERS[name].kind != "postgres":
        yield str(tmp_path / "state.db")
        return
    with schema(server(pytestconfig)) as dsn:
        yield dsn


def check(name: str, saver: Any, runner: asyncio.Runner, **named: Any) -> None:
    if SAVERS[name].awaited:
        runner.run(arequire_sealing(saver, **named))
    else:
        require_sealing(saver, **named)


def test_every_saver_that_can_delete_passes_and_keeps_nothing(name: str, place: str) -> None:
    with opened(name, place, sealed=True) as (saver, runner):
        if "Shallow" in name:
            with pytest.raises(SealingCheckError, match="delete_thread raised NotImplementedError"):
                check(name, saver, runner)
        else:
            check(name, saver, runner)
        assert stored(name, saver, place).values == []


def test_every_saver_passes_on_a_thread_that_is_kept(name: str, place: str) -> None:
    with opened(name, place, sealed=True) as (saver, runner):
        check(name, saver, runner, thread_id="check")
        assert stored(name, saver, place).tags.keys() == {f"msgpack{TAG}"}


def test_every_saver_is_refused_with_a_plain_serializer(name: str, place: str) -> None:
    with (
        opened(name, place, sealed=False) as (saver, runner),
        pytest.raises(SealingCheckError, match="does not seal"),
    ):
        check(name, saver, runner)


def test_every_sealed_saver_passes_and_keeps_nothing(name: str, place: str) -> None:
    if "Shallow" in name:
        pytest.skip("SealedSaver refuses it")
    with opened(name, place, sealed=False) as (saver, runner):
        check(name, SealedSaver(saver, serde=SEALED), runner)
        assert stored(name, saver, place).values == []
