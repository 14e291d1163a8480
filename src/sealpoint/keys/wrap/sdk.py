"""The SDKs of services: each is part of an extra, imported at the first call, called with a limit."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from sealpoint.errors import KeyUnavailableError

CALL_SECONDS: Final = 10.0
SDK_THREAD: Final = "sealpoint-sdk"

_Answer = TypeVar("_Answer")


def load_sdk(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Raises:
        KeyUnavailableError: If it is not installed; its hint names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
    hint = f"pip install 'sealpoint[{extra}]'"
    raise KeyUnavailableError(f"package {missing!r} of the extra {extra!r} is not installed", hint=hint)


def call_in_time(call: Callable[[], _Answer]) -> _Answer:
    """Return what a call of an SDK returns, or raise its error.

    The limits of an SDK are between two packets, and none is for a name server: without another one, an
    answer that comes byte by byte would be awaited for ever. A call that is given up ends with its thread.

    Raises:
        KeyUnavailableError: If the call takes longer than `CALL_SECONDS`.
    """
    ended = SimpleQueue[Callable[[], _Answer]]()
    Thread(target=lambda: ended.put(_outcome(call)), name=SDK_THREAD, daemon=True).start()
    try:
        outcome = ended.get(timeout=CALL_SECONDS)
    except Empty:
        problem = f"no answer in {CALL_SECONDS:g} seconds"
    else:
        return outcome()
    raise KeyUnavailableError(problem, hint="check the network and the name servers", may_pass=True)


def _outcome(call: Callable[[], _Answer]) -> Callable[[], _Answer]:
    """Make a call, and return what returns its answer again or raises its error."""
    try:
        answer = call()
    except BaseException as error:  # noqa: BLE001 -- raised by the thread that waits

        def fail(raised: BaseException = error) -> _Answer:
            raise raised

        return fail
    return lambda: answer
