"""Pins: the root over the log of a thread store, kept elsewhere.

A store and its database that are both put back to an earlier state agree with each other. The store then has
fewer events than a pin of it, or others.

A pin is a file with one JSON object:

    pin        1, the version of this format
    store      identity of the store
    until      number of the last event
    events     how many there were
    trimmed    how many checkpoints had been forgotten by `trim`
    root       the root over their lines (`sealpoint.merkle`, `sealpoint.threads.roots`), in hex
    time       when it was made, UTC
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from sealpoint.errors import PinError
from sealpoint.maintenance.result import Reason
from sealpoint.merkle import Tree
from sealpoint.threads.roots import line_of
from sealpoint.threads.store import ThreadStore
from sealpoint.utc import now

VERSION: Final = 1
MAX_BYTES: Final = 4096


class Pin(NamedTuple):
    """What a store had; see the module."""

    store: str
    until: int
    events: int
    trimmed: int
    root: str
    time: str


_TYPES: Final = {name: int if name in ("until", "events", "trimmed") else str for name in Pin._fields}


def make_pin(store: ThreadStore) -> Pin:
    """Return the pin of all events of a store.

    Raises:
        ThreadStoreError: If the store cannot be read.
    """
    made = now()
    until, trimmed = store.end(), store.trimmed()
    root = _root(store, until)
    return Pin(store.identity, until, root.size, trimmed, root.root().hex(), made)


def _root(store: ThreadStore, until: int) -> Tree:
    return Tree.of(line_of(event) for event in store.events(until))


def check_pin(store: ThreadStore, pin: Pin) -> Reason | None:
    """Return why a store is not shown to continue a pin; ``None`` if it does.

    Raises:
        ThreadStoreError: If the store cannot be read.
    """
    if pin.store != store.identity or store.end() < pin.until:
        return Reason.PIN_DIFFERS
    root = _root(store, pin.until)
    if (root.size, root.root().hex()) == (pin.events, pin.root):
        return None if pin.events else Reason.PIN_EMPTY
    # Without the events that were removed, the root cannot be computed.
    return Reason.PIN_TRIMMED if store.trimmed() > pin.trimmed else Reason.PIN_DIFFERS


def read_pin(path: Path) -> Pin:
    """Read a pin.

    Raises:
        PinError: If the file is missing, or is not a pin.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # no wait for a FIFO
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1) or b""
    except OSError as error:
        raise PinError(f"{path}: {error.strerror}") from None
    try:
        found = json.loads(data) if len(data) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.pop("pin", None) != VERSION or found.keys() != _TYPES.keys():
        raise PinError(f"{path} is not a pin of version {VERSION}")
    for name, kind in _TYPES.items():
        if type(found[name]) is not kind:
            raise PinError(f"{path}: {name!r} is not what a pin has there")
    return Pin(**found)


def write_pin(path: Path, pin: Pin) -> None:
    """Write a pin, in one step; by a link to the file that it names.

    Raises:
        OSError: If the file cannot be written.
    """
    text = json.dumps({"pin": VERSION, **pin._asdict()}, indent=2)
    path = Path(os.path.realpath(path))
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("x", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        fresh.unlink(missing_ok=True)
