"""One serializer for eight threads, while it learns types and while it raises."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sealpoint.serde import JsonPlusSerializer
from tests.support.sample_types import Dumps
from tests.support.values.forge import record
from tests.support.values.samples import SAMPLES


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_together(work: Callable[[int], None]) -> None:
    """Run ``work`` in eight threads that begin at once, each with its number; their errors go up."""
    start = threading.Barrier(8)

    def begin(turn: int) -> None:
        start.wait()
        work(turn)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(begin, turn) for turn in range(8)]:
            done.result()


@pytest.mark.usefixtures("_restless")
def test_eight_threads_share_a_serializer_while_types_are_learned() -> None:
    serde, shared, names = JsonPlusSerializer(), JsonPlusSerializer(), list(SAMPLES)
    rows = {name: serde.dumps_typed(value) for name, value in SAMPLES.items()}

    def work(turn: int) -> None:
        for name in names[turn * 7 :] + names[: turn * 7]:
            assert repr(shared.loads_typed(rows[name])) == repr(serde.loads_typed(rows[name])), name
            assert shared.dumps_typed(SAMPLES[name]) == rows[name], name

    run_together(work)


@pytest.mark.usefixtures("_restless")
def test_an_error_stays_with_the_thread_that_met_it() -> None:
    """Errors take a way around msgpack, which would keep them to itself; no two threads share it."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    good = serde.dumps_typed({"a": {1}})

    def work(turn: int) -> None:
        for _ in range(400):
            if turn % 2:
                assert serde.loads_typed(good) == {"a": {1}}
                continue
            with pytest.raises(TypeError, match=f"Type{turn}"):
                serde.loads_typed(record(2, "foreign", f"Type{turn}", {}))
            with pytest.raises(TypeError, match=f"Type{turn}"):
                serde.dumps_typed([Dumps(), type(f"Type{turn}", (), {})()])

    run_together(work)
