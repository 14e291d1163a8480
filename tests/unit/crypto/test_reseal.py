"""Resealing: the same type and bytes under the active key, bound as before."""

from __future__ import annotations

import pytest

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    BlobError,
    IntegrityError,
    KeyDestroyedError,
    KeyDisabledError,
    KeyMaterialError,
    NoActiveKeyError,
    PlaintextError,
    RowMissingError,
    SecretMissingError,
    TagError,
    UnknownKeyError,
    UnknownTypeError,
)
from tests.support.rings import (
    OLD,
    OTHER,
    SECRET,
    SUITES,
    make_cipher,
    make_ring,
    seal_with_old,
)

ROW = {"thread_id": "1", "channel": "c"}


def old_cipher() -> RingCipher:
    """The cipher of a host that has not heard of the new key."""
    return RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]))


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("row", [None, ROW])
def test_active_key_and_suite(suite: str, row: dict[str, str] | None) -> None:
    """From old key and any suite to the new key and the cipher's suite; a row may always be passed."""
    tag, blob = make_cipher(suite).reseal(*seal_with_old(), row=row)
    assert tag == f"msgpack+{suite}@new"
    assert make_cipher().open(tag, blob).typed == ("msgpack", b"value")


@pytest.mark.parametrize("inner", ["msgpack", "msgpack.row", "x.dek.row"])
def test_bound_value_stays_bound(inner: str) -> None:
    cipher = make_cipher()
    tag, blob = cipher.reseal(*old_cipher().seal(inner, b"value", row=ROW), row=ROW)
    assert tag == f"{inner}+cobblestone256.row@new"
    assert cipher.open(tag, blob, row=ROW).typed == (inner, b"value")


def test_flags_are_looked_for_where_flags_stand() -> None:
    """Not in the type's name, nor in the key's."""
    ring = KeyRing([Key("k.row", OLD, KeyState.ACTIVE)])
    tag, blob = RingCipher(ring).reseal(*RingCipher(ring).seal("t.row", b"value"), row=ROW)
    assert RingCipher(ring).open(tag, blob).typed == ("t.row", b"value")


def test_bound_value_needs_its_own_row() -> None:
    tag, blob = old_cipher().seal("msgpack", b"value", row=ROW)
    with pytest.raises(RowMissingError):
        make_cipher().reseal(tag, blob)
    with pytest.raises(IntegrityError):
        make_cipher().reseal(tag, blob, row={**ROW, "thread_id": "2"})


@pytest.mark.parametrize("row", [None, ROW])
def test_value_with_a_secret_is_not_opened_without(row: dict[str, str] | None) -> None:
    tag, blob = old_cipher().seal("msgpack", b"value", row=row, secret=SECRET)
    with pytest.raises(SecretMissingError):
        make_cipher().reseal(tag, blob, row=row)


@pytest.mark.parametrize("row", [None, ROW])
@pytest.mark.parametrize("suite", SUITES)
def test_value_with_a_secret_stays_mixed(suite: str, row: dict[str, str] | None) -> None:
    """From the old key with the secret to the new key with it, bound as before."""
    flags = ".dek.row" if row else ".dek"
    cipher = make_cipher(suite)
    tag, blob = cipher.reseal(
        *old_cipher().seal("msgpack", b"value", row=row, secret=SECRET), row=row, secret=SECRET
    )
    assert tag == f"msgpack+{suite}{flags}@new"
    assert cipher.open(tag, blob, row=row, secret=SECRET).typed == ("msgpack", b"value")
    with pytest.raises(SecretMissingError):
        cipher.open(tag, blob, row=row)


def test_wrong_secret_or_row_is_refused() -> None:
    tag, blob = old_cipher().seal("msgpack", b"value", row=ROW, secret=SECRET)
    with pytest.raises(IntegrityError):
        make_cipher().reseal(tag, blob, row=ROW, secret=OTHER)
    with pytest.raises(IntegrityError):
        make_cipher().reseal(tag, blob, row={**ROW, "thread_id": "2"}, secret=SECRET)
    with pytest.raises(RowMissingError):
        make_cipher().reseal(tag, blob, secret=SECRET)
    with pytest.raises(KeyMaterialError):
        make_cipher().reseal(tag, blob, row=ROW, secret=SECRET[:-1])


@pytest.mark.parametrize("row", [None, ROW])
def test_secret_that_is_not_needed_is_not_used(row: dict[str, str] | None) -> None:
    """As with rows: a caller may pass the secret of the thread for all of its values."""
    cipher = make_cipher()
    tag, blob = cipher.reseal(*old_cipher().seal("msgpack", b"value", row=row), row=row, secret=SECRET)
    assert cipher.open(tag, blob, row=row).typed == ("msgpack", b"value")
    tag, blob = cipher.reseal("json", b"{}", secret=SECRET, allow_plaintext=True)
    assert cipher.open(tag, blob).typed == ("json", b"{}")


@pytest.mark.parametrize("tag", ["msgpack", "null", "pickle", "", "no tag"])
def test_plaintext_is_refused(tag: str) -> None:
    with pytest.raises(PlaintextError):
        make_cipher().reseal(tag, b"value")


def test_plaintext_is_sealed_where_that_is_allowed() -> None:
    """Bound to no row: its tag does not say that it is."""
    cipher = make_cipher()
    tag, blob = cipher.reseal("json", b"{}", row=ROW, allow_plaintext=True)
    assert cipher.open(tag, blob).typed == ("json", b"{}")


def test_plaintext_that_is_never_sealed() -> None:
    cipher = make_cipher()
    with pytest.raises(UnknownTypeError, match="pickle"):
        cipher.reseal("pickle", b"value", allow_plaintext=True)
    for tag in ("", "a b", "x" * 60):
        with pytest.raises(TagError):
            cipher.reseal(tag, b"value", allow_plaintext=True)


@pytest.mark.parametrize("allow", [True, False])
def test_tag_is_text_and_blob_is_bytes(allow: bool) -> None:
    for tag in (None, 5, b"msgpack", ["x"]):
        with pytest.raises(TagError):
            make_cipher().reseal(tag, b"value", allow_plaintext=allow)  # type: ignore[arg-type]
    for blob in (None, 5, "text", bytearray(100)):
        with pytest.raises(BlobError):
            make_cipher().reseal("msgpack+cobblestone256@new", blob, allow_plaintext=allow)  # type: ignore[arg-type]
    with pytest.raises(BlobError):
        make_cipher().reseal("msgpack", "text", allow_plaintext=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ring", "error"),
    [
        (make_ring(KeyState.DISABLED), KeyDisabledError),
        (make_ring(KeyState.DESTROYED), KeyDestroyedError),
        (KeyRing(make_ring().keys[:1]), UnknownKeyError),
        (KeyRing(make_ring().keys[1:]), NoActiveKeyError),
    ],
)
def test_keys_that_are_not_to_be_had(ring: KeyRing, error: type[Exception]) -> None:
    with pytest.raises(error):
        RingCipher(ring).reseal(*seal_with_old())


def test_value_under_the_active_key_is_sealed_anew() -> None:
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    again, other = cipher.reseal(tag, blob)
    assert again == tag
    assert other != blob
