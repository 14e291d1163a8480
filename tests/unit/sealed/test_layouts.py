"""Layouts alone, without a saver: what is refused before any value is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, PlaintextError, RowError, SealingError, WritesLostError
from sealpoint.seal.calls import Claims, new_call
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.jsontext import has_strict_form
from sealpoint.seal.layouts import Inline, Rows, Values, Whole
from sealpoint.seal.places import Spot
from sealpoint.seal.rows import SENTINEL, SENTINEL_VERSION, Header
from sealpoint.seal.tokens import Tokens
from sealpoint.sealed.layout import CODEC, layout_of
from sealpoint.serde import EncryptedSerializer

RING: Final = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)])
SPOT: Final = Spot("t", "", "1")
PLAIN: Final[dict[str, Any]] = {"v": 4, "id": "1", "channel_values": {"n": 1}, "channel_versions": {"n": "1"}}


def rows(layout: type[Rows], *, allow_unbound: bool = False, **options: Any) -> Rows:
    serde = EncryptedSerializer(RingCipher(RING), plaintext="allow")
    empty: Any = {"plain": frozenset(), "indexed": frozenset(), "tokens": Tokens(lambda: RING)}
    return layout(serde, **CODEC, **{**empty, **options}, allow_unbound=allow_unbound)


def stored(**parts: Any) -> Any:
    """Return a row as a saver read it: of a checkpoint whose metadata has no sealed part."""
    return SimpleNamespace(checkpoint=PLAIN | parts, metadata={"step": 1})


@pytest.mark.parametrize("layout", [Whole, Inline, Values])
def test_a_layout_is_chosen_by_its_name(layout: type[Rows]) -> None:
    """Callers pass it for a saver whose class is not known."""
    name = {Whole: "whole", Inline: "inline", Values: "values"}[layout]
    unknown = SimpleNamespace(get_tuple=None)
    assert layout_of(unknown, name, EncryptedSerializer(RingCipher(RING))) is layout
    with pytest.raises(ConfigError, match=r"not one of auto, whole, inline, values$"):
        layout_of(unknown, name.upper(), EncryptedSerializer(RingCipher(RING)))


@pytest.mark.parametrize("checkpoint", [PLAIN, None, "text", ("msgpack", b"")])
def test_a_checkpoint_that_went_around_the_serializer_is_refused(checkpoint: Any) -> None:
    """Whatever is allowed: nothing has authenticated it."""
    with pytest.raises(SealingError, match="did not come from its serializer"):
        rows(Whole, allow_unbound=True).open_header(SimpleNamespace(checkpoint=checkpoint), SPOT)


@pytest.mark.parametrize("layout", [Inline, Values])
def test_a_row_without_a_sealed_part_is_plaintext(layout: type[Rows]) -> None:
    """Even if none of its values was ever passed to a serializer, and so none is refused by itself."""
    with pytest.raises(PlaintextError, match="as a whole"):
        rows(layout).open_header(stored(), SPOT)
    assert rows(layout, allow_unbound=True).open_header(stored(), SPOT) is None


@pytest.mark.parametrize("part", ["channel_values", "channel_versions"])
@pytest.mark.parametrize("layout", [Inline, Values])
def test_a_row_that_names_the_sentinel_has_lost_its_sealed_part(layout: type[Rows], part: str) -> None:
    """Its sealed part was removed: it is never taken for a row from before sealing."""
    found = stored(**{part: PLAIN[part] | {SENTINEL: SENTINEL_VERSION}})
    with pytest.raises(RowError, match="lacks its sealed part"):
        rows(layout, allow_unbound=True).open_header(found, SPOT)


@pytest.mark.parametrize("document", [PLAIN | {"id": "2"}, {"id": "1"}, [], None])
def test_values_are_those_of_the_checkpoint_of_the_row(document: Any) -> None:
    """Also if only values are asked for, as for the history of a channel."""
    with pytest.raises(RowError, match="'1'"):
        rows(Whole).values(document, None, stored(), SPOT, ["n"])


def test_a_part_of_a_call_is_read_only_if_that_is_asked_for() -> None:
    rule = rows(Whole)
    call = new_call([("a", 1), ("a", 2)])
    [(channel, sealable)] = rule.seal_writes(SPOT, [(Claims("", 0, call), "task", "a", 1)])
    found = [("task", channel, Sealed(*sealable.dump()))]
    with pytest.raises(WritesLostError):
        rule.open_writes(SPOT, found)
    [write] = rows(Whole, allow_partial=True).open_writes(SPOT, found)
    assert write.claims == Claims("", 0, call)


def test_metadata_is_sealed_once() -> None:
    """With the document, where that keeps types that JSON does not have."""
    header: Header = {"metadata": {"step": 1}, "parent": None}
    rule = rows(Values)
    rule.seal_checkpoint(SPOT, header, PLAIN, {})
    assert header == {"metadata": {}, "parent": None, "channels": ["n"]}


@pytest.mark.parametrize(
    ("value", "is_readable"),
    [
        *((each, True) for each in (1.5, "nan", None, [1, {"a": 0.5}], {"a": (1,)})),
        *(
            (each, False)
            for each in (math.nan, [math.inf], {"a": -math.inf}, (math.nan,), [({"a": math.nan},)])
        ),
    ],
    ids=str,
)
def test_what_json_lacks_is_only_sealed(value: Any, is_readable: bool) -> None:
    """Deep inside as well, and in tuples: JSON has them as arrays."""
    assert has_strict_form(value) is is_readable
    assert has_strict_form(value, otherwise=True)
    assert rows(Whole, plain=frozenset("a")).readable({"a": value, "b": 1}) == (
        {"a": value} if is_readable else {}
    )


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"a": value}])
def test_readable_metadata_has_at_most_64_levels(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(63):
        value = wrap(value)
    assert has_strict_form(value)
    assert not has_strict_form(wrap(value))


def test_where_the_database_refuses_what_json_lacks_it_is_not_taken_away() -> None:
    """As with a bare saver, which raises."""
    assert rows(Inline, plain=frozenset("a")).readable({"a": math.inf}) == {"a": math.inf}
