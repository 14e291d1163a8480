"""Entry: what it refuses by itself, before a value is returned, also where unbound rows are read."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sealpoint.base.checkpoint import CheckpointTuple
from sealpoint.errors import RowError
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.entry import Entry
from sealpoint.seal.layouts import Inline, Rows, Whole
from sealpoint.seal.places import Spot
from sealpoint.seal.rows import SENTINEL, SENTINEL_VERSION, Header
from sealpoint.seal.tokens import Tokens
from sealpoint.sealed.layout import CODEC
from sealpoint.serde import EncryptedSerializer
from tests.support.keys.rings import material_of

SERDE: Final = EncryptedSerializer.from_key(material_of("k1"))
SPOT: Final = Spot("thread", "", "c1")
DOCUMENT: Final[dict[str, Any]] = {
    "v": 4,
    "id": "c1",
    "channel_values": {"a": [1]},
    "channel_versions": {"a": "1"},
    "versions_seen": {},
}


def rows_of(layout: type[Rows], *, allow_unbound: bool) -> Rows:
    return layout(
        serde=SERDE,
        **CODEC,
        plain=frozenset(["step"]),
        indexed=frozenset(),
        tokens=Tokens(lambda: pytest.fail("no token is made")),
        allow_unbound=allow_unbound,
    )


def read(rows: Rows, checkpoint: Any, metadata: Any) -> Entry:
    return Entry(rows, CheckpointTuple({}, checkpoint, metadata, None, []), SPOT)


def bound() -> tuple[Sealed, dict[str, Any]]:
    """A whole checkpoint as it is stored, and its readable metadata."""
    header: Header = {"metadata": {"step": 1}, "parent": None}
    document, metadata, _ = rows_of(Whole, allow_unbound=False).seal_checkpoint(SPOT, header, DOCUMENT, {})
    return Sealed(*document.dump()), metadata


def test_what_was_sealed_is_returned() -> None:
    entry = read(rows_of(Whole, allow_unbound=False), *bound())
    assert (entry.document(), entry.metadata) == (DOCUMENT, {"step": 1})


@pytest.mark.parametrize("allow_unbound", [True, False])
def test_readable_metadata_is_compared_before_anything_is_returned(allow_unbound: bool) -> None:
    sealed, metadata = bound()
    with pytest.raises(RowError, match="'step' is not what was sealed"):
        read(rows_of(Whole, allow_unbound=allow_unbound), sealed, {**metadata, "step": 2})


@pytest.mark.parametrize("stored", [{**DOCUMENT, "id": "c2"}, {**DOCUMENT, "versions_seen": []}, []])
def test_an_unbound_value_is_the_checkpoint_of_its_row(stored: Any) -> None:
    entry = read(rows_of(Whole, allow_unbound=True), Sealed(*SERDE.dumps_typed(stored)), {})
    with pytest.raises(RowError):
        entry.document()


@pytest.mark.parametrize("part", ["channel_values", "channel_versions"])
def test_a_checkpoint_that_lacks_its_sealed_part_is_not_unbound(part: str) -> None:
    stored = {**DOCUMENT, part: {**DOCUMENT[part], SENTINEL: SENTINEL_VERSION}}
    with pytest.raises(RowError, match="lacks its sealed part"):
        read(rows_of(Inline, allow_unbound=True), stored, {})
