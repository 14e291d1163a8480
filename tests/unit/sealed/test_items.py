"""Items: what is stored of a value, and what is refused when it is opened."""

from __future__ import annotations

import copy
import json
import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    IntegrityError,
    PlaintextError,
    RowError,
    SealedValueError,
    SealpointError,
    UnboundValueError,
    UnsupportedTypeError,
)
from sealpoint.seal.items import ItemName, Items, pack_item, row_of, split_item
from sealpoint.seal.places import KEY
from sealpoint.seal.rows import with_length
from sealpoint.seal.tokens import Tokens
from sealpoint.serde import EncryptedSerializer

RING: Final = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=bytes(range(32, 64)))
NAME: Final = ItemName(("users", "u1"), "prefs")
OTHER: Final = ItemName(("users", "u2"), "prefs")
VALUE: Final = {"lang": "en", "user": "u1", "text": "likes tea"}


def items(plaintext: Any = "refuse", **options: Any) -> Items:
    serde = EncryptedSerializer(RingCipher(RING), plaintext=plaintext)
    fields = {"plain": frozenset({"lang"}), "indexed": frozenset({"user"})}
    return Items(serde, **{**fields, "tokens": Tokens(lambda: RING), **options})


TOKEN: Final = str(items().tokens.token("user", "u1"))


@pytest.mark.parametrize("pseudonyms", [False, True])
@given(
    labels=st.lists(st.text(min_size=1).filter(lambda text: "." not in text), min_size=1),
    key=st.text(),
    value=st.dictionaries(st.sampled_from(["lang", "user", "text"]), st.none() | st.booleans() | st.text()),
)
def test_a_value_comes_back_under_its_name(
    pseudonyms: bool, labels: list[str], key: str, value: dict[str, Any]
) -> None:
    rule, name = items(has_pseudonyms=pseudonyms), ItemName(tuple(labels), key)
    stored = rule.stored_name(name)
    assert rule.open(stored, rule.seal(name, value)) == (name, value)
    if pseudonyms:
        assert not {*name.namespace, name.key} & {*stored.namespace, stored.key}


def test_beside_the_frame_are_plain_fields_and_tokens_only() -> None:
    sealed = items().seal(NAME, VALUE)
    assert {name: each for name, each in sealed.items() if name != KEY} == {"lang": "en", TOKEN: 1}
    assert "likes tea" not in str(sealed)


Edit = Callable[[dict[str, Any]], Any]

EDITS: Final[dict[str, tuple[Edit, type[SealpointError]]]] = {
    "a plain field": (lambda item: item.update(lang="de"), RowError),
    "a plain field of another type": (lambda item: item.update(lang=["en"]), RowError),
    "a plain field removed": (lambda item: item.pop("lang"), RowError),
    "a token removed": (lambda item: item.pop(TOKEN), RowError),
    "a token of another item": (lambda item: item.update({"sp" + "0" * 32: 1}), RowError),
    "a token with another mark": (lambda item: item.update({TOKEN: True}), RowError),
    "a sealed field added": (lambda item: item.update(text="hates tea"), RowError),
    "a field added": (lambda item: item.update(role="admin"), RowError),
    "the frame removed": (lambda item: item.pop(KEY), PlaintextError),
    "no frame": (lambda item: item.update({KEY: "text"}), RowError),
    "a frame with more": (lambda item: item[KEY].update(more=1), RowError),
    "a frame without a value": (lambda item: item[KEY].pop("value"), RowError),
    "a value of no text": (lambda item: item[KEY].update(value=1), RowError),
    "a value of no base64": (lambda item: item[KEY].update(value="?"), RowError),
    "another value": (
        lambda item: item[KEY].update(value=b64encode(bytes(200)).decode()),
        SealedValueError,
    ),
    "the flag of binding": (
        lambda item: item[KEY].update(type=item[KEY]["type"].replace(".row", "")),
        UnboundValueError,
    ),
    "another type": (
        lambda item: item[KEY].update(type=item[KEY]["type"].replace("msgpack", "json")),
        IntegrityError,
    ),
    "a type of plaintext": (lambda item: item[KEY].update(type="msgpack"), RowError),
    "a type of no text": (lambda item: item[KEY].update(type=7), RowError),
}


@pytest.mark.claim("i2")
@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_refused(edit: str) -> None:
    change, error = EDITS[edit]
    sealed = items().seal(NAME, VALUE)
    items().open(NAME, copy.deepcopy(sealed))
    change(sealed)
    with pytest.raises(error):
        items().open(NAME, sealed)


