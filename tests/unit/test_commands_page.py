"""docs/commands.md is what `--help` prints."""

from __future__ import annotations

from tests.support.commands import PAGE, render


def test_page_is_what_help_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: make commands"
