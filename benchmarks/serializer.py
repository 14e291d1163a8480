"""dumps and loads of one value, by size and type.

Values are read again and again, as the messages of a conversation are, turn by turn. Messages that
were never read before are a case of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import numpy

from benchmarks.harness import Case, Options, Sampler, timed, timed_once_each
from benchmarks.payloads import PAYLOADS, messages, payload
from benchmarks.peers import FLOOR, LG, LG_ENC, PLAIN, VALIDATION, floor, serializers, validation

NEW_VALUES: Final = 20  # a sample


def cases(options: Options) -> Iterator[Case]:
    """Two cases a payload, and one of messages that are new each time."""
    del options
    made = serializers()
    for name in PAYLOADS:
        value = payload(name)
        stored = {peer: serde.dumps_typed(value) for peer, serde in made.items()}
        _require_equal(value, stored)
        floor_dumps, floor_loads = floor(stored[LG])
        dumps = {peer: _dumps(serde, value) for peer, serde in made.items()}
        yield Case(f"{name}, dumps", {**dumps, FLOOR: timed(floor_dumps)}, LG_ENC)
        loads = {peer: _loads(serde, stored[peer]) for peer, serde in made.items()}
        validate = validation(value) if isinstance(value, dict) else None
        alone = {} if validate is None else {VALIDATION: timed(validate)}
        yield Case(f"{name}, loads", {**loads, FLOOR: timed(floor_loads), **alone}, LG_ENC)
    unseen = {peer: _loads_new(serde, Random(0)) for peer, serde in made.items()}
    yield Case("50 new messages, loads", unseen, LG_ENC)


def _dumps(serde: Any, value: Any) -> Sampler:
    return timed(lambda: serde.dumps_typed(value))


def _loads(serde: Any, typed: tuple[str, bytes]) -> Sampler:
    return timed(lambda: serde.loads_typed(typed))


def _loads_new(serde: Any, rng: Random) -> Sampler:
    return timed_once_each(
        lambda: [serde.dumps_typed(messages(rng, 50)) for _ in range(NEW_VALUES)], serde.loads_typed
    )


def _require_equal(value: Any, stored: dict[str, tuple[str, bytes]]) -> None:
    """Refuse to compare peers that do not do the same work.

    LangGraph names the module of a path as the running Python does, sealpoint as every Python can read it.
    """
    alike = {key: part for key, part in value.items() if key != "path"} if isinstance(value, dict) else value
    made = serializers()
    if made[PLAIN].dumps_typed(alike) != made[LG].dumps_typed(alike):
        raise SystemExit("error: sealpoint and LangGraph do not write the same bytes")
    for peer, serde in made.items():
        numpy.testing.assert_equal(serde.loads_typed(stored[peer]), value, f"{peer} gives back another value")
