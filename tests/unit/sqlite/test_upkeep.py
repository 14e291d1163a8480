"""delete_thread, delete_for_runs, copy_thread and prune: what goes, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from sealpoint.base import CheckpointMetadata
from sealpoint.errors import ConfigError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump, ids_in, make, put_chain


def rows_of(saver: SqliteSaver, thread_id: str) -> list[tuple[Any, ...]]:
    """All rows of a thread, without its name."""
    return [row[1:] for row in dump(saver.conn) if row[0] == thread_id]


def test_a_copy_replaces_what_has_the_same_id(saver: SqliteSaver) -> None:
    put_chain(saver, "1", "2")
    saver.put(at("copy"), make("1", n="older"), {}, {})
    saver.put(at("copy"), make("9"), {}, {})
    for _ in range(2):
        saver.copy_thread("t", "copy")
    assert ids_in(saver, at("copy")) == ["9", "2", "1"]
    first = saver.get(at("copy", "1"))
    assert first is not None
    assert first["channel_values"] == {"n": 0}


@pytest.mark.parametrize("strategy", ["", "keep-latest", "KEEP_LATEST", None, "keep_all"])
def test_an_unknown_strategy_deletes_nothing(saver: SqliteSaver, strategy: Any) -> None:
    put_chain(saver, "1", "2")
    before = dump(saver.conn)
    with pytest.raises(ConfigError, match="strategy"):
        saver.prune(["t"], strategy=strategy)
    assert dump(saver.conn) == before


def put_deltas(saver: SqliteSaver, stored: dict[str, dict[str, Any]]) -> None:
    """Put a chain whose delta channels ``a`` and ``b`` are stored here and there only."""
    config = at()
    for checkpoint_id, values in stored.items():
        waiting = {name: (1, 1) for name in ("a", "b") if name not in values}
        metadata: CheckpointMetadata = {"counters_since_delta_snapshot": waiting} if waiting else {}
        config = saver.put(config, make(checkpoint_id, **values), metadata, {})
        saver.put_writes(config, [("a", checkpoint_id), ("b", checkpoint_id)], "task")


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        ({"1": {}, "2": {"a": 0, "b": 0}, "3": {}, "4": {}}, "432"),
        ({"1": {"b": 0}, "2": {"a": 0}, "3": {"a": 1}, "4": {}}, "4321"),
        ({"1": {"b": 0}, "2": {"b": 1}, "3": {"a": 1}, "4": {"a": 2}}, "432"),
        ({"1": {}, "2": {}, "3": {}}, "321"),
        ({"1": {}, "2": {}, "3": {"a": 0, "b": 0}}, "3"),
    ],
    ids=["both at 2", "far and near", "one at the latest", "never stored", "both at the latest"],
)
def test_prune_keeps_what_delta_channels_are_rebuilt_from(
    saver: SqliteSaver, stored: dict[str, dict[str, Any]], kept: str
) -> None:
    """Back to the nearest stored value of the channel that was stored longest ago, and no further."""
    put_deltas(saver, stored)
    missing = [name for name in ("a", "b") if name not in stored[max(stored)]]
    before = saver.get_delta_channel_history(config=at(), channels=missing)
    saver.prune(["t"])
    assert saver.get_delta_channel_history(config=at(), channels=missing) == before
    assert "".join(ids_in(saver)) == kept


def test_prune_leaves_forks_behind(saver: SqliteSaver) -> None:
    """Only the path of the latest checkpoint counts, not its neighbours on other branches."""
    put_deltas(saver, {"1": {"a": 0, "b": 0}, "2": {}, "3": {}})
    waiting: CheckpointMetadata = {"counters_since_delta_snapshot": {"a": (1, 1), "b": (1, 1)}}
    saver.put(at("t", "1"), make("4"), waiting, {})
    saver.prune(["t"])
    assert ids_in(saver) == ["4", "1"]
