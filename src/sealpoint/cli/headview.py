"""How a comparison with a thread store looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sealpoint.cli.output import put
from sealpoint.maintenance.heads import Difference

_LINES: Final = {
    Difference.MISSING: "missing",
    Difference.EARLIER: "in an earlier state",
    Difference.PUT_BACK: "deleted, and put back",
    Difference.OTHER_STORE: "stored beside another thread store",
    Difference.BEHIND: "stored beside a later state of the thread store",
    Difference.LEAVING: "whose deletion began and did not end",
}


def show_heads(heads: Mapping[str, Any]) -> None:
    """Print the member ``heads`` of an object."""
    put(f"the thread store remembers {heads['recorded']} checkpoints")
    if heads["not_recorded"]:
        put(f"checkpoints that it does not know: {heads['not_recorded']}")
    for kind, line in _LINES.items():
        if heads[kind]:
            put(f"checkpoints {line}: {heads[kind]}")
