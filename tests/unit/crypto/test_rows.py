"""Rows and secrets: a value opens with the row and the secret it was sealed with, and no others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.crypto import Row, Tag
from sealpoint.crypto.context import RowTemplate, pack_row
from sealpoint.errors import (
    IntegrityError,
    KeyMaterialError,
    RowMissingError,
    SealpointError,
    SecretMissingError,
    UnboundValueError,
    UnexpectedSecretError,
)
from tests.support.rings import OTHER, SECRET, SUITES, make_cipher

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
    assert cipher.open(tag, blob, row=row, secret=secret).typed == ("msgpack", b"value")


def test_order_of_the_row_does_not_matter() -> None:
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value", row=ROW)
    assert cipher.open(tag, blob, row={name: ROW[name] for name in reversed(list(ROW))}).typed == (
        "msgpack",
        b"value",
    )


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", ROW)
@pytest.mark.parametrize("value", ["2", "", " 1", "1f0b"])
def test_changed_coordinate_is_refused(suite: str, name: str, value: str) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row={**ROW, name: "was"})
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row={**ROW, name: value})


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", ROW)
def test_missing_coordinate_is_refused(suite: str, name: str) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=ROW)
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row={other: value for other, value in ROW.items() if other != name})


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", ROW)
def test_renamed_coordinate_is_refused(suite: str, name: str) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=ROW)
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row={other + "_" * (other == name): value for other, value in ROW.items()})


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("name", "value"), [("idx", "0"), ("idx", ""), ("", ""), ("zzz", "1")])
def test_added_coordinate_is_refused(suite: str, name: str, value: str) -> None:
    cipher = make_cipher(suite)
    tag, blob = cipher.seal("msgpack", b"value", row=ROW)
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row={**ROW, name: value})


def test_exchanged_coordinates_are_refused() -> None:
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value", row={"thread_id": "1", "channel": "2"})
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row={"thread_id": "2", "channel": "1"})


def test_empty_row_is_not_another_row() -> None:
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value", row={})
    with pytest.raises(IntegrityError):
        cipher.open(tag, blob, row=ROW)


Place = tuple[Row | None, bytes | None]  # row and secret
REFUSED: list[tuple[Place, Place, type[SealpointError]]] = [
    ((ROW, None), (None, None), RowMissingError),
    (({}, None), (None, None), RowMissingError),
    ((None, None), (ROW, None), UnboundValueError),
    ((None, None), ({}, None), UnboundValueError),
    ((None, SECRET), (None, None), SecretMissingError),
    ((None, None), (None, SECRET), UnexpectedSecretError),
    ((ROW, SECRET), (ROW, None), SecretMissingError),
    ((ROW, SECRET), (None, SECRET), RowMissingError),
    ((ROW, None), (ROW, SECRET), UnexpectedSecretError),
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


@pytest.mark.parametrize(
    ("tag", "row", "secret", "error"),
    [
        ("msgpack+cobblestone256.row@new", None, None, RowMissingError),
        ("msgpack+cobblestone256@new", ROW, None, UnboundValueError),
        ("msgpack+cobblestone256.dek@new", None, None, SecretMissingError),
        ("msgpack+cobblestone256@new", None, SECRET, UnexpectedSecretError),
        ("msgpack+aes", ROW, None, UnboundValueError),
        ("msgpack+aes", None, SECRET, UnexpectedSecretError),
    ],
)
def test_mismatch_is_told_before_any_cryptography(
    tag: str, row: Row | None, secret: bytes | None, error: type[SealpointError]
) -> None:
    """An empty blob would be a `BlobError`, were it looked at."""
    with pytest.raises(error):
        make_cipher().open(tag, b"", row=row, secret=secret)


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


def test_values_of_two_threads_do_not_open_for_each_other() -> None:
    cipher = make_cipher()
    values = {secret: cipher.seal("msgpack", secret, secret=secret) for secret in (SECRET, OTHER)}
    assert all(cipher.open(*value, secret=secret)[1] == secret for secret, value in values.items())
    with pytest.raises(IntegrityError):
        cipher.open(*values[SECRET], secret=OTHER)


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=5, max_size=5))
def test_a_template_of_writes_packs_as_the_whole(values: list[str]) -> None:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "channel")
    template = RowTemplate({"table": "writes"}, names)
    row = {"table": "writes", **dict(zip(names, values, strict=True))}
    assert template.row(*values) == pack_row(row)
