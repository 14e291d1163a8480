"""Text with lone surrogates, which is written with ``?`` in their place: what is said of it."""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from typing import Final

from sealpoint.errors import UnsupportedTypeError

logger: Final = logging.getLogger("sealpoint.serde")

replacing: Final = Counter[int]()
"""By thread, how often text of the value at hand was replaced: msgpack does not pass it on."""


def report_replaced(is_error: bool) -> None:
    """Report that text of the value that this thread has packed was replaced, if it was.

    Raises:
        UnsupportedTypeError: If that is an error.
    """
    if not replacing.pop(threading.get_ident(), 0):
        return  # it is another thread's value
    if is_error:
        raise UnsupportedTypeError("no form for text with a lone surrogate")
    warn_of_replaced()


@functools.cache
def warn_of_replaced() -> None:
    """Log the warning, once in this process."""
    logger.warning("text with a lone surrogate was written with '?' in its place")
