"""LenientStore: a thread store that need not be available."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sealpoint.errors import SealpointError, ThreadStoreError
from sealpoint.threads.store import ThreadStore

Count = Callable[[SealpointError], None]


_METHODS: Final = (
    "newest",
    "find",
    "between",
    "has_live",
    "replaced",
    "require_writable",
    "append",
    "last_special",
    "append_specials",
    "delete_thread",
)


class LenientStore:
    """A thread store whose errors are counted; the reply is ``None`` then."""

    def __init__(self, store: ThreadStore, count: Count) -> None:
        """Wrap ``store``; ``count`` is called with each error."""
        self._inner, self._count = store, count
        for name in _METHODS:
            setattr(self, name, self._make(getattr(store, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def identities(self) -> frozenset[str] | None:
        """Those of the store."""
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
    """Return all names of a store, which it reads anew."""
    return store.identities
