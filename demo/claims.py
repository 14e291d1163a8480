"""The claims of the demo, and which of them failed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Claims:
    """The number of claims, and those that did not hold."""

    count: int = 0
    broken: list[str] = field(default_factory=list)

    def check(self, claim: str, holds: bool) -> None:
        """Count a claim, and record it if it does not hold."""
        self.count += 1
        if not holds:
            self.broken.append(claim)
