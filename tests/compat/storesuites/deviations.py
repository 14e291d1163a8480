"""Tests of LangGraph's suites that fail with SealedStore, each with its reason."""

from __future__ import annotations

from typing import Final

# By package and form: a pattern for names of tests, and the reason
DEVIATIONS: Final[dict[tuple[str, str], dict[str, str]]] = {}

# Fail now and then, also without SealedStore
FLAKY: Final[frozenset[str]] = frozenset()
