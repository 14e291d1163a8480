"""Rows: a value opens with the row that it was sealed with, and no other."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Opened, Row, RowTemplate, Tag, context
from sealpoint.errors import ContextMissingError, IntegrityError, SealpointError, TagError, UnboundValueError
from sealpoint.seal.context import pack_row
from tests.support.keys.rings import SUITES, make_cipher

ROW: Row = {"table": "writes", "thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "1f0a"}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("row", "flags"), [(None, ()), ({}, ("row",)), (ROW, ("row",))])
def test_round_trip(suite: str, row: Row | None, flags: tuple[str, ...]) -> None:
    """The flags in the tag follow from the arguments alone."""
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=row)
    assert Tag.parse(tag) == Tag("msgpack", suite, flags, "new")
    opened = cipher.open(tag, blob, row=row)
    assert opened == Opened("msgpack", b"value", authenticated=True, key_id="new")
    assert type(opened) is Opened
    assert opened.typed == ("msgpack", b"value")


REFUSED: list[tuple[Row | None, Row | None, type[SealpointError]]] = [
    (ROW, None, ContextMissingError),
    ({}, None, ContextMissingError),
    (None, ROW, UnboundValueError),
    (None, {}, UnboundValueError),
    (ROW, {}, IntegrityError),
    ({}, ROW, IntegrityError),
    (ROW, {**ROW, "thread_id": "2"}, IntegrityError),
]


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("sealed", "given", "error"), REFUSED)
def test_each_mismatch_has_its_own_refusal(
    suite: str, sealed: Row | None, given: Row | None, error: type[SealpointError]
) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=sealed)
    with pytest.raises(error) as caught:
        cipher.open(tag, blob, row=given)
    assert type(caught.value) is error
    assert caught.value.hint
    if error is not IntegrityError:  # an empty blob would be a `SealedValueError`, were it looked at
        with pytest.raises(error):
            cipher.open(tag, b"", row=given)


@pytest.mark.parametrize("row", [None, ROW])
@pytest.mark.parametrize("flag", ["dek", "zip"])
def test_a_value_with_an_unknown_flag_is_refused_as_such(row: Row | None, flag: str) -> None:
    """Before its key or its row matters."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value", row=row)
    edited = tag.replace("256", f"256.{flag}")
    for given in (None, ROW):
        with pytest.raises(TagError, match="has flags that are not known"):
            cipher.open(edited, blob, row=given)


@pytest.mark.parametrize("row", [{"a": 1}, {"a": None}, {"a": b"x"}, {1: "a"}, {None: "a"}])
def test_coordinates_are_strings(row: dict[str, str]) -> None:
    """A number is not silently written as text: 1 and "1" are different threads to somebody."""
    ((name, value),) = row.items()
    with pytest.raises(TypeError, match="strings"):
        context("msgpack+cobblestone256.row@k", row)
    with pytest.raises(TypeError):
        RowTemplate(row, ())
    with pytest.raises(TypeError):
        RowTemplate({}, (name,)).row(value)


def test_template_takes_each_coordinate_once() -> None:
    cases: list[tuple[Row, tuple[str, ...]]] = [({"a": "1"}, ("a",)), ({}, ("a", "a"))]
    for shared, names in cases:
        with pytest.raises(ValueError, match="twice"):
            RowTemplate(shared, names)
    for values in ((), ("1", "2")):
        with pytest.raises(TypeError, match="1 coordinates"):
            RowTemplate({"a": "1"}, ("b",)).row(*values)


def test_bytes_are_not_a_packed_row() -> None:
    """Only what packs coordinates makes one: other bytes could stand for any row."""
    with pytest.raises((TypeError, AttributeError)):
        make_cipher().seal("msgpack", b"value", row=bytes(pack_row({"a": "1"})))  # type: ignore[arg-type]
