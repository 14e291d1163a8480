"""Fixtures of these tests."""

from __future__ import annotations

from tests.support.databases.fixtures import path

__all__ = ["path"]