@pytest.mark.claim("i4")
@pytest.mark.parametrize(
    "place",
    [
        OTHER,
        ItemName(("users",), "u1.prefs"),
        ItemName(NAME.namespace, "other"),
        ItemName(("users", "u1", "x"), "prefs"),
    ],
)
@pytest.mark.parametrize("pseudonyms", [False, True])
def test_a_moved_item_is_refused(place: ItemName, pseudonyms: bool) -> None:
    rule = items(has_pseudonyms=pseudonyms)
    with pytest.raises(IntegrityError):
        rule.open(rule.stored_name(place), rule.seal(NAME, VALUE))


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(RowError):
        items().open(ItemName(("users",), b"prefs"), items().seal(NAME, VALUE))  # type: ignore[arg-type]


@pytest.mark.parametrize("found", [[], "text", 1, None, [["__sealpoint__", 1]]])
def test_a_value_that_is_no_object_is_refused(found: Any) -> None:
    with pytest.raises(RowError):
        items("allow", allow_unbound=True).open(NAME, found)


def test_a_sealed_value_that_is_no_dict_is_refused() -> None:
    tag, blob = items().serde.seal([1], row=row_of(*NAME), head=pack_item(None))
    frame = {"type": tag, "value": b64encode(blob).decode()}
    with pytest.raises(DecodeError):
        items().open(NAME, {KEY: frame})


@pytest.mark.parametrize(
    "name", [1, "users", [], [[], 1], [["users"]], [["users", 1], "k"], [["users"], "k", 1]]
)
def test_a_header_that_names_an_item_in_another_form_is_refused(name: Any) -> None:
    header = with_length(json.dumps({"name": name}).encode())
    with pytest.raises(DecodeError):
        split_item(header + b"value")
    assert split_item(with_length(b'{"later": 1}') + b"value") == (None, b"value")


def test_a_store_with_pseudonyms_and_one_without_refuse_the_items_of_the_other() -> None:
    named, plain = items(has_pseudonyms=True), items()
    with pytest.raises(RowError, match="another name"):
        plain.open(named.stored_name(NAME), named.seal(NAME, VALUE))
    with pytest.raises(RowError, match="its own name"):
        named.open(NAME, plain.seal(NAME, VALUE))


def test_an_item_that_is_not_sealed_is_read_only_if_both_allow_it() -> None:
    for plaintext, allow in (("allow", False), ("refuse", True)):
        with pytest.raises(PlaintextError):
            items(plaintext, allow_unbound=allow).open(NAME, VALUE)
    rule = items("allow", allow_unbound=True)
    assert rule.open(NAME, VALUE) == (NAME, VALUE)
    assert isinstance(rule.serde, EncryptedSerializer)
    assert rule.serde.plaintext_count == 1


def test_fields_that_became_readable_later_may_be_missing_during_a_migration() -> None:
    before = items(plain=frozenset(), indexed=frozenset()).seal(NAME, VALUE)
    assert items(allow_unbound=True).open(NAME, before) == (NAME, VALUE)
    with pytest.raises(RowError, match="missing"):
        items().open(NAME, before)


def test_fields_that_are_no_longer_readable_are_still_compared() -> None:
    before, after = items().seal(NAME, VALUE), items(plain=frozenset(), indexed=frozenset())
    assert after.open(NAME, before) == (NAME, VALUE)
    with pytest.raises(RowError):
        after.open(NAME, {**before, "lang": "de"})


def test_the_field_of_a_frame_is_reserved() -> None:
    with pytest.raises(ConfigError, match=KEY):
        items().seal(NAME, {KEY: 1})
    for fields in ({"plain": {KEY}}, {"indexed": {KEY}}, {"plain": {"user"}}, {"plain": {"sp" + "0" * 32}}):
        with pytest.raises(ConfigError):
            items(**{name: frozenset(each) for name, each in fields.items()})


@pytest.mark.parametrize(
    "value", [(1, 2), {1: 2}, {"a": (1,)}, [{1}], b"x", math.nan, math.inf, datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_a_plain_field_holds_json(value: Any) -> None:
    """A store would refuse it, or give back another value, which would be taken for a forged one."""
    with pytest.raises(UnsupportedTypeError, match="lang"):
        items().seal(NAME, {"lang": value})
    items().seal(NAME, {"text": value, "user": value})  # elsewhere it may be anything


def test_nothing_of_a_plain_field_is_kept() -> None:
    value: dict[str, Any] = {"lang": {"all": ["en"]}}
    sealed = items().seal(NAME, value)
    value["lang"]["all"].append("de")
    assert items().open(NAME, sealed) == (NAME, {"lang": {"all": ["en"]}})
