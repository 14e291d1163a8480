"""Calls of wrappers: repeated a few times where a failure may pass, and named in the errors.

A call is made up to `ATTEMPTS` times, and not again later than `AGAIN_SECONDS` after the first: with the time
limit of a wrapper, 10 seconds by default, it ends after 20 at most.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, TypeVar

from sealpoint.errors import KeyUnavailableError, WrappedKeyError

ATTEMPTS: Final = 3
AGAIN_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.4

_Answer = TypeVar("_Answer")


def ask(name: str, call: Callable[[], _Answer]) -> _Answer:
    """Make a call of a wrapper, and return its answer.

    Args:
        name: The wrapper, for messages.
        call: Makes one attempt.

    Raises:
        KeyUnavailableError: If its service does not answer, or refuses.
        WrappedKeyError: As the call.
    """
    started = monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except WrappedKeyError as error:
            raise WrappedKeyError(f"{name}: {error}", hint=error.hint) from None
        except KeyUnavailableError as error:
            refusal = KeyUnavailableError(f"{name}: {error}", hint=error.hint, may_pass=error.may_pass)
        # The pause is random, so that processes that failed together do not ask again together.
        pause = random.uniform(0.5, 1.0) * _PAUSE_SECONDS * 2 ** (attempt - 1)  # noqa: S311 -- no secret
        if not refusal.may_pass or monotonic() + pause - started > AGAIN_SECONDS:
            break
        if attempt < ATTEMPTS:
            sleep(pause)
    raise refusal from None
