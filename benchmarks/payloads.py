"""Values to store, made by seeded code: the same content in every run."""

from __future__ import annotations

import datetime
import ipaddress
import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

SCALARS_EACH: Final = 20


class Priority(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Step:
    node: str
    number: int
    seconds: float


class Order(BaseModel):
    sku: str
    quantity: int
    price: Decimal
    note: str


class Customer(BaseModel):
    name: str
    since: datetime.date
    tags: list[str]
    orders: list[Order]


def _words(rng: Random, count: int) -> str:
    return " ".join("".join(rng.choices("abcdefghiklmnoprstu", k=rng.randint(2, 9))) for _ in range(count))


def small_state(rng: Random) -> dict[str, Any]:
    """About 1 KB of strings, numbers and lists."""
    return {
        "question": _words(rng, 40),
        "plan": [_words(rng, 6) for _ in range(8)],
        "scores": {_words(rng, 1): rng.random() for _ in range(10)},
        "step": 7,
        "done": False,
        "error": None,
    }


Words = Callable[[Random, int], str]


def messages(rng: Random, count: int, words: Words = _words) -> dict[str, list[AnyMessage]]:
    """About 800 bytes a message: questions, answers that call a tool, and the tool's result."""
    made: list[AnyMessage] = []
    for number in range(count):
        identity = str(UUID(int=rng.getrandbits(128)))
        if number % 4 == 0:
            made.append(HumanMessage(words(rng, 90), id=identity))
        elif number % 4 == 1:
            made.append(_calling(rng, identity, number, words))
        elif number % 4 == 2:
            made.append(
                ToolMessage(words(rng, 90), tool_call_id=f"call-{number - 1}", name="search", id=identity)
            )
        else:
            made.append(AIMessage(words(rng, 90), id=identity, usage_metadata=_usage(rng)))
    return {"messages": made}


def _calling(rng: Random, identity: str, number: int, words: Words) -> AIMessage:
    call = {"name": "search", "args": {"query": words(rng, 12), "limit": 5}, "id": f"call-{number}"}
    return AIMessage(
        words(rng, 40),
        id=identity,
        tool_calls=[{**call, "type": "tool_call"}],
        usage_metadata=_usage(rng),
        response_metadata={"model_name": "scripted", "finish_reason": "tool_calls"},
    )


def _usage(rng: Random) -> Any:
    sent, received = rng.randint(100, 9000), rng.randint(10, 900)
    return {"input_tokens": sent, "output_tokens": received, "total_tokens": sent + received}


def pydantic_state(rng: Random) -> dict[str, Any]:
    """About 24 KB in one model of models."""
    orders = [
        Order(
            sku=_words(rng, 1),
            quantity=rng.randint(1, 99),
            price=Decimal(rng.randint(100, 99999)) / 100,
            note=_words(rng, 12),
        )
        for _ in range(190)
    ]
    since = datetime.date(2020, 2, 29)
    return {"customer": Customer(name=_words(rng, 2), since=since, tags=["a", "b"], orders=orders)}


def scalars(rng: Random) -> dict[str, Any]:
    """Twenty values of each type that is neither JSON's nor a message."""
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def twenty(make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(SCALARS_EACH)]

    return {
        "set": twenty(lambda: {rng.randint(0, 999) for _ in range(5)}),
        "frozenset": twenty(lambda: frozenset(rng.randbytes(3).hex() for _ in range(3))),
        "deque": twenty(lambda: deque(rng.randbytes(4))),
        "datetime": twenty(lambda: day + datetime.timedelta(seconds=rng.randint(0, 10**7))),
        "date": twenty(lambda: day.date() + datetime.timedelta(days=rng.randint(0, 999))),
        "time": twenty(lambda: datetime.time(rng.randint(0, 23), rng.randint(0, 59))),
        "timedelta": twenty(lambda: datetime.timedelta(milliseconds=rng.randint(0, 10**9))),
        "timezone": twenty(lambda: datetime.timezone(datetime.timedelta(hours=rng.randint(-9, 9)))),
        "zone": twenty(lambda: ZoneInfo("UTC")),
        "uuid": twenty(lambda: UUID(int=rng.getrandbits(128))),
        "decimal": twenty(lambda: Decimal(rng.randint(0, 10**9)) / 1000),
        "path": twenty(lambda: Path("data", _words(rng, 1), f"{rng.randint(0, 99)}.json")),
        "pattern": twenty(lambda: re.compile(rf"{_words(rng, 1)}-(\d+)", re.IGNORECASE)),
        "address": twenty(lambda: ipaddress.IPv4Address(rng.getrandbits(32))),
        "interface": twenty(lambda: ipaddress.IPv4Interface((rng.getrandbits(32), 24))),
        "network": twenty(lambda: ipaddress.IPv4Network((rng.getrandbits(16) << 16, 16))),
        "address 6": twenty(lambda: ipaddress.IPv6Address(rng.getrandbits(128))),
        "interface 6": twenty(lambda: ipaddress.IPv6Interface((rng.getrandbits(128), 64))),
        "network 6": twenty(lambda: ipaddress.IPv6Network((rng.getrandbits(64) << 64, 64))),
        "enum": twenty(lambda: rng.choice(list(Priority))),
        "dataclass": twenty(lambda: Step(_words(rng, 1), rng.randint(0, 99), rng.random())),
    }


def array(rng: Random) -> dict[str, Any]:
    """An array of numbers, 1 MB."""
    return {"embedding": numpy.frombuffer(rng.randbytes(1 << 20), dtype="<i8").reshape(1024, 128)}


def blob(rng: Random) -> bytes:
    """Bytes, 16 MB, that are a value of their own."""
    return b"".join(rng.randbytes(1 << 20) for _ in range(16))


PAYLOADS: Final[dict[str, Callable[[Random], Any]]] = {
    "1 KB state": small_state,
    "50 messages": lambda rng: messages(rng, 50),
    "500 messages": lambda rng: messages(rng, 500),
    "pydantic state": pydantic_state,
    "mixed scalars": scalars,
    "numpy 1 MB": array,
    "bytes 16 MB": blob,
}


def payload(name: str) -> Any:
    """Make a payload; the same one at every call."""
    return PAYLOADS[name](random.Random(name))
