"""Lenient: a thread store for ``heads="warn"``, whose errors are counted instead of raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sealpoint.errors import SealpointError, ThreadStoreError
from sealpoint.threads.store import ThreadStore

Count = Callable[[SealpointError], None]
"""Counts an error that is not raised."""


class Lenient:
    """A store whose errors are counted; the reply is ``None`` then."""

    def __init__(self, store: ThreadStore, count: Count) -> None:
        """Wrap a store."""
        self._inner, self._count = store, count
        for name in ("newest", "find", "between", "replaced", "require_writable", "append", "delete_thread"):
            setattr(self, name, self._make(getattr(store, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def identities(self) -> frozenset[str] | None:
        """All identities that the store has had."""
        return self._make(identities_of)(self._inner)  # type: ignore[no-any-return]

    def _make(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except ThreadStoreError as error:
                self._count(error)
                return None

        return call


def identities_of(store: ThreadStore) -> frozenset[str]:
    """Return all identities that a store has had."""
    return store.identities
