"""SqliteSaver's methods: LangGraph's with its encryption against sealpoint's, sealed; one file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from benchmarks.harness import Case, Options, timed
from benchmarks.payloads import payload
from benchmarks.peers import LG_ENC, Saver, savers

THREAD_LENGTH: Final = 100
ANCESTORS: Final = 1000
PUT_LOOPS: Final = 20

Act = Callable[[Saver], Callable[[], object]]
"""Prepares an operation on a saver."""


def cases(options: Options) -> Iterator[Case]:
    """Reads on threads that are there, then writes, then a walk over ancestors."""
    ancestors = ANCESTORS // 10 if options.quick else ANCESTORS
    small, state = payload("1 KB state"), payload("50 messages")
    short = {"messages": state["messages"][:10]}
    with savers(options.folder) as opened:
        for saver in opened.values():
            _fill(saver, "long", THREAD_LENGTH, state, small)
        yield _case("get_tuple, 50 messages", opened, _get_tuple)
        yield _case("list(limit=10)", opened, _list(10))
        yield _case("list(limit=100)", opened, _list(100), rounds=9)
        yield _case("put, 50 messages", opened, _put(state), loops=PUT_LOOPS)
        yield _case("put, 1 KB", opened, _put(small), loops=PUT_LOOPS)
        yield _case("put_writes of 3", opened, _put_writes(small), loops=PUT_LOOPS)
        for saver in opened.values():
            _fill(saver, "delta", ancestors, short, small["plan"], writes=1)
        yield _case(f"delta walk, {ancestors:,} x 8 KB", opened, _walk(ancestors), rounds=7)


def _case(
    name: str, opened: Mapping[str, Saver], act: Act, *, loops: int | None = None, rounds: int = 15
) -> Case:
    peers = {peer: timed(act(saver), loops) for peer, saver in opened.items()}
    return Case(name, peers, LG_ENC, rounds)


def _checkpoint(number: int, values: dict[str, Any]) -> Any:
    return {
        "v": 2,
        "id": f"1f000000-0000-6000-8000-{number:012x}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number:032}.0"),
        "versions_seen": {},
        "updated_channels": None,
    }


def _config(thread: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def _fill(
    saver: Saver, thread: str, length: int, values: dict[str, Any], write: Any, *, writes: int = 3
) -> None:
    """Store a chain of checkpoints, with pending writes on top of each."""
    config = _config(thread)
    for number in range(length):
        config = saver.put(config, _checkpoint(number, values), {"source": "loop", "step": number}, {})
        saver.put_writes(config, [("log", write)] * writes, f"task-{number}")


def _get_tuple(saver: Saver) -> Callable[[], object]:
    return lambda: saver.get_tuple(_config("long"))


def _list(limit: int) -> Act:
    return lambda saver: lambda: list(saver.list(_config("long"), limit=limit))


def _put(values: dict[str, Any]) -> Act:
    def prepare(saver: Saver) -> Callable[[], object]:
        numbers = count()
        return lambda: saver.put(
            _config("put"), _checkpoint(next(numbers), values), {"source": "loop", "step": 1}, {}
        )

    return prepare


def _put_writes(value: Any) -> Act:
    def prepare(saver: Saver) -> Callable[[], object]:
        config = saver.put(_config("writes"), _checkpoint(0, {}), {"source": "loop", "step": 0}, {})
        numbers = count()
        writes = [("plan", value["plan"]), ("question", value["question"]), ("branch:to:next", None)]
        return lambda: saver.put_writes(config, writes, f"task-{next(numbers)}")

    return prepare


def _walk(ancestors: int) -> Act:
    """The channel has a write at every ancestor and no stored value: the walk goes to the root."""

    def prepare(saver: Saver) -> Callable[[], object]:
        def walk() -> None:
            history = saver.get_delta_channel_history(config=_config("delta"), channels=["log"])
            if len(history["log"]["writes"]) != ancestors - 1:
                raise SystemExit("error: the walk did not meet every ancestor")

        return walk

    return prepare
