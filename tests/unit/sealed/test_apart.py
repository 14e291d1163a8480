"""Values that are stored apart from their checkpoint: which of them are, and under which version."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from sealpoint.langgraph import SealedSaver
from tests.graphs.savers import SEALED

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.mark.parametrize("is_sealed", [False, True], ids=["bare", "sealed"])
def test_a_value_whose_channel_has_no_version_is_not_stored(is_sealed: bool) -> None:
    """No saver finds it again, though it is among the new versions."""
    saver: Any = SealedSaver(InMemorySaver(), serde=SEALED) if is_sealed else InMemorySaver()
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"a": [1], "b": [2]}
    checkpoint["channel_versions"] = {"a": 1}
    stored = saver.put(CONFIG, checkpoint, {}, {"a": 1, "b": 1})
    assert saver.get_tuple(stored).checkpoint["channel_values"] == {"a": [1]}
