"""What is loaded: no more lines than `tests.support.loaded` allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loaded import AGENTS, LARGEST, RUNS, lines_of_agent, lines_of_commands


def test_a_command_loads_what_it_uses(tmp_path: Path) -> None:
    found = lines_of_commands(tmp_path)
    assert {words: number for words, number in found.items() if number > RUNS.get(words, LARGEST)} == {}


@pytest.mark.parametrize(("imports", "most"), AGENTS.items())
def test_an_agent_loads_what_it_uses(imports: str, most: int) -> None:
    pytest.importorskip("langgraph.checkpoint.base")
    assert lines_of_agent(imports) <= most
