"""Key material: parsed from text, loaded from its source at first use, and never pickled or printed."""

from __future__ import annotations

import base64
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Final

from sealpoint.errors import KeyMaterialError, KeyRingError
from sealpoint.forks import reset_in_child
from sealpoint.keys.stats import FAILED, READ, tally
from sealpoint.seal.keys import KEY_BYTES, Material, expand

RETRY_SECONDS: Final = 30.0  # how long a failed source is not read again

logger: Final = logging.getLogger("sealpoint.keys")


class LazyMaterial(Material):
    """The material of one key, loaded once from its source at first use. Safe to share between threads.

    Material from a slow source is loaded by a separate thread, and callers wait for the thread. After a
    failure the source is not read again for `RETRY_SECONDS`; meanwhile every call raises the same error.
    """

    __slots__ = ("_error", "_lock", "_retry_at", "_thread")

    loader: Callable[[], bytes]

    def __init__(self, loader: Callable[[], bytes], *, is_slow: bool = False) -> None:
        """Create material, without loading it.

        Args:
            loader: Returns the material, or raises `KeyRingError`. Equal loaders return equal material.
            is_slow: Whether loading may wait for another program or a network.
        """
        self.loader = loader
        self.is_slow = is_slow
        self._value = None
        self._error: KeyRingError | None = None
        self._retry_at = 0.0
        self._lock = Lock()
        self._thread: Thread | None = None
        reset_in_child(self)

    def get(self) -> bytes:
        """Return the bytes of the key; load them from the source first if necessary."""
        if self._value is None and self.is_slow and not self._has_failed():
            self.start().join()
        return self.load()

    def load(self) -> bytes:
        """Return the bytes of the key. If they are not loaded yet, read the source in the calling thread."""
        with self._lock:
            if self._value is None:
                if self._error is not None and self._has_failed():
                    # A new instance: threads that raise the same instance would extend the same traceback.
                    raise type(self._error)(*self._error.args, hint=self._error.hint)
                if self.is_slow:
                    tally.add(READ, "")
                try:
                    self._value = self.loader()
                except KeyRingError as error:
                    self._error, self._retry_at = error, monotonic() + RETRY_SECONDS
                    if self.is_slow:
                        tally.add(FAILED, type(error).__name__)
                    raise
            return self._value

    def start(self) -> Thread:
        """Return the running thread that loads the bytes of the key; start a thread if none is running."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            thread = self._thread = Thread(target=_try_load, args=(self,), name="sealpoint-key", daemon=True)
            thread.start()
        return thread

    def _has_failed(self) -> bool:
        return self._error is not None and monotonic() < self._retry_at

    def reset_after_fork(self) -> None:
        """Replace the lock, which a thread that does not exist in this process may hold."""
        self._lock = Lock()
        self._thread = None


def _try_load(material: Material) -> None:
    """Load the bytes of a key; log the error if they are not available."""
    try:
        material.load()
    except KeyRingError as error:
        logger.warning("key material is not available: %s", error)


class Background:
    """Loads material in advance, so that the first value under a key need not wait.

    One thread loads all keys, so a host with many old keys makes one request at a time. Opening a value does
    not wait for this thread: another thread loads the key of the value.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting = deque[Material]()
        self._is_running = False
        reset_in_child(self)

    def load(self, materials: Iterable[Material]) -> None:
        """Queue material to be loaded. A failure is logged once, and raised when the key is used."""
        with self._lock:
            self._waiting.extend(materials)
            if not self._waiting or self._is_running:
                return
            self._is_running = True
        Thread(target=self._run, name="sealpoint-key", daemon=True).start()

    def _run(self) -> None:
        try:
            while (material := self._next()) is not None:
                _try_load(material)
        except BaseException:
            with self._lock:
                self._is_running = False
            raise

    def _next(self) -> Material | None:
        with self._lock:
            self._is_running = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def reset_after_fork(self) -> None:
        """Forget the thread, which does not exist in this process, and its queue."""
        self._lock = Lock()
        self._waiting.clear()
        self._is_running = False


background: Final = Background()


def parse_material(text: bytes, what: str) -> bytes:
    """Return the 32 bytes of a key, given as raw bytes, base64 or hex; text may end in a newline."""
    # Checked before a newline is removed: the last of 32 raw bytes can be a newline.
    if len(text) == KEY_BYTES:
        return text
    line = text.removesuffix(b"\n").removesuffix(b"\r")
    if line != line.strip():
        hint = "remove the white space; one newline at the end is all that may follow the key"
        raise KeyMaterialError(f"{what}: key material has white space at its ends", hint=hint)
    with suppress(ValueError):
        # 64 hex digits are valid base64 as well, of 48 bytes: hex is tried first.
        data = bytes.fromhex(line.decode("ascii", "replace")) if len(line) == 2 * KEY_BYTES else None
        data = base64.b64decode(line, validate=True) if data is None else data
        if len(data) == KEY_BYTES:
            return data
    raise KeyMaterialError(f"{what}: expected {KEY_BYTES} bytes, or their base64 or hex; got {len(text)}")


def check_value(key: bytes) -> str:
    """Return eight hex digits that identify a key and reveal nothing else about it.

    Args:
        key: The bytes of the key.

    Example:
        >>> from sealpoint.crypto import check_value
        >>> check_value(bytes(32))
        '229a393f'
    """
    # 32 bits detect a swapped or damaged file. An attacker can find another key with the same 32 bits.
    return expand(key, "check")[:4].hex()
