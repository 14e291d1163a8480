"""An entry alone, without a saver: each of its errors names its row, and the thread by its own name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from sealpoint.errors import SealpointError
from sealpoint.seal.carrier import Sealable, Sealed
from sealpoint.seal.entry import Entry
from sealpoint.seal.layouts import Inline, Rows, Whole
from sealpoint.seal.places import KEY, Spot
from sealpoint.seal.rows import Header
from sealpoint.sealed.reading import stored_bytes
from tests.unit.sealed.test_layouts import rows

OWN: Final = "maria"
SPOT: Final = Spot("t-" + "a" * 32, "", "1")  # a pseudonym stands for the thread
CHECKPOINT: Final[dict[str, Any]] = {"v": 4, "id": "1", "channel_versions": {"n": "1"}, "versions_seen": {}}


def entry(layout: type[Rows], values: dict[str, Any], **parts: Any) -> Entry:
    """Seal a checkpoint, and read its row."""
    rule = rows(layout)
    header: Header = {"metadata": {}, "parent": None, "thread": OWN}
    checkpoint = {**CHECKPOINT, "channel_values": values, **parts}
    document, metadata, _ = rule.seal_checkpoint(SPOT, header, checkpoint, {})
    found: Any = Sealed(*document.dump())
    if layout is Inline:
        stored = {name: opened(value) for name, value in document["channel_values"].items()}
        found = {**document, "channel_values": stored}
    return Entry(
        rule,
        SimpleNamespace(checkpoint=found, metadata=metadata, parent_config=None, pending_writes=None),
        SPOT,
    )


def opened(value: Any) -> Any:
    return Sealed(*value.dump()) if isinstance(value, Sealable) else value


READS: Final[dict[str, Callable[[Entry], Any]]] = {
    "the document": lambda entry: entry.document(),
    "values": lambda entry: entry.values(["n"]),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("layout", [Whole, Inline])
def test_what_was_sealed_is_read(layout: type[Rows], read: str) -> None:
    found = entry(layout, {"n": [1]})
    READS[read](found)
    assert (found.thread_id, found.document()["channel_values"]) == (OWN, {"n": [1]})


@pytest.mark.parametrize("read", READS)
def test_another_checkpoint_is_refused_by_the_name_of_its_row(read: str) -> None:
    found = entry(Whole, {"n": [1]}, id="2")
    with pytest.raises(SealpointError) as caught:
        READS[read](found)
    place = caught.value.table, caught.value.thread_id, caught.value.checkpoint_id
    assert place == ("checkpoints", OWN, "1")
    assert caught.value.place["thread_id"] == SPOT.thread_id


@pytest.mark.parametrize("read", READS)
def test_a_missing_value_is_refused_by_the_name_of_its_row(read: str) -> None:
    found = entry(Inline, {"n": [1]})
    del found.found.checkpoint["channel_values"]["n"]
    with pytest.raises(SealpointError, match="is missing") as caught:
        READS[read](found)
    place = caught.value.table, caught.value.thread_id, caught.value.channel, caught.value.version
    assert place == ("values", OWN, "n", "1")
    assert caught.value.place["thread_id"] == SPOT.thread_id


@pytest.mark.parametrize(
    ("metadata", "size"),
    [
        ({KEY: {"value": "12345"}}, 5),
        ({KEY: {"value": 1}}, 0),
        ({KEY: "12"}, 0),
        ({}, 0),
        (None, 0),
        ("text", 0),
    ],
)
def test_the_bytes_of_a_row_are_counted_before_it_is_opened(metadata: Any, size: int) -> None:
    """Whatever its columns hold: what is no value is refused later."""
    values = {"a": Sealed("t", b"123"), "b": Sealed("t", None), "c": "readable"}
    writes = [("task", "a", Sealed("t", b"1")), ("task", "b", None)]
    found: Any = SimpleNamespace(
        checkpoint={"channel_values": values}, metadata=metadata, pending_writes=writes
    )
    assert stored_bytes(found) == 3 + 1 + size
