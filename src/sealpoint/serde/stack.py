"""Limits the depth of a value by the stack of a thread: decoders recurse, and an overflow ends the process.

The C library reports the size of a stack, Python does not. The part in use is not known: half of the stack is
assumed to be free. A thread with a large stack can read every value that is written, so nothing is checked.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde import limits
from sealpoint.serde.codes import MODELS

_libc: Any = None
with suppress(ImportError, OSError, TypeError):  # not later: to read a value nothing is imported or loaded
    import ctypes

    _libc = ctypes.CDLL(None)

_LANGCHAIN: Final = b"langchain_core."  # its models do not validate what is in their dicts
_ENOUGH: Final = limits.LARGE_STACK_BYTES // 2
_stack: Final = threading.local()


def _stack_bytes() -> int:
    try:
        _libc.pthread_self.restype = ctypes.c_void_p  # `get_ident` is another one where threads are simulated
        thread, attributes = ctypes.c_void_p(_libc.pthread_self()), ctypes.create_string_buffer(256)
        if hasattr(_libc, "pthread_get_stacksize_np"):  # macOS
            _libc.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(_libc.pthread_get_stacksize_np(thread))
        size = ctypes.c_size_t()
        if _libc.pthread_getattr_np(thread, attributes) == 0:
            _libc.pthread_attr_getstacksize(attributes, ctypes.byref(size))
            _libc.pthread_attr_destroy(attributes)
        return size.value or limits.UNKNOWN_STACK_BYTES
    except AttributeError:
        return threading.stack_size() or limits.UNKNOWN_STACK_BYTES


def require_stack(data: bytes) -> None:
    """Refuse msgpack that is too deep for the free part of a small stack, or that `scan` refuses."""
    try:
        left: int = _stack.left
    except AttributeError:
        left = _stack.left = _stack_bytes() // 2
    if left >= _ENOUGH:
        return
    from sealpoint.serde.scan import scan  # for a small stack alone

    bounds = replace(limits.WRITTEN_LIMITS, depth=left // limits.LEVEL_BYTES)
    try:
        payloads = scan(data, bounds)
        if any(data[at - 1] in MODELS and _LANGCHAIN not in data[at : at + 20] for at in payloads):
            scan(data, replace(bounds, depth=left // limits.MODEL_LEVEL_BYTES))
    except LimitError:
        raise DecodeError(
            f"the value is nested too deeply for a thread with a stack of {2 * left:,} bytes",
            hint="set threading.stack_size(8 * 1024 * 1024) before the thread is started",
        ) from None
