"""What the demo claims, and whether it was observed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Claims:
    """What was claimed, and what of it did not hold."""

    count: int = 0
    broken: list[str] = field(default_factory=list)

    def check(self, claim: str, holds: bool) -> None:
        """Count a claim."""
        self.count += 1
        if not holds:
            self.broken.append(claim)
