"""Thread ids in the database: pseudonyms for new threads, and the ids of those that were there before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from sealpoint.base import CheckpointTuple
from sealpoint.base.place import Place
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.pages import Request
from sealpoint.sealed.steps import Steps
from sealpoint.sealed.tokens import PSEUDONYM, Tokens

_REMEMBERED: Final = 10_000


class Pseudonyms:
    """Finds what stands for a thread in the database.

    A pseudonym is remembered: a thread never loses it. Its own id is remembered too, and compared with the
    database each time, because another process may have deleted the thread and begun it anew.
    """

    def __init__(self, tokens: Tokens | None, heads: Heads | None) -> None:
        """Make an object; without ``tokens`` each thread has its own id."""
        self._tokens, self._heads = tokens, heads
        self._known = OrderedDict[str, str]()

    def known(self, place: Place, *, is_new: bool) -> str | None:
        """Return the id of a thread in the database, if no search is needed; arguments as for `find`."""
        if self._tokens is None:
            return place.thread_id
        column = self._known.get(place.thread_id)
        return None if column == place.thread_id or _begins(place, is_new) else column

    def find(
        self, place: Place, check: Callable[[CheckpointTuple, Place], object], *, is_new: bool
    ) -> Steps[str]:
        """Return the id of a thread in the database.

        Args:
            place: Names the thread, and perhaps a checkpoint.
            check: Authenticates a row: a forged one under the id itself would else be followed.
            is_new: Whether the thread is about to be written.
        """
        thread_id = place.thread_id
        if self._tokens is None:
            return thread_id
        if _begins(place, is_new):  # what is stored upon it at the same time must not go under another id
            self.forget(thread_id)
        pseudonym = self._tokens.pseudonym(thread_id)
        # What looks like a pseudonym is never taken for an id: it is another thread's.
        may_be_named = not PSEUDONYM.match(thread_id)
        is_there = bool((yield _any_of(pseudonym)))
        is_renamed = self._heads is not None and (yield from self._heads.has_live(pseudonym))
        known = None if is_there or is_renamed else self._known.get(thread_id)
        if known is not None:
            return known  # its rows, which may be large, need not be read for it
        if self._heads is not None:  # any row may have been put under a pseudonym, or removed
            if may_be_named and (yield from self._heads.has_live(thread_id)):
                return self._remember(thread_id, pseudonym if is_renamed else thread_id)
            if not is_there and is_renamed:
                return pseudonym  # the thread is missing as a whole, which is noticed when it is read
        if is_there:
            return self._remember(thread_id, pseudonym)
        if may_be_named and (found := (yield _any_of(thread_id))):
            configurable = found[0].config["configurable"]
            ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
            check(found[0], Place(thread_id, ns, checkpoint_id))
            return self._remember(thread_id, thread_id)
        return self._remember(thread_id, pseudonym) if is_new else pseudonym

    def others(self, thread_id: str, column: str) -> Sequence[str]:
        """Return what else may stand for a thread in the database: its history may have begun twice.

        Nothing is looked for: writes without a checkpoint are no history, and must be deleted too.

        Args:
            thread_id: The thread.
            column: What `find` has returned.
        """
        if self._tokens is None:
            return ()
        named = () if PSEUDONYM.match(thread_id) else (thread_id,)
        return [other for other in (self._tokens.pseudonym(thread_id), *named) if other != column]

    def forget(self, thread_id: str) -> None:
        """Search for a thread anew the next time: it was deleted."""
        self._known.pop(thread_id, None)

    def _remember(self, thread_id: str, column: str) -> str:
        self._known[thread_id] = column
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return column


def _begins(place: Place, is_new: bool) -> bool:
    """Whether a history begins: what is put next has no parent."""
    return is_new and not place.checkpoint_id


def _any_of(thread_id: str) -> Request:
    return Request({"configurable": {"thread_id": thread_id}}, limit=1)
