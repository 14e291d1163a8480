"""Unauthenticated bytes: the check and strict decoding against LangGraph's permissive decoding.

Both read the same unsealed bytes. What the check takes alone, and what it costs a sealed row, which is
nothing, are cases of their own; so is the count of the types that small rows name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as LangGraphSerializer

from benchmarks.harness import Case, Options, Sampler, timed
from benchmarks.payloads import Priority, Step, messages, payload, small_state
from benchmarks.peers import INVENTORY, KEY, LG, SCAN, SEALED, SEALED_STRICT, STRICT
from sealpoint import EncryptedSerializer, JsonPlusSerializer
from sealpoint.serde.inert import inventory
from sealpoint.serde.scan import scan

ROWS: Final = 500

UNSEALED: Final = ("50 messages", "500 messages", "mixed scalars")
OWN_TYPES: Final = (Priority, Step)


def cases(options: Options) -> Iterator[Case]:
    """Unsealed bytes by their kind, then a sealed row, then an inventory."""
    del options
    permissive, strict = LangGraphSerializer(allowed_msgpack_modules=True), _strict()
    for name in UNSEALED:
        value = payload(name)
        typed = permissive.dumps_typed(value)
        for peer in (permissive, strict):
            numpy.testing.assert_equal(peer.loads_typed(typed), value, f"{name} comes back as another value")
        peers = {LG: _loads(permissive, typed), STRICT: _loads(strict, typed), SCAN: _scan(typed[1])}
        yield Case(f"{name}, unsealed", peers, LG, rounds=25)
    yield _sealed(payload("500 messages"))
    yield _inventory(permissive)


def _strict() -> JsonPlusSerializer:
    return JsonPlusSerializer(allowed_msgpack_modules=OWN_TYPES)


def _loads(serde: Any, typed: tuple[str, bytes]) -> Sampler:
    return timed(lambda: serde.loads_typed(typed))


def _scan(data: bytes) -> Sampler:
    return timed(lambda: scan(data))


def _sealed(value: Any) -> Case:
    """The ring authenticates a sealed row, so a strict serializer has nothing to check in it."""
    trusting = EncryptedSerializer.from_key(KEY, serde=JsonPlusSerializer(allowed_msgpack_modules=True))
    strict = EncryptedSerializer.from_key(KEY, serde=_strict())
    typed = trusting.dumps_typed(value)
    peers = {SEALED: _loads(trusting, typed), SEALED_STRICT: _loads(strict, typed)}
    return Case("500 messages, sealed", peers, SEALED, rounds=25)


def _inventory(serde: Any) -> Case:
    """Time of one row, in the middle of many that differ."""
    rows = small_rows(serde)

    def each(read: Callable[[bytes], object]) -> Sampler:
        def read_all() -> None:
            for data in rows:
                read(data)

        sample = timed(read_all)
        return lambda: sample() / len(rows)

    peers = {LG: each(lambda data: serde.loads_typed(("msgpack", data))), INVENTORY: each(inventory)}
    return Case("small rows", peers, LG, rounds=25)


def small_rows(serde: Any) -> list[bytes]:
    """Return the msgpack of what a graph writes beside its messages, 50 to 400 bytes each."""
    rng = random.Random("small rows")
    mixed = payload("mixed scalars")
    made: list[bytes] = []
    while len(made) < ROWS:
        state = small_state(rng)
        (message,) = messages(rng, 1)["messages"]
        message.content = message.content[: rng.randint(5, 200)]
        made += [
            serde.dumps_typed(value)[1]
            for value in (
                message,
                [message],
                state["plan"][:4],
                state["scores"],
                {"question": state["question"][:80], "step": rng.randint(0, 99), "done": False},
                [mixed[kind][rng.randrange(20)] for kind in ("uuid", "datetime", "decimal")],
                {"status": mixed["enum"][rng.randrange(20)], "last": mixed["dataclass"][rng.randrange(20)]},
            )
        ]
    return [data for data in made if 50 <= len(data) <= 400][:ROWS]
