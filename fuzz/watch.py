"""Sees what reading must never do: import, start a process, open a connection, load a library.

An audit hook hears of it wherever it happens, also where an exception is swallowed. It
cannot be taken away again, so it listens only while bytes are read, and in that thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from sealpoint.serde import SAFE_TYPES

_FORBIDDEN: Final = (
    "ctypes.",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
    "pty.",
    "socket.",
    "subprocess.",
)
# What is loaded when it is first needed, whatever the bytes say: codecs, time zones, our own modules.
_LAZY: Final = ("cryptography.", "encodings", "importlib.resources", "sealpoint.", "tzdata", "unicodedata")

_met: list[str] = []
_listening: list[int] = []


class ForbiddenError(AssertionError):
    """Reading did what it must never do."""


@contextmanager
def watched() -> Iterator[None]:
    """Listen while the block runs.

    Raises:
        ForbiddenError: If anything was heard; whatever else went wrong is its context.
    """
    _met.clear()
    _listening.append(threading.get_ident())
    try:
        yield
    finally:
        _listening.clear()
        if _met:
            raise ForbiddenError(f"reading did: {', '.join(sorted(set(_met)))}")


def load_allowed() -> None:
    """Import what strict reading may import, so that any import after it is one too many."""
    for module, _ in sorted(SAFE_TYPES):
        if module != "pathlib._local":  # which is read as pathlib
            import_module(module)
    import_module("numpy")


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _listening or _listening[0] != threading.get_ident():
        return
    if event == "import":
        name = str(arguments[0])
        if not name.startswith(_LAZY):
            _met.append(f"import {name}")
    elif event.startswith(_FORBIDDEN):
        _met.append(event)


sys.addaudithook(_hear)
