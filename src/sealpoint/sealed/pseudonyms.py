"""Thread ids in the database: pseudonyms for new threads, and the ids of those that were there before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sealpoint.base import CheckpointTuple
from sealpoint.base.place import Place
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.pages import Request
from sealpoint.sealed.steps import Steps
from sealpoint.sealed.tokens import PSEUDONYM, Tokens

_REMEMBERED: Final = 10_000


class Pseudonyms:
    """Finds what stands for a thread in the database, and remembers it."""

    def __init__(self, tokens: Tokens | None, heads: Heads | None) -> None:
        """Make an object; without ``tokens`` each thread has its own id."""
        self._tokens, self._heads = tokens, heads
        self._known = OrderedDict[str, str]()

    def known(self, thread_id: str) -> str | None:
        """Return the id of a thread in the database, if no search is needed."""
        return thread_id if self._tokens is None else self._known.get(thread_id)

    def find(
        self, thread_id: str, check: Callable[[CheckpointTuple, Place], object], *, is_new: bool = False
    ) -> Steps[str]:
        """Return the id of a thread in the database.

        Args:
            thread_id: The thread.
            check: Authenticates a row: a forged one under the id itself would else be followed.
            is_new: Whether the thread is about to be written.
        """
        if self._tokens is None:
            return thread_id
        pseudonym = self._tokens.pseudonym(thread_id)
        # What looks like a pseudonym is never taken for an id: it is another thread's.
        may_be_named = not PSEUDONYM.match(thread_id)
        is_there = bool((yield _any_of(pseudonym)))
        if self._heads is not None:  # any row may have been put under a pseudonym, or removed
            if may_be_named and (yield from self._heads.has_live(thread_id)):
                is_renamed = yield from self._heads.has_live(pseudonym)
                return self._remember(thread_id, pseudonym if is_renamed else thread_id)
            if not is_there and (yield from self._heads.has_live(pseudonym)):
                return pseudonym  # the thread is missing as a whole, which is noticed when it is read
        if is_there:
            return self._remember(thread_id, pseudonym)
        if may_be_named and (found := (yield _any_of(thread_id))):
            configurable = found[0].config["configurable"]
            ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
            check(found[0], Place(thread_id, ns, checkpoint_id))
            return self._remember(thread_id, thread_id)
        return self._remember(thread_id, pseudonym) if is_new else pseudonym

    def forget(self, thread_id: str) -> None:
        """Search for a thread anew the next time: it was deleted."""
        self._known.pop(thread_id, None)

    def _remember(self, thread_id: str, column: str) -> str:
        self._known[thread_id] = column
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return column


def _any_of(thread_id: str) -> Request:
    return Request({"configurable": {"thread_id": thread_id}}, limit=1)
