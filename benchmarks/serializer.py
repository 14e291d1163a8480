"""dumps and loads of one value, by size and type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy

from benchmarks.harness import Case, Options, Sampler, timed
from benchmarks.payloads import PAYLOADS, payload
from benchmarks.peers import FLOOR, LG, LG_ENC, PLAIN, VALIDATION, floor, serializers, validation


def cases(options: Options) -> Iterator[Case]:
    """Two cases a payload."""
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


def _dumps(serde: Any, value: Any) -> Sampler:
    return timed(lambda: serde.dumps_typed(value))


def _loads(serde: Any, typed: tuple[str, bytes]) -> Sampler:
    return timed(lambda: serde.loads_typed(typed))


def _require_equal(value: Any, stored: dict[str, tuple[str, bytes]]) -> None:
    """Refuse to compare peers that do not do the same work."""
    if stored[PLAIN] != stored[LG]:
        raise SystemExit("error: sealpoint and LangGraph do not write the same bytes")
    for peer, serde in serializers().items():
        numpy.testing.assert_equal(serde.loads_typed(stored[peer]), value, f"{peer} gives back another value")
