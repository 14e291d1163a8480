"""Services that wrap keys, as the contract test meets them: up, gone, silent, rotated, disabled."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sealpoint.errors import KeyRingError, WrappedKeyError
from sealpoint.keys.wrap import WrapContext, Wrapper
from tests.support.keys.answers import refused, silent

CANARY = b"xQ7vW9zK2jR5tY8pL4mN6bD3hG1fS0cA"
"""Key material that is easily found, whatever form it is in."""

CONTEXT = WrapContext("agents", "k1")
OTHERS = (WrapContext("agents", "k2"), WrapContext("others", "k1"))

Situation = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Service:
    """A service that is up.

    Attributes:
        wrapper: With one of its keys.
        other: With another of its keys.
        gone: While the service cannot be reached.
        silent: While it accepts a request and never answers; calls end after moments then.
        disabled: While the key is disabled; ``None`` if it cannot be.
        rotate: Makes a new version of the key; ``None`` if keys have no versions.
        secrets: What gives access to the service: PIN, token.
        flips: Of how many bytes of a blob one is flipped.
        foreign: What a blob of another key raises.
        damaged: What a blob raises that is none.
        record: The file with arguments and variables of the programs that were started.
    """

    wrapper: Wrapper
    other: Wrapper
    gone: Situation
    silent: Situation
    disabled: Situation | None = None
    rotate: Callable[[], object] | None = None
    secrets: tuple[str, ...] = ()
    flips: int = 1
    foreign: type[KeyRingError] = WrappedKeyError
    damaged: type[KeyRingError] = WrappedKeyError
    record: Path | None = None


def unreachable(variable: str) -> Situation:
    """While connections to the address in an environment variable are refused."""

    @contextmanager
    def situation() -> Iterator[None]:
        with refused() as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, address)
            yield

    return situation


def unanswered(variable: str, limit: str, short: object) -> Situation:
    """While the service at that address says nothing, with a time limit that is soon over."""

    @contextmanager
    def situation() -> Iterator[None]:
        with silent() as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, address)
            patch.setattr(limit, short)
            yield

    return situation


@dataclass(frozen=True)
class Forms:
    """The forms in which secrets would be seen: each window of ten characters of one counts as found."""

    windows: frozenset[str] = field(repr=False)

    @classmethod
    def of(cls, material: bytes, *texts: str) -> Forms:
        shapes = (material.decode(), material.hex(), base64.b64encode(material).decode())
        cut = {shape[at : at + 10] for shape in shapes for at in range(len(shape) - 9)}
        return cls(frozenset(cut) | frozenset(texts))

    def require_absent(self, *texts: str) -> None:
        for text in texts:
            assert not [window for window in self.windows if window in text]


def shown(error: BaseException | None) -> Iterator[str]:
    """All that can be read off an error and what it was raised from or during, suppressed or not."""
    if error is not None:
        yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
        yield "".join(traceback.format_exception(error))
        yield from shown(error.__cause__)
        yield from shown(error.__context__)
