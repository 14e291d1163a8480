"""Classes in a value that a reader would not find: noted while it is packed, reported once it is.

msgpack passes nothing on from the encoder of an object to the one who packs the value, so that is kept by
thread. As long as no such class was ever met, `unreadable_types` is empty, and packing asks nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from sealpoint.errors import UnreadableTypeError
from sealpoint.serde.classes import why_not_found
from sealpoint.serde.warned import warn_once

unreadable_types: Final[set[type]] = set()


class _Noted(threading.local):
    """Causes by module and name, for the thread that packs."""

    def __init__(self) -> None:
        self.causes: dict[tuple[str, str], str] = {}


_noted: Final = _Noted()


def noting(cls: type, encoder: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an encoder that notes the class, unless it can be found by then."""
    unreadable_types.add(cls)

    def encode_and_note(obj: Any) -> Any:
        cause = why_not_found(cls)
        if cause is not None:
            _noted.causes[str(cls.__module__), cls.__name__] = cause
        return encoder(obj)

    return encode_and_note


def forget_noted() -> None:
    """Forget what was noted of a value that is not written."""
    _noted.causes.clear()


def report_noted(is_error: bool) -> None:
    """Report the classes in the value that was just packed.

    Raises:
        UnreadableTypeError: If ``is_error``, for the first of them. Otherwise each is warned of once.
    """
    noted = {**_noted.causes}
    forget_noted()
    for (module, name), cause in noted.items():
        if is_error:
            raise UnreadableTypeError(module, name, cause)
        warn_once("unreadable", module, name, f"{cause}; a value is written that cannot be read back")
