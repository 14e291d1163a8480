"""CipherStats: what a cipher has counted, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sealpoint.errors import ConfigError, SealpointError
from sealpoint.keys.stats import RingStats, SourceStats, Tally

E = TypeVar("E", bound=SealpointError)

SEALED: Final = "sealed"
OPENED: Final = "opened"
OPENED_RETIRED: Final = "opened_retired"
PLAINTEXT: Final = "plaintext"
REFUSED: Final = "refused"
TOLERATED: Final = "tolerated"


@dataclass(frozen=True, slots=True)
class CipherStats:
    """What a cipher, and the serializers and savers that use it, have done since it was made.

    It contains numbers, ids of keys, names of error classes and times: no material, path or message. Each
    number is exact, over all threads and rings, but the numbers are not read at the same moment.

    Attributes:
        sealed: How many values were sealed, by key id.
        opened: How many values were opened, by key id.
        opened_retired: How many of these were opened when their key was ``decrypt-only`` or
            ``compromised``.
        plaintext: How many values that are not sealed were read, where that is allowed.
        refused: How many calls raised an error instead of returning or storing a value, by class of the
            error. Errors in the arguments of a call (`ConfigError`) are not among them.
        tolerated: How many errors were logged and not raised, by class: those of ``heads="warn"``.
        ring: The ring in use.
        sources: How often this process asked slow sources for keys.
    """

    sealed: Mapping[str, int]
    opened: Mapping[str, int]
    opened_retired: Mapping[str, int]
    plaintext: int
    refused: Mapping[str, int]
    tolerated: Mapping[str, int]
    ring: RingStats
    sources: SourceStats


class CipherTally(Tally):
    """The counters of one cipher, to which the layers above it add."""

    def refuse(self, error: E) -> E:
        """Count an error that is about to be raised, and return it. It is counted once, on any layer."""
        if not error.is_counted and not isinstance(error, ConfigError):
            error.is_counted = True
            self.add(REFUSED, type(error).__name__)
        return error

    def tolerate(self, error: SealpointError) -> None:
        """Count an error that is not raised."""
        self.add(TOLERATED, type(error).__name__)
