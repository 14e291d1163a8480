"""Pseudonyms: finds and caches the name under which a database stores a thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from sealpoint.base import CheckpointTuple
from sealpoint.base.place import Place
from sealpoint.seal.places import Spot
from sealpoint.seal.tokens import PSEUDONYM, Tokens, is_cached
from sealpoint.sealed.steps import Request, Steps, spot_of

_REMEMBERED: Final = 10_000


class Pseudonyms:
    """Finds the name of a thread in the database: a pseudonym, or the thread's real id.

    A pseudonym is cached, because a thread keeps its pseudonym. A real id is cached, too, but checked in the
    database each time, because another process may have deleted the thread and begun it again.
    """

    def __init__(self, tokens: Tokens, has_live: Callable[[str], Steps[bool]] | None) -> None:
        self._tokens = tokens
        self._has_live = has_live  # asks the thread store for a thread, if there is one
        self._known = OrderedDict[str, str]()

    def find(
        self, place: Place, check: Callable[[CheckpointTuple, Spot], object], *, is_new: bool
    ) -> Steps[str]:
        """Return the name of a thread in the database; ``is_new``: the thread is about to be written.

        ``check`` authenticates a row, because a row under the real id may be forged.
        """
        thread_id = place.thread_id
        column = self._known.get(thread_id)
        if is_new and not place.checkpoint_id:  # a history begins: the next checkpoint has no parent
            self.forget(thread_id)  # concurrent writes of this thread must not use another name
        elif column is not None and column != thread_id:
            return column
        pseudonym = self._tokens.pseudonym(thread_id)
        # An id that looks like a pseudonym is not taken as a name: it is the pseudonym of another thread.
        may_be_named = not PSEUDONYM.match(thread_id)
        is_there = bool((yield _any_of(pseudonym)))
        is_renamed = self._has_live is not None and (yield from self._has_live(pseudonym))
        known = None if is_there or is_renamed else self._known.get(thread_id)
        if known is not None:
            return known  # its rows, which may be large, need not be read for it
        if self._has_live is not None:  # any row may have been put under a pseudonym, or removed
            if may_be_named and (yield from self._has_live(thread_id)):
                return self._remember(thread_id, pseudonym if is_renamed else thread_id)
            if not is_there and is_renamed:
                return pseudonym  # the thread is missing as a whole, which is noticed when it is read
        if is_there:
            return self._remember(thread_id, pseudonym)
        if may_be_named and (found := (yield _any_of(thread_id))):
            check(found[0], spot_of(found[0])._replace(thread_id=thread_id))
            return self._remember(thread_id, thread_id)
        return self._remember(thread_id, pseudonym) if is_new else pseudonym

    def others(self, thread_id: str, column: str) -> Sequence[str]:
        """Return the other names under which the database may have rows of a thread: all but ``column``.

        The database is not queried: writes without a checkpoint must be deleted, too.
        """
        named = () if PSEUDONYM.match(thread_id) else (thread_id,)
        return [other for other in (self._tokens.pseudonym(thread_id), *named) if other != column]

    def forget(self, thread_id: str) -> None:
        """Forget the name of a deleted thread, so that the next call searches for it again."""
        self._known.pop(thread_id, None)

    def _remember(self, thread_id: str, column: str) -> str:
        if is_cached(thread_id):
            self._known[thread_id] = column
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return column


def _any_of(thread_id: str) -> Request:
    return Request({"configurable": {"thread_id": thread_id}}, limit=1)
