"""What a SealedSaver wraps in a child process, whose parent has the connection."""

from __future__ import annotations

from typing import Any, NoReturn

from sealpoint.errors import ForkedError
from sealpoint.forks import inherited


class InheritedSaver:
    """A saver that must not be used in this process: each access to an attribute raises `ForkedError`."""

    def __init__(self, saver: Any) -> None:
        """Take the place of ``saver``."""
        inherited.append(saver)
        self._name = type(saver).__name__

    def __getattr__(self, name: str) -> NoReturn:
        raise ForkedError(self._name)


def is_inherited(saver: Any) -> bool:
    """Whether a saver has a connection, or a pool, that was open when the process forked.

    A pool that the child opens itself may be used. A saver without the attribute ``conn`` is not known.
    """
    connection = getattr(saver, "__dict__", {}).get("conn")  # runs no code of the saver
    return connection is not None and not getattr(connection, "closed", False)
