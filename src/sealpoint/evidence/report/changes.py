"""What the ledger says about a period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sealpoint.evidence.report.period import Period


class Changes(NamedTuple):
    """The entries of a ledger.

    Attributes:
        entries: Those of the period, each as the ledger has it, oldest first.
        verified: Whether the ledger was found to be whole; ``None`` if that was not shown.
    """

    entries: Sequence[dict[str, Any]]
    verified: bool | None

    def object(self) -> dict[str, Any]:
        """Return them as JSON."""
        return {"entries": [*self.entries], "verified": self.verified}


def find_changes(_period: Period | None) -> Changes | None:
    """Return what the ledger says about a period, or about all time; ``None`` if none is configured."""
    return None
