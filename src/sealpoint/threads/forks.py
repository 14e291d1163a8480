"""Stores after a fork: the child may use neither the connections nor the locks of its parent."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """A store that is in use when its process forks."""

    def reset_after_fork(self) -> None:
        """Forget connections without closing them, and replace locks. Called in the child only."""
        ...


_stores: Final[WeakSet[Forked]] = WeakSet()


def reset_in_child(store: Forked) -> None:
    """Have a store reset in each child that is forked while the store exists."""
    _stores.add(store)


def _reset() -> None:
    for store in [*_stores]:
        store.reset_after_fork()


os.register_at_fork(after_in_child=_reset)
