"""What the tests of serializers share."""

from __future__ import annotations

import pytest

from sealpoint.serde import classes as warned


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are given once a process, and a hundred at most: each test begins anew."""
    monkeypatch.setattr(warned, "_warned", set())
