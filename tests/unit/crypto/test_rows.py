"""Rows and secrets: a value opens with the row and the secret it was sealed with, and no others."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Opened, PackedRow, Row, RowTemplate, Tag, context
from sealpoint.crypto.context import pack_row
from sealpoint.errors import (
    ContextMissingError,
    IntegrityError,
    KeyMaterialError,
    SealpointError,
    UnboundValueError,
)
from tests.support.keys.rings import OTHER, SECRET, SUITES, make_cipher
from tests.support.runs.costs import calls_of

ROW: Row = {
    "table": "writes",
    "thread_id": "1",
    "checkpoint_ns": "",
    "checkpoint_id": "1f0a",
    "task_id": "t",
    "channel": "messages",
}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(
    ("row", "secret", "flags"),
    [
        (None, None, ()),
        ({}, None, ("row",)),
        (ROW, None, ("row",)),
        (None, SECRET, ("dek",)),
        (ROW, SECRET, ("dek", "row")),
        ({}, OTHER, ("dek", "row")),
    ],
)
def test_round_trip(suite: str, row: Row | None, secret: bytes | None, flags: tuple[str, ...]) -> None:
    """The flags in the tag follow from the arguments alone."""
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=row, secret=secret)
    assert Tag.parse(tag) == Tag("msgpack", suite, flags, "new")
    opened = cipher.open(tag, blob, row=row, secret=secret)
    assert opened == Opened("msgpack", b"value", authenticated=True, key_id="new")
    assert type(opened) is Opened
    assert opened.typed == ("msgpack", b"value")


OTHER_ROWS: list[Row] = [
    *({**ROW, name: "other"} for name in ROW),
    *({name: value for name, value in ROW.items() if name != missing} for missing in ROW),
    {**ROW, "idx": "0"},
    {**ROW, "": ""},
    {**ROW, "thread_id": ROW["channel"], "channel": ROW["thread_id"]},
    {**ROW, "channel": "message", "task_id": "ts"},
    {},
]


@pytest.mark.parametrize("suite", SUITES)
def test_another_row_is_refused(suite: str) -> None:
    """The order of its coordinates is no difference; a law in tests/property is about any two rows."""
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=ROW)
    assert cipher.open(tag, blob, row={name: ROW[name] for name in reversed([*ROW])}).data == b"value"
    for row in OTHER_ROWS:
        with pytest.raises(IntegrityError):
            cipher.open(tag, blob, row=row)


Place = tuple[Row | None, bytes | None]  # row and secret
REFUSED: list[tuple[Place, Place, type[SealpointError]]] = [
    ((ROW, None), (None, None), ContextMissingError),
    (({}, None), (None, None), ContextMissingError),
    ((None, None), (ROW, None), UnboundValueError),
    ((None, None), ({}, None), UnboundValueError),
    ((None, SECRET), (None, None), ContextMissingError),
    ((None, None), (None, SECRET), UnboundValueError),
    ((ROW, SECRET), (ROW, None), ContextMissingError),
    ((ROW, SECRET), (None, SECRET), ContextMissingError),
    ((ROW, None), (ROW, SECRET), UnboundValueError),
    ((None, SECRET), (ROW, SECRET), UnboundValueError),
    ((None, SECRET), (None, OTHER), IntegrityError),
    ((None, SECRET), (None, SECRET + b"\0"), KeyMaterialError),
    ((ROW, SECRET), (ROW, OTHER), IntegrityError),
]


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("sealed", "given", "error"), REFUSED)
def test_each_mismatch_has_its_own_refusal(
    suite: str, sealed: Place, given: Place, error: type[SealpointError]
) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=sealed[0], secret=sealed[1])
    with pytest.raises(error) as caught:
        cipher.open(tag, blob, row=given[0], secret=given[1])
    assert type(caught.value) is error
    assert caught.value.hint
    if error is not IntegrityError:  # an empty blob would be a `SealedValueError`, were it looked at
        with pytest.raises(error):
            cipher.open(tag, b"", row=given[0], secret=given[1])


@pytest.mark.parametrize(("mine", "yours"), [(".row", ""), ("", ".row"), (".dek", ""), (".row", ".dek.row")])
def test_flags_added_or_cut_off_do_not_open(mine: str, yours: str) -> None:
    """A value cannot be freed from its row by editing its tag: the tag is authenticated."""
    cipher = make_cipher()
    row, secret = (ROW if ".row" in mine else None), (SECRET if ".dek" in mine else None)
    tag, blob = cipher.seal("msgpack", b"value", row=row, secret=secret)
    edited = tag.replace(f"256{mine}@", f"256{yours}@")
    row, secret = (ROW if ".row" in yours else None), (SECRET if ".dek" in yours else None)
    assert edited != tag
    with pytest.raises(IntegrityError):
        cipher.open(edited, blob, row=row, secret=secret)


@pytest.mark.parametrize("secret", [b"", "s" * 32, bytearray(32), SECRET[:-1], SECRET + b"\0"])
def test_secret_is_thirty_two_bytes(secret: bytes) -> None:
    cipher = make_cipher()
    with pytest.raises(KeyMaterialError):
        cipher.seal("msgpack", b"value", secret=secret)
    with pytest.raises(KeyMaterialError):
        cipher.open("msgpack+cobblestone256.dek@new", b"", secret=secret)


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


@pytest.mark.parametrize(("shared", "names"), [({"a": "1"}, ("a",)), ({}, ("a", "a"))])
def test_template_names_each_coordinate_once(shared: Row, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="twice"):
        RowTemplate(shared, names)


@pytest.mark.parametrize("values", [(), ("1", "2")])
def test_template_takes_a_value_for_each_name(values: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="1 coordinates"):
        RowTemplate({"a": "1"}, ("b",)).row(*values)


def test_bytes_are_not_a_packed_row() -> None:
    """Only what packs coordinates makes one: other bytes could stand for any row."""
    with pytest.raises((TypeError, AttributeError)):
        make_cipher().seal("msgpack", b"value", row=bytes(pack_row({"a": "1"})))  # type: ignore[arg-type]


def test_packed_row_costs_no_call_more_than_none() -> None:
    """What a bound value shares with others (its tag, and the coordinates of its template) is packed once."""
    cipher = make_cipher("xaes256gcm")
    names = {"table": "writes", "thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "2"}
    row = RowTemplate(names, ("task_id", "channel")).row("3", "messages")
    free, bound = cipher.seal("msgpack", b"value"), cipher.seal("msgpack", b"value", row=row)
    assert isinstance(row, PackedRow)
    for with_row, without in (
        (lambda: cipher.open(*bound, row=row), lambda: cipher.open(*free)),
        (lambda: cipher.seal("msgpack", b"", row=row), lambda: cipher.seal("msgpack", b"")),
    ):
        with_row(), without()  # fill the caches
        assert calls_of(with_row) == calls_of(without) > 0
