"""Bytes on disk of threads, in the clear, encrypted by LangGraph, sealed, and sealed and compressed.

And what compression costs a graph of 100 supersteps. The text is prose: the pages in docs/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any, Final

import numpy
from langchain_core.documents import Document

from benchmarks import sealed
from benchmarks.chains import checkpoint, config
from benchmarks.graph import SUPERSTEPS, graph_run
from benchmarks.harness import Case, Options
from benchmarks.payloads import messages, pydantic_state
from benchmarks.peers import LG, LG_ENC, PACKED, WHOLE, Saver, serializers
from benchmarks.peers import SEALED as COBBLESTONE
from sealpoint.langgraph import EncryptedSerializer, SealedSaver

Opened = Callable[[str], AbstractContextManager[Any]]

Threads = Callable[[], Iterator[Iterator[dict[str, Any]]]]

THREADS: Final = 5
STEPS: Final = 50
_SIZES: Final = {
    "SQLite": "SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size",
    "Postgres": "SELECT sum(pg_total_relation_size(oid))::bigint AS bytes FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace",
}


def cases(options: Options) -> Iterator[Case]:
    """Sizes are exact; times are seconds of the processor on SQLite, and of a clock on Postgres."""
    with ExitStack() as stack:
        yield from _cases(stack, "SQLite", partial(sealed.sqlite, options), process_time)
    with ExitStack() as stack:
        dsn = stack.enter_context(sealed.server(options))
        if dsn is not None:
            yield from _cases(stack, "Postgres", partial(sealed.postgres, dsn), perf_counter)


def _cases(stack: ExitStack, kind: str, opened: Opened, clock: Callable[[], float]) -> Iterator[Case]:
    for name, threads in CONTENTS.items():
        peers = _peers(lambda peer, name=name: stack.enter_context(opened(f"{name}_{peer}")))  # type: ignore[misc]
        yield Case(
            f"{kind}, {name}",
            {peer: partial(_stored, kind, saver, threads) for peer, saver in peers.items()},
            LG,
            rounds=1,
            unit="bytes",
        )
    peers = _peers(lambda peer: stack.enter_context(opened(f"graph_{peer}")))
    runs: dict[str, Saver] = {peer: peers[peer] for peer in (WHOLE, PACKED)}
    yield sealed.case(f"{kind}, {SUPERSTEPS} supersteps compressed", runs, graph_run, clock, 1, 15, WHOLE)


def _peers(opened: Callable[[str], Any]) -> dict[str, Saver]:
    made = serializers()
    whole = made[COBBLESTONE]
    encrypted = opened("encrypted")
    encrypted.serde = made[LG_ENC]
    serde = EncryptedSerializer(whole.cipher, whole.serde)
    packed = EncryptedSerializer(whole.cipher, whole.serde, compress="zstd")
    return {
        LG: opened("clear"),
        LG_ENC: encrypted,
        WHOLE: SealedSaver(opened("whole"), serde=serde),
        PACKED: SealedSaver(opened("packed"), serde=packed),
    }


def _stored(kind: str, saver: Saver, threads: Threads) -> float:
    """Store threads, and return the bytes of the database."""
    for thread, states in enumerate(threads()):
        place: Any = config(f"thread-{thread}")
        for number, values in enumerate(states):
            made = checkpoint(number, values)
            place = saver.put(place, made, {"source": "loop", "step": number}, made["channel_versions"])
            new = {name: value[-1:] if name == "messages" else value for name, value in values.items()}
            saver.put_writes(place, [*new.items()], f"task-{number}")  # a node returns the new message alone
    connection: Any = saver.conn  # type: ignore[attr-defined]
    connection.commit()
    [found] = connection.execute(_SIZES[kind]).fetchall()
    return float(found["bytes"] if kind == "Postgres" else found[0])


@cache
def _words() -> list[str]:
    pages = sorted(Path(__file__).parents[1].glob("docs/*.md"))
    return " ".join(page.read_text() for page in pages).split()


def prose(rng: Random, count: int) -> str:
    """Return so many words of the pages, as they follow each other there."""
    first = rng.randrange(len(_words()) - count)
    return " ".join(_words()[first : first + count])


def _conversations() -> Iterator[Iterator[dict[str, Any]]]:
    """Conversations that grow by a message each step; each step stores all of it, as LangGraph does."""
    for seed in range(THREADS):
        whole = messages(Random(seed), STEPS, prose)["messages"]
        yield ({"messages": whole[:length]} for length in range(1, STEPS + 1))


def _models() -> Iterator[Iterator[dict[str, Any]]]:
    rng = Random(2)
    return ((pydantic_state(rng) for _ in range(10)) for _ in range(THREADS))


def _documents() -> Iterator[Iterator[dict[str, Any]]]:
    rng = Random(3)
    for _ in range(THREADS):
        found = [Document(prose(rng, 300), metadata={"page": page}) for page in range(20)]
        yield ({"found": found, "step": step} for step in range(10))


def _embeddings() -> Iterator[Iterator[dict[str, Any]]]:
    rng = numpy.random.default_rng(4)
    for _ in range(THREADS):
        yield ({"vectors": rng.standard_normal((20, 1536), dtype=numpy.float32)} for _ in range(10))


CONTENTS: Final[dict[str, Threads]] = {
    "conversations": _conversations,
    "pydantic": _models,
    "documents": _documents,
    "embeddings": _embeddings,
}
