"""SqliteSaver's methods on checkpoints of 50 messages: LangGraph's against sealpoint's; one file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from benchmarks.chains import checkpoint, config, fill
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
            fill(saver, "long", THREAD_LENGTH, state, small, writes=3)
        yield case("get_tuple, 50 messages", opened, get_tuple("long"))
        yield case("list(limit=10)", opened, listing(config("long"), 10))
        yield case("list(limit=100)", opened, listing(config("long"), 100), rounds=9)
        yield case("put, 50 messages", opened, _put("put messages", state), loops=PUT_LOOPS)
        yield case("put, 1 KB", opened, _put("put small", small), loops=PUT_LOOPS)
        yield case("put_writes of 3", opened, _put_writes(small), loops=PUT_LOOPS)
        for saver in opened.values():
            fill(saver, "delta", ancestors, short, small["plan"], writes=1)
        yield case(f"delta walk, {ancestors:,} x 8 KB", opened, walk("delta", ancestors), rounds=7)


def case(
    name: str, opened: Mapping[str, Saver], act: Act, *, loops: int | None = None, rounds: int = 15
) -> Case:
    """Make a case of one operation on every saver."""
    peers = {peer: timed(act(saver), loops) for peer, saver in opened.items()}
    return Case(name, peers, LG_ENC, rounds)


def get_tuple(thread: str) -> Act:
    """Read the latest checkpoint of a thread."""
    return lambda saver: lambda: saver.get_tuple(config(thread))


def listing(place: Any, limit: int | None) -> Act:
    """List checkpoints, and hold all that was listed."""
    return lambda saver: lambda: list(saver.list(place, limit=limit))


def _put(thread: str, values: dict[str, Any]) -> Act:
    def prepare(saver: Saver) -> Callable[[], object]:
        numbers = count()
        return lambda: saver.put(
            config(thread), checkpoint(next(numbers), values), {"source": "loop", "step": 1}, {}
        )

    return prepare


def _put_writes(value: Any) -> Act:
    def prepare(saver: Saver) -> Callable[[], object]:
        place = saver.put(config("writes"), checkpoint(0, {}), {"source": "loop", "step": 0}, {})
        numbers = count()
        writes = [("plan", value["plan"]), ("question", value["question"]), ("branch:to:next", None)]
        return lambda: saver.put_writes(place, writes, f"task-{next(numbers)}")

    return prepare


def walk(thread: str, ancestors: int) -> Act:
    """The channel has a write at every ancestor and no stored value: the walk goes to the root."""

    def prepare(saver: Saver) -> Callable[[], object]:
        def run() -> None:
            history = saver.get_delta_channel_history(config=config(thread), channels=["log"])
            if len(history["log"]["writes"]) != ancestors - 1:
                raise SystemExit("error: the walk did not meet every ancestor")

        return run

    return prepare
