"""Entry: what it refuses by itself, before a value is returned, also where unbound rows are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from sealpoint.base.checkpoint import CheckpointTuple
from sealpoint.errors import DecodeError, RowError
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.entry import Entry
from sealpoint.seal.layouts import Inline, Rows, Values, Whole
from sealpoint.seal.places import Spot
from sealpoint.seal.rows import SENTINEL, SENTINEL_VERSION, Header, digest_of, split_header
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


@pytest.mark.parametrize(
    ("asked", "is_it"),
    [
        (("thread", "thread", "", "c1"), True),
        (("thread", "thread", None, None), True),
        (("other", "thread", "", "c1"), False),
        (("thread", "t-other", "", "c1"), False),
        (("thread", "thread", "child", "c1"), False),
        (("thread", "thread", None, "c2"), False),
    ],
)
def test_an_entry_is_what_was_asked_for(asked: Any, is_it: bool) -> None:
    entry = read(rows_of(Whole, allow_unbound=False), *bound())
    if is_it:
        entry.require_asked(*asked)
        return
    with pytest.raises(RowError, match="row of another checkpoint"):
        entry.require_asked(*asked)


def test_pending_sends_of_an_old_checkpoint_are_not_handed_to_a_saver() -> None:
    header: Header = {"metadata": {}, "parent": None}
    old = {**DOCUMENT, "pending_sends": ["a secret"]}
    document, _, _ = rows_of(Whole, allow_unbound=False).seal_checkpoint(SPOT, header, old, {})
    assert "a secret" not in repr([*document.items()])
    assert read(rows_of(Whole, allow_unbound=False), Sealed(*document.dump()), {}).document() == old


def stored_apart(layout: type[Rows]) -> tuple[Any, Any]:
    """A checkpoint and metadata, as a saver of a layout reads them."""
    header: Header = {"metadata": {}, "parent": None}
    rows = rows_of(layout, allow_unbound=False)
    versions = {"a": "1"}
    document, metadata, _ = rows.seal_checkpoint(SPOT, header, {**DOCUMENT, "channel_values": {}}, versions)
    found = {"channel_values": {}, "channel_versions": document["channel_versions"]}
    return found, metadata


def decoded_by(use: Callable[[Entry], Any], entry: Entry) -> None:
    """Use an entry, and decode it if that was not necessary."""
    use(entry)
    entry.values()


@pytest.mark.parametrize(("sealed_by", "read_by"), [(Inline, Values), (Values, Inline)])
def test_a_row_of_another_layout_is_refused(sealed_by: type[Rows], read_by: type[Rows]) -> None:
    found, metadata = stored_apart(sealed_by)
    assert read(rows_of(sealed_by, allow_unbound=False), found, metadata).document()["id"] == "c1"
    for use in (lambda entry: entry.document(), lambda entry: entry.values(["a"]), lambda e: e.needs_sends):
        with pytest.raises(RowError, match="another layout"):
            decoded_by(use, read(rows_of(read_by, allow_unbound=False), found, metadata))


def test_a_header_ends_within_its_value() -> None:
    with pytest.raises(DecodeError):
        split_header((200).to_bytes(4, "big") + b'{"metadata":{},"parent":null}')


def test_a_claim_of_any_text_has_a_digest() -> None:
    assert len({digest_of(claim, "msgpack", b"x") for claim in ("\ud800", "a", "", None)}) == 4
