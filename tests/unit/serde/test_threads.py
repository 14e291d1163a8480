"""One serializer for eight threads, while it learns types and while it raises."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sealpoint.serde import JsonPlusSerializer
from tests.support.forge import record
from tests.support.sample_types import Dumps
from tests.support.samples import SAMPLES


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_restless")
def test_eight_threads_share_a_serializer_while_types_are_learned() -> None:
    serde = JsonPlusSerializer()
    rows = {name: serde.dumps_typed(value) for name, value in SAMPLES.items()}
    shared = JsonPlusSerializer()
    start = threading.Barrier(8)
    wrong: list[Any] = []

    def work(turn: int) -> None:
        names = list(SAMPLES)
        start.wait()
        for name in names[turn * 7 :] + names[: turn * 7]:
            try:
                made = shared.loads_typed(rows[name])
                if shared.dumps_typed(SAMPLES[name]) != rows[name] or repr(made) != repr(
                    serde.loads_typed(rows[name])
                ):
                    wrong.append(name)
            except Exception as error:  # noqa: BLE001 -- to be shown by the main thread
                wrong.append((name, error))

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.usefixtures("_restless")
def test_an_error_stays_with_the_thread_that_met_it() -> None:
    """Errors take a way around msgpack, which would keep them to itself; no two threads share it."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    good, start = serde.dumps_typed({"a": {1}}), threading.Barrier(8)
    wrong: list[Any] = []

    def work(turn: int) -> None:
        start.wait()
        for _ in range(2000):
            if turn % 2:
                if serde.loads_typed(good) != {"a": {1}}:
                    wrong.append(turn)
                continue
            for action in (
                lambda: serde.loads_typed(record(2, "foreign", f"Type{turn}", {})),
                lambda: serde.dumps_typed([Dumps(), type(f"Type{turn}", (), {})()]),
            ):
                try:
                    action()
                    wrong.append(turn)
                except TypeError as error:
                    if f"Type{turn}" not in str(error):
                        wrong.append(error)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
