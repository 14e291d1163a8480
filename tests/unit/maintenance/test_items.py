"""Items of LangGraph's Store: bound as `SealedStore` seals them, completed, and written back as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from sealpoint.admin.databases.cells import Cell, Opener
from sealpoint.admin.maintenance.items import format_item, read_item
from sealpoint.admin.maintenance.rebind import NOTHING_MORE, Binder, Visible
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    IntegrityError,
    RowError,
    SealpointError,
    UnknownKeyError,
    UnsupportedTypeError,
)
from sealpoint.seal.items import ItemName, pack_item, row_of
from sealpoint.seal.places import KEY, make_frame
from sealpoint.seal.tokens import Tokens
from tests.support.databases.items import NAME, VALUE, cell_of, items_of, with_index
from tests.support.databases.sealed import make_cipher

CIPHER = with_index()
FIELDS = Visible(frozenset(["dose"]), frozenset(["user"]))


def bind(cell: Cell, fields: Visible = NOTHING_MORE) -> dict[str, Any]:
    return stored(Binder(CIPHER, fields=fields, allow_plaintext=True).bind(cell).document)


def stored(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_a_plain_item_is_bound_as_the_store_seals_it() -> None:
    found = bind(cell_of(NAME, VALUE), FIELDS)
    items = items_of(CIPHER, plain=("dose",), indexed=("user",))
    assert items.open(NAME, found) == (NAME, VALUE)
    assert found.keys() == items.seal(NAME, VALUE).keys()
    assert found["dose"] == 1.5


REFUSED: dict[str, tuple[Any, type[SealpointError]]] = {
    "no JSON": ("{", RowError),
    "no object": ("[1]", RowError),
    "text": ('"x"', RowError),
    "a frame that is not one": ({KEY: 1}, RowError),
    "a frame with plaintext": ({KEY: {"type": "json", "value": ""}}, RowError),
    "a frame that is not bound": ({KEY: make_frame("msgpack+cobblestone256@k1", b"x")}, RowError),
    "a frame under LANGGRAPH_AES_KEY": ({KEY: make_frame("msgpack+aes", b"x")}, RowError),
    "a key twice": ('{"a": 1, "a": 2}', DecodeError),
    "a number beyond a float": ('{"a": 1e999}', DecodeError),
    "a number beyond 64 bits": (f'{{"a": {10**30}}}', UnsupportedTypeError),
    "deep": (f'{{"a": {"[" * 70}{"]" * 70}}}', DecodeError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    value, error = REFUSED[case]
    with pytest.raises(error):
        bind(cell_of(NAME, value))


def test_a_plain_item_under_a_pseudonym_is_refused() -> None:
    """No store with pseudonyms has put it there, and one would not read what it became."""
    hidden = items_of(CIPHER, has_pseudonyms=True).stored_name(NAME)
    for name in (hidden, NAME._replace(key=hidden.key), NAME._replace(namespace=hidden.namespace)):
        with pytest.raises(RowError, match="pseudonym"):
            bind(cell_of(name, VALUE))


def test_a_forged_field_is_not_completed() -> None:
    found = {**items_of(CIPHER).seal(NAME, VALUE), "dose": 2.5}
    for change in (Binder(CIPHER, fields=FIELDS).revise, Binder(CIPHER).unbind):
        with pytest.raises(RowError):
            change(cell_of(NAME, found))


def test_fields_that_cannot_be_readable() -> None:
    both = frozenset(["a"])
    for fields in (Visible(both, both), Visible(frozenset([KEY])), Visible(frozenset([f"sp{'0' * 32}"]))):
        with pytest.raises(ConfigError):
            Binder(CIPHER, fields=fields)
    with pytest.raises(UnknownKeyError):
        Binder(make_cipher("k1"), fields=FIELDS)


@pytest.mark.parametrize(
    "value", [{}, VALUE, {"a": {"b": [1, None, True, "é\\u0000"]}, "c": -0.0, "d": 2**63}]
)
def test_there_and_back(value: dict[str, Any]) -> None:
    found = bind(cell_of(NAME, value), FIELDS)
    assert stored(Binder(CIPHER).unbind(cell_of(NAME, found)).document) == value  # type: ignore[union-attr]


@pytest.mark.parametrize("part", [datetime(2026, 1, 1, tzinfo=UTC), {1}, b"x", {1: 2}, "\0"])
def test_a_value_with_no_form_in_json_stays_sealed(part: Any) -> None:
    found = items_of(CIPHER).seal(NAME, {"a": part})
    with pytest.raises(RowError, match="cannot be stored as JSON") as refused:
        Binder(CIPHER).unbind(cell_of(NAME, found))
    assert "SealedStore" in refused.value.hint


def test_an_item_with_a_pseudonym_is_not_unbound() -> None:
    items = items_of(CIPHER, has_pseudonyms=True)
    cell = cell_of(items.stored_name(NAME), items.seal(NAME, VALUE))
    with pytest.raises(RowError, match="pseudonym"):
        Binder(CIPHER).unbind(cell)


# --- read -----------------------------------------------------------------------------------------


def read(name: ItemName, found: Any, *, allow: bool = False) -> dict[str, Any]:
    cell = cell_of(name, found)
    return read_item(cell, Opener(CIPHER, allow).parts(cell), Tokens(lambda: CIPHER.ring))


class Colour(StrEnum):
    RED = "red"


def test_an_enumeration_is_readable_as_its_value() -> None:
    value = {"dose": Colour.RED, "user": [Colour.RED], "name": Colour.RED, "id": UUID(int=1)}
    items = items_of(CIPHER, plain=("dose", "user"), indexed=("name", "id"))
    found = items.seal(NAME, value)
    assert read(NAME, found).keys() == value.keys()
    completed = Binder(CIPHER, fields=Visible(items.plain, items.indexed)).revise(
        cell_of(NAME, items_of(CIPHER).seal(NAME, value))
    )
    assert completed is not None
    assert stored(completed.document).keys() == found.keys()
    token = items.tokens.token("id", UUID(int=1).hex)
    assert token is not None
    for edited in ({"dose": "blue"}, {"user": ["blue"]}, {token: 1}):
        with pytest.raises(RowError):
            read(NAME, found | edited)


def test_an_item_opens_under_its_name_alone() -> None:
    found = items_of(CIPHER).seal(NAME, VALUE)
    for name in (
        NAME._replace(key="x"),
        NAME._replace(namespace=("users",)),
        NAME._replace(namespace=("users", "eve")),
    ):
        with pytest.raises(IntegrityError):
            read(name, found)


def test_a_pseudonym_stands_for_the_name_that_was_sealed() -> None:
    items = items_of(CIPHER, has_pseudonyms=True)
    assert read(items.stored_name(NAME), items.seal(NAME, VALUE)) == VALUE
    with pytest.raises(RowError, match="another name"):  # as one with other pseudonyms would seal it
        read(NAME, items_of(CIPHER).seal(NAME, VALUE) | {KEY: sealed_under(NAME, NAME._replace(key="x"))})


def sealed_under(place: ItemName, named: ItemName) -> dict[str, str]:
    """A frame that is bound to a place, and names another item."""
    serde = items_of(CIPHER).serde
    return make_frame(*serde.seal(dict(VALUE), row=row_of(*place), head=pack_item(named)))


def test_json_of_a_plain_item_names_no_types() -> None:
    """LangGraph's stores build nothing of it, so nothing stands for an object there."""
    value = {"lc": 2, "type": "constructor", "id": ["builtins", "set"]}
    assert read(NAME, value, allow=True) == value
    assert stored(format_item(value)) == value
