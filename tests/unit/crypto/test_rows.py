"""Rows and secrets: a value opens with the row and the secret it was sealed with, and no others.

A secret leaves a cipher when it is forgotten, and all that was derived from it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, Opened, RingCipher, Row, RowTemplate, Tag, context
from sealpoint.crypto import cipher as cipher_module
from sealpoint.crypto.context import pack_row
from sealpoint.errors import (
    ContextMissingError,
    IntegrityError,
    KeyMaterialError,
    SealpointError,
    UnboundValueError,
)
from sealpoint.keys.key import mix
from tests.support.keys.rings import NEW, OLD, OTHER, SECRET, SUITES, make_cipher

ROW: Row = {"table": "writes", "thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "1f0a"}


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


def reachable(start: object) -> Iterator[Any]:
    """Yield all objects that a reference leads to, modules and classes left out."""
    seen, waiting = {id(start)}, [start]
    while waiting:
        found = waiting.pop()
        yield found
        for other in gc.get_referents(found):
            is_part = not isinstance(other, type | type(gc)) and type(other).__name__ != "function"
            if is_part and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)


def holds(cipher: RingCipher, secret: bytes) -> set[str]:
    """Return what a cipher keeps of a secret: itself, the mixed keys, the keys of the suites."""
    keys = {"old": OLD, "new": NEW}
    traces = {"secret": secret}
    for name, material in keys.items():
        traces[f"mixed {name}"] = mix(material, secret)
        for suite in SUITES:
            subkey = Key(name, material, KeyState.ACTIVE).subkey(suite, secret)
            traces[f"{name} {suite}"] = subkey
    kept = {found for found in reachable(cipher) if type(found) is bytes}
    return {name for name, trace in traces.items() if trace in kept}


@pytest.mark.parametrize("suite", SUITES)
def test_nothing_of_a_forgotten_secret_is_reachable(suite: str) -> None:
    cipher = make_cipher(suite)
    old = RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]), suite)
    for secret in (SECRET, OTHER):
        for row in (None, {"thread_id": "1"}):
            cipher.open(*cipher.seal("msgpack", b"value", row=row, secret=secret), row=row, secret=secret)
            cipher.open(*old.seal("msgpack", b"value", row=row, secret=secret), row=row, secret=secret)
    assert {"secret", f"old {suite}", f"new {suite}"} <= holds(cipher, SECRET)
    cipher.forget_secret(SECRET)
    assert holds(cipher, SECRET) == set()
    assert {"secret", f"old {suite}", f"new {suite}"} <= holds(cipher, OTHER)
    cipher.forget_secret(SECRET)  # one that is not held
    sealed = cipher.seal("msgpack", b"value", secret=SECRET)
    assert cipher.open(*sealed, secret=SECRET).data == b"value"


def test_number_of_secrets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cipher_module, "_CACHED_SECRETS", 4)
    cipher = make_cipher("xaes256gcm")
    secrets = [os.urandom(32) for _ in range(20)]
    for secret in secrets:
        cipher.seal("msgpack", b"value", secret=secret)
        assert sum("secret" in holds(cipher, other) for other in secrets) <= 4
