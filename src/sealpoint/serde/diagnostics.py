"""Diagnostics of encoding, collected because ormsgpack replaces any exception by its own.

Each thread records them while a value is packed, and reports them afterwards: as an error if everything
that is written must be readable, otherwise as a warning.
"""

from __future__ import annotations

import functools
import logging
import threading
from typing import Final

from sealpoint.errors import NestingError, UnreadableTypeError, UnsupportedTypeError, excerpt
from sealpoint.serde.limits import MAX_REPLACEMENTS, MAX_WRITTEN_LEVELS, OBJECT_LEVELS
from sealpoint.serde.warned import warn_once

logger: Final = logging.getLogger("sealpoint.serde")

noted: Final = set[int]()
"""The threads with diagnostics; usually empty, which is quick to check."""


class _Met(threading.local):
    """The diagnostics of the current value.

    Attributes:
        refusal: Why it cannot be encoded.
        unreadable: The cause for each class that a reader would not find, by module and name.
        replaced: How often text was written with ``?`` in place of a lone surrogate.
    """

    def __init__(self) -> None:
        self.refusal: UnsupportedTypeError | None = None
        self.unreadable: dict[tuple[str, str], str] = {}
        self.replaced = 0


_CALLBACK_FAILED: Final = "Type is not msgpack serializable"

_met: Final = _Met()


def refuse(what: str) -> UnsupportedTypeError:
    """Record that ``what`` cannot be encoded, and return the error."""
    _met.refusal = UnsupportedTypeError(f"no form for {what}")
    return _met.refusal


def refuse_nesting() -> UnsupportedTypeError:
    """Note that the value is nested too deeply, and return the error."""
    _met.refusal = NestingError(
        f"value is nested over {MAX_WRITTEN_LEVELS} levels deep, of which an object counts as {OBJECT_LEVELS}"
    )
    return _met.refusal


def note_failure(cls: type, error: Exception) -> None:
    """Record that an object of ``cls`` was not encoded. The first one is the innermost."""
    if _met.refusal is None:
        # The text of an error of the object's own code may quote it.
        _met.refusal = _nesting_of(error) or UnsupportedTypeError(
            f"{_CALLBACK_FAILED}: {excerpt(cls.__name__)}"
        )


def take_refusal(error: Exception) -> UnsupportedTypeError:
    """Return why a value was not packed, and clear its diagnostics."""
    refusal = _met.refusal or _nesting_of(error) or UnsupportedTypeError(str(error))
    _clear()
    return refusal


def _nesting_of(error: Exception) -> NestingError | None:
    """Return the error of a value for which the stack did not suffice, if it is that.

    ormsgpack gives one text for every failure of a callback, and each callback records its own. If none was
    recorded, Python could not enter the callback.
    """
    if isinstance(error, RecursionError) or str(error).startswith(_CALLBACK_FAILED):
        return NestingError("value is nested too deeply for Python's limit of recursion")
    return None


def note_unreadable(module: str, name: str, cause: str) -> None:
    """Record a class that a reader would not find."""
    _met.unreadable[module, name] = cause
    noted.add(threading.get_ident())


def note_replaced() -> None:
    """Record that text is packed with ``?`` in place of a lone surrogate.

    Raises:
        UnsupportedTypeError: If that happens too often: each object around another packs it again.
    """
    _met.replaced += 1
    noted.add(threading.get_ident())
    if _met.replaced > MAX_REPLACEMENTS:
        raise refuse("text with lone surrogates in so many objects")


def report(*, is_error: bool) -> None:
    """Report the diagnostics of the value that this thread has just packed.

    Raises:
        UnreadableTypeError: If a reader would not find a class in it, and ``is_error``.
        UnsupportedTypeError: If its text was changed, and ``is_error``.
    """
    if threading.get_ident() not in noted:
        return
    unreadable, replaced = _met.unreadable, _met.replaced
    _clear()
    for (module, name), cause in unreadable.items():
        error = UnreadableTypeError(module, name, cause)
        if is_error:
            raise error
        warn_once("unreadable", module, name, f"{error.cause}; a value is written that cannot be read back")
    if replaced:
        if is_error:
            raise UnsupportedTypeError("cannot encode text with a lone surrogate")
        _warn_of_replaced()


def _clear() -> None:
    noted.discard(threading.get_ident())
    _met.__init__()  # type: ignore[misc]  # as it was at the start


@functools.cache
def _warn_of_replaced() -> None:
    logger.warning("text with a lone surrogate was written with '?' in its place")
