"""The wrappers of a ring: their calls are repeated where a failure may pass, and named in its errors.

A call is made up to `ATTEMPTS` times, and not again later than `AGAIN_SECONDS` after the first: with the time
limit of a wrapper, 10 seconds by default, it ends after 20 at most.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Final, TypeVar

from sealpoint.errors import KeyUnavailableError, WrappedKeyError
from sealpoint.keys.wrap.wrapper import MAX_BLOB_BYTES, WrapContext, WrappedKey, Wrapper, WrapperState

ATTEMPTS: Final = 3
AGAIN_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.4
"""The longest pause before the second attempt; before the third it is twice as long."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class NamedWrapper:
    """A wrapper of a ring file.

    Attributes:
        id: Its id there.
        wrapper: What wraps and unwraps.
    """

    id: str
    wrapper: Wrapper

    @property
    def name(self) -> str:
        """Its id, its kind and its service, for messages."""
        return f"wrapper {self.id!r} ({self.wrapper.kind}, {self.wrapper.location})"

    def wrap(self, material: bytes, context: WrapContext) -> WrappedKey:
        """Encrypt key material, and unwrap the result for comparison.

        Raises:
            KeyUnavailableError: If the service does not answer, or refuses.
            WrappedKeyError: If it returns something that it does not unwrap to the same material.
        """
        wrapped = self._ask(lambda: self.wrapper.wrap(material, context))
        if not 0 < len(wrapped.blob) <= MAX_BLOB_BYTES:
            size = f"{len(wrapped.blob)} bytes instead of 1 to {MAX_BLOB_BYTES}"
            raise WrappedKeyError(f"{self.name} returned a wrapped key of {size}", hint=_WRONG)
        if self.unwrap(wrapped.blob, context) != material:
            raise WrappedKeyError(f"{self.name} does not unwrap what it wrapped", hint=_WRONG)
        return wrapped

    def unwrap(self, blob: bytes, context: WrapContext) -> bytes:
        """Decrypt a wrapped key.

        Raises:
            KeyUnavailableError: If the service does not answer, or refuses.
            WrappedKeyError: If the blob is not one of this wrapper for this context.
        """
        try:
            return self._ask(lambda: self.wrapper.unwrap(blob, context))
        except WrappedKeyError as error:
            fits = f"not a wrapped key {context.key!r} of ring {context.ring!r}"
            raise WrappedKeyError(f"{self.name}: {fits}: {error}", hint=error.hint) from None

    def describe(self) -> WrapperState:
        """Ask the service for the state of its key.

        Raises:
            KeyUnavailableError: If the service does not answer, or refuses.
        """
        return self._ask(self.wrapper.describe)

    def _ask(self, call: Callable[[], _Answer]) -> _Answer:
        started = monotonic()
        for attempt in range(ATTEMPTS):
            try:
                return call()
            except KeyUnavailableError as error:
                refusal = KeyUnavailableError(f"{self.name}: {error}", hint=error.hint)
                may_pass = error.may_pass
            # Random, so that processes that failed together do not ask again together.
            pause = random.uniform(0.5, 1.0) * PAUSE_SECONDS * 2**attempt  # noqa: S311 -- not a secret
            is_last = attempt + 1 == ATTEMPTS or monotonic() + pause - started > AGAIN_SECONDS
            if is_last or not may_pass:
                break
            sleep(pause)
        raise refusal


_WRONG: Final = "correct the wrapper's entry in the ring; no key was changed"
